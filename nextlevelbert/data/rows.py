"""Where texts come from: files, data sets, Python's own manual and objects, as documents or as
rows; rows held out."""

from __future__ import annotations

import ast
import csv
import glob
import gzip
import hashlib
import itertools
import json
import logging
import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple, TextIO

import numpy as np
import pyarrow.parquet as pq

from .books import BOOKS, read_book

TABLES = (".jsonl", ".json", ".csv", ".parquet")  # one document a row
TEXTS = (".txt", ".md", ".markdown", *BOOKS)  # one document a file
PYTHON_MANUAL = "python-manual"
logger = logging.getLogger(__name__)
_NOT_DOCUMENTATION = set(
    "site-packages test tests idlelib lib2to3 __pycache__ turtledemo pydoc_data".split()
)


@dataclass(frozen=True)
class Document:
    """A text, its name, and what else is known of it; of a PDF, ``pages``: the characters at which
    they begin."""

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


class Place(NamedTuple):
    """Where a row comes from, to say what is wrong with it: ``Place("books.jsonl", "line 3")``."""

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
    """Rows with named columns: name, first row, all rows with their places, and names of classes by
    column."""

    name: str
    first: dict[str, Any]
    rows: Rows
    class_names: dict[str, tuple[str, ...]]


def as_documents(
    documents: Iterable[Any], text_column: str = "text", id_column: str = "id", start: int = 0
) -> Iterator[Document]:
    """Documents of whatever holds texts: `Document` objects, texts, ``(id, text)``, dicts, a
    `datasets.Dataset`.

    They are read once, in order; a single text is one document. Where there is no id, it is a
    number from `start` on. Further columns become `Document.metadata`.

    Raises:
        TypeError: for a dict, set or table, which would be gone through by its keys.
        ValueError: for a row without the column, and what is no text or no valid Unicode.
    """
    documents = [documents] if isinstance(documents, str) else documents
    if isinstance(documents, Mapping | Set) or getattr(documents, "ndim", 1) != 1:
        raise TypeError(
            f"Expected documents in a list, data set or generator, got {type(documents).__name__}."
        )
    for number, item in enumerate(documents, start=start):
        if isinstance(item, Mapping):
            if text_column not in item:
                raise ValueError(
                    f"Document {number} has no column {text_column!r} (text_column); it has"
                    f" {[*item]}."
                )
            name = item.get(id_column)
            metadata = {
                column: value
                for column, value in item.items()
                if column not in (text_column, id_column)
            }
            item = Document(
                str(number if name in (None, "") else name), item[text_column], metadata
            )
        elif not isinstance(item, Document):
            name, text = (
                item if isinstance(item, tuple | list) and len(item) == 2 else (number, item)
            )
            item = Document(str(name), text)
        try:
            item.text.isascii() or item.text.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise ValueError(
                f"The text of document {item.id!r} is not a valid str: {short(item.text)}."
            ) from error
        yield item


def read_documents(
    source: str | Path | Iterable[str | Path], text_column: str = "text", id_column: str = "id"
) -> Iterator[Document]:
    """Streams the documents of files, one in memory at a time, always in the same order.

    A text file is one document: ``.txt`` and ``.md`` as they stand, ``.html``, ``.epub``, ``.pdf``
    and ``.docx`` without their markup (the last two with ``pip install nextlevelbert[files]``). Its
    id is its path below the folder, without suffix where no other file has that path. In a table
    every row is one: ``.jsonl``, ``.json``, ``.csv``, ``.parquet``, and a folder of
    ``save_to_disk``. All but Parquet may be packed as ``.gz``.

    Args:
        source: a file; a folder, with all folders in it; a pattern such as ``books/**/*.txt``;
            several of these; or ``"python-manual"``, which needs no file at all. A pattern is one
            only where no file has that very name.
        text_column, id_column: the columns of tables; see `as_documents`.

    Raises:
        FileNotFoundError: if there is nothing at `source`.
        ValueError: for a kind of file that is not supported; while reading, naming the file, for
            what cannot be read.
    """
    if isinstance(source, (str, Path)) and str(source) == PYTHON_MANUAL:
        return python_manual()
    return _documents(source_files(source), text_column, id_column)


