"""Reads the text of EPUB files, which are zip archives of XHTML pages (EPUB 3.3)."""

import posixpath
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import unquote

from lxml import etree

from ..files import TooLargeError, reason
from .archives import DAMAGED, Archive, parse_xml
from .html import parse_page

_PACKAGE_TYPE = "application/oebps-package+xml"
_PAGE_TYPE = "application/xhtml+xml"
_FALLBACKS_AT_MOST = 20  # of one page
_LONGEST_PATH = 500  # characters of a path that may be spelled in other ways
_UTF8_FLAG = 0x800  # of a name in a zip archive
_NAMED_NOTES = 10


class _Archive(Archive):
    """Reads the files of an EPUB."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.names = _names(self.zip_file)
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
        if not self.encrypted.isdisjoint(_spellings(path)):
            raise ValueError("encrypted (DRM)")
        return self.unpack(name)

    def xml(self, path: str) -> etree._Element:
        """Parses one XML file as far as it goes; what is no XML is an element without content."""
        root = parse_xml(self.read(path) or b" ", recover=True)
        if root is None:
            return etree.Element("empty")
        return root

    def package_name(self) -> str:
        """Returns the name of the file that lists the pages."""
        if self.holds("META-INF/container.xml"):
            root_files = self.xml("META-INF/container.xml").iterfind(".//{*}rootfile")
            # Others may be renditions of another kind, such as a PDF.
            for root_file in sorted(root_files, key=_is_no_package):
                name = root_file.get("full-path", "")
                if self.holds(name):
                    return name

        for name in self.names.values():
            if name.lower().endswith(".opf"):
                return name

        raise ValueError("it has no package file (.opf), which lists the pages")


def _is_no_package(root_file: etree._Element) -> bool:
    return root_file.get("media-type") != _PACKAGE_TYPE


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
    if len(path) > _LONGEST_PATH:  # normalizing takes the square of a run of accents
        return path, path, path
    plain = unicodedata.normalize("NFC", unquote(path).replace("\\", "/")).lstrip("/")
    return path, plain, plain.lower()


def read_epub(data: bytes) -> tuple[list[str], list[str]]:
    """Returns the paragraphs of the pages in reading order, and notes on pages without text.

    A page that cannot be read costs no other.

    Raises:
        ValueError: if the archive lists no pages, or takes too much when it is unpacked.
    """
    texts = list[str]()
    notes = list[str]()
    pictures = list[str]()
    archive = _Archive(data)
    pages = list(_pages(archive))
    for index, (name, path) in enumerate(pages):
        if path is None:
            notes.append(f"page {name!r} is not in the manifest")
            continue
        try:
            page = parse_page(archive.read(path))
        except TooLargeError:
            raise
        except (ValueError, OSError, *DAMAGED) as error:
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
    """Yields the name of each page and its path in the archive, or None if there is no path.

    A page is read once, also if the book lists several places in it.
    """
    package_name = archive.package_name()
    package = archive.xml(package_name)
    items = {item.get("id", ""): item for item in package.iterfind(".//{*}manifest/{*}item")}
    references = package.findall(".//{*}spine/{*}itemref")
    if not references:
        raise ValueError(f"its package file {package_name} lists no pages")

    paths = set()
    for reference in references:
        name = reference.get("idref", "")
        if name not in items:
            yield name, None
            continue
        href = _page_item(items, name).get("href", "").partition("#")[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(package_name), href))
        archive.spend(len(path))
        if path not in paths:
            paths.add(path)
            yield unquote(href), path


def _page_item(items: Mapping[str, etree._Element], name: str) -> etree._Element:
    """Returns an item of the manifest, or the page that is shown for an item of another type."""
    item = items[name]
    for _ in range(_FALLBACKS_AT_MOST):
        if item.get("media-type", "").lower() == _PAGE_TYPE:
            break
        item = items.get(item.get("fallback", ""), item)
    return item
