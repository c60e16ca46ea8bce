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
        self._kinds = dict[tuple[str, str], list[tuple[str, str]]]()  # names of files, and lines

    def add(self, name: str, notes: Iterable[Sequence[str]]) -> None:
        """Adds the notes about the file of that name."""
        for head, rest, kind in notes:
            line = f"{head}: {name}{rest}"
            self._kinds.setdefault((head, kind or rest), []).append((name, line))

    def add_line(self, line: str) -> None:
        """Adds a whole line."""
        self._kinds[line, ""] = [("", line)]

    def print(self) -> None:
        """Prints the new notes to stderr, and forgets all."""
        for [(_, first), *others] in self._kinds.values():
            line = first
            names = list(dict.fromkeys(name for name, _ in others))
            if names:
                line += f" The same holds for {names_in_line(names)}."
            if line not in self._printed:
                self._printed.add(line)
                print(line, file=sys.stderr)
        self._kinds.clear()
