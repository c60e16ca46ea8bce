"""The text of HTML, PDF, EPUB and Word files; PDF and DOCX need ``pip install
nextlevelbert[files]``."""

from __future__ import annotations

import gzip
import io
import posixpath
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

_SILENT = {"script", "style", "template", "title"}
_INLINE = set(
    "a abbr b bdi bdo big cite code data dfn em font i img ins kbd label mark q s samp small span".split()
)
_INLINE |= set("strike strong sub sup time tt u var wbr".split())


class _Page(HTMLParser):
    """Gathers blocks of text; all tags begin one but those within a line."""

    def __init__(self) -> None:
        super().__init__()
        self.silent, self.blocks = "", [""]

    def handle_starttag(self, tag: str, attrs: object = ()) -> None:
        self.silent = self.silent or (tag if tag in _SILENT else "")
        self.blocks += [] if tag in _INLINE else [""]

    def handle_endtag(self, tag: str) -> None:
        self.silent = "" if tag == self.silent else self.silent
        self.blocks += [] if tag in _INLINE else [""]

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.blocks[-1] += data


def _html(data: bytes) -> str:
    page = _Page()
    page.feed(data.decode("utf-8-sig"))
    page.close()
    return "\n\n".join(filter(None, (" ".join(block.split()) for block in page.blocks)))


def _epub(data: bytes) -> str:
    """The pages in reading order. An EPUB is a zip archive of HTML pages; its package file lists
    them (EPUB 3.3)."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
        package_name = next(container.iterfind(".//{*}rootfile")).attrib["full-path"]
        package = ElementTree.fromstring(archive.read(package_name))
        items = {
            item.attrib["id"]: item.attrib for item in package.iterfind(".//{*}manifest/{*}item")
        }
        spine = (
            items[reference.attrib["idref"]]
            for reference in package.iterfind(".//{*}spine/{*}itemref")
        )
        names = [unquote(item["href"]) for item in spine if "html" in item["media-type"]]
        paths = (
            posixpath.normpath(posixpath.join(posixpath.dirname(package_name), name))
            for name in names
        )
        return "\n\n".join(filter(None, (_html(archive.read(path)) for path in paths)))


def _pdf(data: bytes) -> list[str]:
    from pypdfium2 import PdfDocument

    with PdfDocument(data) as document:
        pages = [page.get_textpage().get_text_range() for page in document]
    # PDFium's sign for a hyphen that only ends a line: the word goes on in the next one.
    return [
        re.sub("[\x02\ufffe](\r?\n)?", "", page).replace("\r\n", "\n").strip() for page in pages
    ]


def _docx(data: bytes) -> str:
    from mammoth import extract_raw_text

    return extract_raw_text(io.BytesIO(data)).value.strip()


BOOKS = {".html": _html, ".htm": _html, ".epub": _epub, ".pdf": _pdf, ".docx": _docx}


def read_book(path: Path, kind: str) -> tuple[str, dict[str, list[int]]]:
    """The text, a blank line between blocks; for a PDF also ``{"pages": the character at which each
    page begins}``.

    ValueError for a file that is damaged, locked or without text, or whose package is not
    installed.
    """
    try:
        data = path.read_bytes()
        text = BOOKS[kind](gzip.decompress(data) if path.suffix.lower() == ".gz" else data)
    except ImportError as error:
        raise ValueError(
            f"{path} needs {error.name}: pip install 'nextlevelbert[files]', or leave it out."
        ) from error
    except Exception as error:  # what the parsers raise for damaged bytes is told nowhere
        raise ValueError(
            f"{path} cannot be read as {kind[1:].upper()} ({error}): damaged, or locked."
        ) from error
    if not "".join(text).strip():
        raise ValueError(
            f"{path} holds no text. If its pages are pictures, run OCR over it first, or leave it"
            " out."
        )
    if isinstance(text, str):
        return text, {}
    starts = [sum(len(page) + 2 for page in text[:number]) for number in range(len(text))]
    return "\n\n".join(text), {"pages": starts}
