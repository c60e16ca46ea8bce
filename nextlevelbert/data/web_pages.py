"""Reads the text of HTML and XHTML pages as browsers show it.

lxml parses a page by the rules of XML or of HTML; `PageText` gathers the text from its events.
"""

import html
import re
from collections.abc import Mapping
from functools import lru_cache

import webencodings
from lxml import etree

from .encodings import decode_escapes
from .files import decode

# Tags that begin and end a paragraph; browsers treat tags that they do not know as part of a line.
_BLOCK_TAGS = frozenset(
    "address article aside audio blockquote body canvas caption center dd details dialog dir div dl"
    " dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html iframe"
    " legend level level1 level2 level3 li listing main menu nav object ol optgroup option p"
    " plaintext pre search section select summary table tbody td text textarea tfoot th thead tr"
    " ul video xmp".split()
)
_PREFORMATTED_TAGS = frozenset("listing plaintext pre xmp".split())
_SILENT_TAGS = frozenset("rp rt script style".split())
_MARKS = frozenset("br image img input tspan".split())
_FOREIGN_TAGS = frozenset("math svg".split())
# The title of a page; descriptions of drawings and sources of formulas, which browsers do not show.
_NAMES = frozenset("annotation annotation-xml desc metadata title".split())
_PARTS = _FOREIGN_TAGS | _NAMES | {"template"}
_INPUTS_WITHOUT_TEXT = frozenset("checkbox color file hidden image password radio range".split())
_HTML_PREFIXES = ("h", "html", "xhtml")
# Stands for <br> until white space is joined.
_LINE_BREAK = "\v"

