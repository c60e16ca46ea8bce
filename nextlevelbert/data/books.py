"""Reads the text of HTML, PDF, EPUB and Word files.

PDF and DOCX need the extra ``files``. lxml parses HTML, the pages of an EPUB, and what mammoth
makes of a DOCX; `_Blocks` gathers the text from its events.
"""

from __future__ import annotations

import codecs
import html
import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from lxml import etree

from .files import UNPACKED_LIMIT, TooLargeError, decode, named_errors, read_bytes, reason

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

# Tags that begin and end a paragraph; browsers treat tags that they do not know as part of a line.
_BLOCK_TAGS = frozenset(
    "address article aside audio blockquote body canvas caption center dd details dialog dir div dl"
    " dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html iframe"
    " legend level level1 level2 level3 li listing main menu nav object ol optgroup option p"
    " plaintext pre search section select summary table tbody td text textarea tfoot th thead tr"
    " ul video xmp".split()
)
_PREFORMATTED_TAGS = frozenset("listing plaintext pre xmp".split())
_SILENT_TAGS = frozenset("rp rt script style template".split())
# XHTML may close these at once, where HTML would take the rest of the page for their content.
_CLOSED_AT_ONCE = re.compile(
    r"<(iframe|noscript|script|style|template|textarea|title)\b([^<>]*)/>", flags=re.IGNORECASE
)
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", flags=re.DOTALL)
_DECLARATION = re.compile(
    rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]+)"""
    rb"""|<meta\s[^>]*?charset\s*=\s*["']?\s*([\w.:-]+)""",
    flags=re.IGNORECASE,
)
_DECLARED_WITHIN = 4096  # bytes
# What browsers read by these names (https://encoding.spec.whatwg.org), where it is more.
_BROWSER_CODECS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
# mammoth's marks of notes in the text, and its links back from the notes.
_NOTE_LINKS = re.compile(
    r'<sup><a href="#(?:foot|end)note-[^<>]*>[^<>]*</a></sup>'
    r'|<a href="#(?:foot|end)note-ref-[^<>]*>[^<>]*</a>'
)
# PDFium's sign for a hyphen that only ends a line: the word goes on in the next one.
_LINE_END_HYPHEN = re.compile("[\x02\ufffe](\r?\n)?")
# Stands for <br> until white space is joined.
_LINE_BREAK = "\v"
# What reading one page of an EPUB raises.
_PAGE_ERRORS = (
    ValueError,
    OSError,
    EOFError,
    RuntimeError,  # locked, or packed in a way that zipfile does not know
    zipfile.BadZipFile,
    zlib.error,
)
_NAMED_NOTES = 10


class _Book(NamedTuple):
    """Holds the text of a file, by pages or paragraphs, and notes on parts that were not read."""

    pieces: list[str]
    notes: list[str]


class _Blocks:
    """Gathers paragraphs of text from the events of lxml's parser, which calls its methods."""

    def __init__(self) -> None:
        self.title = ""
        self.blocks = list[str]()
        self.pieces = list[str]()
        self.title_pieces = list[str]()
        self.in_title = False
        self.silent_depth = 0
        self.preformatted_depth = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = _local_name(tag)
        if name in _SILENT_TAGS:
            self.silent_depth += 1
        elif name == "title":
            self.in_title = True
        elif name == "br":
            self.pieces.append(_LINE_BREAK)
        elif name in _PREFORMATTED_TAGS:
            self._end_paragraph()
            self.preformatted_depth += 1
        elif name in _BLOCK_TAGS:
            self._end_paragraph()

    def end(self, tag: str) -> None:
        name = _local_name(tag)
        if name in _SILENT_TAGS:
            self.silent_depth -= 1
        elif name == "title":
            self.in_title = False
            self.title = self.title or " ".join("".join(self.title_pieces).split())
        elif name in _PREFORMATTED_TAGS:
            self.preformatted_depth -= 1
            self._end_paragraph(preformatted=True)
        elif name in _BLOCK_TAGS:
            self._end_paragraph()

    def data(self, text: str) -> None:
        if self.silent_depth > 0:
            return
        if self.in_title:
            self.title_pieces.append(text)
        else:
            self.pieces.append(text)

    def close(self) -> _Blocks:
        self._end_paragraph()
        return self

    def _end_paragraph(self, preformatted: bool = False) -> None:
        if self.preformatted_depth > 0:
            if self.pieces and not self.pieces[-1].endswith("\n"):
                self.pieces.append("\n")
            return
        text = "".join(self.pieces)
        self.pieces.clear()
        if preformatted:
            lines = text.replace(_LINE_BREAK, "\n").split("\n")
            block = "\n".join(line.rstrip() for line in lines)
        else:
            block = "\n".join(" ".join(line.split()) for line in text.split(_LINE_BREAK))
        if block.strip():
            self.blocks.append(block.strip("\n"))


