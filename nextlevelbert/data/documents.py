"""Where documents come from: text files, JSON lines, Parquet, a Hub dataset, or Python's own manual."""

from __future__ import annotations

import ast
import pydoc_data.topics
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PYTHON_MANUAL = "python-manual"
_SUFFIXES = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
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
    """One text with the name it is known by in a corpus."""

    id: str
    text: str


def read_documents(source: str | Path, text_column: str = "text", id_column: str = "id") -> Iterator[Document]:
    """Streams the documents of a path, one in memory at a time, always in the same order.

    Args:
        source: a ``.txt`` file (one document), a folder of them (sub-folders included), a ``.jsonl`` or
            ``.parquet`` file (``.gz`` too), or ``"python-manual"``, which needs no file at all.
        text_column, id_column: the fields to read from JSON lines and Parquet. Without an id column
            documents are numbered.

    Raises:
        FileNotFoundError: if there is nothing at `source`.
        ValueError: for a kind of file that is not known, or a text column that is not there.
    """
    if str(source) == PYTHON_MANUAL:
        yield from python_manual()
        return
    path = Path(source)
    if path.is_dir():
        files = sorted(path.rglob("*.txt"))
        if not files:
            raise ValueError(
                f"The folder {source} holds no .txt file; give a folder of texts, a .jsonl or a .parquet."
            )
        for file in files:
            yield Document(file.relative_to(path).with_suffix("").as_posix(), _read_text(file))
        return
    if not path.exists():
        raise FileNotFoundError(
            f"No file or folder {str(source)!r}. Give a .txt, a folder of .txt, a .jsonl, "
            f"a .parquet, or {PYTHON_MANUAL!r}."
        )
    from datasets import load_dataset  # seconds to import, and not needed for plain text

    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    kind = suffixes[-1] if suffixes else ""
    if kind == ".txt" and path.suffix == ".txt":
        yield Document(path.stem, _read_text(path))
    elif kind in _SUFFIXES:
        rows = load_dataset(_SUFFIXES[kind], data_files=str(path), split="train", streaming=True)
        yield from documents_from_rows(rows, text_column, id_column)
    else:
        raise ValueError(
            f"Cannot read {path.name}: supported are .txt, .jsonl, .json (both also .gz), .parquet, or a folder of "
            ".txt."
        )


def read_hub_documents(
    dataset_name: str,
    split: str = "train",
    dataset_config: str | None = None,
    text_column: str = "text",
    id_column: str = "id",
) -> Iterator[Document]:
    """Streams the documents of a dataset on the Hub; arguments as in `datasets.load_dataset`."""
    from datasets import load_dataset

    rows = load_dataset(dataset_name, dataset_config, split=split, streaming=True)
    yield from documents_from_rows(rows, text_column, id_column)


def documents_from_rows(rows: Iterable[dict[str, Any]], text_column: str, id_column: str) -> Iterator[Document]:
    """Documents of rows with named columns, or a ValueError that lists the columns there are."""
    for number, row in enumerate(rows):
        if text_column not in row:
            raise ValueError(
                f"Row {number} has no column {text_column!r}; it has {', '.join(row)}. Name the text column with "
                "--text_column."
            )
        name = row.get(id_column)
        yield Document(f"document-{number:06d}" if name is None else str(name), row[text_column])


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 ({error}); convert it, for example with iconv.") from error


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
