"""Rows of a file or a dataset, each with the place it comes from; rows held out; the fingerprint of a set."""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from .files import TABLES, find_paths, is_saved_dataset, suffix
from .json_lines import read_json
from .tables import class_names, csv_rows, hub_dataset, open_saved_dataset, parquet_class_names, parquet_rows


class Place(NamedTuple):
    """Where a row comes from, to say what is wrong with it.

    Attributes:
        source: the file or dataset.
        row: such as ``row 3``, counted from 0.
        line: where it begins in a file that has lines, counted from 1.
    """

    source: str
    row: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.source}, {self.row} (counted from 0)" + (f", line {self.line}" if self.line else "")

    def error(self, column: str, message: str) -> ValueError:
        return ValueError(f"{self}, column {column!r}: {message}")

    def value(self, values: Mapping[str, Any], column: str, option: str) -> Any:
        if column not in values:
            raise ValueError(
                f"{self} has no column {column!r}; it has {', '.join(values) or 'none'}. Name the right one with "
                f"{option}."
            )
        return values[column]

    def checked(self, text: Any, column: str) -> str:
        if not isinstance(text, str):
            raise self.error(column, f"must be text, got {short(text)}.")
        if not text.strip():
            raise self.error(column, "is blank; leave the row out.")
        return text


Rows = Iterator[tuple[Place, dict[str, Any]]]


class Table(NamedTuple):
    """Rows with named columns.

    Attributes:
        name: of the source, without folders.
        first: the first row.
        rows: all of them, the first one too, each with its place; they can be read once.
        class_names: by column, where `datasets` stored names of classes.
    """

    name: str
    first: dict[str, Any]
    rows: Rows
    class_names: dict[str, tuple[str, ...]]


def open_rows(source: str | Path, split: str = "train", config: str | None = None) -> Table:
    """Opens a file of rows or a dataset.

    Args:
        source: a file for `placed_rows`, or a pattern of such files; a folder of ``save_to_disk``; or the name of a
            dataset on the Hub, or a folder laid out like one.
        split, config: of a dataset; a file is read whole.

    Raises:
        FileNotFoundError: for a file that is not there.
        ValueError: for a source without rows, or rows that cannot be read.
    """
    path, names = Path(source), dict[str, tuple[str, ...]]()
    if is_saved_dataset(path):
        name = path.resolve().name
        names, records = open_saved_dataset(path, split)
        rows = _placed(name, ((None, record) for record in records))
    elif files := [] if path.is_dir() else find_paths(source):
        name = path.name
        rows = itertools.chain.from_iterable(map(placed_rows, files))
        if suffix(files[0]) == ".parquet":
            names = parquet_class_names(files[0])
    elif not path.is_dir() and (suffix(path) in TABLES or glob.escape(str(path)) != str(path)):
        raise FileNotFoundError(f"There is no file {str(source)!r}. Check the path.")
    else:
        try:
            dataset = hub_dataset(str(source), config, split=split)
        except (FileNotFoundError, ConnectionError) as error:
            error.add_note(f"{str(source)!r} is no file here, so it was taken for a dataset on the Hub.")
            raise
        name = path.resolve().name if path.exists() else str(source)
        name = f"{name} ({config}, {split})" if config else f"{name} ({split})"
        names = class_names(dataset.features)
        rows = _placed(name, ((None, record) for record in dataset))
    try:
        start = next(rows)
    except StopIteration:
        raise ValueError(f"{name} is empty: it has no rows.") from None
    return Table(name, start[1], itertools.chain([start], rows), names)


def placed_rows(path: Path) -> Rows:
    """Streams the rows of a file with their places: Parquet and CSV by its name, else JSON (see `read_json`).

    All of these may be packed as ``.gz``. The values of a CSV are text.

    Raises:
        FileNotFoundError, ValueError: as `read_json`, `csv_rows` and `parquet_rows`.
    """
    rows: Iterator[tuple[int | None, dict[str, Any]]]
    if suffix(path) == ".parquet":
        rows = ((None, record) for record in parquet_rows(path))
    else:
        rows = iter(csv_rows(path) if suffix(path) == ".csv" else read_json(path))
    return _placed(path.name, rows)


def _placed(source: str, rows: Iterable[tuple[int | None, dict[str, Any]]]) -> Rows:
    for number, (line, record) in enumerate(rows):
        yield Place(source, f"row {number}", line), record


def file_rows(path: Path) -> Iterator[dict[str, Any]]:
    """As `placed_rows`, without the places."""
    return (record for _, record in placed_rows(path))


def find_packed(path: Path) -> Path | None:
    """The file, or the same file with ``.gz`` added to its name; None if there is neither."""
    packed = path.with_name(f"{path.name}.gz")
    return path if path.exists() else packed if packed.exists() else None


def short(value: Any) -> str:
    """A value and its type, for messages."""
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:57] + '...'} ({type(value).__name__})"


class _Set(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def source(self) -> str: ...


_Data = TypeVar("_Data", bound=_Set)
_Item = TypeVar("_Item")


def hold_out(
    data: _Data, rows: str, share: float, seed: int, key: Callable[[Any], Any] | None = None
) -> tuple[_Data, _Data]:
    """Splits a set at random into the rows to train on and those to validate on, each in their order.

    Args:
        data: a dataclass with its `source` and a list of rows.
        rows: name of that list.
        share: of the rows, or of the keys, that is held out.
        seed: of the draw.
        key: rows with the same key stay together; by default every row is on its own.

    Raises:
        ValueError: as `draw`.
    """
    every = getattr(data, rows)
    keys = list(range(len(every))) if key is None else [key(row) for row in every]
    held = draw(sorted(set(keys)), share, seed, f"{rows} of {data.source}")
    parts: tuple[list[Any], list[Any]] = ([], [])
    for row, name in zip(every, keys, strict=True):
        parts[name in held].append(row)
    return replace(data, **{rows: parts[0]}), replace(data, **{rows: parts[1]}, source=f"{data.source}, held out")


def draw(items: Sequence[_Item], share: float, seed: int, what: str) -> set[_Item]:
    """A share of distinct things, drawn at random: at least one, and never all.

    Args:
        items: in an order that is always the same, because it decides what a seed draws.
        share, seed: how many, and which.
        what: names the things in messages.

    Raises:
        ValueError: as `held_out_count`.
    """
    count = held_out_count(len(items), share, what)
    return {items[number] for number in np.random.default_rng(seed).permutation(len(items))[:count].tolist()}


def held_out_count(total: int, share: float, what: str) -> int:
    """How many of `total` things a share is: at least one, and never all.

    Raises:
        ValueError: for a share that is not above 0 and below 1, or fewer than two things.
    """
    if not 0 < share < 1:
        raise ValueError(f"The share to hold out must be above 0 and below 1, got {share}.")
    if total < 2:
        raise ValueError(
            f"Training and validation need at least one each of the {what}, and there is only {total}. Give a "
            "separate validation set."
        )
    return min(max(round(share * total), 1), total - 1)


def fingerprint(values: Iterable[Any]) -> str:
    """SHA-256 of values as one JSON array, written one by one: a large set is not held in memory twice."""
    digest = hashlib.sha256(b"[")
    for number, value in enumerate(values):
        digest.update(f"{', ' if number else ''}{json.dumps(value)}".encode())
    digest.update(b"]")
    return digest.hexdigest()
