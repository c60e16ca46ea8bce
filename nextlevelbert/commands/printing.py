"""Output of the commands: coloured in a terminal, plain lines in a pipe, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .shelf import Unreadable


def print_json(answer: dict[str, Any], unreadable: Sequence[Unreadable]) -> None:
    """One JSON object on standard output; the files that were left out are part of it."""
    print(json.dumps({**answer, "unreadable": [each._asdict() for each in unreadable]}, ensure_ascii=False, indent=2))


def print_unreadable(unreadable: Sequence[Unreadable]) -> None:
    """The files that were left out, on standard error."""
    for each in unreadable:
        print(f"left out: {each.place}: {each.reason}", file=sys.stderr)


class Printer:
    """Lines and tables on standard output. In a pipe: no colours, tabs between columns, no line breaks of its own."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)

    def line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=not self._console.is_terminal)

    def paragraph(self, text: str) -> None:
        """A text, its white space made single spaces, set in from the left."""
        words = " ".join(text.split())
        if self._console.is_terminal:
            self._console.print(Padding(Text(words), (0, 2, 1, 4)))
        else:
            print(f"    {words}\n")

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> None:
        """Rows under titles; the columns of these numbers are flush left, the others flush right."""
        if not self._console.is_terminal:
            for row in [titles, *rows]:
                print("\t".join(row))
            return
        table = Table(box=None, header_style="dim", pad_edge=False)
        for number, title in enumerate(titles):
            if number in left:
                table.add_column(title, overflow="fold")
            else:
                table.add_column(title, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)
