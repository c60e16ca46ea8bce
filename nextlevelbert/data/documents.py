"""Where documents come from: text files, tables, a dataset on the Hub, or Python's own manual."""

from __future__ import annotations

import ast
import pydoc_data.topics
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .book_files import BOOKS, read_book
from .files import Source, SourceFile, source_files, suffix
from .html_text import read_html
from .rows import Place, Rows, placed_rows, short
from .tables import hub_dataset, open_saved_dataset
from .texts import read_text

DELETED = '\\`*_{}[]()>#+-$"=@%^|~/'
_DELETE = str.maketrans("", "", DELETED)
_ADDRESSES = re.compile(r"\bhttp\S*|\bwww\S*|\S+@\S+")
PYTHON_MANUAL = "python-manual"
_NOT_DOCUMENTATION = {
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "__pycache__",
    "turtledemo",
    "pydoc_data",
}


@dataclass(frozen=True)
class Document:
    """One text with the name it is known by in a corpus.

    Attributes:
        id: its name.
        text: all of it.
        metadata: what else the source says of it: the further columns of its row.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


def read_documents(source: Source, text_column: str = "text", id_column: str = "id") -> Iterator[Document]:
    """Streams the documents of files, one in memory at a time (of Parquet, a few), always in the same order.

    A text file is one document: ``.txt`` and ``.md`` as they stand, ``.html`` without its markup, and the text of
    ``.epub``, ``.pdf`` and ``.docx`` (the last two with ``pip install nextlevelbert[files]``). Its id is its path
    below the folder, without suffix. In a table every row is one: ``.jsonl``, ``.json`` (an array, one object, or one
    a line), ``.csv`` (the first line names the columns), ``.parquet``, and a folder that `datasets` wrote by
    ``save_to_disk``. Its id is `id_column` as it stands; rows without one are numbered through all files. All files
    may be packed as ``.gz``.

    Args:
        source: a file; a folder, with all folders in it; a pattern such as ``books/**/*.txt``; several of these; or
            ``"python-manual"``, which needs no file at all. A pattern is one only where no file has that very name.
        text_column, id_column: the columns of tables. All others become `Document.metadata`.

    Raises:
        FileNotFoundError: if there is nothing at `source`.
        ValueError: at once for a kind of file that is not supported, or what is no regular file (`source_files`).
            While reading, with file and line: for what is not UTF-8 or breaks its format, and for a row without text.
    """
    if isinstance(source, (str, Path)) and str(source) == PYTHON_MANUAL:
        return python_manual()
    return _documents(source_files(source), text_column, id_column)


def as_documents(documents: Iterable[Any], text_column: str = "text", id_column: str = "id") -> Iterator[Document]:
    """Documents of whatever holds texts: `Document` objects, texts, ``(id, text)``, dicts, a `datasets.Dataset`.

    Args:
        documents: read once, in order; a single text is one document. Where there is no id, it is the number.
        text_column, id_column: of dicts and data sets; other columns become `Document.metadata`.

    Raises:
        TypeError: for a dict, set or table, which would be gone through by its keys; for what is not text.
        ValueError: for a dict without the column, and a text that is not valid Unicode.
    """
    if isinstance(documents, str):
        documents = [documents]
    if isinstance(documents, Mapping | Set) or getattr(documents, "ndim", 1) != 1:
        raise TypeError(f"Expected documents in a list, data set or generator, got {type(documents).__name__}.")
    for number, item in enumerate(documents):
        if isinstance(item, Mapping):
            if text_column not in item:
                raise ValueError(f"Document {number} has no column {text_column!r}; it has {', '.join(item)}.")
            name, text = item.get(id_column), item[text_column]
            others = {column: value for column, value in item.items() if column not in (text_column, id_column)}
            item = Document(str(number if name is None else name), text, others)
        elif not isinstance(item, Document):
            name, text = (number, item) if isinstance(item, str) or len(item) != 2 else item
            item = Document(str(name), text)
        if not isinstance(item.text, str):
            raise TypeError(f"The text of document {item.id!r} must be a str, got {short(item.text)}.")
        try:
            item.text.isascii() or item.text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"Document {item.id!r} holds a lone surrogate at character {error.start}.") from error
        yield item


def clean_text(text: str) -> str:
    """A text as the NextLevelBERT authors' code cleans it before pretraining; inference does none of this.

    Ends of lines become spaces; words with ``http``, ``www`` or ``@`` at their place go, and so do the characters
    :data:`DELETED`, quotation marks and hyphens among them; runs of spaces become one.

    Example:
        >>> clean_text('He said: "See www.sea.org,\\nwell-known -- to (all)!"')
        'He said: See wellknown to all!'
    """
    text = _ADDRESSES.sub("", text.replace("\n", " "))
    return " ".join(text.translate(_DELETE).split())


def check_documents(source: Source, text_column: str = "text", id_column: str = "id") -> None:
    """Reads the first document only, so that a wrong path or column is found before anything is loaded or made.

    Raises:
        FileNotFoundError, ValueError: as `read_documents`; ValueError if there is no document.
    """
    if next(read_documents(source, text_column, id_column), None) is None:
        raise ValueError(f"{source} holds no document. Check that it is not empty.")


def read_hub_documents(
    dataset_name: str,
    split: str = "train",
    dataset_config: str | None = None,
    text_column: str = "text",
    id_column: str = "id",
) -> Iterator[Document]:
    """Streams the documents of a dataset on the Hub; arguments as in `datasets.load_dataset`."""
    rows = hub_dataset(dataset_name, dataset_config, split=split, streaming=True)
    yield from documents_from_rows(rows, text_column, id_column, dataset_name)


def documents_from_rows(
    rows: Iterable[dict[str, Any]], text_column: str, id_column: str, source: str = "The source"
) -> Iterator[Document]:
    """Documents of rows with named columns; the others are their metadata. Rows without an id are numbered.

    Raises:
        ValueError: naming the row of `source`, for a text that is not there, or is no text.
    """
    for number, row in enumerate(rows):
        yield _document(Place(source, f"row {number}"), row, text_column, id_column, number)


def _documents(files: Iterable[SourceFile], text_column: str, id_column: str) -> Iterator[Document]:
    count = 0  # of rows
    for path, name in files:
        if name is not None:
            yield Document(name, _text(path))
            continue
        for place, row in _rows(path):
            yield _document(place, row, text_column, id_column, count)
            count += 1


def _text(path: Path) -> str:
    kind = suffix(path)
    if kind in BOOKS:
        return read_book(path, kind)
    return read_html(path) if kind in (".html", ".htm") else read_text(path)


def _rows(path: Path) -> Rows:
    """Rows with places that say more than the name of a file: there may be several."""
    if not path.is_dir():
        return ((place._replace(source=str(path)), row) for place, row in placed_rows(path))
    _, rows = open_saved_dataset(path)
    return ((Place(str(path), f"row {number}"), row) for number, row in enumerate(rows))


def _document(place: Place, row: Mapping[str, Any], text_column: str, id_column: str, number: int) -> Document:
    text, name = place.value(row, text_column, "--text_column"), row.get(id_column)
    if not isinstance(text, str):
        raise place.error(text_column, f"must be text, got {short(text)}. Correct the row, or leave it out.")
    metadata = {column: value for column, value in row.items() if column not in (text_column, id_column)}
    return Document(f"document-{number:06d}" if name is None else str(name), text, metadata)


def python_manual(smallest: int = 400) -> Iterator[Document]:
    """Long texts that every Python carries: the language manual, and what the standard library says of itself.

    One document for each topic of `pydoc_data.topics` and for each module of the standard library: its
    docstring and those of its classes and functions, read from the source without importing anything.

    Args:
        smallest: texts of fewer characters are left out.
    """
    for topic, text in sorted(pydoc_data.topics.topics.items()):
        if len(text) >= smallest:
            yield Document(f"manual/{topic}", text)
    root = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if _NOT_DOCUMENTATION & set(parts) or any(part.startswith("config-") for part in parts):
            continue
        text = _docstrings(file)
        if len(text) >= smallest:
            yield Document("module/" + ".".join(part for part in parts if part != "__init__"), text)


def _docstrings(file: Path) -> str:
    """All docstrings of a source file, each function's and class's under its name."""
    pieces = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                pieces.append(f"{getattr(node, 'name', '')}\n{docstring}".strip())
    return "\n\n".join(pieces)
