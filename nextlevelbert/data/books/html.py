"""Reads the text of HTML and XHTML pages as browsers show it.

lxml parses a page by the rules of XML or of HTML; `PageText` gathers the text from its events.
"""

import html
import re
from collections.abc import Mapping
from functools import lru_cache, partial

import webencodings
from lxml import etree

from ..files import NulError, decode, encoding_of_mark
from .encodings import decode_escapes

# Tags that begin and end a paragraph; browsers treat tags that they do not know as part of a line.
_BLOCK_TAGS = frozenset(
    "address article aside audio blockquote body canvas caption center dd details dialog dir div dl"
    " dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html iframe"
    " legend level level1 level2 level3 li listing main menu nav object ol optgroup option p"
    " plaintext pre search section select summary table tbody td text textarea tfoot th thead tr"
    " ul video xmp".split()
)
_PREFORMATTED_TAGS = frozenset("listing plaintext pre xmp".split())
# Readings, code, and what browsers show only if they cannot show the element itself. An epub:case
# is for readers that know its language; all others show epub:default instead.
_SILENT_TAGS = frozenset(
    "audio canvas datalist epub:case iframe meter noembed noframes noscript object progress rp rt"
    " script style video".split()
)
_MARKS = frozenset("br image img input meta tspan".split())
_FOREIGN_TAGS = frozenset("math svg".split())
# The title of a page; descriptions of drawings and sources of formulas, which browsers do not show.
_NAMES = frozenset("annotation annotation-xml desc metadata title".split())
_PARTS = _FOREIGN_TAGS | _NAMES | {"template"}
_INPUTS_WITHOUT_TEXT = frozenset("checkbox color file hidden image password radio range".split())
_HTML_PREFIXES = ("h", "html", "xhtml")
_EPUB = "{http://www.idpf.org/2007/ops}"
# Stands for <br> until white space is joined.
_LINE_BREAK = "\v"

_XHTML = re.compile(r"\s*<\?xml\s|[^<]*(?:<[!?][^>]*>[^<]*)*<html\s[^>]*\bxmlns", re.IGNORECASE)
# XML itself names five characters, HTML many more.
_ENTITY_OF_HTML = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z][A-Za-z0-9]*;")
_OWN_ENTITY = re.compile(r"<!ENTITY\s+([\w.-]+)\s")
_XML_DECLARATION = re.compile(rb"""\s*<\?xml\s[^>]*?\bencoding\s*=\s*["']([^"'>]+)["']""")
_CHARSET = re.compile(r"""charset\s*=\s*(?:["']\s*)?([^\s"';]+)""", re.IGNORECASE)
_CDATA = "[CDATA["
_RAW_TEXT_TAGS = "iframe noembed noframes plaintext script style textarea title xmp".split()
# Elements in which tags are text, up to their end tag; comments; drawings and formulas, in which
# the rules of XML hold. The slash of a start tag means nothing in HTML.
_RAW_TEXT = (
    r"<!--.*?(?:-->|\Z)|<(svg|math)\b.*?(?:</\1|\Z)"
    rf"|(?P<start><(?P<name>noscript|{'|'.join(_RAW_TEXT_TAGS)})"
    r"(?=[\s/>])[^<>]*?)SLASH>(?P<content>.*?)(?P<end></(?P=name)(?=[\s/>])[^<>]*>?|\Z)"
)
_RAW_TEXT_OF_HTML = re.compile(_RAW_TEXT.replace("SLASH", "/?"), re.IGNORECASE | re.DOTALL)
_RAW_TEXT_OF_XHTML = re.compile(_RAW_TEXT.replace("SLASH", "(?<!/)"), re.IGNORECASE | re.DOTALL)
_DEEPEST = 512  # open tags, as in Chromium: libxml2 looks for the start of an end tag among all
_PIECE = re.compile("(?s).{0,4096}[^<]*")  # of a page that is parsed, up to a tag
# A text with a larger share of damaged characters is in another encoding; a European text that is
# read as UTF-8 has fewer than 0.15. With a larger share of NUL bytes, it is UTF-16 or no text.
_MOST_DAMAGED = 0.25


class PageText:
    """Gathers paragraphs of text from the events of lxml's parsers, which call its methods.

    Attributes:
        blocks: paragraphs of the page.
        title: the text of ``<title>``, which is not in `blocks`.
        has_picture: whether the page shows an image or a drawing.
        charset: the encoding that the page declares in ``<meta>``.
        open_tags: the tags that have begun.
        notes: what of the page could not be read.
    """

    def __init__(self) -> None:
        self.title = ""
        self.blocks = list[str]()
        self.has_picture = False
        self.charset = ""
        self.open_tags = list[str]()
        self.notes = list[str]()
        self._pieces = list[str]()
        self._title_pieces = list[str]()
        self._in_title = False
        self._silent_depth = 0
        self._preformatted_depth = 0
        self._foreign_depth = 0  # of drawings and formulas
        self._templates_shown = list[bool]()

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.open_tags.append(tag)
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
        elif name == "meta":
            self.charset = self.charset or _declared_charset(attributes)
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
        self.open_tags.pop()
        name = _html_name(tag)
        if name in _PREFORMATTED_TAGS:
            self._preformatted_depth -= 1
            self._end_paragraph(preformatted=True)
        elif name in _BLOCK_TAGS:
            self._end_paragraph()

        if name in _SILENT_TAGS:
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
    name = tag.replace(_EPUB, "epub:").rpartition("}")[2].lower()
    prefix, _, local_name = name.rpartition(":")
    if prefix in _HTML_PREFIXES:
        return local_name
    return name