def _local_name(tag: str) -> str:
    """Returns the name of a tag without its prefix, as in ``html:p``."""
    return tag.rpartition(":")[2]


def _parse_html(markup: str) -> _Blocks:
    # Only parsers of XML know CDATA sections.
    markup = _CDATA.sub(lambda section: html.escape(section[1]), markup)
    closed = _CLOSED_AT_ONCE.sub(r"<\1\2></\1>", markup).replace("\r\n", "\n")
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, target=_Blocks())
    parser.feed(closed.encode())
    return parser.close()


def _decode_page(data: bytes) -> str:
    """Decodes HTML by its byte order mark, else by the encoding it declares, else as UTF-8."""
    declaration = _DECLARATION.search(data, 0, _DECLARED_WITHIN)
    if declaration is None:
        return decode(data)
    label = (declaration[1] or declaration[2]).decode()
    try:
        codec = codecs.lookup(label).name
    except LookupError:
        codec = "utf-8"
    if codec.startswith(("utf-16", "utf-32")):  # its declaration could not have been read
        codec = "utf-8"
    return decode(data, declared=_BROWSER_CODECS.get(codec, codec))


def _read_html(data: bytes) -> _Book:
    page = _parse_html(_decode_page(data))
    blocks = page.blocks
    if page.title and page.title not in blocks[:1]:
        blocks = [page.title, *blocks]
    return _Book(blocks, notes=[])


