"""A shelf: the passages and vectors of a folder's files, kept in the cache and brought up to date.

A shelf is a folder of Parquet parts as `corpus` writes them. A part holds one file and is named by
a hash of the file's bytes, and by a checksum of its own: a renamed file is not encoded again, a
changed file is, a command that is killed keeps the parts that it has written, and a part that is
damaged is made again. The parts of files that are gone are removed when no other process has the
shelf open. The further columns are ``passage_start`` and
``passage_end`` (the chunk, widened to whole sentences), ``text`` (from the chunk, or the beginning,
to the next chunk) and, in the first row of a document, ``metadata`` (JSON: the other columns of its
row), ``pages`` (the character at which each page of a PDF begins) and ``document_vector``. The
notes about a file, in the metadata of the schema, say what was not read.
"""

import hashlib
import json
import os
import sys
import uuid
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from tqdm.auto import tqdm

from ..corpus import ChunkVectors, chunk_table, write_part
from ..data.documents import PYTHON_MANUAL, Document, resolve_source
from ..data.files import readable_name, reason, suffix
from ..models.chunk_encoder import LoadedChunkEncoder, weights_fingerprint
from ..models.document_encoding import DocumentEmbedding
from ..models.modeling_nextlevelbert import NextLevelBertModel
from .notes import Note, Notes
from .passages import passage_borders
from .reading import (
    ReadingOptions,
    SourceFile,
    list_files,
    notes_on_words,
    read_file,
    rest_of_message,
)

# Raised when a part has other columns or other contents than before, so that parts are made anew.
_VERSION = 4
_READINGS = 3  # of a file that changes while it is read
# Configuration values that do not change a vector.
_INCIDENTAL = (
    "_name_or_path",
    "transformers_version",
    "architectures",
    "dtype",
    "include_chunk_encoder",
)


class CacheError(OSError):
    """Says that a file of the cache cannot be written."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Names a file of the cache in an error of writing, with the remedy.

    Raises:
        CacheError: if the file cannot be written.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        cause = str(error)
        if isinstance(error, OSError) and error.strerror:
            cause = error.strerror
        raise CacheError(
            f"{path} cannot be written: {cause}. Make room on its disk, or name another folder for"
            " the cache with --cache_dir."
        ) from error


def checksum(path: Path) -> str:
    """Returns the CRC-32 of a file's bytes."""
    value = 0
    with path.open("rb") as file:
        for block in iter(partial(file.read, 1 << 20), b""):
            value = zlib.crc32(block, value)
    return f"{value:08x}"


def is_whole(path: Path) -> bool:
    """Returns whether a file of the shelf has the checksum with which its name ends."""
    try:
        return path.stem.endswith(f"-{checksum(path)}")
    except OSError:
        return False


@dataclass
class Part:
    """A part of a shelf, which is made from one file.

    Attributes:
        file: the file.
        content: hash of the file's bytes.
        path: path of the part.
        is_checked: true if the part is known to be whole.
    """

    file: SourceFile
    content: str
    path: Path = Path()
    is_checked: bool = False


def open_shelf(source: str, model: NextLevelBertModel, reading: ReadingOptions) -> "Shelf":
    """Opens the shelf of a source: encodes new and changed files, removes parts of deleted ones.

    Args:
        source: a file, a folder or a pattern.
        model: the document model.
        reading: how the files are read, and where the shelf is.

    Raises:
        CacheError: if the shelf cannot be written.
        ValueError: if no file can be read.
    """
    source = resolve_source(source)
    shelf = Shelf(source, model, reading)
    notes = Notes()
    try:
        parts = []
        for file in list_files(source, notes):
            try:
                parts.append(Part(file, content=_hash_of(file)))
            except OSError as error:
                note = Note("left out", f" cannot be read: {reason(error)}")
                notes.add(file.name, [note])
        shelf.update(parts, notes)
    finally:
        notes.print()
    if not shelf.parts:
        raise ValueError(f"No file of {source!r} can be read.")
    return shelf


