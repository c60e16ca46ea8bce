"""Reads tables: JSON lines, JSON, CSV, Parquet, and data sets, with the place of every row."""

from __future__ import annotations

import csv
import itertools
import json
import re
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..messages import short
from .files import (
    TABLES,
    TEXTS,
    UNPACKED_LIMIT,
    NulError,
    check_utf8,
    files_below,
    find_paths,
    is_saved_dataset,
    named_errors,
    packed,
    read_text,
    reason,
    suffix,
    table_lines,
)
from .rows import NoDocumentError, RowLocation, columns_without_media

if TYPE_CHECKING:
    import pyarrow as pa

_SAMPLED_LINES = 20  # by which the delimiter of a CSV is chosen
_ROWS_AT_ONCE = 16  # that are read from a Parquet file or a data set
_QUOTED = re.compile('"[^"]*"')
_NAMED_DELIMITER = re.compile('\ufeff?"?sep=([^"\\r\\n])"?\\r?\\n?$', re.IGNORECASE)
_BETWEEN_VALUES = re.compile(r"[\s,]*")
_NEXT_OBJECT = re.compile(r"(?<=\n)(?={)")
# The last word of a path that names a split; `datasets` finds splits by the same words.
_SPLIT_IN_PATH = re.compile(
    r".*(?<![a-z])(?:(?P<train>train(?:ing)?)|(?P<validation>val(?:id(?:ation)?)?|dev)"
    r"|(?P<test>test(?:ing)?|eval(?:uation)?))(?![a-z])",
    re.IGNORECASE | re.DOTALL,
)


Rows = Iterator[tuple[RowLocation, dict[str, Any]]]
RowsOrErrors = Iterator[tuple[str, dict[str, Any] | ValueError]]


class Table(NamedTuple):
    """Rows with named columns.

    Args:
        name: the name of the file or data set.
        first: the first row.
        rows: all rows, with their locations.
        class_names: the names of the classes, by column, for columns that hold class indices.
    """

    name: str
    first: dict[str, Any]
    rows: Rows
    class_names: dict[str, tuple[str, ...]]


def open_rows(source: str | Path, split: str = "train", config: str | None = None) -> Table:
    """Opens a table: a file, a folder of tables or of ``save_to_disk``, or a dataset of the Hub.

    In a folder of tables, the names of files and folders tell the splits, as in
    ``data/train-00000.parquet`` or ``dev.csv``. If none names a split, all are the split "train".

    Args:
        source: JSON lines, JSON, CSV (also .gz) or Parquet; a file of any other name is read as
            JSON lines; a pattern of files; a folder; or a name on the Hub.
        split: the split of a dataset or folder; a file is read whole.
        config: the configuration of a dataset of the Hub; in a folder of tables, a folder.

    Raises:
        FileNotFoundError: if there is neither a file nor a dataset of that name.
        ValueError: for a source without rows, or rows that cannot be read, by file and line.
    """
    path = Path(source)
    name = str(source)
    if path.exists():
        name = path.resolve().name
    if is_saved_dataset(path):
        return _open_dataset(name, saved_dataset(path, split))

    files = find_paths(source)
    if files and not path.is_dir():
        return _open_files(name, files)

    parts = ", ".join(filter(None, [config, split]))
    name = f"{name} ({parts})"
    if files:
        return _open_files(name, _files_of_split(path / (config or ""), split))

    return _open_dataset(name, hub_dataset(str(source), config, split=split))


def _files_of_split(folder: Path, split: str) -> list[Path]:
    """Returns the tables of a folder with rows of a split.

    `datasets` would fetch the addresses that a README.md in the folder names.

    Raises:
        ValueError: if the folder has no such tables.
    """
    splits: dict[str | None, list[Path]] = {}
    for path in files_below([folder]):
        if suffix(path) in TABLES and not path.name.startswith("."):
            match = _SPLIT_IN_PATH.match(str(path.relative_to(folder)))
            splits.setdefault(match and match.lastgroup, []).append(path)

    if not splits:
        raise not_a_table(str(folder))
    if list(splits) == [None]:
        splits["train"] = splits.pop(None)
    if split not in splits:
        raise ValueError(
            f"{folder} has tables of the splits {', '.join(filter(None, splits))}, not {split}."
            " Give one of these, or a quoted pattern of tables."
        )

    return splits[split]