class _EpubArchive:
    """Reads the files of an EPUB, which is a zip archive of HTML pages (EPUB 3.3)."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.left = UNPACKED_LIMIT
        # Makers of books on Windows mix up capitals and the two slashes.
        self.names = {name.replace("\\", "/").lower(): name for name in archive.namelist()}
        self.encrypted: set[str] = set()
        if "meta-inf/encryption.xml" in self.names:  # which is itself not encrypted
            references = self.xml("META-INF/encryption.xml").iterfind(".//{*}CipherReference")
            self.encrypted = {unquote(item.get("URI", "")).lower() for item in references}

    def read(self, path: str) -> bytes:
        """Reads one file; a ValueError says why it cannot be read."""
        if path.lower() not in self.names:
            raise ValueError("the archive lacks it")
        name = self.names[path.lower()]
        self.left -= self.archive.getinfo(name).file_size
        if self.left < 0:
            raise TooLargeError("it")
        if path.lower() in self.encrypted:
            raise ValueError("encrypted (DRM)")
        return self.archive.read(name)

    def xml(self, path: str) -> etree._Element:
        """Parses one XML file as far as it goes."""
        parser = etree.XMLParser(recover=True, resolve_entities=False, huge_tree=True)
        return etree.fromstring(self.read(path), parser)

    def package_name(self) -> str:
        """Returns the name of the file that lists the pages."""
        if "meta-inf/container.xml" in self.names:
            for root_file in self.xml("META-INF/container.xml").iterfind(".//{*}rootfile"):
                name = root_file.get("full-path", "")
                if name.lower() in self.names:
                    return name
        for name in self.names.values():
            if name.lower().endswith(".opf"):
                return name
        raise ValueError("it has no package file (.opf), which lists the pages")


def _read_epub(data: bytes) -> _Book:
    """Reads the pages in reading order; a page that cannot be read costs no other."""
    texts = []
    notes = []
    with zipfile.ZipFile(io.BytesIO(data)) as zip_file:
        archive = _EpubArchive(zip_file)
        package_name = archive.package_name()
        package = archive.xml(package_name)
        hrefs = {
            item.get("id"): item.get("href", "")
            for item in package.iterfind(".//{*}manifest/{*}item")
        }

        for reference in package.iterfind(".//{*}spine/{*}itemref"):
            name = reference.get("idref", "")
            if name not in hrefs:
                notes.append(f"page {name!r} is not in the manifest")
                continue

            href = unquote(hrefs[name].partition("#")[0])
            path = posixpath.normpath(posixpath.join(posixpath.dirname(package_name), href))
            try:
                page = _parse_html(_decode_page(archive.read(path)))
            except _PAGE_ERRORS as error:
                notes.append(f"page {href} cannot be read ({reason(error).rstrip('.')})")
            else:
                texts.extend(page.blocks)
    if not texts and notes:
        raise ValueError("; ".join(notes[:_NAMED_NOTES]))
    return _Book(texts, notes)


def _read_pdf(data: bytes) -> _Book:
    from pypdfium2 import PdfDocument, PdfiumError

    pages = []
    pictures = []
    damaged = []
    with PdfDocument(data) as document:
        has_form = document.get_formtype() != 0
        if has_form:
            document.init_forms()
        for index in range(len(document)):
            pages.append("")
            try:
                pages[-1], has_content = _read_pdf_page(document, index, has_form)
            except PdfiumError:
                damaged.append(index + 1)
            else:
                if has_content and not pages[-1]:
                    pictures.append(index + 1)

    notes = []
    if pictures:
        which = _first_of(pictures, pages=len(pages))
        notes.append(f"{which} hold no text; if they are pictures, run OCR over the file")
    if damaged:
        notes.append(f"{_first_of(damaged, pages=len(pages))} are damaged")
    return _Book(pages, notes)


def _read_pdf_page(document: PdfDocument, index: int, has_form: bool) -> tuple[str, bool]:
    """Returns the text of a page, and whether it shows anything."""
    page = document[index]
    if has_form:
        page.flatten()  # what was filled in becomes text of the page
        page.close()
        page = document[index]
    text_page = page.get_textpage()
    text = _LINE_END_HYPHEN.sub("", text_page.get_text_range())
    has_content = next(page.get_objects(max_depth=1), None) is not None
    text_page.close()
    page.close()
    return text.replace("\r\n", "\n").strip(), has_content


def _first_of(numbers: list[int], *, pages: int) -> str:
    """Says how many pages these are, and names the first few."""
    shown = ", ".join(str(number) for number in numbers[:_NAMED_NOTES])
    if len(numbers) > _NAMED_NOTES:
        shown = f"{shown}, …"
    return f"{len(numbers)} of {pages} pages ({shown})"


def _read_docx(data: bytes) -> _Book:
    """Reads what mammoth makes of a Word file: HTML with its notes at the end."""
    from mammoth import convert_to_html
    from mammoth.images import img_element

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(part.file_size for part in archive.infolist() if part.filename.endswith(".xml"))
    if size > UNPACKED_LIMIT:
        raise TooLargeError("it")
    no_image = img_element(lambda image: {"src": ""})
    markup = convert_to_html(io.BytesIO(data), convert_image=no_image).value
    return _Book(_parse_html(_NOTE_LINKS.sub("", markup)).blocks, notes=[])


_READERS = {
    ".html": _read_html,
    ".htm": _read_html,
    ".xhtml": _read_html,
    ".epub": _read_epub,
    ".pdf": _read_pdf,
    ".docx": _read_docx,
}
BOOKS = tuple(_READERS)


def read_book(path: Path, ending: str) -> tuple[str, dict[str, list[int]], str]:
    """Reads the text of a book, with a blank line between paragraphs and between pages.

    Args:
        path: the file, perhaps packed as ``.gz``.
        ending: suffix of the file, one of `BOOKS`.

    Returns:
        The text; for a PDF ``{"pages": the character at which each page begins}``; and what of the
        file was not read, such as a page of an EPUB, or an empty text.

    Raises:
        ValueError: if the file is damaged, locked or without text, or a package is missing.
    """
    with named_errors(path):
        data = read_bytes(path)
    try:
        book = _READERS[ending](data)
    except ImportError as error:
        raise ValueError(
            f"{path} needs the package {error.name}: pip install {error.name}, or leave it out."
        ) from error
    except (UnicodeError, TooLargeError) as error:
        raise ValueError(f"{path} cannot be read: {reason(error)}") from error
    except Exception as error:  # what the parsers raise for damaged bytes is told nowhere
        raise ValueError(
            f"{path} cannot be read as {ending[1:].upper()} ({error}): it is damaged or locked."
            " Repair or unlock it, or leave it out."
        ) from error

    text = "\n\n".join(book.pieces)
    notes = "; ".join(book.notes)
    if not text.strip():
        if notes:
            raise ValueError(f"{path} holds no text: {notes}.")
        raise ValueError(f"{path} holds no text.")
    if ending != ".pdf":
        return text, {}, notes
    lengths = [len(page) + 2 for page in book.pieces]
    return text, {"pages": list(accumulate(lengths[:-1], initial=0))}, notes
