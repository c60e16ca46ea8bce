"""A shelf: the passages and vectors of a folder's files, kept in the cache and brought up to date.

A shelf is a folder of Parquet parts as `corpus` writes them. A part holds one file and is named by
a hash of the file's bytes: a renamed file is not encoded again, a changed file is, and a command
that is killed keeps the parts that it has written. The further columns are ``text`` (from the
chunk, or the beginning, to the next chunk) and, in the first row of a document, ``metadata`` (JSON:
the other columns of its row), ``pages`` (the character at which each page of a PDF begins) and
``document_vector``. The notes about a file, in the metadata of the schema, say what was not read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import transformers
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerBase

from ..chunk_vectors import ChunkVectors, chunk_table
from ..corpus import find_splitter, write_part
from ..data.rows import Document, read_documents, source_files, suffix
from ..fitting import static_checkpoint
from ..models.chunk_encoder import weights_fingerprint
from ..models.chunking import Splitter, tokenize_document
from ..models.from_encoder import LoadedChunkEncoder, load_chunk_encoder
from ..models.modeling_nextlevelbert import DocumentEmbedding, NextLevelBertModel

# Raised when a part has other columns or other contents than before, so that parts are made anew.
_VERSION = 2
# A document is named if the model does not know the words that make up this share of its text.
_UNKNOWN_SHARE = 0.05
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


class Part(NamedTuple):
    """A file, and the part of a shelf that is made from it.

    Args:
        source: the file.
        place: its path below the folder, as it is printed.
        is_table: whether each row is a document.
        path: the part.
    """

    source: Path
    place: str
    is_table: bool
    path: Path = Path()

    def place_of(self, document: str) -> str:
        if self.is_table:
            return f"{self.place}#{document}"
        return self.place

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


def open_model(arguments: argparse.Namespace) -> NextLevelBertModel:
    """Opens the document model of ``--model`` on ``--device`` in ``--dtype``.

    Raises:
        ValueError: if the model or the device cannot be used.
    """
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    name = arguments.model or os.environ.get("NEXTLEVELBERT_MODEL") or static_checkpoint()
    try:
        family = AutoConfig.from_pretrained(name).model_type
        if family not in ("nextlevelbert", "hate"):
            raise ValueError(f"it is of the kind {family!r}, but nextlevelbert or hate is needed.")
        model = AutoModel.from_pretrained(name)
        if arguments.chunk_encoder is not None:
            model.attach_chunk_encoder(load_chunk_encoder(arguments.chunk_encoder))
    except (OSError, ValueError) as error:
        raise ValueError(f"the model {name!r} cannot be used: {error}") from error
    try:
        return model.to(arguments.device, getattr(torch, arguments.dtype))
    except (RuntimeError, AssertionError) as error:  # torch raises both for a missing device
        raise ValueError(f"--device {arguments.device}: {error}") from error


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


def printable(name: str) -> str:
    r"""Replaces what cannot be encoded: bytes of a file name, and halves of surrogate pairs.

    Example:
        >>> printable("caf" + chr(0xdce9)), printable(chr(0xd83d))
        ('caf\\xe9', '\\ud83d')
    """
    try:
        return os.fsencode(name).decode(errors="backslashreplace")
    except UnicodeEncodeError:
        return name.encode(errors="backslashreplace").decode()


def leave_out(place: str, reason: object) -> None:
    """Says on stderr that a file is left out, and why."""
    tqdm.write(f"left out: {place}: {printable(str(reason))}", file=sys.stderr)


def report(notes: Iterable[tuple[str, str]]) -> None:
    """Prints notes about files, each a place and a sentence, to stderr."""
    for place, note in notes:
        tqdm.write(f"note: {place}: {note}", file=sys.stderr)


def list_files(source: str, cache_dir: Path | None = None) -> list[Part]:
    """Lists the files of a source, without those that this package has written.

    Vectors (``embed`` and `encode_corpus`), models (``fit`` and the trainers) and maps are named on
    stderr; what lies in `cache_dir` is not.
    """
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    base = os.path.join(folder, "")
    shelves = None
    if cache_dir is not None and os.path.abspath(cache_dir).startswith(os.path.abspath(folder)):
        shelves = Path(os.path.abspath(cache_dir)) / "shelves"
    parts = []
    models = set[Path]()
    for path, name in source_files(source):
        place = printable(str(path).removeprefix(base)).replace(os.sep, "/")
        part = Part(source=path, place=place, is_table=name is None)
        if shelves is not None and shelves in Path(os.path.abspath(path)).parents:
            continue
        if path.name == "config.json" and (path.parent / "model.safetensors").is_file():
            models.add(path.parent)
            leave_out(os.path.dirname(place) or ".", "it is the folder of a model")
        elif place.lower().endswith((".parquet", ".pdf")) and is_own_output(path):
            leave_out(place, "nextlevelbert wrote it; it holds vectors or a map")
        else:
            parts.append(part)
    if models:
        parts = [part for part in parts if not models.intersection(part.source.parents)]
    return parts


def is_own_output(path: Path) -> bool:
    """Whether a file is a Parquet file of vectors or a map that this package has written."""
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            return b"recipe" in (pq.read_schema(path).metadata or {})
        if kind == ".pdf":
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _END_OF_PDF))
                return MAP_CREATOR.encode() in file.read()
    except (pa.ArrowException, OSError):
        pass  # `read_file` says what is wrong with the file
    return False


def read_file(part: Part, column: str) -> tuple[list[Document], list[str]]:
    """Reads the documents of a file that hold text.

    If there is none, or the file cannot be read, a line on stderr says so.

    Returns:
        The documents, and notes about rows that were left out.
    """
    errors: list[ValueError] = []
    rows = read_documents(part.source, column, on_error=errors.append)
    documents = [row for row in rows if row.text.strip()]
    notes = [f"left out: {printable(str(error))}" for error in errors]
    if not documents:
        for error in errors:
            leave_out(part.place, error)
        if not errors:
            leave_out(part.place, "holds no text")
    return documents, notes


def read_files(
    source: str, column: str, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, Document]]:
    """Reads the documents of all files that can be read, each with its place.

    What `tokenizer` does not know is named on stderr.
    """
    for part in list_files(source):
        documents, notes = read_file(part, column)
        if documents:
            notes += notes_on_words(tokenizer, part, documents)
            report((part.place, note) for note in notes)
        for document in documents:
            yield part.place_of(printable(document.id)), document


def notes_on_words(
    tokenizer: PreTrainedTokenizerBase, part: Part, documents: Sequence[Document]
) -> list[str]:
    """Says what a tokenizer does not know of a file's documents: most words of some, or all."""
    wordless = []
    unknown = []
    for document in documents:
        share = unknown_share(tokenizer, document.text)
        if share is None:
            wordless.append(document.id)
        elif share >= _UNKNOWN_SHARE:
            unknown.append(document.id)
    notes = []
    for ids, fault in (
        (wordless, "it holds no word that the model can read"),
        (unknown, f"the model does not know {_UNKNOWN_SHARE:.0%} of the text or more"),
    ):
        if ids and part.is_table:
            notes.append(f"{fault}, in {len(ids)} of {len(documents)} rows, {ids[0]!r} first.")
        elif ids:
            notes.append(f"{fault}.")
    return notes


