"""Reads documents and rows from files, data sets, objects and Python's own manual.

It also holds rows out for validation.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import itertools
import json
import logging
import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from .books import BOOKS, read_book
from .files import (
    UNPACKED_LIMIT,
    NulError,
    PartlyReadError,
    check_utf8,
    files_below,
    find_paths,
    is_saved_dataset,
    named_errors,
    packed,
    read_text,
    readable_name,
    reason,
    suffix,
    table_lines,
)

TABLES = (".jsonl", ".json", ".csv", ".parquet")  # one document a row
TEXTS = (".txt", ".md", ".markdown", *BOOKS)  # one document a file
PYTHON_MANUAL = "python-manual"
logger = logging.getLogger(__name__)
_NOT_DOCUMENTATION = set(
    "site-packages test tests idlelib lib2to3 __pycache__ turtledemo pydoc_data".split()
)


@dataclass(frozen=True)
class Document:
    """A text, its name, and its metadata, such as the other columns of its row.

    The metadata of a PDF has ``pages``: the characters at which its pages begin.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


class Place(NamedTuple):
    """Says where a row comes from, for errors about it: ``Place("books.jsonl", "line 3")``."""

    source: str
    row: str

    def error(self, column: str, message: str) -> ValueError:
        return ValueError(f"{self.source}, {self.row}, column {column!r}: {message}")

    def value(self, values: Mapping[str, Any], column: str, option: str) -> Any:
        if column not in values:
            raise self.error(
                column,
                f"is not among {', '.join(map(str, values))}. Name the right one with {option}.",
            )
        return values[column]

    def checked(self, text: Any, column: str) -> str:
        if not isinstance(text, str) or not text.strip():
            raise self.error(
                column, f"must be text, got {short(text)}. Correct the row, or leave it out."
            )
        return text


Rows = Iterator[tuple[Place, dict[str, Any]]]


class Table(NamedTuple):
    """Rows with named columns.

    Args:
        name: the name of the file or data set.
        first: the first row.
        rows: all rows, with their places.
        class_names: the names of classes, of each column that has some.
    """

    name: str
    first: dict[str, Any]
    rows: Rows
    class_names: dict[str, tuple[str, ...]]


def as_documents(
    documents: Iterable[Any], text_column: str = "text", id_column: str = "id", start: int = 0
) -> Iterator[Document]:
    """Yields documents from whatever holds texts, in order.

    Args:
        documents: `Document` objects, texts, ``(id, text)``, dicts, or a `datasets.Dataset`. They
            are read once. A single text is one document.
        text_column: the column of the text.
        id_column: the column of the id. The columns beside both become `Document.metadata`.
        start: the number of the first document, which is its id if it has no other.

    Raises:
        TypeError: for a dict, set or table, whose iteration would yield keys.
        ValueError: for a row without the column, and for text that is not valid Unicode.
    """
    if isinstance(documents, str):
        documents = [documents]
    if isinstance(documents, Mapping | Set) or getattr(documents, "ndim", 1) != 1:
        raise TypeError(
            f"Expected documents in a list, data set or generator, got {type(documents).__name__}."
        )
    for number, item in enumerate(documents, start=start):
        yield _as_document(item, number, text_column=text_column, id_column=id_column)


def _as_document(item: Any, number: int, *, text_column: str, id_column: str) -> Document:
    if isinstance(item, Document):
        document = item
    elif isinstance(item, Mapping):
        document = _row_as_document(item, number, text_column=text_column, id_column=id_column)
    elif isinstance(item, tuple | list) and len(item) == 2:
        name, text = item
        document = Document(str(name), text)
    else:
        document = Document(str(number), item)

    for value in (document.id, document.text):
        try:
            value.isascii() or value.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise ValueError(
                f"The text of document {document.id!r} is not a valid str: {short(value)}. Correct"
                " it, or leave it out."
            ) from error
    return document


