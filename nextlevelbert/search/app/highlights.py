"""Texts as HTML in which the words of a question are bold."""

from collections.abc import Set

import regex
from markupsafe import Markup

from ...data.words import search_words

_RUN = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_LONGEST_SNIPPET = 360  # characters, about three lines


def bold_words(text: str, words: Set[str]) -> Markup:
    """Returns a text as HTML, in which the given words are bold.

    Words are compared as search compares them, so without case and accents. In scripts without
    spaces, a run of letters is bold if it holds one of the words.

    Example:
        >>> print(bold_words("Brontë & the moor", {"bronte"}))
        <b>Brontë</b> &amp; the moor
    """
    shown = Markup()
    end = 0
    for run in _RUN.finditer(text):
        if words.isdisjoint(search_words(run.group())):
            continue
        shown += text[end : run.start()]
        shown += Markup("<b>{}</b>").format(run.group())
        end = run.end()
    return shown + text[end:]


def snippet(text: str, words: Set[str]) -> str:
    """Returns the part of a text, about three lines, that holds most of the given words.

    The first of equally good parts is returned. An ellipsis marks what is left out.
    """
    text = " ".join(text.split())
    if len(text) <= _LONGEST_SNIPPET:
        return text

    places = list[tuple[int, str]]()
    for run in _RUN.finditer(text):
        held = words & set(search_words(run.group()))
        places.extend((run.start(), word) for word in held)
    best = 0
    most = 0
    for start, _ in places:
        end = start + _LONGEST_SNIPPET // 2
        count = len({word for place, word in places if start <= place < end})
        if count > most:
            most = count
            best = start

    start = max(0, best - _LONGEST_SNIPPET // 4)
    end = start + _LONGEST_SNIPPET
    shown = text[start:end]
    if start > 0:
        shown = f"… {shown.partition(' ')[2] or shown}"
    if end < len(text):
        shown = f"{shown.rpartition(' ')[0] or shown} …"
    return shown
