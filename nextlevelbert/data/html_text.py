"""The text of an HTML page, by the standard library's parser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from .texts import read_text

_NO_TEXT = {"script", "style", "template", "title"}
_BLOCKS = set(
    "address article aside blockquote body br caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol optgroup option p pre "
    "search section summary table tbody td tfoot th thead tr ul".split()
)


def read_html(path: Path) -> str:
    """What a page says: its text without markup, scripts, styles and title; a blank line between blocks.

    White space is one space wherever it is not in ``<pre>``.

    Raises:
        FileNotFoundError, ValueError: as `read_text`; ValueError for a script or style that is never closed.
    """
    return page_text(read_text(path), path)


def page_text(page: str, path: Path) -> str:
    """As `read_html`, of a page that was read already; `path` is what messages call it."""
    parser = _TextParser()
    try:
        parser.feed(page)
        parser.close()
    except AssertionError as error:  # what html.parser raises where a declaration is broken
        raise ValueError(f"{path}, line {parser.getpos()[0]}: the HTML cannot be read ({error}). Mend it.") from error
    if parser.silent:
        raise ValueError(
            f"{path}, line {parser.silent_line}: <{parser.silent}> is never closed, so the rest of the page has no "
            "text. Mend the page."
        )
    return parser.text()


class _TextParser(HTMLParser):
    """Gathers blocks of text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.silent, self.silent_line = "", 0  # the element we are in whose content is no text
        self._preformatted = 0
        self._blocks: list[str] = [""]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _NO_TEXT and not self.silent:
            self.silent, self.silent_line = tag, self.getpos()[0]
        elif tag in _BLOCKS:
            self._end_block()
            self._preformatted += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag == self.silent:
            self.silent = ""
        elif tag in _BLOCKS:
            self._end_block()
            self._preformatted -= tag == "pre" and self._preformatted > 0

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self._blocks[-1] += data if self._preformatted else re.sub(r"[ \t\n\f]+", " ", data)

    def text(self) -> str:
        self._end_block()
        return "\n\n".join(self._blocks[:-1])

    def _end_block(self) -> None:
        block = self._blocks.pop()
        block = block.strip("\n") if self._preformatted else re.sub(" +", " ", block).strip(" ")
        self._blocks += [block, ""] if block.strip() else [""]