def _row_as_document(
    row: Mapping[str, Any], number: int, *, text_column: str, id_column: str
) -> Document:
    if text_column not in row:
        raise ValueError(
            f"Document {number} has no column {text_column!r} (text_column); it has {[*row]}."
        )
    name = row.get(id_column)
    if name in (None, ""):
        name = number
    metadata = {
        column: value for column, value in row.items() if column not in (text_column, id_column)
    }
    return Document(str(name), row[text_column], metadata)


OnError = Callable[[ValueError], object]


def read_documents(
    source: str | Path | Iterable[str | Path],
    text_column: str = "text",
    id_column: str = "id",
    on_error: OnError | None = None,
) -> Iterator[Document]:
    r"""Streams the documents of files, one in memory at a time, always in the same order.

    A text file is one document: ``.txt`` and ``.md`` as they are, ``.html``, ``.epub``, ``.pdf``
    and ``.docx`` without their markup (the last two with ``pip install nextlevelbert[files]``). Its
    id is its path below the folder, without suffix where no other file has that path. In a table
    every row is one: ``.jsonl``, ``.json``, ``.csv``, ``.parquet``, and a folder of
    ``save_to_disk``. All but Parquet may be packed as ``.gz``.

    Args:
        source: a file; a folder, with all folders in it; a pattern such as ``books/**/*.txt``;
            several of these; or ``"python-manual"``, which needs no file at all. A pattern is one
            only where no file has that very name.
        text_column: the column of the text in tables.
        id_column: the column of the id in tables; see `as_documents`.
        on_error: what to do with a file or row that cannot be read, such as `print` or the `append`
            of a list: it is called with the ValueError, and reading continues. By default the first
            error is raised. Of each table at most ten rows are named, then the others are counted.
            It is also called with what is missing of a book that was read in part; by default, this
            is a warning.

    Raises:
        FileNotFoundError: if there is nothing at `source`.
        ValueError: for a kind of file that is not supported; without `on_error` also, while
            reading, for what cannot be read, by file and row.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "good.txt").write_text("Call me Ishmael.")
        >>> _ = (folder / "bad.txt").write_bytes(b"caf\xe9")
        >>> errors = []
        >>> [document.id for document in read_documents(folder, on_error=errors.append)]
        ['good']
        >>> len(errors)
        1
    """
    if isinstance(source, (str, Path)) and str(source) == PYTHON_MANUAL:
        return python_manual()
    files = source_files(source)
    return _documents(files, text_column=text_column, id_column=id_column, on_error=on_error)


def _documents(
    files: Iterable[tuple[Path, str | None]],
    *,
    text_column: str,
    id_column: str,
    on_error: OnError | None,
) -> Iterator[Document]:
    row_count = 0
    for path, name in files:
        if name is None:
            table = _TableReader(path, text_column, id_column=id_column, on_error=on_error)
            yield from table.documents(first_number=row_count)
            row_count += table.row_count
            continue
        try:
            document = _read_document(path, name, on_error)
        except (OSError, ValueError) as error:
            if on_error is None:
                raise
            on_error(_with_file(path, error))
        else:
            yield document


def _read_document(path: Path, name: str, on_error: OnError | None) -> Document:
    if suffix(path) not in BOOKS:
        return Document(name, read_text(path))
    text, metadata, missing = read_book(path, suffix(path))
    if missing:
        error = PartlyReadError(f"{path} was read in part: {missing}.")
        if on_error is None:
            logger.warning("%s", readable_name(str(error)))
        else:
            on_error(error)
    return Document(name, text, metadata)


def _with_file(path: Path, error: Exception) -> ValueError:
    """Returns the error as a ValueError that names the file."""
    if isinstance(error, ValueError) and str(path) in str(error):
        return error
    return ValueError(f"{path} cannot be read: {reason(error)}")


