"""A shelf: the documents of a folder with their vectors, kept in a cache and brought up to date.

Every file has a record, found by its content: the texts of its documents (a table has many), and their spans, vectors
and words. A record appears when it is whole, so that an interrupted run goes on with the files that have none. Several
processes may use one shelf at once: none removes a record while another one reads. Below that, chunk vectors of
encoders that take long are in a `VectorCache`: of a long document that was edited, or whose encoding was interrupted,
only the missing chunks are encoded.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm

from ..corpus.files import FolderLock, remove_leftovers, write_atomically
from ..data.documents import Document, read_documents, source_files
from ..data.rows import suffix
from ..models.modeling_nextlevelbert import DocumentEmbedding, NextLevelBertModel
from ..vector_cache import CachedEncoder, VectorCache
from .opening import check_encoder, identity
from .records import documents_of, is_whole, read_record, record_bytes, words_of
from .words import WordCounts

_FORMAT = "3"  # of the records; raised when they, or the text that is read from files, change

# Documents are encoded together up to so many characters; little is lost when a run is stopped.
_CHARACTERS = 2_000_000
_CHARACTERS_OF_SLOW_ENCODERS = 200_000


class Unreadable(NamedTuple):
    """A file that was left out, and why."""

    place: str
    reason: str


class ShelfFile(NamedTuple):
    """A file of a shelf: where it is, what it is called, and whether each of its rows is a document."""

    path: Path
    place: str
    is_table: bool


@dataclass(frozen=True)
class ShelvedDocument:
    """A document of a shelf (n chunks, D size of a chunk vector, H of a document vector), vectors in float32.

    Attributes:
        place: its path below the folder; for a row of a table, followed by ``#`` and its id.
        text: all of it.
        metadata: the other columns of its row.
        spans: ``[n, 2]``, the characters of each chunk.
        plain: ``[n, D]`` chunk vectors as the chunk encoder made them.
        vector: ``[H]`` the document vector.
    """

    place: str
    text: str
    metadata: dict[str, Any]
    spans: np.ndarray
    plain: torch.Tensor
    vector: torch.Tensor


@dataclass(frozen=True)
class Shelf:
    """The records of a folder's files, in order.

    Attributes:
        folder: where the records are.
        records: each file that has one, and its name.
        encoded: how many of them were made just now.
        unreadable: the files that were left out.
        lock: keeps other processes from removing records.
    """

    folder: Path
    records: list[tuple[ShelfFile, str]]
    encoded: int
    unreadable: list[Unreadable]
    lock: FolderLock = field(repr=False, compare=False)

    def __iter__(self) -> Iterator[ShelvedDocument]:
        """The documents, with one record in memory at a time.

        Raises:
            SystemExit: with a message, for a record that was damaged or removed meanwhile.
        """
        for number in range(len(self.records)):
            yield from self.documents(number)

    def documents(self, number: int) -> Iterator[ShelvedDocument]:
        """Those of record `number`. It raises as iterating does."""
        file, _ = self.records[number]
        for row, text, spans, plain, vector in documents_of(*self._read(number, words=False)):
            place = place_of(file, Document(row["id"], text))
            yield ShelvedDocument(place, text, row["metadata"], spans, plain, vector)

    def words(self, number: int) -> WordCounts:
        """The words of the chunks of record `number`, those of all its documents. It raises as iterating does."""
        return words_of(self._read(number, words=True)[1])

    def _read(self, number: int, words: bool) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
        try:
            return read_record(self.folder / self.records[number][1], words)
        except (FileNotFoundError, ValueError) as error:
            raise SystemExit(f"error: {error} Start the same command again.") from error


def list_files(source: str) -> list[ShelfFile]:
    """The files of a folder, file or pattern.

    Raises:
        SystemExit: with a message, where there is nothing to read.
    """
    try:
        files = source_files(source)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from error
    base = Path(source) if Path(source).is_dir() else Path(source).parent
    return [
        ShelfFile(path, path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path), name is None)
        for path, name in files
    ]


def read_file(file: ShelfFile) -> list[Document] | Unreadable:
    """The documents of a file, those without text left out; or why it has none."""
    try:
        documents = [document for document in read_documents(file.path) if document.text.strip()]
    except (OSError, ValueError) as error:
        return Unreadable(file.place, str(error))
    return documents or Unreadable(file.place, "holds no text")


def place_of(file: ShelfFile, document: Document) -> str:
    return f"{file.place}#{document.id}" if file.is_table else file.place


def open_shelf(model: NextLevelBertModel, source: str, cache_dir: Path) -> Shelf:
    """Brings the shelf of a folder up to date: encodes what is new or changed, forgets what is gone.

    Args:
        model: encodes the documents.
        source: folder, file or pattern.
        cache_dir: keeps a folder of records for each source and model, and chunk vectors.

    Raises:
        SystemExit: with a message, where nothing can be read, or the chunk encoder is missing.
        KeyboardInterrupt: with a message that says how far it came.
    """
    files = list_files(source)
    check_encoder(model)
    owner = hashlib.sha256(f"{_FORMAT} {identity(model)} {os.path.abspath(source)}".encode()).hexdigest()
    folder = cache_dir / "shelves" / owner[:32]
    (cache_dir / "shelves").mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds texts
    folder.mkdir(exist_ok=True)
    unreadable: list[Unreadable] = []
    names: dict[ShelfFile, str] = {}
    for file in files:
        try:
            names[file] = _record_name(file.path)
        except OSError as error:
            unreadable.append(Unreadable(file.place, str(error)))
    lock = FolderLock(folder)
    if lock.try_alone():
        _forget(folder, set(names.values()))
    lock.share()
    missing = [file for file, name in names.items() if not is_whole(folder / name)]
    with tqdm(total=len(names), initial=len(names) - len(missing), unit="file", disable=not missing) as bar:
        try:
            for number, result in enumerate(_encode_files(model, missing, names, cache_dir)):
                if isinstance(result, Unreadable):
                    unreadable.append(result)
                else:
                    write_atomically(folder / names[missing[number]], result)
                bar.update()
        except KeyboardInterrupt:
            done = f"{bar.n:.0f} of {len(names)} files are done. "
            raise KeyboardInterrupt(done + "Start the same command again to go on from there.") from None
        except ValueError as error:  # NaN in a vector, or a damaged cache
            raise SystemExit(f"error: {error}") from error
    left_out = {each.place for each in unreadable}
    records = [(file, name) for file, name in names.items() if file.place not in left_out]
    if not records:
        reasons = "\n".join(f"  {each.place}: {each.reason}" for each in unreadable)
        raise SystemExit(f"error: no file of {source!r} can be read.\n{reasons}")
    made = len(missing) - len(left_out & {file.place for file in missing})
    return Shelf(folder, records, made, unreadable, lock)


def _forget(folder: Path, names: set[str]) -> None:
    """Removes all records but these, and what killed processes left."""
    remove_leftovers(folder)
    for path in folder.glob("*.safetensors"):
        if path.name not in names:
            path.unlink(missing_ok=True)


def _record_name(path: Path) -> str:
    return f"{_content_hash(path)}.safetensors"


def _content_hash(path: Path) -> str:
    """Of the bytes of a file and its suffix, which says how they are read; or of all files of a saved data set."""
    paths = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for each in paths:
        with each.open("rb") as file:
            digest.update(f"{suffix(each)} {each.suffix} ".encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _read_unchanged(file: ShelfFile, name: str) -> list[Document] | Unreadable:
    """As `read_file`; a file is left out if its content is not that of its record's name any more."""
    found = read_file(file)
    if not isinstance(found, Unreadable) and _record_name(file.path) != name:
        return Unreadable(file.place, "was changed while it was read; start the same command again")
    return found


