"""The text of PDF, EPUB and Word files. PDF and DOCX need ``pip install nextlevelbert[files]``."""

from __future__ import annotations

import importlib.util
import io
import posixpath
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

from .html_text import page_text
from .texts import decode, open_binary

BOOKS = (".pdf", ".epub", ".docx")  # one document a file
_PACKAGES = {".pdf": "pypdfium2", ".docx": "mammoth"}

# PDFium's sign for a hyphen that only ends a line: the word goes on in the next one.
_LINE_HYPHEN = re.compile("[\x02\ufffe](\r?\n)?")


def check_package(path: Path, kind: str) -> None:
    """Raises a ValueError if the package that reads this kind of file (its suffix) is not installed."""
    package = _PACKAGES.get(kind)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ValueError(
            f"{path}: reading {kind} needs the package {package}. Install it with pip install 'nextlevelbert[files]', "
            "or leave such files out, for example by a pattern such as 'folder/**/*.txt'."
        )


def read_book(path: Path, kind: str) -> str:
    """The text of a PDF, EPUB or Word file: a blank line between paragraphs, in a PDF between pages.

    Args:
        path: the file, perhaps packed as ``.gz``.
        kind: ``".pdf"``, ``".epub"`` or ``".docx"``.

    Raises:
        FileNotFoundError, ValueError: as `open_binary`; ValueError for a damaged or locked file, a file without
            text, and a package that is missing.
    """
    check_package(path, kind)
    with open_binary(path) as file:
        data = file.read()
    text = {".pdf": _pdf, ".epub": _epub, ".docx": _docx}[kind](path, data)
    if not text.strip():
        pictures = "If its pages are pictures, run OCR over it first, for example with ocrmypdf."
        raise ValueError(f"{path} holds no text. {pictures if kind == '.pdf' else 'Leave it out.'}")
    return text


def _pdf(path: Path, data: bytes) -> str:
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        with PdfDocument(data) as document:
            pages = [page.get_textpage().get_text_range() for page in document]
    except PdfiumError as error:
        raise ValueError(f"{path} cannot be read as PDF ({error}). It is damaged, or locked by a password.") from error
    return "\n\n".join(_LINE_HYPHEN.sub("", page).replace("\r\n", "\n").strip() for page in pages)


def _docx(path: Path, data: bytes) -> str:
    import mammoth

    try:
        return mammoth.extract_raw_text(io.BytesIO(data)).value.strip()
    except Exception as error:  # what mammoth, minidom and zipfile raise for damaged bytes is told nowhere
        raise ValueError(f"{path} cannot be read as DOCX ({error}). Save it again as .docx.") from error


def _epub(path: Path, data: bytes) -> str:
    """The pages in reading order. An EPUB is a zip archive of HTML pages; its package file lists them (EPUB 3.3)."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return "\n\n".join(filter(None, (_page(path, archive, name) for name in _spine(archive))))
    except Exception as error:  # what zipfile raises for damaged bytes is told nowhere; a missing page is a KeyError
        if str(error).startswith(f"{path}:"):  # of a page, and says what is wrong
            raise
        raise ValueError(f"{path} cannot be read as EPUB ({error}). It is damaged, or locked.") from error


def _page(path: Path, archive: zipfile.ZipFile, name: str) -> str:
    page = Path(f"{path}:{name}")
    return page_text(decode(page, archive.read(name)).removeprefix("\ufeff"), page)


def _spine(archive: zipfile.ZipFile) -> Iterator[str]:
    """Names in the archive of all pages, in reading order."""
    container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
    rootfile = container.find(".//{*}rootfile")
    if rootfile is None:
        raise KeyError("META-INF/container.xml names no package file")
    package_name = rootfile.attrib["full-path"]
    package = ElementTree.fromstring(archive.read(package_name))
    items = {item.attrib["id"]: item for item in package.iterfind(".//{*}manifest/{*}item")}
    for reference in package.iterfind(".//{*}spine/{*}itemref"):
        item = items[reference.attrib["idref"]]
        if "html" in item.attrib["media-type"]:
            folder = posixpath.dirname(package_name)
            yield posixpath.normpath(posixpath.join(folder, unquote(item.attrib["href"])))