def _open_files(name: str, files: Sequence[Path]) -> Table:
    rows = itertools.chain.from_iterable(_placed(str(path), rows_or_errors(path)) for path in files)
    try:
        first = next(rows, None)
    except ValueError as error:
        if suffix(files[0]) in TEXTS:
            raise not_a_table(name) from error
        raise

    features = {}
    if suffix(files[0]) == ".parquet":
        import pyarrow.parquet as pq
        from datasets import Features  # seconds to import

        features = Features.from_arrow_schema(pq.read_schema(files[0]))

    return _table(name, first, rows=rows, features=features)


def _open_dataset(name: str, dataset: Any) -> Table:
    if [*dataset.features] == ["text"] and dataset.info.builder_name == "text":
        raise not_a_table(name)  # each line of a text would be a row
    rows = _placed(name, dataset_rows(dataset))
    return _table(name, next(rows, None), rows=rows, features=dataset.features)


def _table(
    name: str,
    first: tuple[RowLocation, dict[str, Any]] | None,
    *,
    rows: Rows,
    features: Mapping[str, Any],
) -> Table:
    if first is None:
        raise ValueError(f"{name} is empty: it has no rows.")
    class_names = {}
    for column, feature in features.items():
        value_feature = getattr(feature, "feature", feature)  # of a list, that of its values
        if hasattr(value_feature, "names"):
            class_names[column] = tuple(value_feature.names)
    return Table(name, first[1], rows=itertools.chain([first], rows), class_names=class_names)


def not_a_table(name: str) -> ValueError:
    """Returns the error for texts where rows with labels are expected."""
    return ValueError(
        f"{name} holds no table. Give {', '.join(TABLES)} with a row for each document, its text"
        " in one column and its label in another."
    )


def _placed(name: str, rows: RowsOrErrors) -> Rows:
    for where, row in rows:
        if isinstance(row, ValueError):
            raise ValueError(f"{name} cannot be read: {where} {reason(row)}") from row
        yield RowLocation(name, where), row


def rows_or_errors(path: Path) -> RowsOrErrors:
    """Streams the rows of a file or saved data set, with their places; values of a CSV are text.

    A row that cannot be read is the error that says why.

    Raises:
        ValueError: for a file that cannot be read, or not to its end.
    """
    rows: Iterator[tuple[str, Any]]
    ending = suffix(path)
    with named_errors(path):
        if path.is_dir():
            rows = dataset_rows(saved_dataset(path))
        elif ending == ".parquet":
            rows = _parquet_rows(path)
        elif ending in (".csv", ".tsv"):
            rows = _csv_rows(path)
        else:
            rows = _json_rows(path)

        for where, row in rows:
            if isinstance(row, (dict, ValueError)):
                yield where, row
            else:
                yield where, NoDocumentError(f"is not a JSON object, but {short(row)}")


def dataset_rows(dataset: Any) -> RowsOrErrors:
    """Yields the rows of a `datasets.Dataset` as they are stored, with their places."""
    columns = columns_without_media(dataset.features.arrow_schema)
    tables = dataset.select_columns(columns).with_format("arrow").iter(_ROWS_AT_ONCE)
    return _numbered_rows(batch for table in tables for batch in table.to_batches())


def _parquet_rows(path: Path) -> RowsOrErrors:
    import pyarrow.parquet as pq  # as long to import as numpy

    with pq.ParquetFile(path) as table:
        columns = columns_without_media(table.schema_arrow)
        batches = table.iter_batches(_ROWS_AT_ONCE, columns=columns)
        yield from _numbered_rows(
            batch.rename_columns(_distinct_names(batch.schema.names)) for batch in batches
        )


def _numbered_rows(batches: Iterable[pa.RecordBatch]) -> RowsOrErrors:
    rows = itertools.chain.from_iterable(map(_rows_of_batch, batches))
    for index, row in enumerate(rows):
        yield f"row {index}", row


