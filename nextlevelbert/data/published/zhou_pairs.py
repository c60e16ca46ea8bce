"""The pairs of Zhou et al. (2020, arXiv 2010.01263): citations (AAN, OC, S2ORC), plagiarism (PAN).

Their ``.csv`` files have no names in the first line, but a label, 0 or 1, a first text and a
second, as their published code reads them; further columns are ignored. The character U+0001, which
marks citations, is removed from the texts.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset

from ..files import UNPACKED_LIMIT, open_text, suffix
from ..pairs import load_pairs
from ..tables import RowLocation, Rows, Table

_COLUMNS = ("label", "text1", "text2")


def recognises(source: str | Path) -> bool:
    """Returns whether a CSV begins with a label in place of names."""
    path = Path(source)
    if suffix(path) != ".csv" or not path.is_file():
        return False
    first = next(_fields(path), [""])
    return first[0].strip() in ("0", "1")


def load(source: str | Path, split: str = "train") -> Dataset:
    """Reads a file.

    Args:
        source: the ``.csv`` file, perhaps packed as ``.gz``.
        split: ignored, because a file is one split.

    Returns:
        As `load_pairs`.
    """
    path = Path(source)
    return load_pairs(Table(path.name, {}, rows=_pair_rows(path), class_names={}))


def _fields(path: Path) -> Iterator[list[str]]:
    csv.field_size_limit(UNPACKED_LIMIT)  # csv's own, 131,072, is less than a long document
    with open_text(path, newline="") as file:
        yield from filter(None, csv.reader(file, strict=True))


def _pair_rows(path: Path) -> Rows:
    for index, fields in enumerate(_fields(path)):
        values = [value.replace("\x01", "") for value in fields]
        row = dict(zip(_COLUMNS, values, strict=False))
        yield RowLocation(path.name, f"row {index}"), row