def wait_for(lock: FileLock) -> AbstractContextManager[object]:
    """Locks a shelf for writing; another command that opens the same shelf waits.

    Args:
        lock: the lock of the shelf. Nothing is locked if its folder is read-only.
    """
    if not os.access(os.path.dirname(lock.lock_file), os.W_OK):
        return nullcontext()
    try:
        return lock.acquire(timeout=1)
    except Timeout:
        print("Waiting for another command that reads the same files.", file=sys.stderr)
        return lock.acquire()


def _end_reading(lock: FileLock) -> None:
    lock.release()
    Path(lock.lock_file).unlink(missing_ok=True)


def _exists(file: SourceFile) -> bool:
    return str(file.path) == PYTHON_MANUAL or os.path.exists(file.path)


def _hash_of(file: SourceFile) -> str:
    """Hashes the bytes of a file, or of a saved data set's files, and how they are read.

    Python's manual is known by the version of Python.
    """
    if str(file.path) == PYTHON_MANUAL:
        return hashlib.sha256(f"{PYTHON_MANUAL} {sys.version}".encode()).hexdigest()[:32]
    paths = [file.path]
    if file.is_table and file.path.is_dir():
        paths = sorted(path for path in file.path.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{suffix(path)} {path.suffix}".encode(errors="replace"))
        with open(path, "rb", buffering=0) as stream:
            for block in iter(partial(stream.read, 1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()[:32]


def _read_columns(path: Path, columns: Sequence[str]) -> pa.Table:
    # The memory of the part before is released first; threads would hold as much each.
    pa.default_memory_pool().release_unused()
    with pq.ParquetFile(path, memory_map=True) as file:
        return file.read(list(columns), use_threads=False)


class _FileContent(NamedTuple):
    """The documents of a file, and notes about parts that could not be read."""

    part: Part
    documents: list[Document]
    notes: list[Note]


class Shelf:
    """The parts of a source's files, in a folder of the cache.

    Args:
        source: a file, a folder or a pattern.
        model: the document model.
        reading: how the files are read, and where the shelf is.

    Attributes:
        model: the document model.
        parts: a part for each file that could be read, in the order of the files; see `update`.
        folder: folder of the parts.
        lock: the lock for writing into the folder.

    Raises:
        CacheError: if the folder cannot be made.
    """

    def __init__(self, source: str, model: NextLevelBertModel, reading: ReadingOptions) -> None:
        self.model = model
        self.parts: list[Part] = []
        self._reading = reading
        encoder = model.get_chunk_encoder()
        config = model.config
        loaded = LoadedChunkEncoder(
            encoder,
            model.tokenizer,
            name=str(config.chunk_encoder_name),
            fingerprint=config.chunk_encoder_fingerprint or encoder.fingerprint(),
            prompts=config.encoder_prompts(),
        )
        self._schema = ChunkVectors(loaded, config.chunking_rule(), reading.splitter).schema
        self._is_slow = encoder.has_layers

        # The dot keeps the shelves of a cache that lies in the source from being read.
        self.folder = reading.cache_dir / ".shelves" / self._name(source)
        with writing(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds texts
        self.lock = FileLock(self.folder / "lock", thread_local=False)
        # Other processes remove nothing from the folder while this lock is held.
        self._reader_lock = FileLock(
            self.folder / f"reader-{uuid.uuid4().hex}.lock", thread_local=False
        )

    def _name(self, source: str) -> str:
        """Hashes the settings that the parts of a source depend on, besides the files."""
        values = self.model.config.to_dict()
        settings = sorted((name, values[name]) for name in values if name not in _INCIDENTAL)
        weights = weights_fingerprint(self.model)
        columns = (self._reading.text_column, self._reading.id_column)
        key = (_VERSION, self._schema.metadata, settings, weights, columns)
        path = os.fsencode(os.path.abspath(source))
        return hashlib.sha256(repr(key).encode() + path).hexdigest()[:32]

    def update(self, parts: list[Part], notes: Notes) -> None:
        """Makes the parts that are missing, and removes the parts of files that are gone.

        Args:
            parts: a part for each file, with the file's hash.
            notes: gets notes about files that cannot be read.
        """
        with wait_for(self.lock):
            if self.lock.is_locked:
                self._reader_lock.acquire()
                weakref.finalize(self, _end_reading, self._reader_lock)
            present = self._paths()
            self.encode_files([part for part in parts if part.content not in present], notes)
            present = self._paths()
            contents = {part.content for part in parts}
            self.remove_files(lambda path: path.stem.partition("-")[0] not in contents, "*.parquet")
            if self.lock.is_locked:
                for path in self.folder.glob("*.new*"):  # what a killed process left
                    path.unlink()
        self.parts = [part for part in parts if part.content in present]
        for part in self.parts:
            part.path = present[part.content]

    def read(self, part: Part, *columns: str) -> pa.Table:
        """Reads columns of a part, which is made again first if it is damaged.

        Raises:
            ValueError: if the part is damaged, and its file has changed since.
        """
        if not part.is_checked and not is_whole(part.path):
            self.make_again(part)
        try:
            table = _read_columns(part.path, columns)
        except (pa.ArrowException, OSError, ValueError, KeyError):  # removed or changed since
            self.make_again(part)
            table = _read_columns(part.path, columns)
        part.is_checked = True
        return table

    def _paths(self) -> dict[str, Path]:
        """Returns the path of each part, by the content of its file."""
        return {path.stem.partition("-")[0]: path for path in self.folder.glob("*.parquet")}

    def remove_files(self, is_outdated: Callable[[Path], bool], pattern: str) -> None:
        """Removes files of the shelf, unless another process has the shelf open."""
        outdated = list(filter(is_outdated, self.folder.glob(pattern)))
        if outdated and self.lock.is_locked and not self._has_other_readers():
            for path in outdated:
                path.unlink()

    def _has_other_readers(self) -> bool:
        for path in self.folder.glob("reader-*.lock"):
            if str(path) == str(self._reader_lock.lock_file):
                continue
            lock = FileLock(path, thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return True
            _end_reading(lock)  # of a process that was killed
        return False

    def make_again(self, part: Part) -> None:
        """Makes a part that is damaged from its file.

        Raises:
            ValueError: if the file has changed, or cannot be read any more.
        """
        content = part.content
        with wait_for(self.lock):
            with writing(part.path):
                part.path.unlink(missing_ok=True)
            if _exists(part.file) and _hash_of(part.file) == content:
                self.encode_files([part], Notes())
            path = self._paths().get(content)
        if path is None:
            raise ValueError(
                f"{part.path} was damaged, and {part.file.path} has changed since. Run the command"
                " again."
            )
        part.path = path

    def encode_files(self, parts: list[Part], notes: Notes) -> None:
        """Reads files and writes the parts, encoding many files together for speed.

        Args:
            parts: the files. Of files with the same content, one part is written.
            notes: gets notes about files that cannot be read.
        """
        limit = 2_000_000  # characters; a kill costs no more
        if self._is_slow:
            limit = 200_000
        waiting = []
        characters = 0
        unreadable = dict[str, list[Note]]()  # notes by content; none if it was read
        hidden = None  # no bar in a log file
        if not parts:
            hidden = True
        for part in tqdm(parts, unit="file", disable=hidden, delay=1):
            if part.content not in unreadable:
                documents, notes_on_reading = self._read_unchanged(part)
                unreadable[part.content] = notes_on_reading
                if documents:
                    unreadable[part.content] = []
                    waiting.append(_FileContent(part, documents, notes_on_reading))
                    characters += sum(len(document.text) for document in documents)
            notes.add(part.file.name, unreadable[part.content])
            if waiting and (characters >= limit or part is parts[-1]):
                try:
                    self.write_parts(waiting)
                except (ValueError, TypeError):
                    self.write_readable_parts(waiting, notes)
                waiting = []
                characters = 0

    def _read_unchanged(self, part: Part) -> tuple[list[Document], list[Note]]:
        """Reads a file, again if it has changed meanwhile, and stores the hash of what was read."""
        for _ in range(_READINGS):
            documents, notes = read_file(part.file, self._reading)
            try:
                content = _hash_of(part.file)
            except OSError as error:  # `read_file` may have opened it before it went away
                return [], [Note("left out", f" cannot be read: {reason(error)}")]
            if content == part.content:
                return documents, notes
            part.content = content
        return [], [Note("left out", " changes while it is read. Run the command again.")]

    def write_readable_parts(self, waiting: list[_FileContent], notes: Notes) -> None:
        """Encodes file by file, and names the files that cannot be encoded."""
        for content in waiting:
            try:
                self.write_parts([content])
            except (ValueError, TypeError) as error:
                part = content.part
                notes.add(part.file.name, [Note("left out", rest_of_message(part.file, error))])

    def write_parts(self, waiting: list[_FileContent]) -> None:
        """Encodes the documents of several files together and writes a part for each file.

        Raises:
            ValueError: or TypeError, if a document cannot be encoded.
        """
        texts = [document.text for content in waiting for document in content.documents]
        with warnings.catch_warnings():  # `notes_on_words` names the files
            warnings.filterwarnings("ignore", ".* (no token|unknown tokens only)")
            encoded = self.model.iter_encode(
                texts,
                show_progress_bar=self._is_slow,
                splitter=self._reading.splitter,
                prompt=self.model.config.encoder_prompts().passage,
            )
            embeddings = list(encoded)
        start = 0
        for part, documents, notes_on_reading in waiting:
            stop = start + len(documents)
            rows = list(map(partial(self.rows, part.file), documents, embeddings[start:stop]))
            start = stop
            notes = [*notes_on_reading, *notes_on_words(self.model.tokenizer, part.file, documents)]
            metadata = {**self._schema.metadata, "notes": json.dumps(notes)}
            table = pa.concat_tables(rows).replace_schema_metadata(metadata)
            with writing(self.folder):
                new = self.folder / f"{part.content}.new"
                write_part(new, table)
                os.replace(new, self.folder / f"{part.content}-{checksum(new)}.parquet")

    def rows(self, file: SourceFile, document: Document, embedding: DocumentEmbedding) -> pa.Table:
        """Makes the rows of one document."""
        spans = np.asarray(embedding.spans)
        count = len(spans)
        ids = [readable_name(document.id)]
        table = chunk_table(self._schema, ids, spans=[spans], vectors=embedding.plain)
        passages = passage_borders(document.text, spans)
        borders = [0, *spans[1:, 0].tolist(), len(document.text)]
        texts = [document.text[start:end] for start, end in pairwise(borders)]

        metadata = dict(document.metadata)
        pages = None
        if not file.is_table:  # a table may have a column of that name
            pages = metadata.pop("pages", None)
        vector = embedding.document.tolist()
        rest = [None] * (count - 1)  # only the first row of a document has them
        columns = {
            "passage_start": pa.array(passages[:, 0]),
            "passage_end": pa.array(passages[:, 1]),
            "text": pa.array(texts, pa.string()),
            "pages": pa.array([pages, *rest], pa.list_(pa.int64())),
            "metadata": pa.array([metadata_json(metadata), *rest], pa.string()),
            "document_vector": pa.array([vector, *rest], pa.list_(pa.float32())),
        }
        for name, values in columns.items():
            table = table.append_column(name, values[:count])
        return table


def metadata_json(metadata: dict[str, Any]) -> str:
    """Writes metadata as JSON that any reader accepts: NaN becomes null, half a surrogate "?"."""
    text = json.dumps(metadata, default=str)
    values = json.loads(text, parse_constant=lambda name: None)
    return json.dumps(values, ensure_ascii=False).encode(errors="replace").decode()
