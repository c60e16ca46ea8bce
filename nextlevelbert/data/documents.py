"""Where documents come from: files, a dataset on the Hub, or Python's own manual."""

from __future__ import annotations

import ast
import pydoc_data.topics
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from . import rows as reading
from .books import BOOKS, read_book
from .rows import TABLES, Document, as_documents, suffix

TEXTS = (".txt", ".md", ".markdown", *BOOKS)  # one document a file
PYTHON_MANUAL = "python-manual"
_NOT_DOCUMENTATION = set("site-packages test tests idlelib lib2to3 __pycache__ turtledemo pydoc_data".split())


def read_documents(
    source: str | Path | Iterable[str | Path], text_column: str = "text", id_column: str = "id"
) -> Iterator[Document]:
    """Streams the documents of files, one in memory at a time, always in the same order.

    A text file is one document: ``.txt`` and ``.md`` as they stand, ``.html``, ``.epub``, ``.pdf`` and ``.docx``
    without their markup (the last two with ``pip install nextlevelbert[files]``). Its id is its path below the folder,
    without suffix where no other file has that path. In a table every row is one: ``.jsonl``, ``.json``, ``.csv``,
    ``.parquet``, and a folder of ``save_to_disk``. All but Parquet may be packed as ``.gz``.

    Args:
        source: a file; a folder, with all folders in it; a pattern such as ``books/**/*.txt``; several of these; or
            ``"python-manual"``, which needs no file at all. A pattern is one only where no file has that very name.
        text_column, id_column: the columns of tables; see `as_documents`.

    Raises:
        FileNotFoundError: if there is nothing at `source`.
        ValueError: for a kind of file that is not supported; while reading, naming the file, for what cannot be read.
    """
    if isinstance(source, (str, Path)) and str(source) == PYTHON_MANUAL:
        return python_manual()
    return _documents(source_files(source), text_column, id_column)


def _documents(files: Iterable[tuple[Path, str | None]], text_column: str, id_column: str) -> Iterator[Document]:
    count = 0  # of rows
    for path, name in files:
        if name is None:
            rows: Any = reading.saved_dataset(path) if path.is_dir() else (row for _, row in reading.placed_rows(path))
            with reading.named_errors(path):
                for document in as_documents(rows, text_column, id_column, start=count):
                    yield document
                    count += 1
        elif suffix(path) in BOOKS:
            yield Document(name, *read_book(path, suffix(path)))
        else:
            with reading.open_text(path) as file:
                yield Document(name, file.read())


def source_files(source: str | Path | Iterable[str | Path]) -> list[tuple[Path, str | None]]:
    """The files of a source for `read_documents`, in order, with the id of each document, or None for a table."""
    files: dict[Path, str] = {}
    for name in [source] if isinstance(source, (str, Path)) else source:
        start = Path(re.split(r"[*?[]", str(name))[0] + "x").parent  # the folder before a pattern
        root = Path(name) if Path(name).is_dir() else Path(name).parent if Path(name).exists() else start
        if not (paths := reading.find_paths(name)):
            raise FileNotFoundError(f"There is no file or folder {str(name)!r}. Check the path.")
        for path in paths:
            inside = sorted(path.rglob("*")) if path.is_dir() and not reading.is_saved_dataset(path) else [path]
            saved = {folder for folder in inside if reading.is_saved_dataset(folder)}
            for file in inside:
                readable = file.is_file() and suffix(file) in TEXTS + TABLES and not saved & set(file.parents)
                relative = file.relative_to(root)
                if (readable or file in saved) and not any(part.startswith(".") for part in relative.parts):
                    files[file] = relative.as_posix()
    if not files:
        raise ValueError(f"{source} holds nothing to read; supported are {', '.join(TEXTS + TABLES)}, also .gz.")
    stems = {path: re.sub(r"(\.[^./]+)(\.gz)?$", "", name, flags=re.I) for path, name in files.items()}
    times = Counter(stem for path, stem in stems.items() if suffix(path) in TEXTS)
    names = {path: stem if times[stem] == 1 else files[path] for path, stem in stems.items()}
    return [(path, name if suffix(path) in TEXTS else None) for path, name in names.items()]


def read_hub_documents(
    dataset_name: str, split: str = "train", dataset_config: str | None = None, **columns: Any
) -> Iterator[Document]:
    """Streams the documents of a dataset on the Hub, as `as_documents`."""
    return as_documents(reading.hub_dataset(dataset_name, dataset_config, split=split, streaming=True), **columns)


def python_manual(smallest: int = 400) -> Iterator[Document]:
    """Texts of at least `smallest` characters that every Python carries: its manual, and its modules' docstrings.

    One document for each topic of `pydoc_data.topics` and each module of the standard library; nothing is imported.
    """
    texts = {f"manual/{topic}": text for topic, text in sorted(pydoc_data.topics.topics.items())}
    yield from (Document(name, text) for name, text in texts.items() if len(text) >= smallest)
    root = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if not _NOT_DOCUMENTATION & set(parts) and not any(part.startswith("config-") for part in parts):
            if len(text := _docstrings(file)) >= smallest:
                yield Document("module/" + ".".join(part for part in parts if part != "__init__"), text)


def _docstrings(file: Path) -> str:
    """All docstrings of a source file, each function's and class's under its name."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes: Any = (node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, documented))
    pairs = ((getattr(node, "name", ""), ast.get_docstring(node)) for node in nodes)
    return "\n\n".join(f"{name}\n{docstring}".strip() for name, docstring in pairs if docstring)