class _TableReader:
    """Reads a document from each row of a table; a row that cannot be read costs no other.

    Args:
        path: the file, or a folder of ``save_to_disk``.
        text_column: the column of the text.
        id_column: the column of the id.
        on_error: as in `read_documents`.
    """

    named_rows = 10

    def __init__(
        self, path: Path, text_column: str, *, id_column: str, on_error: OnError | None
    ) -> None:
        self.path = path
        self.text_column = text_column
        self.id_column = id_column
        self.on_error = on_error
        self.row_count = 0
        self.errors = list[ValueError]()
        self.error_count = 0

    def documents(self, first_number: int) -> Iterator[Document]:
        """Streams the documents; those without id are numbered from `first_number` on."""
        try:
            for where, row in self._rows():
                document = self._document(where, row, number=first_number + self.row_count)
                self.row_count += 1
                if document is not None:
                    yield document
        except (OSError, ValueError) as error:
            if self.on_error is None:
                raise
            self._report(self.on_error)
            self.on_error(_with_file(self.path, error))
        else:
            if self.on_error is not None:
                self._report(self.on_error)

    def _rows(self) -> Iterator[tuple[str, Any]]:
        if self.path.is_dir():
            with named_errors(self.path):
                for number, row in enumerate(saved_dataset(self.path)):
                    yield f"row {number}", row
        else:
            yield from _rows_or_errors(self.path)

    def _document(self, where: str, row: Any, *, number: int) -> Document | None:
        try:
            if isinstance(row, Exception):
                raise row
            return _as_document(row, number, text_column=self.text_column, id_column=self.id_column)
        except ValueError as error:
            named = ValueError(f"{self.path}, {where}: {reason(error)}")
            if self.on_error is None:
                raise named from error
            self.error_count += 1
            if len(self.errors) < self.named_rows:
                self.errors.append(named)
            return None

    def _report(self, on_error: OnError) -> None:
        """Names the rows that could not be read: one where none could, ten at most."""
        named = self.errors
        if self.error_count == self.row_count:
            named = self.errors[:1]
        for error in named:
            on_error(error)
        others = self.error_count - len(named)
        if others > 0:
            on_error(ValueError(f"{self.path}: {others} more rows cannot be read."))


def source_files(source: str | Path | Iterable[str | Path]) -> list[tuple[Path, str | None]]:
    """Lists the files of a source for `read_documents`, in order.

    What is left out, such as files of other kinds, is counted in a warning.

    Args:
        source: as in `read_documents`.

    Returns:
        The files, each with the id of its document, or None for a table.

    Raises:
        FileNotFoundError: if there is nothing at `source`.
        ValueError: if no file is of a kind that is supported.
    """
    names = dict[Path, str]()
    others = dict[Path, str]()
    sources: list[str | Path] = []
    if isinstance(source, (str, Path)):
        sources.append(source)
    else:
        sources.extend(source)
    for one_source in sources:
        for file, name in _named_files(one_source):
            if _is_supported(file):
                names[file] = name
            else:
                others[file] = name
    if not names:
        raise ValueError(
            f"{source} holds nothing to read; supported are {', '.join(TEXTS + TABLES)}, also .gz."
        )
    if others:
        _warn_of_other_kinds(others)
    return _with_ids(names)


def _named_files(source: str | Path) -> Iterator[tuple[Path, str]]:
    """Yields the files of a file, folder or pattern, with their paths below its folder."""
    paths = find_paths(source)
    if not paths:
        raise FileNotFoundError(f"There is no file or folder {str(source)!r}. Check the path.")
    root = _root_of(source)
    for path in paths:
        files = [path]
        if path.is_dir():
            files = files_below(path)
        for file in files:
            name = readable_name(file.relative_to(root).as_posix())
            is_hidden = re.search(r"(^|/)\.[^/]", name) is not None
            if not is_hidden:
                yield file, name


def _is_supported(file: Path) -> bool:
    if is_saved_dataset(file):
        return True
    return os.path.isfile(file) and suffix(file) in TEXTS + TABLES


def _root_of(source: str | Path) -> Path:
    """Returns the folder that the ids of a source begin below."""
    path = Path(source)
    if os.path.isdir(path):
        return path
    if os.path.exists(path):
        return path.parent
    before_pattern = re.split(r"[*?[]", str(source))[0]
    return Path(f"{before_pattern}x").parent


