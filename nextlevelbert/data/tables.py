"""Rows of CSV, Parquet, folders of ``save_to_disk``, and datasets on the Hub."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .texts import check_kind, open_binary, read_lines

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

logger = logging.getLogger(__name__)

_LONGEST_FIELD = 2**31 - 1  # characters; csv's own limit of 131,072 is less than a long document
_BATCH = 16  # rows of Parquet in memory


def read_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Streams the records of comma-separated text in UTF-8, each with the line it begins in (from 1).

    Blank lines are passed over.

    Raises:
        FileNotFoundError, ValueError: as `texts.read_lines`; ValueError naming the line where quotes are wrong.
    """
    reader = csv.reader((line for _, line in read_lines(path)), strict=True)
    while True:
        line, limit = reader.line_num + 1, csv.field_size_limit(_LONGEST_FIELD)
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # csv's own words for a carriage return on its own give advice for another reader.
            why = "a carriage return without a line feed" if "new-line character" in str(error) else error
            raise ValueError(
                f"{path}, line {line} cannot be read ({why}). A field with commas, quotes or line ends "
                'stands in "...", and quotes in it are doubled.'
            ) from error
        finally:
            csv.field_size_limit(limit)  # there is one for the whole process
        if fields:
            yield line, fields


def csv_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Streams the rows of a CSV whose first record names the columns, each with the line it begins in (from 1).

    Raises:
        FileNotFoundError, ValueError: as `read_csv`; ValueError for columns of one name, and naming the line that has
            more or fewer fields than there are columns.
    """
    records = read_csv(path)
    line, columns = next(records, (0, []))
    if twice := [column for number, column in enumerate(columns) if column in columns[:number]]:
        raise ValueError(f"{path}, line {line}: two columns are called {twice[0]!r}. Rename one of them.")
    for line, fields in records:
        if len(fields) != len(columns):
            raise ValueError(
                f"{path}, line {line} has {len(fields)} fields, but there are {len(columns)} columns "
                f"({', '.join(columns)}). The first line must name the columns; a text with commas must be in quotes."
            )
        yield line, dict(zip(columns, fields, strict=True))


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Streams the rows of a Parquet file, a few at a time; a packed one (``.gz``) is unpacked in memory.

    Raises:
        FileNotFoundError, ValueError: as `texts.open_binary`; ValueError for a file that is damaged, or no Parquet.
    """
    with _open_parquet(path) as file:
        columns = file.schema_arrow.names
        if len(set(columns)) < len(columns):
            raise ValueError(f"two of its columns have one name: {', '.join(columns)}")
        for batch in file.iter_batches(_BATCH):
            yield from batch.to_pylist()


def parquet_class_names(path: Path) -> dict[str, tuple[str, ...]]:
    """By column, the names of classes that `datasets` stored with a Parquet file."""
    with _open_parquet(path) as file:
        schema = file.schema_arrow
        if b"huggingface" not in (schema.metadata or {}):
            return {}
        from datasets import Features  # seconds to import

        return class_names(Features.from_arrow_schema(schema))


def class_names(features: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """By column, the names of classes among the features of a dataset, also in lists."""
    from datasets import ClassLabel

    inner = {column: getattr(feature, "feature", feature) for column, feature in features.items()}
    return {column: tuple(kind.names) for column, kind in inner.items() if isinstance(kind, ClassLabel)}


@contextmanager
def _open_parquet(path: Path) -> Iterator[ParquetFile]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    check_kind(path)
    source: Path | io.BytesIO = path
    if path.suffix.lower() == ".gz":  # cannot be read from the end, where Parquet keeps its index
        with open_binary(path) as packed:
            source = io.BytesIO(packed.read())
    try:
        with ParquetFile(source) as file:
            yield file
    except (pyarrow.ArrowException, ValueError, OSError, OverflowError, LookupError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{path} cannot be read as Parquet: {why}. Copy it again, or write it anew.") from error


def open_saved_dataset(
    folder: Path, split: str | None = None
) -> tuple[dict[str, tuple[str, ...]], Iterator[dict[str, Any]]]:
    """The names of classes by column, and the rows, of a folder that `datasets` wrote by ``save_to_disk``.

    Args:
        folder: of one dataset, which is read whole, or of several splits.
        split: which of the splits; may be left out where there is only one.

    Raises:
        ValueError: for a split that is not there, or has to be named, and for a folder that is damaged.
    """
    from datasets import DatasetDict, load_from_disk  # seconds to import

    with _any_error_named(folder):
        data = load_from_disk(str(folder))
    if isinstance(data, DatasetDict):
        if split is None and len(data) == 1:
            split = next(iter(data))
        if split not in data:
            there = ", ".join(data)
            asked = "several splits" if split is None else f"no split {split!r}"
            raise ValueError(f"{folder} has {asked} ({there}). Give one of them, or the folder of one.")
        data = data[split]

    def rows() -> Iterator[dict[str, Any]]:
        with _any_error_named(folder):
            yield from data

    return class_names(data.features), rows()


@contextmanager
def _any_error_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of many kinds, by what is missing
        raise ValueError(
            f"{folder} cannot be read as a dataset of save_to_disk ({type(error).__name__}: {error}). Write it anew."
        ) from error


def hub_dataset(name: str, config: str | None = None, **options: Any) -> Any:
    """`datasets.load_dataset`, by the Hub's own Parquet export where the dataset has a loading script.

    `datasets` 4 and later run no scripts (Multi-News and MuLD have one).

    Args:
        name, config: as in `load_dataset`.
        options: its further arguments.
    """
    from datasets import load_dataset  # seconds to import

    try:
        return load_dataset(name, config, **options)
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error) or Path(name).exists():
            raise
    logger.warning("%s has a loading script, which is not run; the Hub's Parquet export of it is read.", name)
    return load_dataset(name, data_dir=config, revision="refs/convert/parquet", **options)
