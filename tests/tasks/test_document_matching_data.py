"""Pairs of documents: named columns, the files of Zhou et al. (2020), what is refused, and binary scores."""

from __future__ import annotations

import csv
import gzip
import json
import logging
from pathlib import Path

import datasets
import pytest

from nextlevelbert.data.rows import fingerprint, hold_out
from nextlevelbert.tasks.document_matching.data import (
    DocumentPair,
    read_document_pairs,
)

ROWS = [
    {"id": "a-b", "text1": "Whales, large and small.", "text2": "The white whale.", "label": 1},
    {"id": "a-c", "text1": "Whales, large and small.", "text2": "A ball at Netherfield.", "label": 0},
]
PAIRS = [DocumentPair(*row.values()) for row in ROWS]


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_csv(path: Path, rows: list[list]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def test_named_columns(tmp_path):
    data = read_document_pairs(write(tmp_path / "pairs.jsonl", ROWS))
    assert (data.pairs, data.source) == (PAIRS, "pairs.jsonl")
    renamed = [{"first": row["text1"], "second": row["text2"], "related": bool(row["label"])} for row in ROWS]
    with gzip.open(tmp_path / "pairs.json.gz", "wt", encoding="utf-8") as file:
        json.dump(renamed, file)
    data = read_document_pairs(tmp_path / "pairs.json.gz", "first", "second", "related")
    assert [(pair.id, pair.label) for pair in data.pairs] == [("row-000000", 1), ("row-000001", 0)]
    assert all(type(pair.label) is int for pair in data.pairs)
    assert [(pair.first, pair.second) for pair in data.pairs] == [(pair.first, pair.second) for pair in PAIRS]


def test_a_dataset_as_on_the_hub(tmp_path, caplog):
    text = datasets.Value("string")
    features = datasets.Features(
        {"id": text, "text1": text, "text2": text, "label": datasets.ClassLabel(names=["unrelated", "related"])}
    )
    unknown = [{**row, "label": -1} for row in ROWS]
    for split, rows in (("train", ROWS), ("test", unknown)):
        datasets.Dataset.from_list(rows, features=features).to_parquet(tmp_path / "repo" / f"{split}.parquet")
    train = read_document_pairs(tmp_path / "repo", split="train")
    assert (train.pairs, train.source) == (PAIRS, "repo (train)")
    assert read_document_pairs(tmp_path / "repo" / "train.parquet").pairs == PAIRS
    with caplog.at_level(logging.WARNING):
        test = read_document_pairs(tmp_path / "repo", split="test")
    assert [pair.label for pair in test.pairs] == [None, None]
    assert "no row has a label in column 'label'" in caplog.text


def test_the_files_of_zhou_et_al(tmp_path):
    """Label and two texts without a header; long fields, quotes, line ends, and the mark of a citation."""
    long = "word " * 40_000
    rows = [
        [1, 'It "works", as\x01 shown.\nSo it does.', long],
        [0, "One, two.", "Three\ttabs."],
        [1, "a", "b", "more"],
    ]
    limit = csv.field_size_limit()
    data = read_document_pairs(write_csv(tmp_path / "train_cite.csv", rows))
    assert data.pairs == [
        DocumentPair("row-000000", 'It "works", as shown.\nSo it does.', long, 1),
        DocumentPair("row-000001", "One, two.", "Three\ttabs.", 0),
        DocumentPair("row-000002", "a", "b", 1),
    ]
    assert csv.field_size_limit() == limit
    packed = tmp_path / "train_cite.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "train_cite.csv").read_bytes()))
    assert read_document_pairs(packed).pairs == data.pairs
    (tmp_path / "gaps.csv").write_text("\n1,a,b\n\n0,c,d\n")
    assert [pair.first for pair in read_document_pairs(tmp_path / "gaps.csv").pairs] == ["a", "c"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"label,first,second\n1,a,b\n", r"bad.csv, row 0 .*'label': must be 0 or 1 .* got 'label' \(str\)"),
        (b"1,a,b\n1,a\n", "bad.csv, row 1 .*has 2 columns; a .csv holds label, first text and second text"),
        (b"1,a,b\n0,c, \n", "row 1 .*'second': is blank"),
        (b'1,a,b\n1,"never closed,c\n0,d,e\n', "bad.csv, line 2 cannot be read"),
        (b'1,"a" b,c\n', "bad.csv, line 1 cannot be read"),
        (b"1,a,\xff\n", "bad.csv, line 1: byte FF is not UTF-8"),
        (b"\n", "bad.csv is empty: it has no rows"),
    ],
)
def test_csv_that_is_refused(tmp_path, content, message):
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_document_pairs(tmp_path / "bad.csv")


def test_a_missing_file(tmp_path):
    for name in ("none.csv", "none.jsonl"):
        with pytest.raises(FileNotFoundError, match="There is no file"):
            read_document_pairs(tmp_path / name)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"label": 2}, r"bad.jsonl, row 1 .*'label': must be 0 or 1 \(or false or true\), got 2"),
        ({"label": -1}, "'label': must be 0 or 1 .* got -1"),
        ({"label": "1"}, r"'label': must be 0 or 1 .* got '1' \(str\)"),
        ({"label": 1.0}, r"'label': must be 0 or 1 .* got 1.0 \(float\)"),
        ({"label": None}, "'label': has no label, but row 0 has one"),
        ({"text2": ""}, "row 1 .*'text2': is blank"),
        ({"text1": ["a", "b"]}, "'text1': must be text, got"),
        ({"id": "a-b"}, "'id': the id 'a-b' is taken by row 0"),
    ],
)
def test_rows_that_are_refused(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        read_document_pairs(write(tmp_path / "bad.jsonl", [ROWS[0], {**ROWS[1], **changed}]))


def test_a_missing_column_is_named(tmp_path):
    path = write(tmp_path / "pairs.jsonl", ROWS)
    with pytest.raises(ValueError, match=r"no column 'other'; it has id, text1, text2, label\. .* second_column"):
        read_document_pairs(path, second_column="other")


def test_hold_out_and_fingerprint(tmp_path):
    rows = [{**ROWS[number % 2], "id": str(number)} for number in range(10)]
    data = read_document_pairs(write(tmp_path / "pairs.jsonl", rows))
    train, held = hold_out(data, "pairs", 0.2, seed=3)
    assert (len(train.pairs), len(held.pairs), held.source) == (8, 2, "pairs.jsonl, held out")
    assert sorted(train.pairs + held.pairs, key=lambda pair: int(pair.id)) == data.pairs
    assert hold_out(data, "pairs", 0.2, seed=3) == (train, held)
    assert len({fingerprint(part.content()) for part in (data, train, held)}) == 3
    swapped = [{**row, "text1": row["text2"], "text2": row["text1"]} for row in rows]
    others = {
        name: read_document_pairs(write(tmp_path / name, each))
        for name, each in (("swapped.jsonl", swapped), ("same.jsonl", rows))
    }
    assert fingerprint(others["swapped.jsonl"].content()) != fingerprint(data.content())
    assert fingerprint(others["same.jsonl"].content()) == fingerprint(data.content())