def _warn_of_other_kinds(others: Mapping[Path, str]) -> None:
    kinds = Counter[str]()
    for path in others:
        if not os.path.isfile(path):
            kinds["broken links and other things that are no files"] += 1
        elif suffix(path) == "":
            kinds["without suffix"] += 1
        else:
            kinds[suffix(path)] += 1
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    logger.warning(
        "Left out (unsupported kinds): %s; %s first.", counts, next(iter(others.values()))
    )


def _with_ids(names: Mapping[Path, str]) -> list[tuple[Path, str | None]]:
    """Gives each text its name without suffix, where no other text has the same; a table None."""
    stems = {
        path: re.sub(r"(\.[^./]+)(\.gz)?$", "", name, flags=re.IGNORECASE)
        for path, name in names.items()
    }
    times = Counter(stem for path, stem in stems.items() if suffix(path) in TEXTS)
    files = list[tuple[Path, str | None]]()
    for path, stem in stems.items():
        if suffix(path) not in TEXTS:
            files.append((path, None))
        elif times[stem] == 1:
            files.append((path, stem))
        else:
            files.append((path, names[path]))
    return files


def python_manual(smallest: int = 400) -> Iterator[Document]:
    """Yields the texts that every Python carries: its manual, and the docstrings of its modules.

    Each topic of `pydoc_data.topics` and each module of the standard library is a document;
    nothing is imported.

    Args:
        smallest: the fewest characters of a text; shorter ones are left out.
    """
    for name, text in sorted(topics.items()):
        if len(text) >= smallest:
            yield Document(f"manual/{name}", text)

    root = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if _NOT_DOCUMENTATION.intersection(parts):
            continue
        if any(part.startswith("config-") for part in parts):
            continue
        text = _docstrings(file)
        if len(text) >= smallest:
            module = ".".join(part for part in parts if part != "__init__")
            yield Document(f"module/{module}", text)


def _docstrings(file: Path) -> str:
    """Returns all docstrings of a source file, each function's and class's under its name."""
    texts = list[str]()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                name = getattr(node, "name", "")
                texts.append(f"{name}\n{docstring}".strip())
    return "\n\n".join(texts)


def open_rows(source: str | Path, split: str = "train", config: str | None = None) -> Table:
    """Opens a table: a file, a folder of ``save_to_disk``, or a dataset of the Hub.

    Args:
        source: JSON lines, JSON, CSV (also .gz) or Parquet; a file of any other name is read as
            JSON lines; a pattern of files; a folder; or a name on the Hub.
        split: the split of a dataset; a file is read whole.
        config: the configuration of a dataset of the Hub.

    Raises:
        FileNotFoundError: if there is neither a file nor a dataset of that name.
        ValueError: for a source without rows, or rows that cannot be read, by file and line.
    """
    path = Path(source)
    files = list[Path]()
    if not path.is_dir():
        files = find_paths(source)
    if files:
        return _open_files(str(source), files)
    return _open_dataset(path, str(source), split=split, config=config)


def _open_files(source: str, files: Sequence[Path]) -> Table:
    name = source
    if Path(source).exists():
        name = Path(source).resolve().name
    rows = itertools.chain.from_iterable(placed_rows(file) for file in files)
    try:
        first = next(rows, None)
    except ValueError as error:
        if suffix(files[0]) in TEXTS:
            raise not_a_table(name) from error
        raise
    features: Mapping[str, Any] = {}
    if suffix(files[0]) == ".parquet":
        from datasets import Features  # seconds to import

        features = Features.from_arrow_schema(pq.read_schema(files[0]))
    return _table(name, first, rows=rows, features=features)


def _open_dataset(path: Path, source: str, *, split: str, config: str | None) -> Table:
    if is_saved_dataset(path):
        name = path.resolve().name
        dataset = saved_dataset(path, split)
    else:
        name = source
        if path.exists():
            name = path.resolve().name
        if config is None:
            name = f"{name} ({split})"
        else:
            name = f"{name} ({config}, {split})"
        dataset = hub_dataset(source, config, split=split)
    if [*dataset.features] == ["text"] and dataset.info.builder_name == "text":
        raise not_a_table(name)  # each line of a text would be a row
    rows = ((Place(name, f"row {number}"), row) for number, row in enumerate(dataset))
    return _table(name, next(rows, None), rows=rows, features=dataset.features)


