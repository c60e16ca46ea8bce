"""Reads the text of EPUB files, which are zip archives of XHTML pages (EPUB 3.3)."""

import io
import posixpath
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import unquote

from lxml import etree

from .files import UNPACKED_LIMIT, TooLargeError, reason
from .web_pages import parse_page

# What reading one page raises.
_PAGE_ERRORS = (
    ValueError,
    OSError,
    EOFError,
    RuntimeError,  # locked, or packed in a way that zipfile does not know
    zipfile.BadZipFile,
    zlib.error,
)
_UTF8_FLAG = 0x800  # of a name in a zip archive
_NAMED_NOTES = 10


class _Archive:
    """Reads the files of an EPUB."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.left = UNPACKED_LIMIT
        self.names = _names(archive)
        self.encrypted: set[str] = set()
        if self.holds("META-INF/encryption.xml"):  # which is itself not encrypted
            references = self.xml("META-INF/encryption.xml").iterfind(".//{*}CipherReference")
            for reference in references:
                self.encrypted.update(_spellings(reference.get("URI", "")))

    def holds(self, path: str) -> bool:
        return not self.names.keys().isdisjoint(_spellings(path))

    def read(self, path: str) -> bytes:
        """Reads one file; a ValueError says why it cannot be read."""
        if not self.holds(path):
            raise ValueError("the archive lacks it")
        name = next(self.names[spelling] for spelling in _spellings(path) if spelling in self.names)
        self.left -= self.archive.getinfo(name).file_size
        if self.left < 0:
            raise TooLargeError("it")
        if not self.encrypted.isdisjoint(_spellings(path)):
            raise ValueError("encrypted (DRM)")
        return self.archive.read(name)

    def xml(self, path: str) -> etree._Element:
        """Parses one XML file as far as it goes."""
        parser = etree.XMLParser(recover=True, resolve_entities=False, huge_tree=True)
        return etree.fromstring(self.read(path), parser)

    def package_name(self) -> str:
        """Returns the name of the file that lists the pages."""
        if self.holds("META-INF/container.xml"):
            for root_file in self.xml("META-INF/container.xml").iterfind(".//{*}rootfile"):
                name = root_file.get("full-path", "")
                if self.holds(name):
                    return name
        for name in self.names.values():
            if name.lower().endswith(".opf"):
                return name
        raise ValueError("it has no package file (.opf), which lists the pages")


def _names(archive: zipfile.ZipFile) -> dict[str, str]:
    """Returns the name in the archive of each file, by all spellings of its name.

    An exact name goes before a spelling of another name.
    """
    all_spellings = []
    for entry in archive.infolist():
        name = entry.filename
        if not entry.flag_bits & _UTF8_FLAG:  # in UTF-8 nevertheless, or in cp437
            with suppress(UnicodeError):
                name = name.encode("cp437").decode()
        all_spellings.append((entry.filename, _spellings(name)))

    names = {name: name for name in archive.namelist()}
    for position in range(3):
        for name, spellings in all_spellings:
            names.setdefault(spellings[position], name)
    return names


def _spellings(path: str) -> tuple[str, str, str]:
    """Returns a path, the same without what makers of books write in its place, and small.

    They mix up the two slashes, capitals, the two Unicode forms of an accent, and a path and a link
    with percent signs, and begin paths with a slash.
    """
    plain = unicodedata.normalize("NFC", unquote(path).replace("\\", "/")).lstrip("/")
    return path, plain, plain.lower()


def read_epub(data: bytes) -> tuple[list[str], list[str]]:
    """Returns the paragraphs of the pages in reading order, and notes on pages without text.

    A page that cannot be read costs no other.

    Raises:
        ValueError: if the archive lists no pages.
    """
    texts = list[str]()
    notes = list[str]()
    pictures = list[str]()
    with zipfile.ZipFile(io.BytesIO(data)) as zip_file:
        archive = _Archive(zip_file)
        pages = list(_pages(archive))
        for index, (name, path) in enumerate(pages):
            if path is None:
                notes.append(f"page {name!r} is not in the manifest")
                continue
            try:
                page = parse_page(archive.read(path))
            except _PAGE_ERRORS as error:
                notes.append(f"page {name} cannot be read ({reason(error).rstrip('.')})")
                continue

            texts.extend(page.blocks)
            notes.extend(page.notes)
            is_cover = index == 0 and len(pages) > 1
            if page.has_picture and not page.blocks and not is_cover:
                pictures.append(name)
    if pictures:
        shown = ", ".join(pictures[:_NAMED_NOTES])
        if len(pictures) > _NAMED_NOTES:
            shown = f"{shown}, …"
        notes.append(f"{len(pictures)} of {len(pages)} pages are pictures without text ({shown})")
    return texts, list(dict.fromkeys(notes))


def _pages(archive: _Archive) -> Iterator[tuple[str, str | None]]:
    """Yields the name of each page and its path in the archive, or None if there is no path."""
    package_name = archive.package_name()
    package = archive.xml(package_name)
    hrefs = {
        item.get("id"): item.get("href", "").partition("#")[0]
        for item in package.iterfind(".//{*}manifest/{*}item")
    }
    for reference in package.iterfind(".//{*}spine/{*}itemref"):
        name = reference.get("idref", "")
        if name not in hrefs:
            yield name, None
            continue
        href = hrefs[name]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(package_name), href))
        yield unquote(href), path