def _documents(
    files: Iterable[tuple[Path, str | None]], text_column: str, id_column: str
) -> Iterator[Document]:
    count = 0  # of rows
    for path, name in files:
        if name is None:
            rows: Any = (
                saved_dataset(path) if path.is_dir() else (row for _, row in placed_rows(path))
            )
            with named_errors(path):
                for document in as_documents(rows, text_column, id_column, start=count):
                    yield document
                    count += 1
        elif suffix(path) in BOOKS:
            yield Document(name, *read_book(path, suffix(path)))
        else:
            with open_text(path) as file:
                yield Document(name, file.read())


def source_files(source: str | Path | Iterable[str | Path]) -> list[tuple[Path, str | None]]:
    """The files of a source for `read_documents`, in order, with the id of each document, or None
    for a table."""
    files, passed = dict[Path, str](), dict[Path, str]()
    for name in [source] if isinstance(source, (str, Path)) else source:
        start = Path(re.split(r"[*?[]", str(name))[0] + "x").parent  # the folder before a pattern
        root = (
            Path(name)
            if Path(name).is_dir()
            else Path(name).parent
            if Path(name).exists()
            else start
        )
        if not (paths := find_paths(name)):
            raise FileNotFoundError(f"There is no file or folder {str(name)!r}. Check the path.")
        for path in paths:
            inside = (
                sorted(path.rglob("*")) if path.is_dir() and not is_saved_dataset(path) else [path]
            )
            saved = {folder for folder in inside if is_saved_dataset(folder)}
            for file in inside:
                relative, whole = file.relative_to(root).as_posix(), file in saved
                hidden = re.search(r"(^|/)\.[^/]", relative)
                if not hidden and (whole or (file.is_file() and not saved & set(file.parents))):
                    (files if whole or suffix(file) in TEXTS + TABLES else passed)[file] = relative
    if not files:
        raise ValueError(
            f"{source} holds nothing to read; supported are {', '.join(TEXTS + TABLES)}, also .gz."
        )
    if passed:
        logger.warning(
            "Left out (unsupported kinds): %d, %s first.", len(passed), next(iter(passed.values()))
        )
    stems = {
        path: re.sub(r"(\.[^./]+)(\.gz)?$", "", name, flags=re.I) for path, name in files.items()
    }
    times = Counter(stem for path, stem in stems.items() if suffix(path) in TEXTS)
    names = {path: stem if times[stem] == 1 else files[path] for path, stem in stems.items()}
    return [(path, name if suffix(path) in TEXTS else None) for path, name in names.items()]


def python_manual(smallest: int = 400) -> Iterator[Document]:
    """Texts of at least `smallest` characters that every Python carries: its manual, and its
    modules' docstrings.

    One document for each topic of `pydoc_data.topics` and each module of the standard library;
    nothing is imported.
    """
    yield from (
        Document(f"manual/{name}", text)
        for name, text in sorted(topics.items())
        if len(text) >= smallest
    )
    root = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if not _NOT_DOCUMENTATION & set(parts) and not any(
            part.startswith("config-") for part in parts
        ):
            if len(text := _docstrings(file)) >= smallest:
                yield Document(
                    "module/" + ".".join(part for part in parts if part != "__init__"), text
                )


