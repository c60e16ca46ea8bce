"""A shelf: the passages and vectors of a folder's files, in the cache, brought up to date.

It is a folder of Parquet parts as `corpus` writes them, a part a file, named by the file's bytes: a
file that is renamed is not encoded again, one that changes is, and a command that is killed keeps
its parts. Further columns are ``text`` (from the chunk, or the beginning, to the next chunk),
``page`` (of a PDF), and in the first row of a document ``metadata`` (JSON: the other columns of its
row) and ``document_vector``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import transformers
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoModel

from ..chunk_vectors import ChunkVectors, chunk_table
from ..corpus import write_part
from ..data.rows import Document, read_documents, source_files, suffix
from ..encoders import LoadedChunkEncoder, load_chunk_encoder, static_checkpoint
from ..models.chunk_encoder import weights_fingerprint


class Part(NamedTuple):
    """A file, and the part of a shelf that is made from it."""

    source: Path
    place: str  # its path below the folder
    is_table: bool  # each row is a document
    path: Path = Path()

    def place_of(self, document: str) -> str:
        return f"{self.place}#{document}" if self.is_table else self.place

    def read(self, *columns: str) -> pa.Table:
        """Columns of its rows. A damaged part is removed, and ValueError says so."""
        try:
            # of the part before; threads would keep as much each
            pa.default_memory_pool().release_unused()
            with pq.ParquetFile(
                self.path, memory_map=True, page_checksum_verification=True
            ) as file:
                return file.read(list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            self.path.unlink(missing_ok=True)
            raise ValueError(
                f"{self.path} was damaged ({error}); run the command again to rebuild it."
            ) from error


def open_model(arguments: argparse.Namespace) -> Any:
    """The document model of ``--model``, by default that of this package, on ``--device`` in
    ``--dtype``."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    name = arguments.model or os.environ.get("NEXTLEVELBERT_MODEL") or static_checkpoint()
    try:
        if (kind := AutoConfig.from_pretrained(name).model_type) not in ("nextlevelbert", "hate"):
            raise ValueError(f"it is of the kind {kind!r}, but nextlevelbert or hate is needed.")
        model = AutoModel.from_pretrained(name)
        if arguments.chunk_encoder is not None:
            model.attach_chunk_encoder(load_chunk_encoder(arguments.chunk_encoder))
    except (OSError, ValueError) as error:
        raise ValueError(f"the model {name!r} cannot be used: {error}") from error
    try:
        return model.to(arguments.device, getattr(torch, arguments.dtype))
    except (RuntimeError, AssertionError) as error:  # torch has both for a device that is not there
        raise ValueError(f"--device {arguments.device}: {error}") from error


def list_files(source: str) -> list[Part]:
    base = Path(source) if Path(source).is_dir() else Path(source).parent
    return [
        Part(
            path,
            (path.relative_to(base) if path.is_relative_to(base) else path).as_posix(),
            name is None,
        )
        for path, name in source_files(source)
    ]


def read_file(part: Part, column: str) -> list[Document]:
    """The documents of a file that hold text; where there is none, or it cannot be read, one line
    says so."""
    try:
        documents, reason = (
            [row for row in read_documents(part.source, column) if row.text.strip()],
            "holds no text",
        )
    except (OSError, ValueError) as error:
        documents, reason = [], str(error)
    if not documents:
        tqdm.write(f"left out: {part.place}: {reason}", file=sys.stderr)
    return documents


def read_files(source: str, column: str) -> Iterator[tuple[str, Document]]:
    """The documents of all files that can be read, and their places."""
    return (
        (part.place_of(row.id), row)
        for part in list_files(source)
        for row in read_file(part, column)
    )


def open_shelf(model: Any, source: str, cache_dir: Path, column: str = "text") -> list[Part]:
    """The parts of a source, in the order of its files; what is new or changed is encoded, what is
    gone removed."""
    encoder, config = model.get_chunk_encoder(), model.config
    known_as = (
        str(config.chunk_encoder_name),
        config.chunk_encoder_fingerprint or encoder.fingerprint(),
    )
    schema = ChunkVectors(
        LoadedChunkEncoder(encoder, model.tokenizer, *known_as), config.chunking_rule()
    ).schema
    incidental = (
        "_name_or_path",
        "transformers_version",
        "architectures",
        "dtype",
        "include_chunk_encoder",
    )
    facts = {name: value for name, value in config.to_dict().items() if name not in incidental}
    key = (
        f"{schema.metadata} {sorted(facts.items())} {weights_fingerprint(model)}"
        f" {os.path.abspath(source)} {column}"
    )
    folder = cache_dir / "shelves" / hashlib.sha256(key.encode()).hexdigest()[:32]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds texts
    parts = [
        part._replace(path=folder / f"{_content(part.source)}.parquet")
        for part in list_files(source)
    ]
    for path in set(folder.glob("*.parquet*")) - {
        part.path for part in parts
    }:  # and what a killed process left
        path.unlink(missing_ok=True)
    missing = [part for part in parts if not part.path.exists()]
    limit = (
        200_000 if encoder.has_layers else 2_000_000
    )  # characters that are encoded together; a kill costs no more
    waiting: list[tuple[Part, list[Document]]] = []
    for part in tqdm(missing, unit="file", disable=not missing):
        if documents := read_file(part, column):
            waiting.append((part, documents))
        if (
            part is missing[-1]
            or sum(len(doc.text) for _, docs in waiting for doc in docs) >= limit
        ):
            _write(model, schema, waiting)
            waiting = []
    if not (parts := [part for part in parts if part.path.exists()]):
        raise ValueError(f"No file of {source!r} can be read.")
    return parts


def _content(path: Path) -> str:
    """A hash of the bytes of a file and its suffix, which says how they are read; or of a saved
    data set's files."""
    digest = hashlib.sha256()
    for file in (
        sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    ):
        with file.open("rb") as stream:
            digest.update(
                f"{suffix(file)} {file.suffix}".encode()
                + hashlib.file_digest(stream, "sha256").digest()
            )
    return digest.hexdigest()[:32]


def _write(model: Any, schema: pa.Schema, waiting: list[tuple[Part, list[Document]]]) -> None:
    """Encodes the documents of several files together and writes a part for each."""
    texts = [document.text for _, documents in waiting for document in documents]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* contain no token")
        embeddings = iter(
            model.encode(texts, show_progress_bar=model.get_chunk_encoder().has_layers)
        )
    for part, documents in waiting:
        write_part(
            part.path, pa.concat_tables([_rows(schema, row, next(embeddings)) for row in documents])
        )


def _rows(schema: pa.Schema, document: Document, embedding: Any) -> pa.Table:
    spans, metadata = np.asarray(embedding.spans), dict(document.metadata)
    pages, count = metadata.pop("pages", None), len(spans)  # where each begins
    table = chunk_table(schema, [document.id], [spans], embedding.plain)
    borders = [0, *spans[1:, 0].tolist(), len(document.text)][-count - 1 :]
    columns: dict[str, tuple[pa.DataType, Any]] = {
        "text": (pa.string(), [document.text[start:end] for start, end in pairwise(borders)]),
        "page": (
            pa.int32(),
            [] if pages is None else np.searchsorted(pages, spans[:, 0], side="right").tolist(),
        ),
        "metadata": (pa.string(), [json.dumps(metadata, ensure_ascii=False, default=str)]),
        "document_vector": (pa.list_(pa.float32()), [embedding.document.tolist()]),
    }
    for name, (kind, values) in columns.items():
        table = table.append_column(name, pa.array([*values, *[None] * count][:count], kind))
    return table
