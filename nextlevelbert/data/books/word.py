"""Reads the text of Word files (ECMA-376, part 1).

Every element that holds text is read, whatever is around it, except what Word does not show. A list
of the elements to read would lose the text of all others. Symbols need the extra ``files``.
"""

import posixpath
from collections import Counter
from collections.abc import Iterable

from lxml import etree

from .archives import DAMAGED, Archive, parse_xml
from .word_numbers import (
    ParagraphNumbers,
    find_value,
    hidden_styles,
    is_on,
    value,
    whole_number,
)

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
_COMMENTS = ("comments",)
# The elements of notes and comments by the elements that refer to them.
_REFERENCES = {
    "footnoteReference": "footnote",
    "endnoteReference": "endnote",
    "commentReference": "comment",
    "commentRangeStart": "comment",
}
_REFERRED = frozenset(_REFERENCES.values())
_VERSIONS = frozenset(("Choice", "Fallback"))  # the same in another form, for other programs


def read_docx(data: bytes) -> tuple[list[str], list[str]]:
    """Returns the paragraphs of a Word file, and notes on what was not read.

    Notes, headers, footers and comments follow the text.

    Raises:
        ValueError: if the file takes too much when it is unpacked.
    """
    return _WordFile(Archive(data)).read()


class _WordFile:
    """Reads the parts of a Word file, which is a zip archive of XML files."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.notes = list[str]()
        self.unknown_symbols = Counter[str]()
        self.main_part = "word/document.xml"
        for kind, target in self._relations("").values():
            if kind == "officeDocument":
                self.main_part = target

        self.read_parts = {self.main_part}
        self.relations = self._relations(self.main_part)
        self.parts: dict[str, list[str]] = {}
        for kind, target in self.relations.values():
            self.parts.setdefault(kind, []).append(target)

        self.numbers = ParagraphNumbers(
            numbering=self._xml_of_kind("numbering"), styles=self._xml_of_kind("styles")
        )
        self.hidden_styles = hidden_styles(self.numbers.styles)
        self.referred = set[tuple[str, str]]()  # the kinds and ids of notes

    def read(self) -> tuple[list[str], list[str]]:
        main = parse_xml(self.archive.unpack(self.main_part))
        paragraphs = self._paragraphs(main, self.relations)
        for kind in _NOTES:
            paragraphs.extend(self._paragraphs_of_parts(self.parts.get(kind, [])))

        # Each section has headers and footers of its own, which are often the same.
        paragraphs.extend(dict.fromkeys(self._paragraphs_of_parts(self._margins(main))))
        for kind in _COMMENTS:
            paragraphs.extend(self._paragraphs_of_parts(self.parts.get(kind, [])))

        for font, count in self.unknown_symbols.items():
            self.notes.append(f"symbols of the font {font} without a known character: {count}")

        return paragraphs, list(dict.fromkeys(self.notes))

    def _relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Returns the kind and the target of the relations of a part, by their ids."""
        folder, name = posixpath.split(part)
        path = posixpath.join(folder, "_rels", f"{name}.rels")
        if path not in self.archive.zip_file.NameToInfo:
            return {}

        relations: dict[str, tuple[str, str]] = {}
        root = self._xml(path)
        if root is None:
            return relations

        for relation in root.iterfind("{*}Relationship"):
            kind = posixpath.basename(relation.get("Type", ""))
            target = relation.get("Target", "")
            if relation.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            self.archive.spend(len(target))
            relations[relation.get("Id", "")] = (kind, target)

        return relations

    def _xml(self, part: str) -> etree._Element | None:
        """Parses a part; a part that is damaged is named, and costs no other."""
        try:
            return parse_xml(self.archive.unpack(part))
        except DAMAGED:
            self.notes.append(f"{part} is missing or damaged")
            return None

    def _xml_of_kind(self, kind: str) -> etree._Element | None:
        if kind not in self.parts:
            return None
        return self._xml(self.parts[kind][0])

    def _margins(self, main: etree._Element) -> list[str]:
        """Returns the parts with the headers and footers that a section shows, each once.

        A section without a header of a kind has that of the section before.
        """
        settings = self._xml_of_kind("settings")
        has_even_pages = settings is not None and is_on(settings, "{*}evenAndOddHeaders")
        parts: dict[tuple[str, str], str] = {}
        shown: dict[str, None] = {}
        for section in main.iter("{*}sectPr"):
            has_first_page = is_on(section, "{*}titlePg")
            are_shown = {"default": True, "even": has_even_pages, "first": has_first_page}
            for reference in section.iterchildren("{*}headerReference", "{*}footerReference"):
                kind = value(reference, "type")
                for relation_id in reference.attrib.values():
                    if relation_id in self.relations and kind in are_shown:
                        _, parts[reference.tag, kind] = self.relations[relation_id]

            for (_, kind), part in parts.items():
                if are_shown[kind]:
                    shown[part] = None

        return [*shown]

    def _paragraphs_of_parts(self, parts: Iterable[str]) -> list[str]:
        """Returns the paragraphs of parts that were not read before."""
        paragraphs = []
        for part in parts:
            if part in self.read_parts:
                continue
            self.read_parts.add(part)
            root = self._xml(part)
            if root is not None:
                paragraphs.extend(self._paragraphs(root, self._relations(part)))
        return paragraphs

    def _paragraphs(self, root: etree._Element, relations: dict[str, tuple[str, str]]) -> list[str]:
        """Returns the paragraphs of a part; those of a text box go before the one around it."""
        paragraphs = _Paragraphs()
        walk = etree.iterwalk(root, events=("start", "end"), tag="{*}*")
        for event, element in walk:
            name = etree.QName(element).localname
            if event == "end":
                paragraphs.end_element(element, name)
            elif self._is_hidden(element, name, paragraphs):
                walk.skip_subtree()
            else:
                if name in _PARAGRAPHS:
                    number = self.numbers.next_of(element)
                    self.archive.spend(len(number))
                    paragraphs.begin(number, style=find_value(element, "{*}pPr/{*}pStyle"))
                elif name in _VERSIONS:
                    paragraphs.begin_version(element)

                paragraphs.add(self._text(element, name, relations))

        return paragraphs.close()

    def _is_hidden(self, element: etree._Element, name: str, paragraphs: "_Paragraphs") -> bool:
        """Returns whether Word shows nothing of an element."""
        if name in _NOT_SHOWN:
            return True
        if name == "r":
            return self._is_hidden_run(element, paragraphs.styles[-1])
        if name == "tr":
            return element.find("{*}trPr/{*}del") is not None
        if name in _VERSIONS:
            return element.getparent() in paragraphs.chosen
        return name in _REFERRED and (name, value(element, "id")) not in self.referred

    def _is_hidden_run(self, run: etree._Element, paragraph_style: str) -> bool:
        is_hidden = is_on(run, "{*}rPr/{*}vanish")
        if is_hidden is not None:
            return is_hidden
        # The style of a run switches that of its paragraph off again.
        style = find_value(run, "{*}rPr/{*}rStyle")
        return (style in self.hidden_styles) != (paragraph_style in self.hidden_styles)

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
        if name in _REFERENCES:
            self.referred.add((_REFERENCES[name], value(element, "id")))
        elif name in _OTHER_FILES:
            self.notes.append("a file within the file is not read")
        elif name in ("chart", "relIds"):
            return self._drawing(element, relations)

        return ""

    def _symbol(self, element: etree._Element) -> str:
        from mammoth.docx.dingbats import dingbats

        font = value(element, "font")
        code = whole_number(value(element, "char"), base=16)
        character = dingbats.get((font, code & 0xFF)) or dingbats.get((font, code))
        if character is None:
            self.unknown_symbols[font] += 1
            return ""
        return chr(character)

    def _drawing(self, element: etree._Element, relations: dict[str, tuple[str, str]]) -> str:
        """Returns the labels of a diagram or chart, which are in a part of their own."""
        parts = []
        for relation_id in element.attrib.values():
            kind, part = relations.get(relation_id, ("", ""))
            if kind.startswith(("chart", "diagramData")):
                parts.append(part)
        text = "\n".join(self._paragraphs_of_parts(parts))
        self.archive.spend(len(text))
        return text