def _rows_of_batch(batch: pa.RecordBatch) -> list[dict[str, Any] | ValueError]:
    """Returns the rows of a batch; only a batch with a value that Python lacks is read by row."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError, KeyError) as error:  # text, date or time zone
        if len(batch) == 1:
            return [ValueError(f"holds a value that Python does not know ({error})")]
        single_rows = (batch.slice(index, 1) for index in range(len(batch)))
        return list(itertools.chain.from_iterable(map(_rows_of_batch, single_rows)))

    for row in rows:
        _decode_binary(row)
    return rows


def _decode_binary(row: dict[str, Any]) -> None:
    """Replaces binary values that are UTF-8 by texts: Spark writes texts as binary."""
    for name, value in row.items():
        if isinstance(value, bytes):
            with suppress(UnicodeDecodeError):
                row[name] = value.decode()


class _UnclosedError(csv.Error):
    """Says that a field in quotation marks is not closed, or behind too many bytes."""


class _TableLines:
    """The lines of a CSV, of which those of one record can be read again.

    All lines of a record but the first begin within quotation marks. If a record is no CSV, neither
    are those that begin in its lines and do not end there, so that no line is read three times.

    Attributes:
        count: number of lines that were read.
        record: the lines since `begin_record`.
        end: the last line of the records that are no CSV.
    """

    def __init__(self, lines: Iterator[str]) -> None:
        self.count = 0
        self.record: list[str] = []
        self.end = 0
        self._size = 0  # of the record in memory
        self._lines = lines
        self._waiting = deque[str]()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._size > UNPACKED_LIMIT or (self.record and self.count < self.end):
            raise _UnclosedError
        if self._waiting:
            line = self._waiting.popleft()
        else:
            line = next(self._lines)

        self.count += 1
        self.record.append(line)
        self._size += sys.getsizeof(line)
        return line

    def begin_record(self) -> None:
        """Forgets the lines of the record before."""
        self.record = []
        self._size = 0

    def unread(self, kept: int) -> None:
        """Puts the lines of the record back, all but the first `kept`."""
        returned = self.record[kept:]
        self._waiting.extendleft(reversed(returned))
        self.count -= len(returned)
        self.record = self.record[:kept]


def _csv_rows(path: Path) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(UNPACKED_LIMIT)  # csv's own, 131,072, is less than a long document
    lines = _TableLines(table_lines(path, newline=""))
    delimiter = _delimiter(lines, suffix(path))
    header = _csv_record(lines, delimiter)
    if header is None:
        return
    if isinstance(header, ValueError):
        raise ValueError(f"line {lines.count} {header}")

    names = _distinct_names(header)
    header_line = lines.count
    while True:
        record = _csv_record(lines, delimiter)
        if record is None:
            return
        where = f"line {lines.count - len(lines.record) + 1}"
        if isinstance(record, ValueError) and delimiter == "\t":
            cells = lines.record[0].rstrip("\r\n").split("\t")
            if len(cells) == len(names):  # most programs quote nothing in such a table
                record = cells

        row: Any = record
        if not isinstance(record, ValueError):
            try:
                row = _csv_row(record, names, header_line=header_line)
            except ValueError as error:
                row = error

        yield where, row


def _csv_record(lines: _TableLines, delimiter: str) -> list[str] | ValueError | None:
    """Reads the fields of the next record; None at the end of the file.

    If a record of several lines is no CSV, a quotation mark in its first line is not closed. Then
    only the first line is lost, and the next lines are read as records of their own.
    """
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    while True:
        lines.begin_record()
        try:
            fields = next(reader, None)
        except csv.Error as error:
            return _csv_error(lines, error)
        if fields != []:
            return fields


def _csv_error(lines: _TableLines, error: csv.Error) -> ValueError:
    if len(lines.record) == 1 and not isinstance(error, _UnclosedError):
        return ValueError(f"is not CSV ({error})")
    lines.end = max(lines.end, lines.count)
    lines.unread(kept=1)
    return ValueError(
        f"begins a field in quotation marks that takes {lines.end - lines.count + 1:,} lines, to"
        f" line {lines.end}, and is not CSV, or more than {UNPACKED_LIMIT:,} bytes. Close its"
        " quotation mark. The rest of these lines was read as rows of their own"
    )


def _delimiter(lines: _TableLines, ending: str) -> str:
    """Finds the character between the columns of a table.

    Excel names it in a line "sep=;" before the header, which is left out. Else it is the character
    by which most of the first records have as many fields as the header.
    """
    lines.begin_record()
    sample = list[str]()
    with suppress(_UnclosedError):  # lines of more than 256 MB
        sample.extend(itertools.islice(lines, _SAMPLED_LINES))

    named = _NAMED_DELIMITER.match("".join(sample[:1]))
    if named is not None:
        lines.unread(kept=1)
        return named[1]

    lines.unread(kept=0)
    if ending == ".tsv" and "\t" in _QUOTED.sub("", "".join(sample[:1])):
        return "\t"

    return max(",;\t|", key=partial(_fit_of_delimiter, sample))


def _fit_of_delimiter(sample: Sequence[str], delimiter: str) -> tuple[bool, int, int]:
    """Returns how well a delimiter fits to the first lines of a table; larger is better."""
    counts = list[int]()
    with suppress(csv.Error):
        records = csv.reader(sample, strict=True, delimiter=delimiter)
        counts.extend(len(fields) for fields in records if fields)  # up to the first error
    if not counts:
        return False, 0, 0
    columns = counts[0]
    return columns > 1, counts.count(columns), columns


def _distinct_names(names: Sequence[str]) -> list[str]:
    """Numbers columns of the same name, of which none keeps the name: it may be that of the text.

    Raises:
        ValueError: if two columns still have the same name, and a row would keep only one.
    """
    times = Counter(names)
    seen = Counter[str]()
    distinct = []
    for name in names:
        seen[name] += 1
        if times[name] == 1:
            distinct.append(name)
        else:
            distinct.append(f"{name} ({seen[name]})")

    if len(set(distinct)) < len(names):
        raise ValueError("some of its columns have the same name. Rename them")

    return distinct


def _csv_row(record: list[str], names: Sequence[str], *, header_line: int) -> dict[str, str]:
    if len(record) < len(names) or any(record[len(names) :]):  # else commas end the line
        raise ValueError(f"must have as many fields as line {header_line}, got {short(record)}")
    for value in record:
        check_utf8(value)
        if "\0" in value:
            raise NulError
    return dict(zip(names, record, strict=False))


def _json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    first_lines = list(itertools.islice(filter(str.strip, table_lines(path)), 2))
    first_line = "".join(first_lines[:1])
    begins_object = first_line != "" and first_line.strip("[{ \t\r\n") == ""
    may_be_whole = suffix(path) == ".json" or begins_object  # it goes on in the next line
    if may_be_whole and not _is_object(first_line):
        try:
            return _json_values(path)
        except (ValueError, RecursionError):
            if not any(map(_is_object, first_lines)):
                raise

            # Otherwise these are JSON lines by another name, and the first of them is damaged.
    lines = enumerate(table_lines(path), start=1)
    return (_json_row(line, f"line {line_number}") for line_number, line in lines if line.strip())


def _is_object(line: str) -> bool:
    return line.lstrip().startswith("{") and isinstance(_json_row(line, "")[1], dict)


def _json_values(path: Path) -> Iterator[tuple[str, Any]]:
    """Reads a file that is one array, one value, or values that follow each other."""
    text = read_text(path)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return _values_in_a_row(text)
        line_number = text.count("\n", 0, _end_of_json(error)) + 1
        raise ValueError(f"line {line_number} is not JSON") from error

    if not isinstance(value, list):
        value = [value]

    return ((f"row {index}", row) for index, row in enumerate(value))


def _values_in_a_row(text: str) -> Iterator[tuple[str, Any]]:
    """Yields values that may take several lines each, with their first lines.

    Behind a damaged value, each line that begins with "{" begins the next one.
    """
    decoder = json.JSONDecoder()
    line_number = 1
    blocks = [text]
    for block in blocks:  # grows by what is behind a damaged value
        before = 0
        end = 0
        while True:
            start = _BETWEEN_VALUES.match(block, end).end()  # type: ignore[union-attr]  # it may be empty
            line_number += block.count("\n", before, start)
            before = start
            if start == len(block):
                break
            value: Any
            try:
                value, end = decoder.raw_decode(block, start)
            except (json.JSONDecodeError, RecursionError):
                value = ValueError("begins a value that is not JSON")
                damaged, *others = _NEXT_OBJECT.split(block[start:])
                blocks += others
                end = start + len(damaged)
                block = block[:end]  # noqa: PLW2901

            yield f"line {line_number}", value


def _json_row(line: str, where: str) -> tuple[str, Any]:
    try:
        check_utf8(line)
        return where, json.loads(line)
    except json.JSONDecodeError as error:
        return f"{where}, column {_end_of_json(error) + 1}", ValueError("is not JSON")
    except RecursionError:
        return where, ValueError("is JSON of too many levels")
    except ValueError as error:
        return where, error


def _end_of_json(error: json.JSONDecodeError) -> int:
    """Returns the character from which a text is not JSON.

    Before Python 3.13, `json` names the bracket behind a comma that is one too many.
    """
    return len(error.doc[: error.pos].rstrip(", \t\r\n"))


def saved_dataset(folder: Path, split: str | None = None) -> Any:
    """Opens a dataset of ``save_to_disk``.

    Raises:
        ValueError: if there are several splits and none of that name.
    """
    from datasets import Dataset, load_from_disk  # seconds to import

    data = load_from_disk(str(folder))
    if isinstance(data, Dataset):
        return data
    if len(data) == 1:
        return next(iter(data.values()))
    if split not in data:
        raise ValueError(
            f"{folder} has the splits {', '.join(data)}, not {split}. Give one, or the folder of"
            " one."
        )

    return data[split]


def hub_dataset(name: str, config: str | None = None, **options: Any) -> Any:
    """Opens a dataset of the Hub by `datasets.load_dataset`.

    A dataset that is a script is not run; the Hub's own Parquet export of it is opened.

    Args:
        name: the name on the Hub.
        config: configuration of the dataset.
        **options: further arguments of `datasets.load_dataset`.

    Raises:
        FileNotFoundError: if there is no dataset of that name.
        ValueError: for a path on this machine, which `datasets` would prefer: it would fetch the
            addresses that a README.md there names.
    """
    from datasets import load_dataset  # seconds to import

    if Path(name).exists():
        raise ValueError(
            f"{name!r} is on this machine. Give it as a file or folder (in a command,"
            " --train_file); for the Hub's data set of this name, start in another folder."
        )

    message = f"There is no file or folder {name!r}"
    may_be_name = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) is not None
    if suffix(Path(name)) in TABLES or not may_be_name:
        raise FileNotFoundError(f"{message}. Check the path.")

    try:
        return load_dataset(name, config, **options)
    except (FileNotFoundError, ConnectionError) as error:
        raise FileNotFoundError(
            f"{message}, and the Hub gives no dataset of that name: {error}"
        ) from error
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise

    return load_dataset(name, data_dir=config, revision="refs/convert/parquet", **options)


def columns_of(
    path: Path, delimiter: str | None, count: int
) -> Iterator[tuple[RowLocation, list[str]]]:
    """Yields the first columns of each line, with its place; blank lines are left out.

    Only a line feed ends a line, because texts may hold carriage returns.

    Args:
        path: the file, or its name without ``.gz``.
        delimiter: text between two columns; None for white space.
        count: number of columns to read; lines may have more.

    Raises:
        ValueError: for a line with fewer columns, or bytes that are not UTF-8.
    """
    file = packed(path)
    for line_number, line in enumerate(table_lines(file, newline="\n"), start=1):
        if not line.strip():
            continue

        location = RowLocation(path.name, f"line {line_number}")
        with named_errors(file):
            check_utf8(line)
        row = line.rstrip("\n").split(delimiter)
        if len(row) < count:
            raise ValueError(
                f"{', '.join(location)} must have {count} columns, got {len(row)}: {row}."
            )

        yield location, row[:count]
