"""Rows in every format: what is read is what was written, whatever the text."""

from __future__ import annotations

import csv
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextlevelbert import Document, read_documents, read_marked
from nextlevelbert.data.documents import as_documents

from .cases import TEXTS, cases

IDS = st.sampled_from(["2024-01-01", "007", "1e5", "null", "NA", "9" * 30, "a b", "é"])
ROWS = st.lists(
    st.tuples(IDS, TEXTS.filter(lambda text: "\0" not in text)), min_size=1, max_size=5, unique_by=lambda r: r[0]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@cases(0.3)
@given(ROWS, st.sampled_from(["jsonl", "json", "csv", "parquet"]), st.booleans())
def test_rows_come_back(folder, rows, kind, packed):
    path, values = folder / f"x.{kind}", [{"id": name, "text": text} for name, text in rows]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(values), path)
    else:
        path = path.with_name(f"x.{kind}.gz") if packed else path
        with (gzip.open if packed else open)(path, "wt", encoding="utf-8", newline="") as file:
            if kind == "csv":
                writer = csv.DictWriter(file, ["id", "text"])
                writer.writeheader()
                writer.writerows(values)
            else:
                lines = "\n".join(json.dumps(row) for row in values)
                file.write(lines if kind == "jsonl" else json.dumps(values))
    documents = list(read_documents(path))
    path.unlink()
    assert [(document.id, document.text) for document in documents] == rows


@cases(0.2)
@given(ROWS)
def test_documents_in_every_form_are_the_same(rows):
    documents = [Document(name, text) for name, text in rows]
    for form in (rows, [{"id": name, "text": text} for name, text in rows], documents):
        assert [(document.id, document.text) for document in as_documents(form)] == rows


@cases(0.1)
@given(TEXTS)
def test_marks_are_taken_out(text):
    """Text without marks comes back as it is; a mark in it stands at its place."""
    if "<m>" in text or "</m>" in text:
        return
    assert read_marked(text) == (text, [])
    assert read_marked(f"{text}<m>whale</m>{text}") == (f"{text}whale{text}", [(len(text), len(text) + 5)])
