"""Texts as HTML: the words of a question are bold, and a passage is marked."""

from collections import Counter
from collections.abc import Sequence, Set
from itertools import pairwise, product

import numpy as np
import regex
from markupsafe import Markup, escape

from ...data.words import search_words
from ..passages import join_lines

Span = tuple[int, int]
"""The first character of a part of a text, and its last plus one."""
_RUN = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_LONGEST_SNIPPET = 360  # characters, about three lines
_BLANK_LINES = regex.compile(r"\n\s*\n")
_NOT_LETTERS = regex.compile(r"[^\p{L}]+")
_OUTER_NUMBER = regex.compile(r"^\d{1,5}\b|\b\d{1,5}$")
_PAGE_NUMBER = regex.compile(r"\W*(?:\d{1,5}|[ivxlc]+)\W*")


def bold_words(text: str, words: Set[str]) -> Markup:
    """Returns a text as HTML, in which the given words are bold.

    Words are compared as search compares them, so without case and accents. In scripts without
    spaces, a run of letters is bold if it holds one of the words.

    Example:
        >>> print(bold_words("Brontë & the moor", {"bronte"}))
        <b>Brontë</b> &amp; the moor
    """
    shown = list[str]()
    end = 0
    for run in _RUN.finditer(text):
        if words.isdisjoint(search_words(run.group())):
            continue
        shown.append(escape(text[end : run.start()]))
        shown.append(Markup("<b>{}</b>").format(run.group()))
        end = run.end()
    shown.append(escape(text[end:]))
    return Markup("".join(shown))


def snippet(text: str, words: Set[str]) -> str:
    """Returns the part of a passage, about three lines, that holds most of the given words.

    The first of equally good parts is returned. An ellipsis marks what is left out.
    """
    text = _BLANK_LINES.sub("\n", join_lines(text)).strip("\n")
    if len(text) <= _LONGEST_SNIPPET:
        return text
    places = list[tuple[int, str]]()
    for run in _RUN.finditer(text):
        held = words & set(search_words(run.group()))
        places.extend((run.start(), word) for word in held)
    best = 0
    most = 0
    within = Counter[str]()  # words between two places, and how often
    stop = 0
    for start, word in places:
        while stop < len(places) and places[stop][0] < start + _LONGEST_SNIPPET // 2:
            within[places[stop][1]] += 1
            stop += 1
        if len(within) > most:
            most = len(within)
            best = start
        within[word] -= 1
        if within[word] == 0:
            del within[word]

    start = max(0, best - _LONGEST_SNIPPET // 4)
    end = start + _LONGEST_SNIPPET
    shown = text[start:end]
    if start > 0:
        shown = f"… {shown.partition(' ')[2] or shown}"
    if end < len(text):
        shown = f"{shown.rpartition(' ')[0] or shown} …"
    return shown


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
    for page, (start, end) in enumerate(pairwise([*page_starts, len(text)])):
        for first, last in _outer_lines(text, start, end):
            line = text[first:last]
            signs = {_NOT_LETTERS.sub("", line)}
            for number in _OUTER_NUMBER.findall(line):
                signs.add(str(int(number) - page))
            signs.discard("")
            seen.update(product([page], signs))
            lines.append((page, signs, (first, last)))

    running = []
    for page, signs, span in lines:
        near = product([page - 2, page - 1, page + 1, page + 2], signs)
        if not seen.isdisjoint(near) or _PAGE_NUMBER.fullmatch(text, *span):
            running.append(span)
    return running


def _outer_lines(text: str, start: int, end: int) -> list[Span]:
    """Returns the first and the last line of a page."""
    end = start + len(text[start:end].rstrip())
    start = end - len(text[start:end].lstrip())
    first_end = text.find("\n", start, end)
    if first_end == -1:
        return [(start, end)]
    return [(start, first_end), (text.rfind("\n", start, end) + 1, end)]


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
    html = Markup()
    position, end = shown
    for head_start, head_end in [*running, (end, end)]:
        if not position <= head_start <= head_end <= end:
            continue
        between = text[position:head_start]
        start = head_start - len(between.lstrip("\n"))
        html += _marked_lines(between.strip("\n"), marked=np.subtract(marked, start), words=words)
        if head_start < head_end:
            html += Markup("<small>{}</small>").format(text[head_start:head_end])
        position = head_end
    return html


def _marked_lines(text: str, marked: np.ndarray, words: Set[str]) -> Markup:
    """Joins the lines of a text without running heads, and marks a part of it."""
    lines = join_lines(text)
    first, last = marked.clip(0, len(lines))
    passage = bold_words(lines[first:last], words)
    if passage.strip():
        passage = Markup("<mark>{}</mark>").format(passage)
    return escape(lines[:first]) + passage + escape(lines[last:])