def _docstrings(file: Path) -> str:
    """All docstrings of a source file, each function's and class's under its name."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes: Any = (
        node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, documented)
    )
    pairs = ((getattr(node, "name", ""), ast.get_docstring(node)) for node in nodes)
    return "\n\n".join(f"{name}\n{docstring}".strip() for name, docstring in pairs if docstring)


def open_rows(source: str | Path, split: str = "train", config: str | None = None) -> Table:
    """Opens JSON lines, JSON, CSV (also .gz), Parquet, a folder of ``save_to_disk``, or a dataset
    of the Hub.

    Args:
        source: a file (of any other name, JSON lines) or a pattern of files; a folder; or a name on
            the Hub.
        split, config: of a dataset; a file is read whole.

    Raises:
        FileNotFoundError: if there is neither a file nor a dataset of that name.
        ValueError: for a source without rows, or rows that cannot be read, by file and line.
    """
    path, features = Path(source), dict[str, Any]()
    name = path.resolve().name if path.exists() else str(source)
    if files := [] if path.is_dir() else find_paths(source):
        rows: Rows = itertools.chain.from_iterable(map(placed_rows, files))
    else:
        dataset = (
            saved_dataset(path, split)
            if is_saved_dataset(path)
            else hub_dataset(source, config, split=split)
        )
        name = (
            name
            if is_saved_dataset(path)
            else f"{name} ({config}, {split})"
            if config
            else f"{name} ({split})"
        )
        features, rows = (
            dataset.features,
            ((Place(name, f"row {n}"), row) for n, row in enumerate(dataset)),
        )
        if [*dataset.features] == ["text"] and dataset.info.builder_name == "text":
            raise not_a_table(name)  # each line of a text would be a row
    try:
        first = next(rows, None)
    except ValueError as error:
        if files and suffix(files[0]) in TEXTS:
            raise not_a_table(name) from error
        raise
    if first is None:
        raise ValueError(f"{name} is empty: it has no rows.")
    if files and suffix(files[0]) == ".parquet":
        from datasets import Features  # seconds to import

        features = Features.from_arrow_schema(pq.read_schema(files[0]))
    inner = {column: getattr(feature, "feature", feature) for column, feature in features.items()}
    classes = {
        column: tuple(feature.names)
        for column, feature in inner.items()
        if hasattr(feature, "names")
    }
    return Table(name, first[1], itertools.chain([first], rows), classes)


def not_a_table(name: str) -> ValueError:
    """The error for texts where rows with labels are read."""
    return ValueError(
        f"{name} holds texts, and not a table. Give {', '.join(TABLES)} with a row for each"
        " document, its text in one column and its label in another."
    )


def placed_rows(path: Path) -> Rows:
    """Streams the rows of a file, as `open_rows`; the values of a CSV are text."""
    kind = suffix(path)
    with named_errors(path):
        for where, row in (_parquet if kind == ".parquet" else _csv if kind == ".csv" else _json)(
            path
        ):
            if (
                not isinstance(row, dict)
                or None in row
                or (kind == ".csv" and None in row.values())
            ):
                expected = "as many fields as line 1" if kind == ".csv" else "a JSON object"
                raise ValueError(f"{where} is not {expected}, but {short(row)}")
            yield Place(str(path), where), row


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    with pq.ParquetFile(path) as table:
        rows = itertools.chain.from_iterable(batch.to_pylist() for batch in table.iter_batches(16))
        yield from ((f"row {number}", row) for number, row in enumerate(rows))


def _csv(path: Path) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(2**31 - 1)  # csv's own limit of 131,072 is less than a long document
    with open_text(path, newline="") as file:
        reader = csv.DictReader(file, strict=True)
        yield from ((f"line {reader.line_num}", row) for row in reader)


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    with open_text(path) as file:
        if suffix(path) == ".json":
            try:
                value = json.load(file)
                yield from (
                    (f"row {n}", row)
                    for n, row in enumerate(value if isinstance(value, list) else [value])
                )
                return
            except json.JSONDecodeError as error:
                if error.msg != "Extra data":
                    raise
            file.seek(0)  # JSON lines by another name
        for number, line in enumerate(file, start=1):
            try:
                if line.strip():
                    yield f"line {number}", json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(
                    f"line {number}, column {error.colno} is not JSON ({error.msg})"
                ) from error


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Errors of reading a file, as a ValueError that names it."""
    try:
        yield
    except (
        ValueError,
        TypeError,
        OSError,
        EOFError,
        zlib.error,
        csv.Error,
        RecursionError,
    ) as error:
        if isinstance(error, FileNotFoundError) or str(path) in str(error):
            raise
        hint = " Save it in UTF-8." * isinstance(error, UnicodeError)
        raise ValueError(f"{path} cannot be read: {str(error).rstrip('.')}.{hint}") from error


