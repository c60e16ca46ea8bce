"""Puts tables between the markers of a page: ``<!-- results: NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

MARKED = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
WIDTH = 130  # columns of a line of prose


def render(page: str, tables: Mapping[str, str]) -> str:
    """Replaces what is between the markers of a page.

    Args:
        page: text with markers.
        tables: Markdown by name of the marker. The text of other markers is kept.
    """

    def replaced(match: re.Match[str]) -> str:
        if match[2] not in tables:
            return match[0]
        return f"{match[1]}{tables[match[2]]}\n{match[3]}"

    return MARKED.sub(replaced, page)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Makes a Markdown table; the first row has the headings, the first column the names."""
    head, *others = rows
    border = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, border, *others))


def provenance(about: str, measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Says in lines of prose by which sections a table was measured, and when, for each commit."""
    sections: dict[str, list[str]] = {}
    for name, facts in measured.items():
        sections.setdefault(f"{facts['date']}, commit {facts['commit']}", []).append(f"`{name}`")
    runs = [f"{', '.join(names)} ({run})" for run, names in sections.items()]
    text = f"Measured by {', '.join(runs)}. {about}"
    return "\n".join(textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))
