"""The pairs of Zhou et al. (2020, arXiv 2010.01263): citations (AAN, OC, S2ORC), plagiarism (PAN).

Their ``.csv`` files have no names in the first line, but a label, 0 or 1, a first text and a
second, as their published code reads them; further columns are ignored. The character U+0001, which
marks citations, is removed from the texts.
"""

import csv
from pathlib import Path

from datasets import Dataset

from ..files import UNPACKED_LIMIT, open_text, reason, suffix
from ..pairs import load_pairs
from ..tables import RowLocation, Rows, Table

_COLUMNS = ("label", "text1", "text2")


def recognises(source: str | Path) -> bool:
    """Returns whether a CSV begins with a label in place of names."""
    path = Path(source)
    if suffix(path) != ".csv" or not path.is_file():
        return False
    _, first = next(_pair_rows(path), (None, {"label": ""}))
    return first["label"].strip() in ("0", "1")


def load(source: str | Path, split: str = "train") -> Dataset:
    """Reads a file.

    Args:
        source: the ``.csv`` file, perhaps packed as ``.gz``.
        split: ignored, because a file is one split.

    Returns:
        The columns of `load_pairs`.
    """
    path = Path(source)
    return load_pairs(Table(path.name, {}, rows=_pair_rows(path), class_names={}))


def _pair_rows(path: Path) -> Rows:
    csv.field_size_limit(UNPACKED_LIMIT)  # csv's own, 131,072, is less than a long document
    with open_text(path, newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            for fields in filter(None, reader):
                values = [value.replace("\x01", "") for value in fields]
                row = dict(zip(_COLUMNS, values, strict=False))
                yield RowLocation(path.name, f"line {reader.line_num}"), row
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {reason(error)}") from error
