"""PDF, EPUB and Word files: their text by every route that reads documents, and what cannot be read."""

from __future__ import annotations

import gzip
import importlib.util
import re
import zipfile
from pathlib import Path

import pytest

from nextlevelbert import read_documents
from nextlevelbert.data.book_files import BOOKS
from nextlevelbert.data.files import check_source, source_files

from ..book_toys import write_docx, write_epub, write_pdf

WHALE = "Call me Ishmael."
SEA = "The sea & the “whale”."


def text_of(path: Path) -> str:
    check_source(path)
    [document] = read_documents(path)
    return document.text


def test_pages_and_paragraphs_are_in_order(tmp_path):
    assert text_of(write_pdf(tmp_path / "a.pdf", [f"{WHALE}\nSome years ago", SEA])) == (
        f"{WHALE}\nSome years ago\n\n{SEA}"
    )
    pages = [f"<h1>One</h1><p>{WHALE}<br/>Some</p><script/>", "", "<p>The sea &amp; the “whale”.</p>"]
    assert text_of(write_epub(tmp_path / "b.epub", pages)) == f"One\n\n{WHALE}\n\nSome\n\n{SEA}"
    assert text_of(write_docx(tmp_path / "c.docx", [WHALE, SEA])) == f"{WHALE}\n\n{SEA}"


def test_a_folder_of_all_kinds(tmp_path):
    write_pdf(tmp_path / "a.PDF", [WHALE])
    write_epub(tmp_path / "b.epub", [f"<p>{WHALE}</p>"])
    packed = tmp_path / "c.docx.gz"
    packed.write_bytes(gzip.compress(write_docx(tmp_path / "c.docx", [WHALE]).read_bytes()))
    (tmp_path / "c.docx").unlink()
    (tmp_path / "d.txt").write_text(WHALE)
    assert [(each.id, each.text) for each in read_documents(tmp_path)] == [(name, WHALE) for name in "abcd"]
    write_epub(tmp_path / "d.epub", [SEA])
    with pytest.raises(ValueError, match="would both be document 'd'"):
        source_files(tmp_path)
    assert [path.name for path, _ in source_files(tmp_path, unique_ids=False)][-2:] == ["d.epub", "d.txt"]


def test_a_word_divided_at_the_end_of_a_line_is_whole(tmp_path):
    """PDFium marks such a hyphen; another one stays."""
    assert text_of(write_pdf(tmp_path / "a.pdf", ["The old well-known leviat-\nhan swims.\nIt dives."])) == (
        "The old well-known leviathan swims.\nIt dives."
    )


@pytest.mark.parametrize("kind", BOOKS)
def test_damaged_files_are_named(tmp_path, kind):
    path = tmp_path / f"book{kind}"
    {".pdf": write_pdf, ".epub": write_epub, ".docx": write_docx}[kind](path, [WHALE])
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 3], b"no book at all", whole[:40] + b"\0" * 200 + whole[240:]):
        path.write_bytes(damaged)
        try:
            assert text_of(path)  # PDFium mends what it can
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017  # either is right
        else:
            assert kind == ".pdf"
    path.write_bytes(b"no book at all")
    with pytest.raises(ValueError, match=rf"book\{kind} cannot be read as {kind[1:].upper()}"):
        text_of(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is empty"):
        text_of(path)


def test_every_part_of_an_epub_that_may_be_missing(tmp_path):
    path = write_epub(tmp_path / "book.epub", [f"<p>{WHALE}</p>"])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for missing in set(parts) - {"mimetype"}:
        for content in (None, b"<x>"):
            with zipfile.ZipFile(path, "w") as archive:
                for name, data in parts.items():
                    if name != missing or content is not None:
                        archive.writestr(name, data if name != missing else content)
            with pytest.raises(ValueError, match=rf"{re.escape(str(path))} (cannot be read as EPUB|holds no text)"):
                text_of(path)


def test_a_scan_is_no_text(tmp_path):
    with pytest.raises(ValueError, match=r"scan\.pdf holds no text\. If its pages are pictures, run OCR"):
        text_of(write_pdf(tmp_path / "scan.pdf", [""]))


def test_a_missing_package_is_said_before_anything_is_read(tmp_path, monkeypatch):
    write_pdf(tmp_path / "a.pdf", [WHALE])
    (tmp_path / "b.txt").write_text(WHALE)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pypdfium2" else found(name))
    for read in (read_documents, source_files):
        with pytest.raises(
            ValueError, match=r"a\.pdf: reading \.pdf needs the package pypdfium2.*nextlevelbert\[files"
        ):
            read(tmp_path)
    with pytest.raises(ValueError, match="needs the package pypdfium2"):
        check_source(tmp_path / "a.pdf")
    assert [document.text for document in read_documents(tmp_path / "*.txt")] == [WHALE]
