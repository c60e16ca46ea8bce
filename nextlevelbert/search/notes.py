"""Notes about files: what of a file was not read, or is unknown to the model."""

import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..messages import names_in_line


class Note(NamedTuple):
    """A note about a file.

    Args:
        head: the beginning of the printed line.
        rest: the rest of a sentence that begins with the name of the file.
        kind: notes of the same kind are printed together (default: notes with the same rest).
    """

    head: str
    rest: str
    kind: str = ""


class Notes:
    """Collects notes about files. Notes of the same kind become one line, printed once."""

    def __init__(self) -> None:
        self._printed = set[str]()
        self._first = dict[tuple[str, str], str]()  # the line of each kind, about its first file
        self._others = dict[tuple[str, str], list[str]]()

    def add(self, name: str, notes: Iterable[Sequence[str]]) -> None:
        """Adds the notes about the file of that name."""
        for head, rest, kind in notes:
            key = (head, kind or rest)
            if key in self._first:
                self._others[key].append(name)
            else:
                self._first[key] = f"{head}: {name}{rest}"
                self._others[key] = []

    def add_line(self, line: str) -> None:
        """Adds a whole line."""
        self._first[line, ""] = line
        self._others[line, ""] = []

    def print(self) -> None:
        """Prints the new notes to stderr, beside a progress bar, and forgets all."""
        if not self._first:
            return
        from tqdm import tqdm  # a third of the time that numpy takes

        for key, first in self._first.items():
            line = first
            others = list(dict.fromkeys(self._others[key]))
            if others:
                line = f"{first} The same holds for {names_in_line(others)}."
            if line not in self._printed:
                self._printed.add(line)
                tqdm.write(line, file=sys.stderr)
        self._first.clear()
        self._others.clear()
