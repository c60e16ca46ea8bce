"""Tests what both tasks share: the rows of the table beside the model."""

import pytest

from nextlevelbert.finetuning import run

from ..toys.finetuning import run_task, sea_rows, write


@pytest.mark.parametrize(
    ("limit", "copies", "reason"),
    [(1_000, 1, "two training examples of every class"), (10, 2, "Use --model tfidf")],
)
def test_a_table_says_why_it_has_no_word_counts(
    limit, copies, reason, toy_checkpoint, monkeypatch, tmp_path, caplog
):
    monkeypatch.setattr(run, "_MOST_WORD_COUNTS", limit)
    rare = [{"id": f"rare {copy}", "text": "One of the few.", "label": "rare"} for copy in range(2)]
    train = write(tmp_path / "train.jsonl", sea_rows(8, 1) + rare[:copies])
    validation = write(tmp_path / "validation.jsonl", sea_rows(4, 2))
    argv = ["--train_file", train, "--validation_file", validation, "--num_train_epochs", "1"]

    results = run_task(tmp_path / "model", "--model", toy_checkpoint, *argv)

    assert [*results["rows"]][1:] == ["most frequent label"]
    assert "The table has no row for TF-IDF: " in caplog.text
    assert reason in caplog.text
