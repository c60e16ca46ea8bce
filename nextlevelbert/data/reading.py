"""Reads documents from files, tables and Python's own manual."""

import ast
import logging
import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from ..bundled import PYTHON_MANUAL, resolve_source
from ..messages import names_in_line, readable_name
from .books.encodings import decode_escapes
from .documents import Document, File, FileDocuments, as_document
from .files import (
    PLAIN_TEXTS,
    TABLES,
    TEXTS,
    PartlyReadError,
    files_below,
    find_paths,
    is_saved_dataset,
    named_errors,
    read_text,
    reason,
    suffix,
)
from .rows import NoDocumentError
from .tables import rows_or_errors

logger = logging.getLogger(__name__)
# A picture or another file that is written into Markdown; short ones are examples in a text.
_DATA_LINK = re.compile(r"""data:\w+/[\w.+-]+(?:;[\w.=-]+)*,[^\s)"'<>]{100,}""")
_NOT_DOCUMENTATION = set(
    "site-packages test tests idlelib lib2to3 __pycache__ turtledemo pydoc_data".split()
)
_SHORTEST = 400  # characters of a text of the manual
OnError = Callable[[ValueError], object]
AsDocument = Callable[[Any, int], Document]
_NAMED_ROWS = 10  # of a table, that cannot be read


