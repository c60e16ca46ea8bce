"""Packed texts that take too much memory, and books that hold no text."""

import gzip

import pytest

from nextlevelbert import read_documents
from nextlevelbert.data import files

from ..toys.books import write_docx, write_epub


@pytest.mark.parametrize("name", ["a.txt.gz", "a.html.gz", "a.jsonl.gz", "a.csv.gz", "a.json.gz"])
def test_what_takes_too_much_unpacked_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "UNPACKED_LIMIT", 1000)
    (tmp_path / name).write_bytes(gzip.compress(b"a" * 5000))
    with pytest.raises(ValueError, match=rf"{name}.* takes more than 1,000 bytes"):
        list(read_documents(tmp_path / name))


@pytest.mark.parametrize("kind", ["html", "epub", "docx"])
def test_empty_books_are_not_told_to_run_ocr(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"")
    if kind == "epub":
        write_epub(path, [""])
    if kind == "docx":
        write_docx(path, [""])
    with pytest.raises(ValueError, match=rf"a\.{kind} holds no text\.$"):
        list(read_documents(path))