def parse_page(data: bytes) -> PageText:
    """Parses a page: as XML if it is well-formed XHTML, else as HTML.

    Raises:
        UnicodeError: if the page is in another encoding than it declares.
    """
    try:
        markup = decode_escapes(decode(data))
    except UnicodeError:
        page = _parse_markup(_decode_damaged(data))
        text = "".join(page.blocks)
        damaged = text.count("\ufffd")
        if damaged > _MOST_DAMAGED * len(text):
            raise
        if damaged > 0:
            page.notes.append("characters that are not in the encoding of a page are U+FFFD")
        return page

    return _parse_markup(markup)


def _parse_markup(markup: str) -> PageText:
    markup = markup.replace("\r\n", "\n")
    raw_text = _RAW_TEXT_OF_HTML
    if _XHTML.match(markup):
        raw_text = _RAW_TEXT_OF_XHTML
        own = frozenset(_OWN_ENTITY.findall(markup))
        with_characters = _ENTITY_OF_HTML.sub(partial(_escape_entity, own=own), markup)
        parser = etree.XMLParser(encoding="utf-8", huge_tree=True, target=PageText())
        try:
            parser.feed(with_characters.encode())
            return parser.close()
        except etree.XMLSyntaxError:
            pass

    return _parse_html(raw_text.sub(_with_end_only_by_tag, markup))


def _escape_entity(entity: re.Match[str], own: frozenset[str]) -> str:
    """Returns the character of an entity of HTML, which XML's parser would drop.

    That parser reads the page's own entities, and refuses a page in which they grow too much.
    """
    if entity[0][1:-1] in own:
        return entity[0]
    return html.escape(html.unescape(entity[0]))


def _with_end_only_by_tag(element: re.Match[str]) -> str:
    """Returns an element without the slash of its start tag; nothing for ``<noscript>``."""
    if not element["end"]:
        return element[0]
    if element["name"].lower() == "noscript":
        return ""
    return f"{element['start']}>{element['content']}{element['end']}"


def _parse_html(markup: str) -> PageText:
    """Parses HTML in linear time: of many open tags, the inner ones are closed."""
    page = PageText()
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, target=page)
    for piece in _PIECE.findall(markup):
        parser.feed(piece.encode())
        inner = page.open_tags[_DEEPEST:]
        if inner and inner[-1] not in _RAW_TEXT_TAGS:
            parser.feed("".join(f"</{tag}>" for tag in reversed(inner)).encode())
    return parser.close()


def _declared_charset(attributes: Mapping[str, str]) -> str:
    """Returns the encoding that the attributes of ``<meta>`` declare, or nothing."""
    if "charset" in attributes:
        return attributes["charset"]
    if attributes.get("http-equiv", "").lower() == "content-type":
        charset = _CHARSET.search(attributes.get("content", ""))
        if charset is not None:
            return charset[1]
    return ""


def _decode_damaged(data: bytes) -> str:
    """Decodes a page that is not wholly UTF-8 by the encoding that it declares.

    A page that is mostly UTF-8 is decoded as UTF-8. Bytes in no encoding become U+FFFD; NUL is left
    out. The names of encodings are those that browsers know (https://encoding.spec.whatwg.org).

    Raises:
        UnicodeError: if the page holds so many NUL characters that it is no text, or if it is
            damaged ISO-2022-JP without a declaration.
    """
    encoding = encoding_of_mark(data)
    if encoding is not None:
        return data.decode(encoding, errors="replace")
    if data.count(0) > _MOST_DAMAGED * len(data):
        raise NulError

    data = data.replace(b"\0", b"")
    text = data.decode(errors="replace")
    damaged = text.count("\ufffd")
    others = len(text) - len(text.encode("ascii", errors="ignore")) - damaged
    declared = webencodings.lookup(_declared_label(data))
    if declared is None or declared.name.startswith("utf-") or damaged < others:
        return decode_escapes(text)
    if declared.name == "gbk":  # browsers read it by the larger table
        return data.decode("gb18030", errors="replace")

    return declared.codec_info.decode(data, "replace")[0]


def _declared_label(data: bytes) -> str:
    declaration = _XML_DECLARATION.match(data)
    if declaration is not None:
        return declaration[1].decode("latin-1")
    return _parse_html(data.decode("latin-1")).charset


def read_html(data: bytes) -> tuple[list[str], list[str]]:
    """Returns the paragraphs of a page, its title first, and a note on damaged characters."""
    page = parse_page(data)
    blocks = page.blocks
    if page.title and page.title not in blocks[:1]:
        blocks = [page.title, *blocks]
    return blocks, page.notes
