"""Reads letters of a PDF that are placed one by one: turned labels, and letters with a shadow."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pypdfium2 import PdfTextPage

# Two doubled letters in a row: PDFium puts a letter and its shadow side by side.
_DOUBLED = re.compile(r"(?:(\S)\1+\s?){2}")
_LINE_END = "\r\n"
_MOST_DEGREES = 3  # between a line and an edge of the page
_SPACE = 0.1  # of the height of a letter, as in poppler
_SHADOW_ALONG = 0.75  # of the width of a letter
_SHADOW_ACROSS = 0.25  # of the height of a letter
_RIGHT_TO_LEFT = {"R", "AL"}


class _Line(NamedTuple):
    """A line as PDFium reads it.

    Args:
        text: the line.
        indices: the indices of its letters.
        quarter: its direction in quarters of a circle, clockwise.
        is_turned: whether readers see it turned.
    """

    text: str
    indices: Sequence[int]
    quarter: int
    is_turned: bool


class _Letter(NamedTuple):
    """A letter, with its place along its line (start, end) and across it (middle)."""

    character: str
    start: float
    end: float
    middle: float
    height: float


def read_letters(text_page: PdfTextPage, rotation: int) -> str:
    """Returns the text of a page, in which letters that are placed one by one become words.

    PDFium reads upright letters, turned words and turned lines. It tears a turned line whose
    letters are placed one by one, and doubles letters that have a shadow. Such lines are written
    from the places of their letters; all others are PDFium's.

    Args:
        text_page: the text of the page.
        rotation: the degrees by which viewers turn the page, clockwise.
    """
    texts = []
    lines = _lines(text_page, rotation)
    for (_, is_turned), group in groupby(lines, key=attrgetter("quarter", "is_turned")):
        if is_turned:
            texts.extend(_read_turned(text_page, list(group)))
        else:
            texts.extend(_read_upright(text_page, line) for line in group)
    return _LINE_END.join(texts)


def _lines(text_page: PdfTextPage, rotation: int) -> Iterator[_Line]:
    """Yields the lines of a page; without a direction of their own, they are upright."""
    from pypdfium2 import raw

    text = text_page.get_text_range()
    indices: Sequence[int] = range(text_page.count_chars())
    if len(indices) != len(text):  # the text leaves out letters that have no character
        indices = [index for index in indices if raw.FPDFText_GetUnicode(text_page, index)]

    upright = -rotation // 90 % 4
    start = 0
    for line in text.split(_LINE_END):
        places = indices[start : start + len(line)]
        start += len(line) + len(_LINE_END)
        quarter = upright
        if len(indices) == len(text) and line:
            quarters = math.degrees(raw.FPDFText_GetCharAngle(text_page, places[0])) / 90
            if abs(quarters - round(quarters)) * 90 < _MOST_DEGREES:
                quarter = round(quarters) % 4
        yield _Line(line, places, quarter, is_turned=quarter != upright)


def _read_upright(text_page: PdfTextPage, line: _Line) -> str:
    """Returns an upright line without the shadows of its letters."""
    if not _DOUBLED.search(line.text):
        return line.text
    text = " ".join(_arranged(_letters(text_page, line)))
    if len(_without_spaces(text)) < len(_without_spaces(line.text)):
        return text
    return line.text


def _read_turned(text_page: PdfTextPage, lines: list[_Line]) -> list[str]:
    """Returns turned lines; they are written in their own direction if PDFium tore them."""
    texts = [line.text for line in lines]
    letters = list[_Letter]()
    for line in lines:
        letters.extend(_letters(text_page, line))
    arranged = _arranged(letters)
    if list(map(_without_spaces, arranged)) == list(map(_without_spaces, texts)):
        return texts
    if any(unicodedata.bidirectional(letter.character) in _RIGHT_TO_LEFT for letter in letters):
        return texts
    return arranged


def _letters(text_page: PdfTextPage, line: _Line) -> Iterator[_Letter]:
    """Yields the letters of a line, without the spaces that PDFium has put between them."""
    from pypdfium2 import raw

    box = raw.FS_RECTF()
    for character, index in zip(line.text, line.indices, strict=True):
        if raw.FPDFText_IsGenerated(text_page, index):
            continue
        raw.FPDFText_GetLooseCharBox(text_page, index, box)
        along = (box.left, box.right)
        across = (box.bottom, box.top)
        if line.quarter % 2 == 1:
            along, across = across, along
        if line.quarter in (1, 2):
            along = (-along[1], -along[0])
        low, high = across
        yield _Letter(character, *along, middle=(low + high) / 2, height=high - low)


def _arranged(letters: Iterable[_Letter]) -> list[str]:
    """Returns the lines that letters form in their own direction.

    A letter belongs to the line of the letter before it if it is about as high and at most one
    letter's height away from that line.
    """
    lines = list[list[_Letter]]()
    start = end = middle = 0.0
    for letter in letters:
        height = letter.height
        is_near = start - height <= letter.end and letter.start <= end + height
        if lines and is_near and abs(letter.middle - middle) < height / 2:
            lines[-1].append(letter)
            start = min(start, letter.start)
            end = max(end, letter.end)
        else:
            lines.append([letter])
            start = letter.start
            end = letter.end
        middle = letter.middle
    return [_text_of(line) for line in lines]


def _text_of(letters: list[_Letter]) -> str:
    """Returns the text of a line: spaces are put into gaps, and shadows are dropped."""
    last_of = dict[str, _Letter]()
    text = ""
    end = -math.inf
    for letter in sorted(letters, key=attrgetter("start")):
        last = last_of.get(letter.character)
        if last is None or not _is_shadow(letter, last):
            if letter.start - end > _SPACE * letter.height:
                text += " "
            text += letter.character
            end = letter.end
            last_of[letter.character] = letter
    return " ".join(text.split())


def _is_shadow(letter: _Letter, other: _Letter) -> bool:
    """Returns whether a letter is on an equal one, which a neighbour on the line never is."""
    along = letter.start - other.start
    across = abs(letter.middle - other.middle)
    width = letter.end - letter.start
    return along < _SHADOW_ALONG * width and across < _SHADOW_ACROSS * letter.height


def _without_spaces(text: str) -> str:
    return "".join(text.split())