def unknown_share(tokenizer: PreTrainedTokenizerBase, text: str) -> float | None:
    """Measures the share of a text that stands in words which a tokenizer does not know.

    Returns:
        Characters of unknown words by characters of all words; None for a text without a token.
    """
    tokens = tokenize_document(tokenizer, text)
    if len(tokens) == 0:
        return None
    sizes = tokens.char_ends - tokens.char_starts
    unknown = sizes[np.isin(tokens.input_ids, tokenizer.unk_token_id)]
    return float(unknown.sum() / max(sizes.sum(), 1))


def open_shelf(
    model: NextLevelBertModel,
    source: str,
    cache_dir: Path,
    column: str = "text",
    splitter: Splitter | None = None,
) -> list[Part]:
    """Opens the shelf of a source, after encoding what is new or changed and removing what is gone.

    Args:
        model: the document model.
        source: a file, a folder or a pattern.
        cache_dir: the folder of all shelves.
        column: the text column of tables.
        splitter: finds sentences, as in ``encode``.

    Returns:
        The parts of the shelf, in the order of the source's files.

    Raises:
        ValueError: if no file can be read.
    """
    schema = _schema(model, splitter)
    folder = cache_dir / "shelves" / _shelf_name(model, schema, source, column)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds texts
    parts = []
    for part in list_files(source, cache_dir):
        try:
            name = f"{_content(part.source)}.parquet"
        except OSError as error:
            leave_out(part.place, error)
        else:
            parts.append(part._replace(path=folder / name))

    present = set(os.listdir(folder))
    names = {part.path.name for part in parts}
    for name in present - names:  # parts of files that are gone, and what a killed process left
        if ".parquet" in name:
            (folder / name).unlink(missing_ok=True)

    missing = {part.path: part for part in parts if part.path.name not in present}
    _encode_files(model, schema, list(missing.values()), column, splitter)
    unreadable = {path for path in missing if not path.exists()}
    parts = [part for part in parts if part.path not in unreadable]
    if not parts:
        raise ValueError(f"No file of {source!r} can be read.")
    return parts


