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
import posixpath
import re
import sys
import uuid
import warnings
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import transformers
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerBase

from ..corpus import ChunkVectors, chunk_table, find_splitter, write_part
from ..data.documents import Document, read_documents, root_of, source_files
from ..data.files import (
    NoDocumentError,
    PartlyReadError,
    find_paths,
    readable_name,
    reason,
    suffix,
)
from ..fitting import static_checkpoint
from ..models.chunk_encoder import LoadedChunkEncoder, weights_fingerprint
from ..models.chunking import tokenize_document
from ..models.document_encoding import DocumentEmbedding
from ..models.from_encoder import load_chunk_encoder
from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..models.sentences import Splitter, text_sentences
from .notes import Note, Notes

# Raised when a part has other columns or other contents than before, so that parts are made anew.
_VERSION = 4
# A document is named if the model does not know the words that make up this share of its text.
_UNKNOWN_SHARE = 0.05
# Characters. A passage is widened to whole sentences of up to this length, else to whole words.
_LONGEST_SENTENCE = 1_000
_READINGS = 3  # of a file that changes while it is read
_WORD = re.compile(r"\S{1,100}")
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
    """A file, and the part of a shelf that is made from it.

    Attributes:
        source: the file.
        name: printed name of the file, which is the path below the folder.
        is_table: true for a table, in which each row is a document.
        content: hash of the file's bytes.
        path: path of the part.
        shelf: the shelf, which makes the part again if it is damaged.
        is_checked: true if the part is known to be whole.
    """

    source: Path
    name: str
    is_table: bool
    content: str = ""
    path: Path = Path()
    shelf: "Shelf | None" = None
    is_checked: bool = False

    def name_of(self, document: str) -> str:
        """Returns the printed name of a document of the file."""
        if self.is_table:
            return f"{self.name}#{document}"
        return self.name

    def read(self, *columns: str) -> pa.Table:
        """Reads columns of the part, which is made again first if it is damaged.

        Raises:
            ValueError: if the part is damaged, and its file has changed since.
        """
        if not self.is_checked and not is_whole(self.path):
            self._make_again()
        try:
            table = self._read(columns)
        except (pa.ArrowException, OSError, ValueError, KeyError):  # removed or changed since
            self._make_again()
            table = self._read(columns)
        self.is_checked = True
        return table

    def _read(self, columns: Sequence[str]) -> pa.Table:
        # The memory of the part before is released first; threads would hold as much each.
        pa.default_memory_pool().release_unused()
        with pq.ParquetFile(
            self.path,
            memory_map=True,
            page_checksum_verification=True,
        ) as file:
            return file.read(list(columns), use_threads=False)

    def _make_again(self) -> None:
        if self.shelf is None:
            raise ValueError(f"{self.path} is damaged. Remove it, and run the command again.")
        self.shelf.make_again(self)


def open_model(
    name: str | None = None,
    *,
    chunk_encoder: str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
) -> NextLevelBertModel:
    """Opens the document model of a command.

    Args:
        name: folder or name of the model (default: the environment variable NEXTLEVELBERT_MODEL, or
            else the installed checkpoint).
        chunk_encoder: the encoder of a checkpoint that was saved without it.
        device: device that the model runs on.
        dtype: precision of the weights, by torch's name.

    Raises:
        ValueError: if the model or the device cannot be used.
    """
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    if name is None:
        name = os.environ.get("NEXTLEVELBERT_MODEL", "")
    if name == "":
        name = static_checkpoint()
    try:
        family = AutoConfig.from_pretrained(name).model_type
        if family not in ("nextlevelbert", "hate"):
            raise ValueError(
                f"its model_type is {family!r}, but this command needs nextlevelbert or hate."
            )
        model = AutoModel.from_pretrained(name)
        if chunk_encoder is not None:
            model.attach_chunk_encoder(load_chunk_encoder(chunk_encoder))
    except (OSError, ValueError) as error:
        raise ValueError(f"the model {name!r} cannot be used: {error}") from error
    try:
        return model.to(device, getattr(torch, dtype))
    except (RuntimeError, AssertionError) as error:  # torch raises both for a missing device
        raise ValueError(f"--device {device}: {error}") from error


def open_splitter(model: NextLevelBertModel, name: str | None) -> Splitter | None:
    """Finds the function of ``--splitter``.

    Raises:
        ValueError: if there is no such function, or the chunks of the model are not of sentences.
    """
    if name is not None and model.config.chunking == "fixed":
        raise ValueError(
            f"--splitter {name}: the chunks of this model are runs of tokens, not sentences. Leave"
            " the option out, or use a model whose chunking is sentences or packed_sentences."
        )
    return find_splitter(name)


