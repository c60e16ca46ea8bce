"""Rows of files and datasets, rows held out, fingerprints."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextlevelbert.data.rows import Place, draw, file_rows, fingerprint, hold_out, open_rows

ROWS = [{"id": "a", "text": "One.", "labels": [1, 0]}, {"id": "b", "text": "Two — ü.", "labels": []}]


def content_of(suffix: str) -> bytes:
    if suffix.startswith(".parquet"):
        import pyarrow
        import pyarrow.parquet

        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), buffer)
        content = buffer.getvalue()
    elif suffix.startswith(".json") and not suffix.startswith(".jsonl"):
        content = json.dumps(ROWS, indent=1).encode()
    else:
        content = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()
    return gzip.compress(content) if suffix.endswith(".gz") else content


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz", ".parquet.gz", ".dev", ""])
def test_every_kind_of_file_has_the_same_rows(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(content_of(suffix))
    assert list(file_rows(path)) == ROWS
    table = open_rows(path)
    assert (table.name, table.first, table.class_names) == (path.name, ROWS[0], {})
    places, rows = zip(*table.rows, strict=True)
    assert list(rows) == ROWS
    assert [place[:2] for place in places] == [(path.name, "row 0"), (path.name, "row 1")]
    lines = {".parquet": (None, None), ".json": (2, 10)}.get(suffix.removesuffix(".gz"), (1, 3))
    assert tuple(place.line for place in places) == lines


def test_a_place_says_where():
    place = Place("rows.jsonl", "row 1", 3)
    assert (
        str(place.error("text", "is blank.")) == "rows.jsonl, row 1 (counted from 0), line 3, column 'text': is blank."
    )
    assert str(place._replace(line=None)) == "rows.jsonl, row 1 (counted from 0)"
    with pytest.raises(ValueError, match=r"line 3 has no column 'text'; it has a, b\. Name the right one with --text"):
        place.value({"a": 1, "b": 2}, "text", "--text_column")


def test_a_pattern_of_files_is_one_source(tmp_path):
    for number, row in enumerate(ROWS):
        (tmp_path / f"part-{number}.jsonl").write_text(json.dumps(row))
    table = open_rows(tmp_path / "part-*.jsonl")
    assert (table.name, table.first) == ("part-*.jsonl", ROWS[0])
    places = [Place(f"part-{number}.jsonl", "row 0", 1) for number in range(2)]
    assert list(table.rows) == list(zip(places, ROWS, strict=True))
    (tmp_path / "part-[01].jsonl").write_text('{"a": 1}')  # a file of that very name
    assert open_rows(tmp_path / "part-[01].jsonl").first == {"a": 1}


def test_sources_that_have_no_rows(tmp_path):
    for name in ("absent.jsonl.gz", "absent.csv", "absent*"):
        with pytest.raises(
            FileNotFoundError, match=re.escape(f"There is no file '{tmp_path / name}'. Check the path.")
        ):
            open_rows(tmp_path / name)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe is a named pipe \(FIFO\), which cannot be read twice"):
        open_rows(tmp_path / "pipe")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match=r"empty\.jsonl is empty: it has no rows"):
        open_rows(tmp_path / "empty.jsonl")
    with pytest.raises((FileNotFoundError, ConnectionError), match="no-such-folder") as raised:
        open_rows("no-such-folder/no-such-set")
    assert "is no file here, so it was taken for a dataset on the Hub" in str(raised.value.__notes__)


def test_names_of_classes_come_with_a_parquet_file(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["sea", "oven"])})
    rows = Dataset.from_list([{"text": "a", "label": 1}], features=features)
    rows.to_parquet(str(tmp_path / "rows.parquet"))
    assert open_rows(tmp_path / "rows.parquet").class_names == {"label": ("sea", "oven")}


@dataclass(frozen=True)
class Numbers:
    rows: list[int]
    source: str = "numbers"


@pytest.mark.parametrize(
    ("total", "share", "seed", "held"),
    [(20, 0.15, 0, [4, 6, 19]), (20, 0.15, 42, [9, 14, 15]), (7, 0.4, 0, [2, 3, 4]), (7, 0.4, 42, [2, 3, 6])],
)
def test_a_seed_holds_out_what_release_0_1_0_held_out(total, share, seed, held):
    """A run that was killed before an upgrade finds its validation set again."""
    train, validation = hold_out(Numbers(list(range(total))), "rows", share, seed)
    assert validation == Numbers(held, "numbers, held out")
    assert train == Numbers([number for number in range(total) if number not in held])


def test_rows_with_one_key_stay_together():
    data = Numbers([21, 3, 5, 8, 13, 5, 21, 8])
    train, validation = hold_out(data, "rows", 0.4, 42, key=lambda number: number)
    assert validation.rows == [21, 8, 21, 8]  # as release 0.1.0 drew from 3, 5, 8, 13, 21
    assert train.rows == [3, 5, 13, 5]


@given(st.integers(2, 60), st.floats(0.001, 0.999), st.integers(0, 2**32))
def test_neither_side_is_ever_empty(total, share, seed):
    held = draw(range(total), share, seed, "rows")
    assert 1 <= len(held) < total
    assert abs(len(held) - share * total) <= 1
    assert held == draw(range(total), share, seed, "rows")


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5, math.nan])
def test_shares_that_are_none(share):
    with pytest.raises(ValueError, match="must be above 0 and below 1, got"):
        hold_out(Numbers([1, 2, 3]), "rows", share, 0)


@pytest.mark.parametrize("rows", [[], [7]])
def test_too_few_rows_to_share_out(rows):
    with pytest.raises(ValueError, match=rf"one each of the rows of numbers, and there is only {len(rows)}\."):
        hold_out(Numbers(rows), "rows", 0.5, 0)


@given(st.lists(st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner, max_size=3))))
def test_a_fingerprint_is_the_sha_256_of_the_values_as_json(values):
    assert fingerprint(iter(values)) == hashlib.sha256(json.dumps(values).encode()).hexdigest()