def _schema(model: NextLevelBertModel, splitter: Splitter | None) -> pa.Schema:
    """Builds the schema of a corpus of the model's chunk vectors."""
    encoder = model.get_chunk_encoder()
    config = model.config
    loaded = LoadedChunkEncoder(
        encoder,
        model.tokenizer,
        name=str(config.chunk_encoder_name),
        fingerprint=config.chunk_encoder_fingerprint or encoder.fingerprint(),
    )
    return ChunkVectors(loaded, config.chunking_rule(), splitter).schema


def _shelf_name(model: NextLevelBertModel, schema: pa.Schema, source: str, column: str) -> str:
    """Hashes what the parts of a source depend on beside its files."""
    values = model.config.to_dict()
    settings = sorted((name, values[name]) for name in values if name not in _INCIDENTAL)
    key = (_VERSION, schema.metadata, settings, weights_fingerprint(model), column)
    path = os.fsencode(os.path.abspath(source))
    return hashlib.sha256(repr(key).encode() + path).hexdigest()[:32]


def _content(path: Path) -> str:
    """Hashes the bytes of a file, or of a saved data set's files, and how they are read."""
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{suffix(file)} {file.suffix}".encode(errors="replace"))
        with open(file, "rb", buffering=0) as stream:
            for block in iter(partial(stream.read, 1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()[:32]


def _encode_files(
    model: NextLevelBertModel,
    schema: pa.Schema,
    parts: list[Part],
    column: str,
    splitter: Splitter | None,
) -> None:
    """Reads files and writes their parts, as many together as make good use of the encoder."""
    limit = 2_000_000  # characters; a kill costs no more
    if model.get_chunk_encoder().has_layers:
        limit = 200_000
    waiting: list[tuple[Part, list[Document], list[str]]] = []
    characters = 0
    for part in tqdm(parts, unit="file", disable=not parts):
        documents, notes = read_file(part, column)
        if documents:
            waiting.append((part, documents, notes))
            characters += sum(len(document.text) for document in documents)
        if waiting and (characters >= limit or part is parts[-1]):
            _write_parts(model, schema, waiting, splitter)
            waiting = []
            characters = 0


def _write_parts(
    model: NextLevelBertModel,
    schema: pa.Schema,
    waiting: list[tuple[Part, list[Document], list[str]]],
    splitter: Splitter | None,
) -> None:
    """Encodes the documents of several files together and writes a part for each file.

    If something is wrong with one of the files, it is named, and the others are written.
    """
    texts = [document.text for _, documents, _ in waiting for document in documents]
    try:
        with warnings.catch_warnings():  # `notes_on_words` names the files
            warnings.filterwarnings("ignore", message=".* contain no token")
            warnings.filterwarnings("ignore", message=".* consist of unknown tokens only")
            embeddings = iter(
                list(
                    model.iter_encode(
                        texts,
                        show_progress_bar=model.get_chunk_encoder().has_layers,
                        splitter=splitter,
                    )
                )
            )
        for part, documents, notes_on_reading in waiting:
            rows = [_rows(schema, part, document, next(embeddings)) for document in documents]
            notes = [*notes_on_reading, *notes_on_words(model.tokenizer, part, documents)]
            table = pa.concat_tables(rows)
            metadata = {**schema.metadata, "notes": json.dumps(notes)}
            write_part(part.path, table.replace_schema_metadata(metadata))
    except (ValueError, TypeError) as error:
        if len(waiting) == 1:
            leave_out(waiting[0][0].place, error)
            return
        for one in waiting:
            _write_parts(model, schema, [one], splitter)


def _rows(
    schema: pa.Schema, part: Part, document: Document, embedding: DocumentEmbedding
) -> pa.Table:
    """Makes the rows of one document."""
    spans = np.asarray(embedding.spans)
    table = chunk_table(schema, [printable(document.id)], [spans], embedding.plain)
    count = len(spans)
    if count == 0:
        texts = []
    else:
        borders = [0, *spans[1:, 0].tolist(), len(document.text)]
        texts = [document.text[start:end] for start, end in pairwise(borders)]

    metadata = dict(document.metadata)
    pages = None
    if not part.is_table:  # a table may have a column of that name
        pages = metadata.pop("pages", None)
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "text": (pa.string(), texts),
        "pages": (pa.list_(pa.int64()), [pages]),
        "metadata": (pa.string(), [metadata_json(metadata)]),
        "document_vector": (pa.list_(pa.float32()), [embedding.document.tolist()]),
    }
    for name, (kind, values) in columns.items():
        padding = [None] * (count - len(values))
        table = table.append_column(name, pa.array([*values, *padding][:count], kind))
    return table


def metadata_json(metadata: dict[str, Any]) -> str:
    """Writes metadata as JSON that any reader accepts: NaN becomes null, half a surrogate "?"."""
    text = json.dumps(metadata, default=str)
    values = json.loads(text, parse_constant=lambda name: None)
    return json.dumps(values, ensure_ascii=False).encode(errors="replace").decode()
