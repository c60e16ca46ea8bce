"""Rows of a file or a dataset, each with the place it comes from, and the schemas that are known."""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_SUFFIXES = (".jsonl", ".json", ".parquet")
_LONGEST_FIRST_LINE = 200  # characters of a line that can be a character's name, or a question about one
_LONGEST_NAME = 6  # words


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


def open_rows(
    source: str | Path, split: str, config: str | None
) -> tuple[str, dict, Rows, dict[str, tuple[str, ...]]]:
    """The source's name, its first row, all rows, and names of classes by column, where `datasets` stored them."""
    import datasets  # seconds to import
    import pyarrow.parquet

    records: Iterator[dict[str, Any]]
    path, features = Path(source), {}
    suffix = Path(path.stem if path.suffix == ".gz" else path.name).suffix
    name = path.resolve().name if path.exists() else str(source)
    if path.is_file() and suffix == ".parquet":
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            table = pyarrow.parquet.ParquetFile(io.BytesIO(file.read()))
        features = datasets.Features.from_arrow_schema(table.schema_arrow)
        records = (record for batch in table.iter_batches(64) for record in batch.to_pylist())
    elif path.is_file():
        records = _json_records(path)
    elif suffix in _SUFFIXES:
        raise FileNotFoundError(f"There is no file {str(source)!r}.")
    else:
        try:
            dataset = datasets.load_dataset(str(source), config, split=split)
        except (FileNotFoundError, ConnectionError) as error:
            error.add_note(f"{str(source)!r} is no file here, so it was taken for a dataset on the Hub.")
            raise
        features, records = dataset.features, iter(dataset)
        name = f"{name} ({config}, {split})" if config else f"{name} ({split})"
    rows = ((Place(name, f"row {number}"), record) for number, record in enumerate(records))
    try:
        start = next(rows)
    except StopIteration:
        raise ValueError(f"{name} is empty: it has no rows.") from None
    inner = {column: getattr(feature, "feature", feature) for column, feature in features.items()}
    names = {column: tuple(kind.names) for column, kind in inner.items() if isinstance(kind, datasets.ClassLabel)}
    return name, start[1], itertools.chain([start], rows), names


def _json_records(path: Path) -> Iterator[dict[str, Any]]:
    """Records of JSON lines, or of one JSON array."""
    number = 0
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as file:
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


def quality_questions(rows: Rows) -> Rows:
    """A row for every question, of rows that hold an article with its questions."""
    for place, values in rows:
        questions = values.get("questions")
        if not isinstance(questions, list) or not questions or not all(isinstance(each, dict) for each in questions):
            raise place.error("questions", f"must be a list of questions, got {short(questions)}.")
        for number, question in enumerate(questions):
            inner = place._replace(row=f"{place.row}, question {number}")
            yield inner, {**question, "article": values.get("article")}


def first_line(text: str) -> tuple[str, str] | None:
    """A first line short enough to be a name or a question, and the rest; None where there is none."""
    line, end, rest = text.partition("\n")
    return (line.strip(), rest) if end and line.strip() and len(line) <= _LONGEST_FIRST_LINE else None


def muld_rows(rows: Rows, with_question: bool) -> Rows:
    """Rows of MuLD with the question apart from the document, and the one label out of its list."""
    for place, values in rows:
        text = place.checked(values.get("input"), "input")
        line, rest = first_line(text) or (None, text)
        if (line is not None) != with_question:
            here, there = ("no ", "a ") if with_question else ("a ", "no ")
            raise place.error(
                "input", f"has {here}short first line that names the character, but row 0 has {there}one."
            )
        if line is not None and "?" not in line and len(line.split()) <= _LONGEST_NAME:
            line = f"Is the character {line} behaving like a hero or a villain?"
        output = values.get("output")
        if isinstance(output, list):
            if len(output) != 1:
                raise place.error("output", f"must hold one label, got {short(output)}.")
            output = output[0]
        yield place, {**values, "input": rest, "question": line, "output": output}


def short(value: Any) -> str:
    """A value and its type, for messages."""
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:57] + '...'} ({type(value).__name__})"


def hold_out_rows(data: Any, rows: str, share: float, seed: int) -> tuple[Any, Any]:
    """Puts a share of the rows of a set aside: the others, and those, each in their order.

    Args:
        data: a dataclass with its `source` and a list of rows.
        rows: name of that list.
        share, seed: how many are drawn, and by which numbers.

    Raises:
        ValueError: where one of the two would be empty.
    """
    every = getattr(data, rows)
    count = round(share * len(every))
    if not 0 < count < len(every):
        raise ValueError(
            f"A share of {share} of the {len(every)} {rows} of {data.source} leaves nothing to train or to "
            "validate on; give --validation_file, or another --validation_share."
        )
    held = set(np.random.default_rng(seed).permutation(len(every))[:count].tolist())
    parts: tuple[list[Any], list[Any]] = ([], [])
    for number, row in enumerate(every):
        parts[number in held].append(row)
    return replace(data, **{rows: parts[0]}), replace(data, **{rows: parts[1]}, source=f"{data.source}, held out")
