"""Labelled documents: what is recognised, and what is refused."""

import json

import datasets
import pytest
from datasets import List

from nextlevelbert.data.labelled import (
    USUAL,
    Columns,
    load_choices,
    load_classes,
    read_label_names,
)
from nextlevelbert.data.sets import names_of, source_of
from nextlevelbert.data.tables import open_rows

from ..toys.finetuning import write


@pytest.fixture
def read(tmp_path):
    """Reads rows with classes, through a file."""

    def read(rows, columns=USUAL, **options):
        table = open_rows(write(tmp_path / "rows.jsonl", rows))
        return load_classes(table, columns, **options)

    return read


def table(*labels):
    return [{"text": f"document {index}", "label": label} for index, label in enumerate(labels)]


def labels_of(data):
    return data["label"][:]


def ids_of(data):
    return data["id"][:]


def test_other_names_of_columns(read):
    rows = [
        {"key": 7, "body": "naïve", "about": "why?", "is": "b"},
        {"key": 8, "body": "x", "about": "?", "is": "a"},
    ]
    columns = Columns(text="body", question="about", label="is", id="key")
    data = read(rows, columns)

    assert list(data) == [
        {"id": "7", "text": "naïve", "question": "why?", "label": 1},
        {"id": "8", "text": "x", "question": "?", "label": 0},
    ]
    assert (names_of(data), source_of(data)) == (("a", "b"), "rows.jsonl")


def test_a_dataset_with_named_classes(tmp_path):
    """A folder laid out like a dataset repository, which `datasets` opens as it opens one on the
    Hub."""
    names = datasets.ClassLabel(names=["pos", "neg"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    (tmp_path / "news" / "data").mkdir(parents=True)
    for split, labels in (("train", (1, 0)), ("test", (-1, -1))):
        path = tmp_path / "news" / "data" / f"{split}-00000-of-00001.parquet"
        datasets.Dataset.from_list(table(*labels), features=features).to_parquet(path)
    data = load_classes(open_rows(tmp_path / "news"))

    assert (names_of(data), labels_of(data)) == (("pos", "neg"), [1, 0])
    assert source_of(data) == "news (train)"

    # The names decide.
    data = load_classes(open_rows(tmp_path / "news"), class_names=["neg", "pos"])

    assert (names_of(data), labels_of(data)) == (("neg", "pos"), [0, 1])

    with pytest.raises(ValueError, match=r"'neg' \(str\) is not one of the 2 classes: a, b"):
        load_classes(open_rows(tmp_path / "news"), class_names=["a", "b"])
    unlabelled = load_classes(open_rows(tmp_path / "news", "test"))

    assert "label" not in unlabelled.features


def test_numbers_of_named_classes_need_their_list(read):
    train = read(table("a", "b"))
    with pytest.raises(ValueError, match="--label_names_file"):
        read(table(0, 1), like=train)


@pytest.mark.parametrize(
    ("labels", "class_names", "expected", "names"),
    [
        ((1, 0, 1), None, [1, 0, 1], ("0", "1")),
        ((True, False), None, [1, 0], ("False", "True")),
        (("b", "a", "b"), None, [1, 0, 1], ("a", "b")),
        ((2, 0), ["x", "y", "z"], [2, 0], ("x", "y", "z")),
        (([0, 2], [1], []), None, [[0, 2], [1], []], ("0", "1", "2")),
        ((["b", "a"], ["d"], ["c"]), None, [[0, 1], [3], [2]], ("a", "b", "c", "d")),
        # Integers are names and not places if a name is an integer.
        ((3, 1), ["1", "3"], [1, 0], ("1", "3")),
        ((0, 1), ["-1", "0", "1"], [1, 2], ("-1", "0", "1")),
        ((2, 1), ["none", "2", "1"], [1, 2], ("none", "2", "1")),
    ],
)
def test_labels(read, labels, class_names, expected, names):
    data = read(table(*labels), class_names=class_names)

    assert (labels_of(data), names_of(data)) == (expected, names)
    assert isinstance(data.features["label"], List) == isinstance(labels[0], list)


def test_minus_one_is_no_label_of_named_classes(read):
    with pytest.raises(ValueError, match=r"line 2.*no label"):
        read(table(1, -1), class_names=["neg", "pos"])


def test_a_set_has_the_kind_of_labels_of_the_training_set(read):
    train = read(table(["b"], ["a", "c"]))
    data = read(table(["c"], ["c", "b"]), like=train)

    assert (labels_of(data), names_of(data)) == ([[2], [1, 2]], ("a", "b", "c"))

    with pytest.raises(ValueError, match="a list in each row"):
        read(table("a", "b"), like=train)


@pytest.mark.parametrize(
    ("rows", "culprit"),
    [
        ([{"body": "x"}], "--text_column"),
        (table("['a', 'b']"), "lists need JSON"),
        ([*table(0), {"text": 7, "label": 1}], "row|line 2.*7"),
        ([{"text": "x", "id": 1}, {"text": "y", "id": "1"}], "'1' is also the id of line 1"),
        (table("a", None), "no label"),
        (table(0, 2), "0, 2"),
        (table(0.5, 0.5), "float"),
        (table(["a"], [0]), "0 .int."),
        (table(["a"], "b"), "'b' .str."),
        (table([0, 1, 1]), "twice"),
    ],
)
def test_rows_that_are_refused(read, rows, culprit):
    with pytest.raises(ValueError, match=culprit):
        read(rows)


@pytest.mark.parametrize(
    ("column", "wrong"), [("choices", ["Ann"]), ("choices", ["Ann", "Bob", "Cy"]), ("label", 2)]
)
def test_choices_that_are_refused(tmp_path, column, wrong):
    good = {"text": "A story.", "question": "Who?", "choices": ["Ann", "Bob"], "label": 0}
    table = open_rows(write(tmp_path / "rows.jsonl", [good, {**good, column: wrong}]))

    with pytest.raises(ValueError, match=column):
        load_choices(table)


@pytest.mark.parametrize(
    "content", [{"cat": 1, "dog": 0}, {"1": "cat", "0": "dog"}, ["dog", "cat"]], ids=str
)
def test_numbers_in_a_file_of_names_are_the_order(tmp_path, content):
    (tmp_path / "names.json").write_text(json.dumps(content))

    assert read_label_names(tmp_path / "names.json") == ("dog", "cat")


def test_numbers_with_a_gap_are_refused(tmp_path):
    (tmp_path / "names.json").write_text(json.dumps({"cat": 1, "dog": 3}))

    with pytest.raises(ValueError, match="without gaps"):
        read_label_names(tmp_path / "names.json")


def test_a_vector_of_two_classes_is_refused(read):
    rows = [{"text": "a", "label": [0, 1]}, {"text": "b", "label": [1, 0]}]

    with pytest.raises(ValueError, match="not a vector of 0 and 1"):
        read(rows)
