"""Reads the text of Word files (ECMA-376, part 1).

Every element that holds text is read, whatever is around it, except what Word does not show. A list
of the elements to read would lose the text of all others. Symbols need the extra ``files``.
"""

import io
import posixpath
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable

from lxml import etree

from .files import UNPACKED_LIMIT, TooLargeError
from .word_numbers import ParagraphNumbers, find_value, value

# Word shows nothing of these: what was deleted or moved away, properties, readings over characters
# and the data points of charts.
_NOT_SHOWN = frozenset(
    "del moveFrom numCache numDim numLit pPr rPr rt sdtPr sectPr tblPr tcPr trPr".split()
)
_PARAGRAPHS = frozenset("p pt".split())  # pt: a label of a chart
_CHARACTERS = {"br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t", "tab": "\t"}
_TEXTS = frozenset("pt t v".split())  # v: a label of a chart
_OTHER_FILES = frozenset("altChunk subDoc".split())
# Parts after the text, in order.
_NOTES = ("footnotes", "endnotes")
_MARGINS = ("header", "footer")
_COMMENTS = ("comments",)


def read_docx(data: bytes) -> tuple[list[str], list[str]]:
    """Returns the paragraphs of a Word file, and notes on what was not read.

    Notes, headers, footers and comments follow the text.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(part.file_size for part in archive.infolist() if part.filename.endswith(".xml"))
        if size > UNPACKED_LIMIT:
            raise TooLargeError("it")
        return _WordFile(archive).read()


class _WordFile:
    """Reads the parts of a Word file, which is a zip archive of XML files."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.notes = list[str]()
        self.unknown_symbols = Counter[str]()
        self.main_part = "word/document.xml"
        for kind, target in self._relations("").values():
            if kind == "officeDocument":
                self.main_part = target

        self.parts: dict[str, list[str]] = {}
        for kind, target in self._relations(self.main_part).values():
            self.parts.setdefault(kind, []).append(target)
        self.numbers = ParagraphNumbers(
            numbering=self._xml_of_kind("numbering"), styles=self._xml_of_kind("styles")
        )

    def read(self) -> tuple[list[str], list[str]]:
        main = etree.fromstring(self.archive.read(self.main_part), _parser())
        paragraphs = self._paragraphs(main, self.main_part)
        paragraphs.extend(self._paragraphs_of_kinds(_NOTES))
        # Each section has headers and footers of its own, which are often the same.
        paragraphs.extend(dict.fromkeys(self._paragraphs_of_kinds(_MARGINS)))
        paragraphs.extend(self._paragraphs_of_kinds(_COMMENTS))
        for font, count in self.unknown_symbols.items():
            self.notes.append(f"symbols of the font {font} without a known character: {count}")
        return paragraphs, list(dict.fromkeys(self.notes))

    def _relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Returns the kind and the target of the relations of a part, by their ids."""
        folder, name = posixpath.split(part)
        path = posixpath.join(folder, "_rels", f"{name}.rels")
        if path not in self.archive.namelist():
            return {}
        relations = {}
        for relation in etree.fromstring(self.archive.read(path), _parser()):
            kind = posixpath.basename(relation.get("Type", ""))
            target = relation.get("Target", "")
            if relation.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            relations[relation.get("Id", "")] = (kind, target)
        return relations

    def _xml(self, part: str) -> etree._Element | None:
        """Parses a part; a part that is damaged is named, and costs no other."""
        try:
            return etree.fromstring(self.archive.read(part), _parser())
        except (KeyError, etree.XMLSyntaxError, zipfile.BadZipFile, zlib.error):
            self.notes.append(f"{part} is missing or damaged")
            return None

    def _xml_of_kind(self, kind: str) -> etree._Element | None:
        if kind not in self.parts:
            return None
        return self._xml(self.parts[kind][0])

    def _paragraphs_of_kinds(self, kinds: Iterable[str]) -> list[str]:
        paragraphs = []
        for kind in kinds:
            for part in self.parts.get(kind, []):
                root = self._xml(part)
                if root is not None:
                    paragraphs.extend(self._paragraphs(root, part))
        return paragraphs

    def _paragraphs(self, root: etree._Element, part: str) -> list[str]:
        """Returns the paragraphs of a part; those of a text box go before the one around it."""
        relations = self._relations(part)
        paragraphs = _Paragraphs()
        walk = etree.iterwalk(root, events=("start", "end"), tag="{*}*")
        for event, element in walk:
            name = etree.QName(element).localname
            if event == "end":
                if name in _PARAGRAPHS:
                    paragraphs.end(goes_on=element.find("{*}pPr/{*}rPr/{*}del") is not None)
            elif _is_hidden(element, name):
                walk.skip_subtree()
            else:
                if name in _PARAGRAPHS:
                    paragraphs.begin(number=self.numbers.next_of(element))
                paragraphs.add(self._text(element, name, relations))
        return paragraphs.close()

    def _text(
        self, element: etree._Element, name: str, relations: dict[str, tuple[str, str]]
    ) -> str:
        """Returns the text of an element without the elements in it."""
        if name in _TEXTS:
            return (element.text or "").replace("\n", " ")
        if name in _CHARACTERS:
            return _CHARACTERS[name]
        if name == "sym":
            return self._symbol(element)
        if name == "textpath":  # a word as a picture
            return element.get("string", "")
        if name == "ddList":
            return _chosen(element)
        if name in _OTHER_FILES:
            self.notes.append("a file within the file is not read")
        elif name in ("chart", "relIds"):
            return self._drawing(element, relations)
        return ""

    def _symbol(self, element: etree._Element) -> str:
        from mammoth.docx.dingbats import dingbats

        font = value(element, "font")
        code = int(value(element, "char") or "0", 16)
        character = dingbats.get((font, code & 0xFF)) or dingbats.get((font, code))
        if character is None:
            self.unknown_symbols[font] += 1
            return ""
        return chr(character)

    def _drawing(self, element: etree._Element, relations: dict[str, tuple[str, str]]) -> str:
        """Returns the labels of a diagram or chart, which are in a part of their own."""
        lines = []
        for relation_id in element.attrib.values():
            kind, part = relations.get(relation_id, ("", ""))
            if kind.startswith(("chart", "diagramData")):
                root = self._xml(part)
                if root is not None:
                    lines.extend(self._paragraphs(root, part))
        return "\n".join(lines)


class _Paragraphs:
    """Gathers paragraphs, which may have others within them."""

    def __init__(self) -> None:
        self.texts = list[str]()
        self.numbers = [""]
        self.open: list[list[str]] = [[]]  # pieces of the paragraphs that have begun
        self.begun = list[str]()  # pieces before a deleted paragraph mark

    def begin(self, number: str) -> None:
        self.numbers.append(number)
        self.open.append(self.begun)
        self.begun = []

    def add(self, piece: str) -> None:
        self.open[-1].append(piece)

    def end(self, goes_on: bool = False) -> None:
        """Ends the innermost paragraph, or goes on with the next one in it."""
        number = self.numbers.pop()
        pieces = self.open.pop()
        if goes_on:
            self.begun = pieces
            return
        text = "".join(pieces).strip()
        if text:
            self.texts.append(f"{number}{text}")

    def close(self) -> list[str]:
        self.open[-1].extend(self.begun)
        self.end()
        return self.texts


def _parser() -> etree.XMLParser:
    return etree.XMLParser(resolve_entities=False, huge_tree=True)


def _is_hidden(element: etree._Element, name: str) -> bool:
    """Returns whether Word shows nothing of an element."""
    if name in _NOT_SHOWN:
        return True
    if name == "tr":
        return element.find("{*}trPr/{*}del") is not None
    if name in ("Choice", "Fallback"):  # the same in another form, for other programs
        return any(
            next(version.iter("{*}t"), None) is not None
            for version in element.itersiblings(preceding=True)
        )
    return False


def _chosen(element: etree._Element) -> str:
    """Returns the entry of a drop-down list that is shown."""
    entries = [value(entry, "val") for entry in element.iterfind("{*}listEntry")]
    index = find_value(element, "{*}result") or find_value(element, "{*}default") or "0"
    if int(index) >= len(entries):
        return ""
    return entries[int(index)]
