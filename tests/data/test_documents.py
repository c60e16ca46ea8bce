"""Documents from every kind of source, always in the same order."""

from __future__ import annotations

import gzip
import json
import pickle
import re

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextlevelbert import Document, read_documents
from nextlevelbert.data.documents import (
    PYTHON_MANUAL,
    check_documents,
    clean_text,
    documents_from_rows,
    read_hub_documents,
)
from nextlevelbert.data.rows import file_rows

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
    with pytest.raises(ValueError, match=r"no column 'body'; it has id, text\. Name the right one with --text_column"):
        list(read_documents(path, text_column="body"))


def test_a_dataset_by_name(tmp_path):
    """A folder laid out like a dataset repository, which `datasets` opens as it opens one on the Hub."""
    (tmp_path / "data").mkdir()
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "data" / "validation-00000-of-00001.parquet")
    documents = list(read_hub_documents(str(tmp_path), split="validation"))
    assert documents == [Document(row["id"], row["text"]) for row in ROWS]


def test_rows_without_an_id_are_numbered(tmp_path):
    documents = documents_from_rows([{"text": "x", "id": None}, {"text": "y"}], "text", "id")
    assert [document.id for document in documents] == ["document-000000", "document-000001"]
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n{"text": "y", "id": 7}')
    (tmp_path / "a.csv").write_text("text\nz\n")
    (tmp_path / "between.txt").write_text("w")
    documents = read_documents([tmp_path / "b.jsonl", tmp_path / "between.txt", tmp_path / "a.csv"])
    assert [document.id for document in documents] == ["document-000000", "7", "between", "document-000002"]


def test_further_columns_are_metadata(tmp_path):
    row = {"text": "x", "year": 1851, "id": "a", "chapters": [{"heading": "1", "start": 0}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    metadata = {"year": 1851, "chapters": [{"heading": "1", "start": 0}]}
    [document] = read_documents(tmp_path / "rows.jsonl")
    assert document == Document("a", "x", metadata) != Document("a", "x")
    assert hash(document) == hash(Document("a", "x"))  # a mapping has no hash; equal documents have equal ones
    assert pickle.loads(pickle.dumps(document)) == document
    [document] = read_documents(tmp_path / "rows.jsonl", text_column="id", id_column="year")
    assert document == Document("1851", "a", {"text": "x", "chapters": metadata["chapters"]})
    assert Document("a", "x").metadata == {}


@pytest.mark.parametrize(("text", "got"), [(None, "None (NoneType)"), (7, "7 (int)"), (["x"], "['x'] (list)")])
def test_a_text_that_is_none(tmp_path, text, got):
    (tmp_path / "rows.jsonl").write_text('{"text": "x"}\n\n' + json.dumps({"text": text}))
    documents = read_documents(tmp_path / "rows.jsonl")
    assert next(documents).text == "x"
    message = (
        f"rows.jsonl, row 1 (counted from 0), line 3, column 'text': must be text, got {got}. Correct the row, or"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        next(documents)


def test_texts_stand_as_they_are(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n\0\xe2\x80\xa8")
    (tmp_path / "b.md").write_bytes(b"# Loomings\n\n*Call me* Ishmael.")
    texts = [document.text for document in read_documents(tmp_path)]
    assert texts == ["one\ntwo\nthree\n\0\u2028", "# Loomings\n\n*Call me* Ishmael."]


def test_the_first_document_is_read_before_anything_is_loaded(tmp_path):
    check_documents(PYTHON_MANUAL)
    (tmp_path / "rows.jsonl").write_text('{"text": "x"}\nno JSON')
    check_documents(tmp_path / "rows.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match=r"empty\.jsonl holds no document"):
        check_documents(tmp_path / "empty.jsonl")
    with pytest.raises(FileNotFoundError, match="No file or folder"):
        check_documents(tmp_path / "nothing.jsonl")
    with pytest.raises(ValueError, match=r"line 1 has no column 'body'; it has text"):
        check_documents(tmp_path / "rows.jsonl", text_column="body")


kinds = [".txt", ".md", ".html", ".jsonl", ".json", ".csv", ".parquet"]
pieces = [b'{"text": "', b'"}', b"\n", b"\r", b"[", b",", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\\ud800",
          b"<script>", b"<![", b"<!--", b'"', b"id,text\n", b"PAR1", b"\x1f\x8b\x08\0",
          b"\xed\xa0\x80", b"na\xefve", b"1e999"]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(kinds), st.booleans(), st.lists(st.sampled_from(pieces) | st.binary(max_size=9), max_size=9),
    st.integers(0, 30), st.integers(1, 255),
)  # fmt: skip
def test_no_bytes_raise_an_error_that_does_not_name_the_file(tmp_path_factory, kind, pack, parts, at, flip):
    content = bytearray(b"".join(parts))
    name = "rows" + kind
    if pack:
        content, name = bytearray(gzip.compress(content)), name + ".gz"
        if at < len(content):
            content[at] ^= flip
    path = tmp_path_factory.mktemp("bytes") / name
    path.write_bytes(content)
    for read in (read_documents, check_documents, file_rows):
        raised: Exception | None = None
        try:
            list(read(path) or ())
        except (ValueError, OSError) as error:
            raised = error
        assert raised is None or (type(raised) in (ValueError, OSError) and str(path) in str(raised))


def test_what_cannot_be_read(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "latin.txt").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt, line 1: byte EF is not UTF-8 \(in Windows-1252 it is 'ï'\)"):
        list(read_documents(tmp_path / "old"))
    (tmp_path / "old" / "latin.txt").unlink()
    with pytest.raises(FileNotFoundError, match="No file or folder"):
        list(read_documents(tmp_path / "nothing.jsonl"))
    with pytest.raises(ValueError, match=r"holds nothing to read \(no file\)\. Supported: \.txt"):
        list(read_documents(tmp_path))
    (tmp_path / "book.doc").write_bytes(b"?")
    with pytest.raises(ValueError, match=r"Cannot read .*book\.doc\. Supported: \.txt"):
        list(read_documents(tmp_path / "book.doc"))


@pytest.mark.long
def test_the_manual_that_every_python_carries():
    documents = list(read_documents(PYTHON_MANUAL))
    names = [document.id for document in documents]
    assert len(names) == len(set(names)) > 200
    assert {"manual/lambda", "module/json", "module/asyncio.tasks"} <= set(names)
    assert any("JavaScript Object Notation" in document.text for document in documents if document.id == "module/json")
    assert names == [document.id for document in read_documents(PYTHON_MANUAL)]


def test_cleaning_is_that_of_the_authors():
    """Each rule of their published code, see `clean_text`."""
    for text, cleaned in {
        "One.\nTwo.\n\nThree.": "One. Two. Three.",
        "Read http://a.org/b?c=1 or www.sea.org now, or write to me@sea.org.": "Read or now, or write to",
        '\\`*_{}[]()>#+-$"=@%^|~/': "",
        "It's <b>“well-known”</b>; isn't it?": "It's <b“wellknown”<b; isn't it?",
        "  many   spaces\t here ": "many spaces here",
    }.items():
        assert clean_text(text) == cleaned