def rest_of_message(part: Part, error: Exception) -> str:
    """Returns the message of an error about a file, without the path that it begins with."""
    message = readable_name(str(error))
    path = readable_name(part.source)
    if message.startswith(path):
        return message.removeprefix(path)
    return f": {message}"


def list_files(source: str, notes: Notes) -> list[Part]:
    """Lists the files of a source, without those that this package has written.

    Args:
        source: a file, a folder or a pattern.
        notes: gets a note on vectors (of ``embed`` and `encode_corpus`) and on models (of ``fit``
            and the trainers).
    """
    root = root_of(source)
    parts = []
    models = set()
    for path, document_id in source_files(source):
        name = readable_name("/".join(path.parts[len(root.parts) :]))
        if path.name == "config.json" and (path.parent / "model.safetensors").is_file():
            models.add(path.parent)
            note = Note("left out", ": it is the folder of a model.")
            notes.add(posixpath.dirname(name) or ".", [note])
        elif is_own_output(path):
            rest = ": nextlevelbert wrote it; it holds vectors."
            notes.add(name, [Note("left out", rest)])
        else:
            parts.append(Part(source=path, name=name, is_table=document_id is None))
    if models:
        parts = [part for part in parts if not models.intersection(part.source.parents)]
    return parts


def is_own_output(path: Path) -> bool:
    """Returns whether a file is a Parquet file of vectors by this package."""
    if path.suffix.lower() != ".parquet":
        return False
    try:
        metadata = pq.read_schema(path).metadata
    except (pa.ArrowException, OSError):
        return False  # `read_file` says what is wrong with the file
    return metadata is not None and b"recipe" in metadata


def check_output(source: str, output: Path) -> None:
    """Refuses to write over a document of the source.

    Raises:
        ValueError: if the output is a file of the source that another program wrote.
    """
    output = output.resolve()
    if not output.exists() or is_own_output(output):
        return
    folders = [path.resolve() for path in find_paths(source)]
    if {output, *output.parents}.intersection(folders):
        raise ValueError(f"{output} is a document of {source}; name another file to write.")


def read_file(part: Part, column: str) -> tuple[list[Document], list[Note]]:
    """Reads the documents of a file that hold text.

    Of rows with the same id, the second is named ``id (2)``.

    Args:
        part: the file.
        column: the text column of tables.

    Returns:
        The documents, and notes about rows and pages that were not read. Without documents, there
        is at least one note.
    """
    errors: list[ValueError] = []
    rows = read_documents(part.source, column, on_error=errors.append)
    documents = []
    times = Counter[str]()
    for row in rows:
        if not row.text.strip():
            continue
        times[row.id] += 1
        name = row.id
        if times[name] > 1:
            name = f"{name} ({times[name]})"
        documents.append(replace(row, id=name))

    notes = []
    for error in errors:
        head = "left out"
        if isinstance(error, PartlyReadError):
            head = "note"
        notes.append(Note(head, rest_of_message(part, error)))
    if documents:
        return documents, notes
    if not notes:
        notes.append(Note("left out", " holds no text."))
    if errors and isinstance(errors[0], NoDocumentError):  # settings, perhaps hundreds of files
        notes = [notes[0]._replace(kind="no table of documents")]
    return documents, notes


def read_files(
    source: str, column: str, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, Document]]:
    """Reads the documents of all files that can be read, each with its name.

    Files that were not read, and words that `tokenizer` does not know, are named on stderr.

    Args:
        source: a file, a folder or a pattern.
        column: the text column of tables.
        tokenizer: the tokenizer of the model.
    """
    all_notes = Notes()
    try:
        for part in list_files(source, all_notes):
            documents, notes = read_file(part, column)
            if documents:
                notes += notes_on_words(tokenizer, part, documents)
            all_notes.add(part.name, notes)
            for document in documents:
                yield part.name_of(readable_name(document.id)), document
    finally:
        all_notes.print()


def notes_on_words(
    tokenizer: PreTrainedTokenizerBase, part: Part, documents: Sequence[Document]
) -> list[Note]:
    """Names the documents of a file that hold no token, or many unknown words.

    Unknown words are many if they make up 5 % of the text or more.
    """
    wordless = []
    unknown = []
    for document in documents:
        share = unknown_share(tokenizer, document.text)
        if share is None:
            wordless.append(document.id)
        elif share >= _UNKNOWN_SHARE:
            unknown.append(document.id)

    notes = []
    faults = {
        "it holds no word that the model can read": wordless,
        f"the model does not know {_UNKNOWN_SHARE:.0%} of the text or more": unknown,
    }
    for fault, ids in faults.items():
        if not ids:
            continue
        rows = ""
        if part.is_table:
            rows = f", in {len(ids)} of {len(documents)} rows, {ids[0]!r} first"
        notes.append(Note("note", f": {fault}{rows}."))
    return notes


