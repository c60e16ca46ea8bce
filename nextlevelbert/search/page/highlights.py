"""Texts as HTML: the words of a question are bold, and a passage is marked."""

from collections.abc import Sequence, Set
from itertools import pairwise, product

import numpy as np
import regex
from markupsafe import Markup, escape

from ...data.words import search_words
from ..passages import join_lines

Span = tuple[int, int]  # the first character of a part of a text, and its last plus one
_RUN = regex.compile(r"([\p{L}\p{M}\p{N}]+)")
_BLANK_LINES = regex.compile(r"(\n\s*\n)")
# What is left of a line at the beginning of a part of a text: all if it is short, else a word.
CUT_LINE = regex.compile(r"\A(?:[^\n]{0,100}\n|\S*\s*)")
_IN_VIEW = 200  # characters of a snippet that a narrow window shows, too
_TEXT_IN_LINE = regex.compile(r"\S[^\n]*")
_NOT_LETTERS = regex.compile(r"[^\p{L}]+")
_OUTER_NUMBER = regex.compile(r"^\d{1,5}\b|\b\d{1,5}$")
_PAGE_NUMBER = regex.compile(r"\W*(?:\d{1,5}|[ivxlc]+)\W*")
# An indented line, a prompt, a comment, an option, an import, an assignment or the head of a block,
# or else signs of code in a line without three words in small letters one after the other.
_CODE_LINE = regex.compile(
    r"\s+\S|[$>#@]|```|--|(?:from \S+ )?import |[\w., ]+ = |.*(?:\):|[({\[]|[)}\]];)$"
    r"|(?!.*[\p{Ll},] \p{Ll}+ \p{Ll}+).*[(){}\[\]=<>_]"
)


def bold_words(text: str, words: Set[str]) -> Markup:
    """Returns a text as HTML, in which the given words are bold.

    Words are compared as search compares them, so without case and accents. In scripts without
    spaces, a run of letters is bold if it holds one of the words.

    Example:
        >>> print(bold_words("Brontë & the moor", {"bronte"}))
        <b>Brontë</b> &amp; the moor
    """
    parts = _RUN.split(text)
    shown = list(map(escape, parts))
    for index in range(1, len(parts), 2):
        if not words.isdisjoint(search_words(parts[index])):
            shown[index] = Markup("<b>{}</b>").format(parts[index])
    return Markup("").join(shown)


def snippet(text: str, words: Set[str]) -> str:
    """Returns a passage from the part that holds most of the given words.

    The first of equally good parts is taken. An ellipsis marks what is left out before it.
    """
    text = _BLANK_LINES.sub("\n", join_lines(text)).strip("\n")
    best = 0
    most = 0
    for run in _RUN.finditer(text):
        if not words.isdisjoint(search_words(run.group())):
            part = text[run.start() : run.start() + _IN_VIEW]
            held = len(words & set(search_words(part)))
            if held > most:
                most = held
                best = run.start()

    if best < _IN_VIEW // 2:
        return text
    before = CUT_LINE.sub("", text[best - _IN_VIEW // 2 : best])
    return f"… {before}{text[best:]}"


def running_lines(text: str, page_starts: Sequence[int]) -> list[Span]:
    """Finds page numbers and running heads of a PDF among the first and last lines of its pages.

    A running head recurs within two pages, or has a number that grows with the pages.

    Args:
        text: the document.
        page_starts: the character at which each page begins.

    Returns:
        The first character of each line, and the last plus one, in their order.
    """
    lines = []
    seen = set[tuple[int, str]]()  # what recurs on other pages if a line is a head
    for page, borders in enumerate(pairwise([*page_starts, len(text)])):
        spans = [line.span() for line in _TEXT_IN_LINE.finditer(text, *borders)]
        for span in dict.fromkeys([*spans[:1], *spans[-1:]]):
            line = text[slice(*span)]
            numbers = map(int, _OUTER_NUMBER.findall(line))
            signs = {_NOT_LETTERS.sub("", line), *(str(number - page) for number in numbers)}
            signs.discard("")
            seen.update(product([page], signs))
            lines.append((page, signs, span))

    running = []
    for page, signs, span in lines:
        near = product([page - 2, page - 1, page + 1, page + 2], signs)
        if not seen.isdisjoint(near) or _PAGE_NUMBER.fullmatch(text, *span):
            running.append(span)
    return running


def marked_text(
    text: str,
    shown: Span,
    *,
    marked: Span,
    running: Sequence[Span],
    words: Set[str],
) -> Markup:
    """Returns a part of a document as HTML, in which a passage is marked.

    Lines of paragraphs are joined. Page numbers and running heads are outside of the mark.

    Args:
        text: the document.
        shown: the characters of the part.
        marked: the characters of the passage.
        running: the characters of page numbers and running heads, in their order.
        words: the words that are bold in the passage.
    """
    html = []
    position, end = shown
    for head_start, head_end in [*running, (end, end)]:
        if not position <= head_start <= head_end <= end:
            continue
        between = text[position:head_start]
        position = head_start - len(between.lstrip("\n"))
        for block in _BLANK_LINES.split(between.strip("\n")):
            html.append(_marked_block(block, marked=np.subtract(marked, position), words=words))
            position += len(block)
        if head_start < head_end:
            html.append(Markup("<small>{}</small>").format(text[head_start:head_end]))
        position = head_end
    return Markup("").join(html)


def _marked_block(text: str, marked: np.ndarray, words: Set[str]) -> Markup:
    """Marks a part of a text without blank lines. It is code if two thirds of its lines are."""
    lines = text.split("\n")
    code = [line for line in lines if _CODE_LINE.match(line)]
    html = Markup("<code>{}{}{}</code>")
    if 3 * len(code) <= 2 * len(lines):
        html = Markup("{}{}{}")
        text = join_lines(text)
    first, last = marked.clip(0, len(text))
    passage = bold_words(text[first:last], words)
    if passage.strip():
        passage = Markup("<mark>{}</mark>").format(passage)
    return html.format(text[:first], passage, text[last:])