def _table(
    name: str,
    first: tuple[Place, dict[str, Any]] | None,
    *,
    rows: Rows,
    features: Mapping[str, Any],
) -> Table:
    if first is None:
        raise ValueError(f"{name} is empty: it has no rows.")
    class_names = dict[str, tuple[str, ...]]()
    for column, feature in features.items():
        value_feature = getattr(feature, "feature", feature)  # of a list, that of its values
        if hasattr(value_feature, "names"):
            class_names[column] = tuple(value_feature.names)
    return Table(name, first[1], itertools.chain([first], rows), class_names)


def not_a_table(name: str) -> ValueError:
    """Returns the error for texts where rows with labels are expected."""
    return ValueError(
        f"{name} holds texts, and not a table. Give {', '.join(TABLES)} with a row for each"
        " document, its text in one column and its label in another."
    )


def placed_rows(path: Path) -> Rows:
    """Streams the rows of a file, as `open_rows`; the values of a CSV are text.

    Raises:
        ValueError: for a row that cannot be read, by file and line.
    """
    for where, row in _rows_or_errors(path):
        if isinstance(row, Exception):
            raise ValueError(f"{path} cannot be read: {where} {reason(row)}") from row
        yield Place(str(path), where), row


def _rows_or_errors(path: Path) -> Iterator[tuple[str, dict[str, Any] | Exception]]:
    """Streams the rows of a file with their places; of a row that cannot be read, the error."""
    kind = suffix(path)
    if kind == ".parquet":
        rows = _parquet_rows(path)
    elif kind == ".csv":
        rows = _csv_rows(path)
    else:
        rows = _json_rows(path)
    with named_errors(path):
        for where, row in rows:
            if isinstance(row, (dict, Exception)):
                yield where, row
            else:
                yield where, ValueError(f"is not a JSON object, but {short(row)}")


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    with pq.ParquetFile(path) as table:
        batches = (batch.to_pylist() for batch in table.iter_batches(16))
        for number, row in enumerate(itertools.chain.from_iterable(batches)):
            yield f"row {number}", row


def _csv_rows(path: Path) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(UNPACKED_LIMIT)  # csv's own, 131,072, is less than a long document
    lines = table_lines(path, newline="")
    header = next(lines, "")
    reader = csv.DictReader(
        itertools.chain([header], lines), strict=True, delimiter=_delimiter(header)
    )
    if reader.fieldnames is None:
        return
    while True:
        try:
            row: Any = next(reader)
            _check_csv_row(row)
        except StopIteration:
            return
        except (csv.Error, ValueError) as error:
            row = error
        yield f"line {reader.line_num}", row


def _delimiter(header: str) -> str:
    """Returns what stands between the names of columns: a semicolon or tab where no comma does."""
    for delimiter in (",", ";", "\t"):
        if delimiter in header:
            return delimiter
    return ","


def _check_csv_row(row: Mapping[Any, Any]) -> None:
    if None in row or None in row.values():
        raise ValueError(f"is not as many fields as line 1, but {short(row)}")
    for value in row.values():
        check_utf8(value)
        if "\0" in value:
            raise NulError


def _json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    if suffix(path) == ".json":
        try:
            value = json.loads(read_text(path))
        except json.JSONDecodeError as error:
            if error.msg != "Extra data":  # else JSON lines by another name
                raise
        else:
            if not isinstance(value, list):
                value = [value]
            for number, row in enumerate(value):
                yield f"row {number}", row
            return
    for number, line in enumerate(table_lines(path), start=1):
        if line.strip():
            yield _json_row(line, number)


def _json_row(line: str, number: int) -> tuple[str, Any]:
    try:
        check_utf8(line)
        return f"line {number}", json.loads(line)
    except json.JSONDecodeError as error:
        return f"line {number}, column {error.colno}", ValueError(f"is not JSON ({error.msg})")
    except (ValueError, RecursionError) as error:
        return f"line {number}", error