def read_documents(
    source: str | Path | Iterable[str | Path],
    text_column: str = "text",
    id_column: str = "id",
    on_error: OnError | None = None,
) -> Iterator[Document]:
    r"""Streams the documents of files, one in memory at a time, always in the same order.

    A text file is one document: ``.txt`` and ``.md`` as they are, ``.html``, ``.epub``, ``.pdf``
    and ``.docx`` without their markup (the last two need the extra ``files``). Its id is its path
    below the folder, without suffix if no other file has that path. In a table (``.jsonl``,
    ``.json``, ``.csv``, ``.parquet``, or a folder that ``save_to_disk`` has written), every row is
    one document. All files but Parquet may be compressed as ``.gz``.

    Args:
        source: a file; a folder, with all folders in it; a pattern such as ``books/**/*.txt``;
            several of these; ``"example-books"``, the first pages of six novels, which are
            installed with the package; or ``"python-manual"``, Python's own manual and docstrings.
            If a file has the name of the pattern, only this file is read.
        text_column: the column of the text in tables.
        id_column: the column of the id in tables. The columns other than text and id become
            `Document.metadata`.
        on_error: function that is called with the ValueError of a file or row that cannot be read,
            such as `print` or the `append` of a list; reading then continues. By default, the first
            error is raised. At most ten rows of each table are named, and the others are counted.
            The function is also called for a book of which only a part could be read; by default,
            this is a warning.

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
    if isinstance(source, str):
        source = resolve_source(source)
    to_document = partial(as_document, text_column=text_column, id_column=id_column)
    return _ReadDocuments(source_files(source), to_document, on_error)


class _ReadDocuments(FileDocuments):
    """Reads the documents of files.

    Args:
        files: the files, see `source_files`.
        as_document: makes a document of a row and its index.
        on_error: see `read_documents`.
    """

    def __init__(
        self, files: Sequence[File], as_document: AsDocument, on_error: OnError | None
    ) -> None:
        super().__init__(files)
        self._as_document = as_document
        self._on_error = on_error

    def read(self, files: Iterable[File]) -> Iterator[Document]:
        """Streams the documents of some of the files."""
        for path, name in files:
            if name is None:
                self.row_count += yield from _documents_of_table(
                    path,
                    first_index=self.row_count,
                    as_document=self._as_document,
                    on_error=self._on_error,
                )
                continue
            try:
                document = _read_document(path, name, self._on_error)
            except ValueError as error:
                if self._on_error is None:
                    raise
                self._on_error(error)
            else:
                yield document


def _read_document(path: Path, name: str, on_error: OnError | None) -> Document:
    if suffix(path) in PLAIN_TEXTS:
        return Document(name, _read_plain(path))

    from .books.book import read_book  # its parsers are not imported for a search of texts

    text, metadata, missing = read_book(path)
    if missing:
        error = PartlyReadError(f"{path} was read in part: {missing}.")
        if on_error is None:
            logger.warning("%s", readable_name(str(error)))
        else:
            on_error(error)

    return Document(name, text, metadata)


def _read_plain(path: Path) -> str:
    with named_errors(path):
        text = decode_escapes(read_text(path))
    if suffix(path) in (".md", ".markdown"):
        return _DATA_LINK.sub("", text)
    return text


def _documents_of_table(
    path: Path, first_index: int, as_document: AsDocument, on_error: OnError | None
) -> Generator[Document, None, int]:
    """Streams a document from each row of a table; a row that cannot be read costs no other.

    Returns:
        The number of rows.
    """
    row_count = 0
    error_count = 0
    errors: list[ValueError] = []  # of the first unreadable rows
    file_errors = []
    try:
        for document in _documents_or_errors(path, first_index, as_document):
            row_count += 1
            if isinstance(document, Document):
                yield document
            elif on_error is None:
                raise document
            else:
                error_count += 1
                errors = [*errors, document][:_NAMED_ROWS]
    except ValueError as error:
        if on_error is None:
            raise
        file_errors.append(error)

    if error_count == row_count:  # perhaps it is no table of documents
        errors = errors[:1]
    if error_count > len(errors):
        others = error_count - len(errors)
        errors.append(ValueError(f"{path}: {others} more rows cannot be read."))
    if on_error is not None:
        for unreadable in errors + file_errors:
            on_error(unreadable)

    return row_count


def _documents_or_errors(
    path: Path, first_index: int, as_document: AsDocument
) -> Iterator[Document | ValueError]:
    """Yields the document of each row, or the error of a row that cannot be read."""
    for index, (where, row) in enumerate(rows_or_errors(path), start=first_index):
        try:
            if isinstance(row, ValueError):
                raise row
            yield as_document(row, index)
        except NoDocumentError as error:
            yield NoDocumentError(f"{path}, {where}: {reason(error)}")
        except Exception as error:  # any fault of a row costs this row only
            yield ValueError(f"{path}, {where}: {reason(error)}")


def source_files(source: str | Path | Iterable[str | Path]) -> list[File]:
    """Lists the files of a source for `read_documents`, in order.

    Left-out files, such as files of other kinds, are counted in a warning.

    Returns:
        The files, each with the id of its document, or None for a table.

    Raises:
        FileNotFoundError: if there is nothing at `source`.
        ValueError: if no file is of a kind that is supported.
    """
    return _with_ids(named_files(source))


def named_files(
    source: str | Path | Iterable[str | Path], warn: Callable[[str], None] = logger.warning
) -> dict[Path, str]:
    """Lists the files of a source with their paths below its folder, see `source_files`.

    `warn` gets a line about left-out files.
    """
    names = {}
    others = {}
    sources: Any = source
    if isinstance(source, (str, Path)):
        sources = [source]

    for one_source in sources:
        for file, name in _files_of(one_source):
            is_file = suffix(file) in TEXTS + TABLES and os.path.isfile(file)
            if is_file or is_saved_dataset(file):
                names[file] = name
            else:
                others[file] = name

    if not names:
        raise ValueError(
            f"{source} holds no file that can be read; supported are {', '.join(TEXTS + TABLES)},"
            " all but .parquet also as .gz."
        )

    if others:
        _warn_of_other_kinds(others, warn)

    return names


def _files_of(source: str | Path) -> Iterator[tuple[Path, str]]:
    """Yields the files of a file, folder or pattern, with their paths below its folder."""
    root = _root_of(source)
    paths = find_paths(source)
    if not paths:
        raise FileNotFoundError(f"There is no file or folder {str(source)!r}. Check the path.")

    for file in files_below(paths):
        name = readable_name("/".join(file.parts[len(root.parts) :]))
        is_hidden = re.search(r"(^|/)(\.|~\$)[^/]", name) is not None  # ~$ is locked by Word
        is_source = str(file) == os.path.normpath(source)  # a hidden file that the user names
        if is_source or not is_hidden:
            yield file, name


def _root_of(source: str | Path) -> Path:
    """Returns the folder that the ids of a source begin below."""
    path = Path(source)
    if os.path.isdir(path):
        return path
    if os.path.exists(path):
        return path.parent
    before_pattern = re.split(r"[*?[]", str(source))[0]
    return Path(f"{before_pattern}x").parent


def _warn_of_other_kinds(others: Mapping[Path, str], warn: Callable[[str], None]) -> None:
    suffixes = Counter[str]()
    no_files = []
    unsupported = []
    for path, name in others.items():
        if not os.path.isfile(path):
            no_files.append(name)
            continue
        unsupported.append(name)
        suffixes[suffix(path) or "without suffix"] += 1

    if unsupported:
        counts = ", ".join(f"{count} {ending}" for ending, count in suffixes.most_common())
        warn(f"Left out (unsupported kinds): {counts}; {unsupported[0]} first.")
    if no_files:
        names = names_in_line(no_files)
        warn(f"Left out (broken links, or things that are no files): {names}.")


def _with_ids(names: Mapping[Path, str]) -> list[tuple[Path, str | None]]:
    """Gives every text an id of its own; a table gets None.

    The id is the name of the text without its suffix, unless another text has this name or this id.
    Then it is the name; and the whole path, if files of several sources have the same name.
    """
    texts = {path: name for path, name in names.items() if suffix(path) in TEXTS}
    stems = {}
    for path, name in texts.items():
        stems[path] = re.sub(r"(\.[^./]+)(\.gz)?$", "", name, flags=re.IGNORECASE)

    times = Counter([*stems.values(), *texts.values()])
    name_times = Counter(texts.values())

    files = list[tuple[Path, str | None]]()
    for path, name in names.items():
        document_id = stems.get(path)
        if document_id is not None and times[document_id] > 1:
            document_id = name
            if name_times[name] > 1:
                document_id = readable_name(path)

        files.append((path, document_id))

    return files


def python_manual() -> Iterator[Document]:
    """Yields the texts that every Python carries: its manual, and the docstrings of its modules.

    Each topic of `pydoc_data.topics` and each module of the standard library is a document;
    nothing is imported. Texts of less than 400 characters are left out.
    """
    for name, text in sorted(topics.items()):
        if len(text) >= _SHORTEST:
            yield Document(f"manual/{name}", text)

    root = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(root.rglob("*.py")):
        relative = file.relative_to(root).with_suffix("")
        parts = relative.parts
        if _NOT_DOCUMENTATION.intersection(parts) or "config-" in str(relative):
            continue
        text = _docstrings(file)
        if len(text) >= _SHORTEST:
            module = ".".join(part for part in parts if part != "__init__")
            yield Document(f"module/{module}", text)


def _docstrings(file: Path) -> str:
    """Returns all docstrings of a source file, each function's and class's under its name."""
    texts = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                name = getattr(node, "name", "")
                texts.append(f"{name}\n{docstring}".strip())
    return "\n\n".join(texts)
