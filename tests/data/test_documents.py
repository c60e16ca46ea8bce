"""Documents from every kind of source, always in the same order."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from nextlevelbert import Document, read_documents
from nextlevelbert.data.documents import PYTHON_MANUAL, documents_from_rows, read_hub_documents

ROWS = [{"id": "b", "text": "second"}, {"id": "a", "text": "first,\nwith a line break"}]


def test_text_files(tmp_path):
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "b.txt").write_text("second")
    (tmp_path / "a.txt").write_text("naïve", encoding="utf-8")
    assert list(read_documents(tmp_path)) == [Document("a", "naïve"), Document("shelf/b", "second")]
    assert list(read_documents(tmp_path / "a.txt")) == [Document("a", "naïve")]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.parquet"])
def test_rows(tmp_path, name):
    path = tmp_path / name
    if "parquet" in name:
        pa.parquet.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        with gzip.open(path, "wt") if name.endswith("gz") else open(path, "w") as file:
            file.write("\n".join(json.dumps(row) for row in ROWS))
    assert list(read_documents(path)) == [Document(row["id"], row["text"]) for row in ROWS]
    with pytest.raises(
        ValueError, match=r"no column 'body'; it has id, text\. Name the text column with --text_column"
    ):
        list(read_documents(path, text_column="body"))


def test_a_dataset_by_name(tmp_path):
    """A folder laid out like a dataset repository, which `datasets` opens as it opens one on the Hub."""
    (tmp_path / "data").mkdir()
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "data" / "validation-00000-of-00001.parquet")
    documents = list(read_hub_documents(str(tmp_path), split="validation"))
    assert documents == [Document(row["id"], row["text"]) for row in ROWS]


def test_rows_without_an_id_are_numbered():
    documents = documents_from_rows([{"text": "x", "id": None}, {"text": "y"}], "text", "id")
    assert [document.id for document in documents] == ["document-000000", "document-000001"]


def test_what_cannot_be_read(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "latin.txt").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt is not UTF-8"):
        list(read_documents(tmp_path / "old"))
    (tmp_path / "old" / "latin.txt").unlink()
    with pytest.raises(FileNotFoundError, match="No file or folder"):
        list(read_documents(tmp_path / "nothing.jsonl"))
    with pytest.raises(ValueError, match=r"holds no \.txt file"):
        list(read_documents(tmp_path))
    (tmp_path / "book.pdf").write_bytes(b"%PDF")
    with pytest.raises(ValueError, match=r"Cannot read book\.pdf: supported are \.txt"):
        list(read_documents(tmp_path / "book.pdf"))


def test_the_manual_that_every_python_carries():
    documents = list(read_documents(PYTHON_MANUAL))
    names = [document.id for document in documents]
    assert len(names) == len(set(names)) > 200
    assert {"manual/lambda", "module/json", "module/asyncio.tasks"} <= set(names)
    assert any("JavaScript Object Notation" in document.text for document in documents if document.id == "module/json")
    assert names == [document.id for document in read_documents(PYTHON_MANUAL)]
