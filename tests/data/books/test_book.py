"""Books that are damaged, empty, or need a package that is missing."""

import pytest

from nextlevelbert import read_documents

from ...toys.books import write_docx, write_epub, write_pdf

WHALE = "Call me Ishmael."


@pytest.mark.parametrize(
    ("kind", "write"), [("pdf", write_pdf), ("epub", write_epub), ("docx", write_docx)]
)
def test_damaged_books_are_named(tmp_path, kind, write):
    path = write(tmp_path / f"book.{kind}", [WHALE])
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 3], b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"book\.{kind} cannot be read as {kind.upper()}"):
            list(read_documents(path))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    write_pdf(tmp_path / "a.pdf", [WHALE])
    monkeypatch.setitem(__import__("sys").modules, "pypdfium2", None)
    with pytest.raises(ValueError, match=r"a\.pdf needs.* pip install pypdfium2"):
        list(read_documents(tmp_path / "a.pdf"))


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