def unknown_share(tokenizer: PreTrainedTokenizerBase, text: str) -> float | None:
    """Measures the share of a text in words that a tokenizer does not know.

    Returns:
        Characters of unknown words by characters of all words; None for a text without a token.
    """
    tokens = tokenize_document(tokenizer, text)
    if len(tokens) == 0:
        return None
    sizes = tokens.char_ends - tokens.char_starts
    unknown = sizes[np.isin(tokens.input_ids, tokenizer.unk_token_id)]
    return float(unknown.sum() / max(sizes.sum(), 1))


class ReadingOptions(TypedDict):
    """Options of every command that opens a shelf.

    Args:
        text_column: the column of the text in tables.
        splitter: the name of a function that finds sentences.
        cache_dir: the folder of all shelves.
    """

    text_column: str
    splitter: str | None
    cache_dir: Path


def open_shelf(
    model: NextLevelBertModel,
    source: str,
    cache_dir: Path,
    text_column: str = "text",
    splitter: str | None = None,
) -> list[Part]:
    """Opens the shelf of a source: encodes new and changed files, removes parts of deleted ones.

    Args:
        model: the document model.
        source: a file, a folder or a pattern.
        cache_dir: the folder of all shelves.
        text_column: the column of the text in tables.
        splitter: the name of a function that finds sentences.

    Returns:
        The parts of the shelf, in the order of the source's files.

    Raises:
        ValueError: if no file can be read.
    """
    shelf = Shelf(model, text_column, splitter=open_splitter(model, splitter))
    shelf.open(source, cache_dir)
    notes = Notes()
    try:
        parts = []
        for part in list_files(source, notes):
            try:
                part.content = _content(part)
            except OSError as error:
                note = Note("left out", f" cannot be read: {reason(error)}")
                notes.add(part.name, [note])
            else:
                parts.append(part)
        parts = shelf.update(parts, notes)
    finally:
        notes.print()
    if not parts:
        raise ValueError(f"No file of {source!r} can be read.")
    return parts


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


