"""EURLEX-57K as JSON lines: three made laws, in both arrangements."""

import json
import shutil
from pathlib import Path

import pytest

from nextlevelbert.data import open_rows
from nextlevelbert.data.labelled import load_classes, read_label_names
from nextlevelbert.data.sets import names_of

from ...toys.finetuning import write
from ..scripts import load_script

main = load_script("chunkbert/prepare_eurlex.py").main
LAWS = Path(__file__).with_name("eurlex")
GOOD = {"celex_id": "1", "concepts": ["7"], "header": "A", "recitals": "B", "main_body": ["C"]}


@pytest.fixture
def dataset(tmp_path):
    """The folders of the published archive."""
    for folder in ("train", "dev"):
        shutil.copytree(LAWS, tmp_path / "dataset" / folder)
    (tmp_path / "dataset" / "test").mkdir()
    write(tmp_path / "dataset" / "test" / "1.json", [GOOD])
    return tmp_path / "dataset"


def prepared(dataset, *options):
    folder = dataset.parent / "prepared"
    main([str(dataset), str(folder), *options])
    return folder


def test_laws_are_read_by_the_classification_with_the_classes_of_all_sets(dataset):
    folder = prepared(dataset)

    names = read_label_names(folder / "labels.json")
    train = load_classes(open_rows(folder / "train.jsonl"), class_names=names)
    test = load_classes(open_rows(folder / "test.jsonl"), class_names=names, like=train)

    assert names == ("192", "2356", "7", "77")
    assert names_of(train) == names
    assert train["id"][:] == ["32010R0000", "32010R0001", "32010R0002"]
    assert train["label"][:] == [[0, 1], [0], [3]]
    assert test["label"][:] == [[2]]  # which no law of the training set has


def test_the_main_body_comes_last_or_first(dataset):
    header = "COMMISSION REGULATION No 1"
    recitals = ", Having regard to the Treaty,"
    body = "Article one. Article two."

    straight = load_classes(open_rows(prepared(dataset) / "validation.jsonl"))
    inverted = load_classes(open_rows(prepared(dataset, "--inverted") / "validation.jsonl"))

    assert straight[1]["text"] == f"{header} {recitals} {body}"
    assert inverted[1]["text"] == f"{body} {recitals} {header}"
    assert inverted["label"][:] == straight["label"][:]


def test_a_main_body_of_one_text_and_an_absent_header(dataset):
    law = {**GOOD, "header": None, "main_body": " The body. "}
    write(dataset / "test" / "1.json", [law])

    [row] = map(json.loads, (prepared(dataset) / "test.jsonl").read_text().splitlines())

    assert row == {"id": "1", "text": "B The body.", "label": ["7"]}


def test_a_law_without_its_columns_is_named(dataset):
    write(dataset / "train" / "32010R0003.json", [{"celex_id": "2"}])

    with pytest.raises(ValueError, match=r"32010R0003\.json, line 1, column 'concepts'.*published"):
        prepared(dataset)
