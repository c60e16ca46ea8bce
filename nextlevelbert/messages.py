"""Writes names, texts and values for messages."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

# Characters that would end a line, colour a terminal or turn the direction of a text.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# The same for texts, in which white space and the direction of a phrase are no control.
_CONTROLS_IN_TEXT = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202d\u202e]")
_SHOWN_NAMES = 10


def readable_name(path: str | Path) -> str:
    r"""Returns a name that can be printed and stored, also if it is not valid Unicode.

    Bytes of a file name that are not UTF-8, halves of surrogate pairs, line ends and other control
    characters are written as escapes.

    Example:
        >>> readable_name("caf\udce9.txt"), readable_name("\ud83d"), readable_name("a\nb.txt")
        ('caf\\xe9.txt', '\\ud83d', 'a\\nb.txt')
    """
    try:
        name = os.fsencode(path).decode(errors="backslashreplace")
    except UnicodeEncodeError:
        name = str(path).encode(errors="backslashreplace").decode()
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], name)


def readable_text(text: str) -> str:
    r"""Returns a text in which characters that a terminal would obey are written as escapes.

    Example:
        >>> readable_text("clear \x1b[2J the screen")
        'clear \\x1b[2J the screen'
    """
    return _CONTROLS_IN_TEXT.sub(lambda match: ascii(match[0])[1:-1], text)


def short(value: object) -> str:
    """Returns a value and its type, for messages."""
    text = repr(value)
    if len(text) > 60:
        text = f"{text[:57]}..."
    return f"{text} ({type(value).__name__})"


def names_in_line(names: Sequence[str]) -> str:
    """Joins the first names of a list, and counts the others."""
    shown = ", ".join(names[:_SHOWN_NAMES])
    others = len(names) - _SHOWN_NAMES
    if others > 0:
        return f"{shown} and {others:,} more"
    return shown
