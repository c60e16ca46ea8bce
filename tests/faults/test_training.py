"""Both scripts, stopped at every file operation: started again, they leave the bytes of a straight run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.finetuning_toys import sea_rows, write

from .harness import forked, tree
from .runs import differences_after_a_restart, finished, results, states_of_a_kill, straight_run

pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]
QUIET = [
    "--use_cpu",
    "--disable_tqdm",
    "true",
    "--report_to",
    "none",
    "--logging_strategy",
    "steps",
    "--logging_steps",
    "1",
]
STEPS = ["--max_steps", "3", "--save_strategy", "steps", "--save_steps", "1", "--save_total_limit", "1",
         "--eval_strategy", "steps", "--eval_steps", "2", "--validation_share", "0.2"]  # fmt: skip
EPOCHS = ["--num_train_epochs", "3", "--per_device_train_batch_size", "4"]
LORA = ["--lora", "--lora_target_modules", "all-linear"]


def script(name: str, *words: str) -> None:
    before, sys.argv = sys.argv, [name, *words]
    try:
        runpy.run_path(str(ROOT / name), run_name="__main__")
    finally:
        sys.argv = before


def summaries(rows):
    """Documents as sentences, of which every third belongs to the summary."""
    made = []
    for row in rows:
        sentences = [f"{sentence}." for sentence in row["text"].split(". ")[:5]]
        made.append({"id": row["id"], "text": sentences, "summary": " ".join(sentences[::3])})
    return made


@pytest.fixture(scope="module")
def runs(toy_encoder_path, toy_checkpoint, encoder, tmp_path_factory):
    """A call for each kind of run, that trains into a folder."""
    data = tmp_path_factory.mktemp("data")
    rows = {"train": sea_rows(8, 1), "validation": sea_rows(4, 2)}
    pairs = {k: [{"query": row["label"] + row["id"], "document": row["text"]} for row in v] for k, v in rows.items()}
    news = [{"document": [row["text"] for row in sea_rows(3, seed)]} for seed in range(6)]
    fine_tuning = {
        "classification": (rows, toy_checkpoint, ["--task", "classification"]),
        "adapter": (rows, toy_checkpoint, ["--task", "classification", *LORA]),
        "ranking": (pairs, toy_checkpoint, ["--task", "ranking"]),
        "summarization": (
            {name: summaries(values) for name, values in rows.items()}, encoder,
            ["--task", "summarization", "--model_type", "bert-al", "--segment_length", "24",
             "--summary_sentences", "2"],
        ),
    }  # fmt: skip
    pretraining = {
        "masked": [
            "--chunk_encoder", toy_encoder_path, "--chunk_size", "12", "--sequence_length", "12", "--do_train",
            "--train_file", write(data / "books.jsonl", sea_rows(8, 3)), "--corpus_dir", str(data / "corpus"),
            "--per_device_train_batch_size", "2",
        ],
        "cdlm": [
            "--model_type", "cdlm", "--do_train", "--model", encoder, "--max_length", "60", "--warmup_steps", "1",
            "--train_file", write(data / "news.jsonl", news), "--per_device_train_batch_size", "1",
        ],
    }  # fmt: skip
    calls = {}
    for name, words in pretraining.items():
        words = ["run_pretraining.py", *words, *STEPS, *QUIET]
        calls[name] = lambda folder, words=words: script(*words, "--output_dir", str(folder))
    for name, (sets, model, words) in fine_tuning.items():
        files = [
            word for part, v in sets.items() for word in (f"--{part}_file", write(data / f"{name}-{part}.jsonl", v))
        ]
        words = ["run_finetune.py", *words, "--model", model, *files, *EPOCHS, *QUIET]
        calls[name] = lambda folder, words=words: script(*words, "--output_dir", str(folder))
    return calls


@pytest.mark.parametrize(
    ("name", "every"),
    [("masked", 2), ("cdlm", 5), ("classification", 2), ("adapter", 5), ("ranking", 5), ("summarization", 5)],
)
def test_every_kill(runs, name, every, tmp_path):
    expected = straight_run(runs[name], tmp_path / "straight")
    states = states_of_a_kill(runs[name], tmp_path / "model")
    assert len(states) > 20
    assert differences_after_a_restart(runs[name], states[::every], expected, tmp_path) == {}


@pytest.mark.parametrize("name", ["masked", "classification"])
@pytest.mark.parametrize("how", ["full", "SIGINT", "SIGTERM"])
def test_full_disks_and_signals(runs, name, how, tmp_path):
    run = runs[name]
    expected = straight_run(run, tmp_path / "straight")
    operations = forked(lambda: run(tmp_path / "count" / "model"), tmp_path / "count").operations
    for at in range(3, operations - 2, operations // 4):
        place = tmp_path / f"{at}"
        first = forked(lambda folder=place / "model": run(folder), place, at, how)
        assert not finished(first), (at, first)  # a full disk is told in a sentence, with exit code 1
        assert first.error == "SystemExit: 1" or how != "full", (at, first)
        assert finished(forked(lambda folder=place / "model": run(folder), place)), at
        assert results(place / "model") == expected, at


def test_a_finished_run_is_left_as_it_is(runs, tmp_path):
    """It may be published again, by the same bytes."""
    for name in ("masked", "classification"):
        straight_run(runs[name], tmp_path / name)
        folder = tmp_path / name / "model"
        before = tree(folder)
        assert finished(forked(lambda name=name, folder=folder: runs[name](folder), folder))
        assert tree(folder) == before
