"""Where the sets of a run are."""

import pytest

from nextlevelbert.finetuning.options import DataArguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_file": "x", "test_split": "t"}, "give a file with --test_file"),
        (
            {"dataset_name": "y", "validation_file": "v"},
            "names all sets: use --validation_split instead of --validation_file",
        ),
    ],
)
def test_sets_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DataArguments(**options)


def test_where_sets_are(tmp_path):
    data = DataArguments(train_file="a.jsonl", test_file="b.jsonl")
    folder = DataArguments(train_file=str(tmp_path), validation_split="dev")

    assert data.location("train") == ("a.jsonl", "train")
    assert data.location("validation") is None
    assert data.location("test") == ("b.jsonl", "train")
    assert (folder.location("train"), folder.location("validation")) == (
        (str(tmp_path), "train"),
        (str(tmp_path), "dev"),
    )
    assert DataArguments(dataset_name="me/books", test_split="test").location("test") == (
        "me/books",
        "test",
    )