def _encode_files(
    model: NextLevelBertModel, files: list[ShelfFile], names: dict[ShelfFile, str], cache_dir: Path
) -> Iterator[bytes | Unreadable]:
    """The record of each file, in order. Small documents are encoded together, also of several files."""
    slow = model.get_chunk_encoder().has_layers
    limit = _CHARACTERS_OF_SLOW_ENCODERS if slow else _CHARACTERS
    with VectorCache(cache_dir / "chunks") if slow else nullcontext() as cache:
        waiting: list[tuple[ShelfFile, list[Document] | Unreadable]] = []
        size = 0
        for file in files:
            waiting.append((file, found := _read_unchanged(file, names[file])))
            size += 0 if isinstance(found, Unreadable) else sum(len(document.text) for document in found)
            if size >= limit:
                yield from _records(model, waiting, cache, limit)
                waiting, size = [], 0
        yield from _records(model, waiting, cache, limit)


def _records(
    model: NextLevelBertModel,
    waiting: list[tuple[ShelfFile, list[Document] | Unreadable]],
    cache: VectorCache | None,
    limit: int,
) -> Iterator[bytes | Unreadable]:
    texts = [doc.text for _, documents in waiting if not isinstance(documents, Unreadable) for doc in documents]
    embeddings = _embeddings(model, texts, cache, limit)
    for file, documents in waiting:
        if isinstance(documents, Unreadable):
            yield documents
            continue
        found = list(itertools.islice(embeddings, len(documents)))
        for document, embedding in zip(documents, found, strict=True):
            if len(embedding.plain) == 0:
                told = f"{place_of(file, document)} contains no token: its vector is zero."
                tqdm.write(told, file=sys.stderr)
        yield record_bytes(documents, found)


def _embeddings(
    model: NextLevelBertModel, texts: list[str], cache: VectorCache | None, limit: int
) -> Iterator[DocumentEmbedding]:
    """Of each text; as many at once as have this many characters together."""
    first = size = 0
    for number, text in enumerate(texts, start=1):
        size += len(text)
        if size >= limit or number == len(texts):
            with warnings.catch_warnings():  # by number; `_records` knows the names
                warnings.filterwarnings("ignore", message=".* contain no token")
                cached = None if cache is None else CachedEncoder(model.get_chunk_encoder(), cache)
                found = model.encode(texts[first:number], chunk_encoder=cached)
            yield from found  # type: ignore[misc]  # a list for a list
            first, size = number, 0
