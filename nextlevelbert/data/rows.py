"""Rows of a file or a dataset, each with the place it comes from; rows held out; the fingerprint of a set."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

_SUFFIXES = (".jsonl", ".json", ".parquet")


class Place(NamedTuple):
    """Where a row comes from, to say what is wrong with it."""

    source: str
    row: str

    def error(self, column: str, message: str) -> ValueError:
        return ValueError(f"{self.source}, {self.row} (counted from 0), column {column!r}: {message}")

    def value(self, values: dict[str, Any], column: str, option: str) -> Any:
        if column not in values:
            raise ValueError(
                f"{self.source}, {self.row} (counted from 0) has no column {column!r}; it has "
                f"{', '.join(values)}. Name the right one with {option}."
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
        source: a file for `file_rows`, or the name of a dataset on the Hub, or a folder laid out like one.
        split, config: of a dataset; a file is read whole.

    Raises:
        FileNotFoundError: for a file that is not there.
        ValueError: for a source without rows, or rows that are no JSON objects.
    """
    import datasets  # seconds to import

    path, features = Path(source), {}
    if path.is_file():
        name, records = path.resolve().name, file_rows(path)
        if _suffix(path) == ".parquet":
            features = datasets.Features.from_arrow_schema(_parquet(path).schema_arrow)
    elif _suffix(path) in _SUFFIXES:
        raise FileNotFoundError(f"There is no file {str(source)!r}.")
    else:
        try:
            dataset = datasets.load_dataset(str(source), config, split=split)
        except (FileNotFoundError, ConnectionError) as error:
            error.add_note(f"{str(source)!r} is no file here, so it was taken for a dataset on the Hub.")
            raise
        features, records = dataset.features, iter(dataset)
        name = path.resolve().name if path.exists() else str(source)
        name = f"{name} ({config}, {split})" if config else f"{name} ({split})"
    rows = ((Place(name, f"row {number}"), record) for number, record in enumerate(records))
    try:
        start = next(rows)
    except StopIteration:
        raise ValueError(f"{name} is empty: it has no rows.") from None
    inner = {column: getattr(feature, "feature", feature) for column, feature in features.items()}
    names = {column: tuple(kind.names) for column, kind in inner.items() if isinstance(kind, datasets.ClassLabel)}
    return Table(name, start[1], itertools.chain([start], rows), names)


def file_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Streams the rows of a file: Parquet by its name, else JSON lines or one JSON array; each also as ``.gz``.

    Raises:
        ValueError: naming the row that is no JSON object.
    """
    if _suffix(path) == ".parquet":
        for batch in _parquet(path).iter_batches(64):
            yield from batch.to_pylist()
    else:
        yield from _json_rows(path)


def _suffix(path: Path) -> str:
    return Path(path.stem if path.suffix == ".gz" else path.name).suffix


def _parquet(path: Path) -> Any:
    import pyarrow.parquet

    if path.suffix != ".gz":
        return pyarrow.parquet.ParquetFile(path)
    with gzip.open(path) as file:  # cannot be read from the end, where Parquet keeps its index
        return pyarrow.parquet.ParquetFile(io.BytesIO(file.read()))


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    number = 0
    with open_text(path) as file:
        try:
            lines = (line for line in file if line.strip())
            start = next(lines, "")
            if start.lstrip().startswith("["):
                records: Iterable[Any] = json.loads(start + file.read())
            else:
                records = map(json.loads, itertools.chain([start] if start else [], lines))
            for record in records:
                if not isinstance(record, dict):
                    raise ValueError(f"it is {short(record)}")
                yield record
                number += 1
        except ValueError as error:  # also of JSON and of UTF-8
            raise ValueError(
                f"{path.name}: row {number} (counted from 0) is no JSON object ({error}). "
                "Known are .jsonl, .json, .parquet (also .gz), and other files of JSON objects, one a line, in UTF-8."
            ) from error


def open_text(path: Path, newline: str | None = None) -> IO[str]:
    """A text file in UTF-8, perhaps with a byte order mark, perhaps packed as ``.gz``; `newline` as in `open`."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline=newline)
    return path.open(encoding="utf-8-sig", newline=newline)


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
            f"Training and validation need at least one each of the {what}, and there is only {total}. "
            "Give a validation set of its own."
        )
    return min(max(round(share * total), 1), total - 1)


def fingerprint(values: Iterable[Any]) -> str:
    """SHA-256 of values as one JSON array, written one by one: a large set is not held in memory twice."""
    digest = hashlib.sha256(b"[")
    for number, value in enumerate(values):
        digest.update(f"{', ' if number else ''}{json.dumps(value)}".encode())
    digest.update(b"]")
    return digest.hexdigest()
