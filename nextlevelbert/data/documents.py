"""Documents: texts with their ids, made of whatever holds texts."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..messages import names_in_line, short
from ..models.tokenizing import check_collection
from .rows import NoDocumentError, without_media

_SHOWN_CHARACTERS = 60  # of the name of a column
File = tuple[Path, str | None]  # with the id of its document, or None for a table


@dataclass(frozen=True)
class Document:
    """Holds a text with its id and metadata.

    Attributes:
        id: name of the document, which is unique in a corpus.
        text: text of the document.
        metadata: for a row of a table, its other columns; for a PDF, ``pages`` with the character
            at which each page begins.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __repr__(self) -> str:
        shown = f"id={self.id!r}, {len(self.text):,} characters"
        if self.metadata:
            columns = [str(column) for column in self.metadata]
            shown += f", metadata: {names_in_line(columns)}"
        return f"Document({shown})"


class FileDocuments(Iterator[Document]):
    """Streams the documents of files, or of some of them.

    Args:
        files: the files.

    Attributes:
        files: the files; none after documents were taken from it, as from any iterator.
        row_count: number of rows that were read; rows without an id are named by their number.
    """

    def __init__(self, files: Sequence[File]) -> None:
        self.files = files
        self.row_count = 0
        self._documents = self.read(files)

    def __next__(self) -> Document:
        self.files = ()
        return next(self._documents)

    @abstractmethod
    def read(self, files: Iterable[File]) -> Iterator[Document]:
        """Streams the documents of some of the files."""


def as_documents(
    documents: Iterable[Any], text_column: str = "text", id_column: str = "id"
) -> Iterator[Document]:
    """Yields documents from whatever holds texts, in order.

    Args:
        documents: `Document` objects, texts, ``(id, text)``, dicts, or a `datasets.Dataset`. They
            are read once. A single text is one document.
        text_column: the column of the text.
        id_column: the column of the id. The columns beside both become `Document.metadata`.

    Raises:
        TypeError: for a dict, set or table, whose iteration would yield keys.
        ValueError: for a row without the column, and for text that is not valid Unicode.
    """
    if isinstance(documents, str):
        documents = [documents]
    check_collection(documents)
    documents = without_media(documents, text_column)
    for index, item in enumerate(documents):
        yield as_document(item, index, text_column=text_column, id_column=id_column)


def as_document(item: Any, index: int, *, text_column: str, id_column: str) -> Document:
    """Returns the document that an object or a row is; see `as_documents`."""
    if isinstance(item, Document):
        document = item
    elif isinstance(item, Mapping):
        document = _row_as_document(item, index, text_column=text_column, id_column=id_column)
    elif isinstance(item, tuple | list) and len(item) == 2:
        name, text = item
        document = Document(str(name), text)
    else:
        document = Document(str(index), item)

    for value in (document.id, document.text):
        try:
            value.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise ValueError(
                f"The text of document {document.id!r} is not a valid str: {short(value)}. Correct"
                " it, or leave it out."
            ) from error

    return document


def _row_as_document(
    row: Mapping[str, Any], index: int, *, text_column: str, id_column: str
) -> Document:
    if text_column not in row:
        columns = names_in_line([str(column)[:_SHOWN_CHARACTERS] for column in row])
        raise NoDocumentError(
            f"Document {index} has no column {text_column!r}; it has {columns}. Name the right one"
            " with text_column, in a command --text_column."
        )

    if f"{id_column} (1)" in row:
        raise NoDocumentError(f"Document {index} has {id_column!r} twice. Rename one of them.")

    name = row.get(id_column)
    if name in (None, ""):
        name = index

    metadata = {
        column: value for column, value in row.items() if column not in (text_column, id_column)
    }
    return Document(str(name), row[text_column], metadata)
