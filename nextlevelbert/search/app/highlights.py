"""Texts as HTML in which the words of a question are bold."""

from collections import Counter
from collections.abc import Set

import regex
from markupsafe import Markup, escape

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
