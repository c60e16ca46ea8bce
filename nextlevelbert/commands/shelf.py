"""A shelf: the passages and vectors of a folder's files, kept in the cache and brought up to date.

A shelf is a folder of Parquet parts as `corpus` writes them. A part holds one file and is named by
a hash of the file's bytes: a renamed file is not encoded again, a changed file is, and a command
that is killed keeps the parts that it has written. The further columns are ``passage_start`` and
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
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
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
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerBase

from ..corpus import ChunkVectors, chunk_table, find_splitter, write_part
from ..data.documents import Document, read_documents, root_of, source_files
from ..data.files import PartlyReadError, find_paths, readable_name, reason, suffix
from ..fitting import static_checkpoint
from ..models.chunk_encoder import LoadedChunkEncoder, weights_fingerprint
from ..models.chunking import tokenize_document
from ..models.document_encoding import DocumentEmbedding
from ..models.from_encoder import load_chunk_encoder
from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..models.sentences import Splitter, text_sentences

# Raised when a part has other columns or other contents than before, so that parts are made anew.
_VERSION = 3
# A document is named if the model does not know the words that make up this share of its text.
_UNKNOWN_SHARE = 0.05
# Characters. A passage is widened to whole sentences of up to this length, else to whole words.
_LONGEST_SENTENCE = 1_000
_WORD = re.compile(r"\S{1,100}")
# `map` writes it into the facts about a PDF, which stand in the last bytes of the file.
MAP_CREATOR = "nextlevelbert map"
_END_OF_PDF = 4_096
# Configuration values that do not change a vector.
_INCIDENTAL = (
    "_name_or_path",
    "transformers_version",
    "architectures",
    "dtype",
    "include_chunk_encoder",
)


# What of a file was not read, or is unknown to the model: how the printed line begins, and the rest
# of a sentence that begins with the name of the file.
Note = tuple[str, str]


class Part(NamedTuple):
    """A file, and the part of a shelf that is made from it.

    Args:
        source: the file.
        name: printed name of the file, which is the path below the folder.
        is_table: true for a table, in which each row is a document.
        path: path of the part.
    """

    source: Path
    name: str
    is_table: bool
    path: Path = Path()

    def name_of(self, document: str) -> str:
        """Returns the printed name of a document of the file."""
        if self.is_table:
            return f"{self.name}#{document}"
        return self.name

    def read(self, *columns: str) -> pa.Table:
        """Reads columns of the part.

        Raises:
            ValueError: if the part is damaged; it is removed.
        """
        # The memory of the part before is released first; threads would hold as much each.
        pa.default_memory_pool().release_unused()
        try:
            with pq.ParquetFile(
                self.path,
                memory_map=True,
                page_checksum_verification=True,
            ) as file:
                return file.read(list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            self.path.unlink(missing_ok=True)
            raise ValueError(
                f"{self.path} was damaged ({error}); run the command again to rebuild it."
            ) from error


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


def report(name: str, notes: Iterable[Sequence[str]]) -> None:
    """Prints the notes about a file to stderr, beside a progress bar."""
    for head, rest in notes:
        tqdm.write(f"{head}: {name}{rest}", file=sys.stderr)


def rest_of_message(part: Part, error: Exception) -> str:
    """Returns the message of an error about a file, without the path that it begins with."""
    message = readable_name(str(error))
    path = readable_name(part.source)
    if message.startswith(path):
        return message.removeprefix(path)
    return f": {message}"


def list_files(source: str) -> list[Part]:
    """Lists the files of a source, without those that this package has written.

    Vectors (``embed`` and `encode_corpus`), models (``fit`` and the trainers) and maps are named on
    stderr.
    """
    root = root_of(source)
    parts = []
    models = set()
    for path, document_id in source_files(source):
        name = readable_name("/".join(path.parts[len(root.parts) :]))
        if path.name == "config.json" and (path.parent / "model.safetensors").is_file():
            models.add(path.parent)
            report(posixpath.dirname(name) or ".", [("left out", ": it is the folder of a model")])
        elif is_own_output(path):
            rest = ": nextlevelbert wrote it; it holds vectors or a map"
            report(name, [("left out", rest)])
        else:
            parts.append(Part(source=path, name=name, is_table=document_id is None))
    if models:
        parts = [part for part in parts if not models.intersection(part.source.parents)]
    return parts


def is_own_output(path: Path) -> bool:
    """Returns whether a file is a Parquet file of vectors or a map by this package."""
    ending = path.suffix.lower()
    try:
        if ending == ".parquet":
            return b"recipe" in (pq.read_schema(path).metadata or {})
        if ending == ".pdf":
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _END_OF_PDF))
                return MAP_CREATOR.encode() in file.read()
    except (pa.ArrowException, OSError):
        pass  # `read_file` says what is wrong with the file
    return False


def check_output(source: str, output: Path) -> None:
    """Refuses to write over a document of the source.

    Raises:
        ValueError: if the output is a PDF or Parquet file of the source that another program wrote.
    """
    output = output.resolve()
    is_own = suffix(output) not in (".parquet", ".pdf") or is_own_output(output)
    folders = [path.resolve() for path in find_paths(source)]
    if output.exists() and not is_own and {output, *output.parents}.intersection(folders):
        raise ValueError(f"{output} is a document of {source}; name another file to write.")


def read_file(part: Part, column: str) -> tuple[list[Document], list[Note]]:
    """Reads the documents of a file that hold text.

    If there is none, or the file cannot be read, a line on stderr says so. Of rows with the same
    id, the second is named ``id (2)``.

    Args:
        part: the file.
        column: the text column of tables.

    Returns:
        The documents, and notes about rows and pages that were not read.
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
        notes.append((head, rest_of_message(part, error)))
    if not documents:
        report(part.name, notes or [("left out", " holds no text.")])
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
    for part in list_files(source):
        documents, notes = read_file(part, column)
        if documents:
            notes += notes_on_words(tokenizer, part, documents)
            report(part.name, notes)
        for document in documents:
            yield part.name_of(readable_name(document.id)), document


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
        notes.append(("note", f": {fault}{rows}."))
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
    writer = _PartWriter(model, text_column, splitter=open_splitter(model, splitter))
    # The dot keeps the shelves of a cache that lies in the source from being read.
    folder = cache_dir / ".shelves" / writer.shelf_name(source)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds texts
    parts = []
    for part in list_files(source):
        try:
            name = f"{_content(part)}.parquet"
        except OSError as error:
            report(part.name, [("left out", f" cannot be read: {reason(error)}")])
        else:
            parts.append(part._replace(path=folder / name))

    current = {part.path: part for part in parts}
    with lock_shelf(folder):
        for path in folder.glob("*.parquet*"):
            if path not in current:  # a file that is gone, or what a killed process left
                path.unlink()
        writer.encode_files([part for path, part in current.items() if not path.exists()])
    parts = [part for part in parts if part.path.exists()]
    if not parts:
        raise ValueError(f"No file of {source!r} can be read.")
    return parts


