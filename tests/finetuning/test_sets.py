"""The sets that a command line of fine-tuning names."""

import pytest

from nextlevelbert.command import finetune
from nextlevelbert.data.tables import open_rows
from nextlevelbert.finetuning import classification, sets
from nextlevelbert.finetuning.options import GROUPS, ColumnArguments, DataArguments

from ..toys.finetuning import sea_rows, write


@pytest.mark.parametrize("task", GROUPS)
def test_the_configuration_of_a_dataset_is_read(task, monkeypatch):
    monkeypatch.setattr(
        sets, "open_rows", lambda source, split, config: pytest.fail(f"{source} {config}")
    )
    data = DataArguments(dataset_name="me/pairs", dataset_config_name="small")

    with pytest.raises(pytest.fail.Exception, match="me/pairs small"):
        sets.read_sets(task, data, ColumnArguments(), seed=42)


def test_a_task_gets_sets_and_the_name_of_the_data_set(monkeypatch, toy_checkpoint, tmp_path):
    """The classes of the file come in its order, also those that no row has."""
    file = write(tmp_path / "rows.jsonl", sea_rows(8, 1))
    names = tmp_path / "names.json"
    names.write_text('["sea", "bread", "sky"]')
    monkeypatch.setattr(sets, "open_rows", lambda *_: open_rows(file))
    seen = []
    monkeypatch.setattr(classification, "main", lambda *arguments: seen.append(arguments))
    argv = ["--task", "classification", "--model", toy_checkpoint, "--output_dir", "made"]
    argv += ["--dataset_name", "me/seas", "--validation_share", "0.25"]

    finetune.run([*argv, "--label_names_file", str(names), "--seeds", "3"])

    [(options, load_sets, data_name)] = seen
    labelled_sets = load_sets(seed=42)
    assert (options["seeds"], options["datasets"], data_name) == ([3], ["me/seas"], "me/seas")
    assert {"dataset_name", "validation_share", "text_column", "label_names_file"}.isdisjoint(
        options
    )
    assert [len(labelled_sets[name]) for name in ("train", "validation")] == [6, 2]
    assert labelled_sets["train"].features["label"].names == ["sea", "bread", "sky"]