def saved_dataset(folder: Path, split: str | None = None) -> Any:
    """Opens a dataset of ``save_to_disk``.

    Args:
        folder: the folder that it was saved to.
        split: which of several splits; not needed where there is one.

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


def hub_dataset(name: str | Path, config: str | None = None, **options: Any) -> Any:
    """Opens a dataset by `datasets.load_dataset`.

    A dataset that is a script is not run; the Hub's own Parquet export of it is opened.

    Args:
        name: the name on the Hub, or a folder laid out like one there.
        config: its configuration.
        **options: passed on to `datasets.load_dataset`.

    Raises:
        FileNotFoundError: if there is no dataset of that name.
    """
    from datasets import load_dataset  # seconds to import

    message = f"There is no file or folder {str(name)!r}"
    may_be_name = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(name)) is not None
    if not Path(name).exists() and (suffix(Path(name)) in TABLES or not may_be_name):
        raise FileNotFoundError(f"{message}. Check the path.")
    try:
        return load_dataset(str(name), config, **options)
    except (FileNotFoundError, ConnectionError) as error:
        raise FileNotFoundError(
            f"{message}, and the Hub gives no dataset of that name: {error}"
        ) from error
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
    return load_dataset(str(name), data_dir=config, revision="refs/convert/parquet", **options)


def short(value: Any) -> str:
    """Returns a value and its type, for messages."""
    text = repr(value)
    if len(text) > 60:
        text = f"{text[:57]}..."
    return f"{text} ({type(value).__name__})"


def hold_out(
    rows: Sequence[Any], share: float, seed: int, key: Any = None
) -> tuple[list[Any], list[Any]]:
    """Divides rows at random into those to train on and those to validate on.

    Args:
        rows: the rows.
        share: the share to validate on, between 0 and 1.
        seed: the seed of the draw.
        key: a function of a row; rows with equal keys stay together.

    Raises:
        ValueError: if the share is not between 0 and 1, or there are fewer than two keys.
    """
    keys: list[Any] = list(range(len(rows)))
    if key is not None:
        keys = [key(row) for row in rows]
    held_out_keys = draw(sorted(set(keys)), share, seed=seed, what="rows")
    training = list[Any]()
    validation = list[Any]()
    for row, row_key in zip(rows, keys, strict=True):
        if row_key in held_out_keys:
            validation.append(row)
        else:
            training.append(row)
    return training, validation


def draw(items: Sequence[Any], share: float, seed: int, what: str) -> set[Any]:
    """Draws a share of the items at random: at least one, and never all.

    Args:
        items: what to draw from.
        share: the share to draw, between 0 and 1.
        seed: the seed of the draw.
        what: what the items are, for the error.

    Raises:
        ValueError: if the share is not between 0 and 1, or there are fewer than two items.
    """
    if not 0 < share < 1 or len(items) < 2:
        raise ValueError(
            f"Cannot hold out a share of {share} of {len(items)} {what}; give a validation set."
        )
    count = min(max(round(share * len(items)), 1), len(items) - 1)
    order = np.random.default_rng(seed).permutation(len(items))
    return {items[number] for number in order[:count].tolist()}


def fingerprint(values: Iterable[Any]) -> str:
    """Returns the SHA-256 of values as one JSON array."""
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()


def columns_of(path: Path, delimiter: str | None, count: int) -> Iterator[list[str]]:
    """Yields the first columns of each line; blank lines are left out.

    Only a line feed ends a line, because texts may hold carriage returns.

    Args:
        path: the file, or its name without ``.gz``.
        delimiter: what stands between columns; None for white space.
        count: how many columns a line must have; further ones are left out.

    Raises:
        ValueError: for a line with fewer columns, or bytes that are not UTF-8.
    """
    file = packed(path)
    for number, line in enumerate(table_lines(file, newline="\n"), start=1):
        if not line.strip():
            continue
        with named_errors(file):
            check_utf8(line)
        row = line.rstrip("\n").split(delimiter)
        if len(row) < count:
            raise ValueError(
                f"Line {number} of {path.name} must have {count} columns, got {len(row)}: {row}."
            )
        yield row[:count]