def lock_shelf(folder: Path) -> AbstractContextManager[object]:
    """Locks a shelf for writing; another command that opens the same shelf waits.

    Args:
        folder: the folder of the shelf. Nothing is locked if it is read-only.
    """
    if not os.access(folder, os.W_OK):
        return nullcontext()
    lock = FileLock(folder / "lock")
    try:
        return lock.acquire(timeout=1)
    except Timeout:
        print("Waiting for another command that reads the same files.", file=sys.stderr)
        return lock.acquire()


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


class _PartWriter:
    """Reads files, encodes them, and writes a part for each.

    Args:
        model: the document model.
        column: the text column of tables.
        splitter: function that finds sentences, as in ``encode``.
    """

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

    def encode_files(self, parts: list[Part]) -> None:
        """Reads files and writes the parts, encoding many files together for speed."""
        limit = 2_000_000  # characters; a kill costs no more
        if self.is_slow:
            limit = 200_000
        waiting = []
        characters = 0
        for part in tqdm(parts, unit="file", disable=not parts):
            documents, notes = read_file(part, self.column)
            if documents:
                waiting.append(_FileContent(part, documents, notes))
                characters += sum(len(document.text) for document in documents)
            if waiting and (characters >= limit or part is parts[-1]):
                try:
                    self.write_parts(waiting)
                except (ValueError, TypeError):
                    self.write_readable_parts(waiting)
                waiting = []
                characters = 0

    def write_readable_parts(self, waiting: list[_FileContent]) -> None:
        """Encodes file by file, and names the files that cannot be encoded."""
        for content in waiting:
            try:
                self.write_parts([content])
            except (ValueError, TypeError) as error:
                part = content.part
                report(part.name, [("left out", rest_of_message(part, error))])

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
            write_part(part.path, pa.concat_tables(rows).replace_schema_metadata(metadata))

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