@contextmanager
def open_text(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """A text file in UTF-8, without a byte order mark, perhaps packed as ``.gz``; ValueError names
    it."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with named_errors(path), opener(path, "rt", encoding="utf-8-sig", newline=newline) as file:
        yield file


def suffix(path: Path) -> str:
    """The suffix in lower case; of ``x.jsonl.gz`` it is ``.jsonl``."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def find_paths(source: str | Path) -> list[Path]:
    """The file or folder of this name, else all that match it as a pattern, in order."""
    return (
        [Path(source)]
        if Path(source).exists()
        else sorted(map(Path, glob.glob(str(source), recursive=True)))
    )


def is_saved_dataset(folder: Path) -> bool:
    """Whether `datasets` wrote this folder by ``save_to_disk``."""
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def saved_dataset(folder: Path, split: str | None = None) -> Any:
    """A dataset of ``save_to_disk``; of several splits the one that is named, or the only one."""
    from datasets import Dataset, load_from_disk  # seconds to import

    data = load_from_disk(str(folder))
    if isinstance(data, Dataset) or len(data) == 1:
        return data if isinstance(data, Dataset) else next(iter(data.values()))
    if split not in data:
        raise ValueError(
            f"{folder} has the splits {', '.join(data)}, not {split}. Give one, or the folder of"
            " one."
        )
    return data[split]


def hub_dataset(name: str | Path, config: str | None = None, **options: Any) -> Any:
    """`datasets.load_dataset`; where the dataset is a script, which is not run, the Hub's own
    Parquet export of it."""
    from datasets import load_dataset  # seconds to import

    message, is_name = (
        f"There is no file or folder {str(name)!r}",
        re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(name)),
    )
    if not Path(name).exists() and (suffix(Path(name)) in TABLES or not is_name):
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
    """A value and its type, for messages."""
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def hold_out(
    rows: Sequence[Any], share: float, seed: int, key: Any = None
) -> tuple[list[Any], list[Any]]:
    """Rows to train on and rows to validate on, drawn at random; those of one `key` stay
    together."""
    keys = [key(row) for row in rows] if key else list(range(len(rows)))
    held = draw(sorted(set(keys)), share, seed, "rows")
    parts = [
        [row for row, name in zip(rows, keys, strict=True) if (name in held) == aside]
        for aside in (False, True)
    ]
    return parts[0], parts[1]


def draw(items: Sequence[Any], share: float, seed: int, what: str) -> set[Any]:
    """A share of the items at random: at least one, and never all; ValueError where that cannot
    be."""
    if not 0 < share < 1 or len(items) < 2:
        raise ValueError(
            f"Cannot hold out a share of {share} of {len(items)} {what}; give a validation set."
        )
    count = min(max(round(share * len(items)), 1), len(items) - 1)
    return {
        items[number]
        for number in np.random.default_rng(seed).permutation(len(items))[:count].tolist()
    }


def fingerprint(values: Iterable[Any]) -> str:
    """SHA-256 of values as one JSON array."""
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()


def packed(path: Path) -> Path:
    """The file, or the same with ``.gz`` where only that is there."""
    compressed = path.with_name(f"{path.name}.gz")
    return compressed if compressed.exists() and not path.exists() else path


def columns_of(path: Path, delimiter: str | None, count: int) -> Iterator[list[str]]:
    """The first columns of each line; only a line feed ends a line, because texts may hold carriage
    returns."""
    with open_text(packed(path), newline="\n") as file:
        for number, line in enumerate(file, start=1):
            row = line.rstrip("\n").split(delimiter)
            if line.strip() and len(row) < count:
                raise ValueError(
                    f"Line {number} of {path.name} must have {count} columns, got {len(row)}:"
                    f" {row}."
                )
            if line.strip():
                yield row[:count]