class _Paragraphs:
    """Gathers paragraphs, which may have others within them."""

    def __init__(self) -> None:
        self.texts = list[str]()
        self.numbers = [""]
        self.styles = [""]
        self.open: list[list[str]] = [[]]  # pieces of the paragraphs that have begun
        self.begun = list[str]()  # pieces before a deleted paragraph mark
        self.size = 0  # characters that were added
        # The versions that have begun, with the size before each, and the elements around versions
        # of which one has text.
        self.versions = list[tuple[etree._Element, int]]()
        self.chosen = set[etree._Element | None]()
        # The pieces of the paragraph in which each field has begun, and how many there were.
        self.fields = list[tuple[list[str], int]]()

    def begin(self, number: str, style: str) -> None:
        self.numbers.append(number)
        self.styles.append(style)
        self.open.append(self.begun)
        self.begun = []

    def begin_version(self, element: etree._Element) -> None:
        self.versions.append((element, self.size))

    def add(self, piece: str) -> None:
        self.open[-1].append(piece)
        self.size += len(piece.strip())

    def end_element(self, element: etree._Element, name: str) -> None:
        if name in _PARAGRAPHS:
            self.end(goes_on=element.find("{*}pPr/{*}rPr/{*}del") is not None)
        elif name == "fldChar":
            self._end_field_mark(value(element, "fldCharType"))
        elif self.versions and element is self.versions[-1][0]:
            _, size = self.versions.pop()
            if self.size > size:
                self.chosen.add(element.getparent())

    def _end_field_mark(self, kind: str) -> None:
        """Removes the code of a field, which is between its first mark and its separator."""
        if kind == "begin":
            self.fields.append((self.open[-1], len(self.open[-1])))
        elif kind == "separate" and self.fields:
            pieces, size = self.fields[-1]
            if pieces is self.open[-1]:
                del pieces[size:]
            self.fields[-1] = ([], 0)
        elif kind == "end" and self.fields:
            self.fields.pop()

    def end(self, goes_on: bool = False) -> None:
        """Ends the innermost paragraph, or goes on with the next one in it."""
        number = self.numbers.pop()
        self.styles.pop()
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


def _chosen(element: etree._Element) -> str:
    """Returns the entry of a drop-down list that is shown."""
    entries = [value(entry, "val") for entry in element.iterfind("{*}listEntry")]
    index = whole_number(find_value(element, "{*}result") or find_value(element, "{*}default"))
    if index not in range(len(entries)):
        return ""
    return entries[index]