_XHTML = re.compile(r"\s*<\?xml\s|[^<]*(?:<[!?][^>]*>[^<]*)*<html\s[^>]*\bxmlns", re.IGNORECASE)
# XML itself names five characters, HTML many more.
_ENTITY_OF_HTML = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z][A-Za-z0-9]*;")
_XML_DECLARATION = re.compile(rb"""\s*<\?xml\s[^>]*?\bencoding\s*=\s*["']([^"'>]+)["']""")
_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([^\s"';]+)""", re.IGNORECASE)
_DECLARED_WITHIN = 4096  # bytes
_CDATA = "[CDATA["


class PageText:
    """Gathers paragraphs of text from the events of lxml's parsers, which call its methods.

    Attributes:
        blocks: paragraphs of the page.
        title: the text of ``<title>``, which is not in `blocks`.
        has_picture: whether the page shows an image or a drawing.
    """

    def __init__(self) -> None:
        self.title = ""
        self.blocks = list[str]()
        self.has_picture = False
        self._pieces = list[str]()
        self._title_pieces = list[str]()
        self._in_title = False
        self._silent_depth = 0
        self._preformatted_depth = 0
        self._foreign_depth = 0  # of drawings and formulas
        self._templates_shown = list[bool]()

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = _html_name(tag)
        if name in _BLOCK_TAGS:
            self._end_paragraph()
            if name in _PREFORMATTED_TAGS:
                self._preformatted_depth += 1
        elif name in _SILENT_TAGS:
            self._silent_depth += 1
        elif name in _MARKS:
            self._read_mark(name, attributes)
        elif name in _PARTS:
            self._start_part(name, attributes)

    def _read_mark(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "br":
            self._pieces.append(_LINE_BREAK)
        elif name == "tspan":
            if not {"x", "y", "dy"}.isdisjoint(attributes):  # a line of its own
                self._pieces.append(_LINE_BREAK)
        elif name == "input":
            if attributes.get("type", "").lower() not in _INPUTS_WITHOUT_TEXT:
                self.data(f" {attributes.get('value', '')} ")
        else:
            self.has_picture = True

    def _start_part(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "template":
            self._templates_shown.append("shadowrootmode" in attributes)
            self._silent_depth += not self._templates_shown[-1]
        elif name in _FOREIGN_TAGS:
            self._foreign_depth += 1
            self.has_picture = self.has_picture or name == "svg"
        elif self._foreign_depth > 0:
            self._silent_depth += 1
        elif name == "title":
            self._in_title = True

    def end(self, tag: str) -> None:
        name = _html_name(tag)
        if name in _PREFORMATTED_TAGS:
            self._preformatted_depth -= 1
            self._end_paragraph(preformatted=True)
        elif name in _BLOCK_TAGS:
            self._end_paragraph()
        elif name in _SILENT_TAGS:
            self._silent_depth -= 1
        elif name in _PARTS:
            self._end_part(name)

    def _end_part(self, name: str) -> None:
        if name == "template":
            self._silent_depth -= not self._templates_shown.pop()
        elif name in _FOREIGN_TAGS:
            self._foreign_depth -= 1
        elif self._foreign_depth > 0:
            self._silent_depth -= 1
        elif name == "title":
            self._in_title = False
            self.title = self.title or " ".join("".join(self._title_pieces).split())

    def data(self, text: str) -> None:
        if self._silent_depth > 0:
            return
        if self._in_title:
            self._title_pieces.append(text)
        else:
            self._pieces.append(text)

    def comment(self, text: str) -> None:
        """Reads a CDATA section in a drawing or formula, which lxml's HTML parser ends at a >."""
        if self._foreign_depth > 0 and text.startswith(_CDATA):
            content = text.removeprefix(_CDATA)
            if content.endswith("]]"):
                self.data(content.removesuffix("]]"))
            else:
                self.data(f"{content}>")

    def close(self) -> "PageText":
        self._end_paragraph()
        return self

    def _end_paragraph(self, preformatted: bool = False) -> None:
        if self._preformatted_depth > 0:
            if self._pieces and not self._pieces[-1].endswith("\n"):
                self._pieces.append("\n")
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        if preformatted:
            lines = text.replace(_LINE_BREAK, "\n").split("\n")
            block = "\n".join(line.rstrip() for line in lines)
        else:
            block = "\n".join(" ".join(line.split()) for line in text.split(_LINE_BREAK))
        if block.strip():
            self.blocks.append(block.strip("\n"))


@lru_cache(maxsize=1024)
def _html_name(tag: str) -> str:
    """Returns the name of a tag without its namespace, and without a prefix that means HTML."""
    name = tag.rpartition("}")[2].lower()
    prefix, _, local_name = name.rpartition(":")
    if prefix in _HTML_PREFIXES:
        return local_name
    return name


def parse_page(data: bytes) -> PageText:
    """Parses a page: as XML if it is well-formed XHTML, else as HTML.

    Raises:
        UnicodeError: if the page is in another encoding than it declares.
    """
    markup = decode_page(data).replace("\r\n", "\n")
    if _XHTML.match(markup) and "<!ENTITY" not in markup:
        with_characters = _ENTITY_OF_HTML.sub(_escape_entity, markup)
        try:
            return _parse(with_characters, etree.XMLParser)
        except etree.XMLSyntaxError:
            pass
    return _parse(markup, etree.HTMLParser)


def _escape_entity(entity: re.Match[str]) -> str:
    """Returns the character of an entity of HTML; XML's parser would drop the entity."""
    return html.escape(html.unescape(entity[0]))


def _parse(markup: str, parser_class: type[etree.XMLParser] | type[etree.HTMLParser]) -> PageText:
    parser = parser_class(encoding="utf-8", huge_tree=True, target=PageText())
    parser.feed(markup.encode())
    return parser.close()


class _Declaration:
    """Finds the encoding that a page declares in ``<meta>``, from the events of lxml's parser."""

    def __init__(self) -> None:
        self.label = ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag != "meta" or self.label:
            return
        if "charset" in attributes:
            self.label = attributes["charset"]
        elif attributes.get("http-equiv", "").lower() == "content-type":
            charset = _CHARSET.search(attributes.get("content", ""))
            if charset is not None:
                self.label = charset[1]

    def close(self) -> str:
        return self.label


def decode_page(data: bytes) -> str:
    """Decodes a page by its byte order mark, else as UTF-8, else by the encoding it declares.

    The names of encodings are those that browsers know (https://encoding.spec.whatwg.org).

    Raises:
        UnicodeError: if the bytes are in none of these.
    """
    try:
        text = decode(data)
    except UnicodeDecodeError:
        encoding = webencodings.lookup(_declared_label(data))
        if encoding is None:
            raise
        if encoding.name == "gbk":  # browsers read it by the larger table
            return data.decode("gb18030")
        return encoding.codec_info.decode(data)[0]
    return decode_escapes(text)


def _declared_label(data: bytes) -> str:
    declaration = _XML_DECLARATION.match(data)
    if declaration is not None:
        return declaration[1].decode("latin-1")
    parser = etree.HTMLParser(encoding="iso-8859-1", target=_Declaration())
    parser.feed(data[:_DECLARED_WITHIN])
    return parser.close()


def read_html(data: bytes) -> tuple[list[str], list[str]]:
    """Returns the paragraphs of a page, its title first, and no notes."""
    page = parse_page(data)
    blocks = page.blocks
    if page.title and page.title not in blocks[:1]:
        blocks = [page.title, *blocks]
    return blocks, []