def _content(part: Part) -> str:
    """Hashes the bytes of a file, or of a saved data set's files, and how they are read."""
    files = [part.source]
    if part.is_table and part.source.is_dir():
        files = sorted(file for file in part.source.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{suffix(file)} {file.suffix}".encode(errors="replace"))
        with open(file, "rb", buffering=0) as stream:
            for block in iter(partial(stream.read, 1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()[:32]


class _FileContent(NamedTuple):
    """The documents of a file, and notes about parts that could not be read."""

    part: Part
    documents: list[Document]
    notes: list[Note]


class Shelf:
    """Reads files, encodes them, and writes a part for each.

    Args:
        model: the document model.
        column: the text column of tables.
        splitter: function that finds sentences, as in ``encode``.

    Attributes:
        folder: folder of the parts, after `open`.
        lock: the lock for writing into the folder.
    """

    folder: Path
    lock: FileLock

    def __init__(
        self, model: NextLevelBertModel, column: str, *, splitter: Splitter | None
    ) -> None:
        self.model = model
        self.column = column
        self.splitter = splitter
        encoder = model.get_chunk_encoder()
        config = model.config
        loaded = LoadedChunkEncoder(
            encoder,
            model.tokenizer,
            name=str(config.chunk_encoder_name),
            fingerprint=config.chunk_encoder_fingerprint or encoder.fingerprint(),
            prompts=config.encoder_prompts(),
        )
        self.schema = ChunkVectors(loaded, config.chunking_rule(), splitter).schema
        self.is_slow = encoder.has_layers

    def shelf_name(self, source: str) -> str:
        """Hashes the settings that the parts of a source depend on, besides the files."""
        values = self.model.config.to_dict()
        settings = sorted((name, values[name]) for name in values if name not in _INCIDENTAL)
        weights = weights_fingerprint(self.model)
        key = (_VERSION, self.schema.metadata, settings, weights, self.column)
        path = os.fsencode(os.path.abspath(source))
        return hashlib.sha256(repr(key).encode() + path).hexdigest()[:32]

    def open(self, source: str, cache_dir: Path) -> None:
        """Makes the folder of the shelf of a source.

        Raises:
            CacheError: if the folder cannot be made.
        """
        # The dot keeps the shelves of a cache that lies in the source from being read.
        self.folder = cache_dir / ".shelves" / self.shelf_name(source)
        with writing(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds texts
        self.lock = FileLock(self.folder / "lock", thread_local=False)
        # Other processes remove nothing from the folder while this lock is held.
        self._reader_lock = FileLock(
            self.folder / f"reader-{uuid.uuid4().hex}.lock", thread_local=False
        )

    def update(self, parts: list[Part], notes: Notes) -> list[Part]:
        """Makes the parts that are missing, and removes those of files that are gone.

        Args:
            parts: the files, with their contents.
            notes: gets notes about files that cannot be read.

        Returns:
            The files that could be read, with the paths of their parts.
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
        readable = [part for part in parts if part.content in present]
        for part in readable:
            part.path = present[part.content]
            part.shelf = self
        return readable

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
            if os.path.exists(part.source) and _content(part) == content:
                self.encode_files([part], Notes())
            path = self._paths().get(content)
        if path is None:
            raise ValueError(
                f"{part.path} was damaged, and {part.source} has changed since. Run the command"
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
        if self.is_slow:
            limit = 200_000
        waiting = []
        characters = 0
        unreadable = dict[str, list[Note]]()  # notes by content; none if it was read
        hidden = None  # no bar in a log file
        if not parts:
            hidden = True
        for part in tqdm(parts, unit="file", disable=hidden):
            if part.content not in unreadable:
                documents, notes_on_reading = self._read_unchanged(part)
                unreadable[part.content] = notes_on_reading
                if documents:
                    unreadable[part.content] = []
                    waiting.append(_FileContent(part, documents, notes_on_reading))
                    characters += sum(len(document.text) for document in documents)
            notes.add(part.name, unreadable[part.content])
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
            documents, notes = read_file(part, self.column)
            try:
                content = _content(part)
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
                notes.add(part.name, [Note("left out", rest_of_message(part, error))])

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
                show_progress_bar=self.is_slow,
                splitter=self.splitter,
                prompt=self.model.config.encoder_prompts().passage,
            )
            embeddings = list(encoded)
        start = 0
        for part, documents, notes_on_reading in waiting:
            stop = start + len(documents)
            rows = list(map(partial(self.rows, part), documents, embeddings[start:stop]))
            start = stop
            notes = [*notes_on_reading, *notes_on_words(self.model.tokenizer, part, documents)]
            metadata = {**self.schema.metadata, "notes": json.dumps(notes)}
            table = pa.concat_tables(rows).replace_schema_metadata(metadata)
            with writing(self.folder):
                new = self.folder / f"{part.content}.new"
                write_part(new, table)
                os.replace(new, self.folder / f"{part.content}-{checksum(new)}.parquet")

    def rows(self, part: Part, document: Document, embedding: DocumentEmbedding) -> pa.Table:
        """Makes the rows of one document."""
        spans = np.asarray(embedding.spans)
        count = len(spans)
        ids = [readable_name(document.id)]
        table = chunk_table(self.schema, ids, spans=[spans], vectors=embedding.plain)
        passages = passage_borders(document.text, spans)
        borders = [0, *spans[1:, 0].tolist(), len(document.text)]
        texts = [document.text[start:end] for start, end in pairwise(borders)]

        metadata = dict(document.metadata)
        pages = None
        if not part.is_table:  # a table may have a column of that name
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


def passage_borders(text: str, spans: np.ndarray) -> np.ndarray:
    """Widens chunks to whole sentences, or to whole words in a very long sentence.

    Args:
        text: the document.
        spans: the characters of the document's chunks, ``[n, 2]``.

    Returns:
        The characters of the document's passages, ``[n, 2]``.
    """
    units = []
    for start, end in text_sentences(text):
        if end - start <= _LONGEST_SENTENCE:
            units.append((start, end))
        else:
            units.extend(word.span() for word in _WORD.finditer(text, start, end))
    if not units:
        return spans
    starts, ends = np.array(units).T
    first = np.searchsorted(ends, spans[:, 0], side="right").clip(max=len(units) - 1)
    last = (np.searchsorted(starts, spans[:, 1]) - 1).clip(min=0)
    # Some tokenizers count the space before a word.
    begins = np.minimum(starts[first], spans[:, 0])
    return np.stack([begins, np.maximum(ends[last], spans[:, 1])], axis=1)


def metadata_json(metadata: dict[str, Any]) -> str:
    """Writes metadata as JSON that any reader accepts: NaN becomes null, half a surrogate "?"."""
    text = json.dumps(metadata, default=str)
    values = json.loads(text, parse_constant=lambda name: None)
    return json.dumps(values, ensure_ascii=False).encode(errors="replace").decode()
