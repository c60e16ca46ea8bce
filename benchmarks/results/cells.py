"""Cells of the tables: how figures are shown, and which of a column is bold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Of a JSON file in the folder `measured`: facts of the run, and `rows` of figures by column.
Measured = Mapping[str, Any]
Cell = Callable[[Any], str]


def mean_of(value: Any) -> float:
    """Returns the number of a figure, which may have bounds."""
    if isinstance(value, Sequence):
        return value[0]
    return value


def score(value: Any) -> str:
    return f"{mean_of(value):.3f}"


def score_with_bounds(value: Sequence[float]) -> str:
    mean, low, high = value
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


def score_with_short_bounds(value: Sequence[float]) -> str:
    mean, low, high = value
    return f"{mean:.3f} ({low:.2f} to {high:.2f})"


def score_with_any_bounds(value: Any) -> str:
    """Shows a score, with its bounds if they are shown by other digits."""
    if isinstance(value, Sequence) and len({*map(score, value)}) > 1:
        return score_with_bounds(value)
    return score(value)


def difference(value: Sequence[float]) -> str:
    """Shows the bounds of a difference; nothing for the row that others are compared with."""
    mean, low, high = value
    if mean == low == high == 0:
        return ""
    return f"{low:+.3f} to {high:+.3f}".replace("-", "−")


def text(value: str) -> str:
    return value


def bold(value: Any, form: Cell, best: float | None) -> str:
    """Shows a figure, with its number in bold if it is shown as the best one is."""
    shown = form(value)
    if best is None or round(mean_of(value), 3) != round(best, 3):
        return shown
    number, *bounds = shown.split(" ", 1)
    return " ".join([f"**{number}**", *bounds])


def make_table(
    measured: Measured,
    heading: str,
    columns: Mapping[str, tuple[str, Cell]],
    names: Mapping[str, str],
) -> list[list[str]]:
    """Makes the cells of a table, with the best score of each column in bold.

    Rows without figures are left out.

    Args:
        measured: JSON of a section.
        heading: heading of the first column.
        columns: key of the figures and form of the cells, by heading.
        names: names of the rows in the page, by their names in the JSON, in the order of the page.

    Returns:
        The rows of the table; the first one has the headings.
    """
    rows = measured["rows"]
    names = {row: name for row, name in names.items() if row in rows}
    best: dict[str, float | None] = {}
    for key, form in columns.values():
        if form not in (difference, text):
            scores = [mean_of(rows[row][key]) for row in names if key in rows[row]]
            best[key] = max(scores, default=None)
    table = [[heading, *columns]]
    for row, name in names.items():
        cells = [name]
        for key, form in columns.values():
            shown = ""
            if key in rows[row]:
                shown = bold(rows[row][key], form, best.get(key))
            cells.append(shown)
        table.append(cells)
    return table


def group(
    heading: str, table: Sequence[Sequence[str]], notes: Mapping[str, str] | None = None
) -> list[list[str]]:
    """Makes a table a part of a larger one with the same columns.

    Args:
        heading: name of the part, which becomes a row in bold.
        table: cells; the headings of the columns, in the first row, are left out.
        notes: cells of the heading's row, by the heading of the column.
    """
    [_, *columns], *rows = table
    cells = [(notes or {}).get(column, "") for column in columns]
    return [[f"**{heading}**", *cells], *map(list, rows)]


def merge(measured: Mapping[str, Measured]) -> Measured:
    """Puts the rows of several sections together."""
    rows: dict[str, dict[str, Any]] = {}
    for part in measured.values():
        for row, cells in part["rows"].items():
            rows.setdefault(row, {}).update(cells)
    return {"rows": rows}
