"""A corpus: chunk vectors in a folder of Parquet parts that any tool reads.

A row is a chunk: ``document``, ``chunk`` (its index in the document), ``start`` and ``end`` (its
characters) and ``vector`` (float16); the rows of a document are next to each other. The *recipe*
says how the vectors were made; it is in the metadata of the schema. `encode_corpus` in
`chunk_vectors` writes corpora: it names a part by its number and a hash of its documents, and
``_SUCCESS`` holds the number of parts once all are there. Other engines may name their parts as
they like.

Shapes: N chunks of all documents, n of one, D values.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pkgutil
import re
import uuid
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from huggingface_hub import CommitInfo, HfApi, snapshot_download
from torch import Tensor
from transformers import PreTrainedConfig

from .models.chunking import ChunkingRule
from .models.sentences import Splitter, text_sentences

logger = logging.getLogger(__name__)
DONE = "_SUCCESS"
FILES = "*.parquet"
_CHECKED = {"document", "chunk", "start", "end", "vector"}  # other columns may hold nulls
_PART = re.compile(r"part-(\d{6})-[0-9a-f]{16}\.parquet")
_CARD = """---
tags: [nextlevelbert, chunk-vectors]
---
# Chunk vectors of {documents} documents

The data set contains {chunks} chunk vectors of {size} dimensions, made with `{encoder}`, without
the texts. The package reads it: `pip install nextlevelbert`, or until its first release `pip
install .` in a clone.

```python
from nextlevelbert import VectorCorpus

corpus = VectorCorpus.from_hub("{repo}")
```
"""


def chunking_recipe(rule: ChunkingRule, splitter: Splitter | str | None) -> dict[str, Any]:
    """Describes how texts are split, as values that JSON can store.

    Args:
        rule: rule by which texts are divided into chunks.
        splitter: function that finds sentences, or the name of one.

    Raises:
        ValueError: the splitter has no name.
    """
    if splitter is not None and not isinstance(splitter, str):
        named: Any = splitter
        if not hasattr(splitter, "__qualname__"):  # an object that can be called
            named = type(splitter)
        splitter = f"{named.__module__}.{named.__qualname__}"
        if splitter.endswith(("<lambda>", "functools.partial")):
            raise ValueError(
                "A corpus stores the name of its splitter, but a lambda or a partial has none. Give"
                " a function that is defined with a name."
            )
    fields = asdict(rule)
    del fields["max_chunk_size"]
    fields["splitter"] = splitter
    return json.loads(json.dumps(fields))


def find_splitter(name: str | None) -> Splitter | None:
    """Imports a sentence splitter by its name, such as ``nltk.tokenize.sent_tokenize``.

    Args:
        name: the module and the function, with dots. ``text_sentences`` is this package's own.
            None stands for the chunking rule of the model.

    Raises:
        ValueError: if there is no such function.
    """
    if name is None:
        return None
    if name == "text_sentences":
        return text_sentences
    try:
        splitter = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"There is no sentence splitter {name!r} ({error}). Give a module and a function, such"
            " as nltk.tokenize.sent_tokenize, or text_sentences."
        ) from error
    if not callable(splitter):
        raise ValueError(f"The sentence splitter {name!r} must be a function, got {splitter!r}.")
    return splitter


def corpus_schema(recipe: Mapping[str, Any]) -> pa.Schema:
    """Returns the columns of a corpus, with the recipe as metadata.

    Args:
        recipe: recipe of the corpus; ``recipe["encoder"]["hidden_size"]`` is D.
    """
    columns = [
        ("document", pa.string()),
        ("chunk", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("vector", pa.list_(pa.float16(), recipe["encoder"]["hidden_size"])),
    ]
    return pa.schema(columns, metadata={"recipe": json.dumps(recipe)})


def recipe_facts(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that decide the vectors, without nesting.

    The encoder's name is left out, because only the weights decide the vectors.

    Args:
        recipe: recipe of a corpus.
    """
    facts = {}
    for section, fields in recipe.items():
        for name, value in fields.items():
            facts[f"{section}.{name}"] = value
    facts.pop("encoder.name", None)
    return facts


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Names the fields in which two recipes differ, with both values."""
    left = recipe_facts(one)
    right = recipe_facts(other)
    fields = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    # A fingerprint says nothing to a reader without the name of the encoder.
    left["encoder.fingerprint"] = _name_of_encoder(one["encoder"])
    right["encoder.fingerprint"] = _name_of_encoder(other["encoder"])
    return "; ".join(f"{name}: {left.get(name)!r}, {right.get(name)!r}" for name in fields)


def _name_of_encoder(encoder: Mapping[str, Any]) -> str:
    fingerprint = str(encoder.get("fingerprint"))
    return f"{encoder.get('name')} ({fingerprint[:12]}…)"


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing; the file gets its name when it is complete and on the disk.

    Args:
        path: the file.
    """
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_part(path: str | Path, table: pa.Table) -> None:
    """Writes rows as a Parquet part with checksums of its pages and columns, whole or not at all.

    Args:
        path: the file.
        table: rows of the corpus.
    """
    metadata = table.schema.metadata or {}
    sums = json.dumps(_checksums(table, metadata))
    table = table.replace_schema_metadata({**metadata, "sums": sums})
    with whole_file(Path(path)) as file:
        pq.write_table(
            table,
            file,
            compression="zstd",
            use_dictionary=["document"],
            write_statistics=["document", "chunk"],
            write_page_checksum=True,
        )


def _values(column: pa.ChunkedArray) -> np.ndarray:
    """Returns the numbers of a column; lists one after the other."""
    array = column.combine_chunks()
    if array.type.num_fields > 0:
        array = array.flatten()  # which minds the offset of a slice
    return np.asarray(array)


def _checksums(table: pa.Table, metadata: Mapping[bytes, bytes]) -> dict[str, int]:
    """Returns a checksum of each column of a corpus, and of each further entry of the metadata.

    Parquet's page checksum does not cover page headers.
    """
    sums = {key.decode(): zlib.crc32(value) for key, value in metadata.items() if key != b"sums"}
    for name in table.column_names:
        if name not in _CHECKED:
            continue
        column = table[name]
        if pa.types.is_string(column.type):
            sums[name] = zlib.crc32("\0".join(map(str, column.to_pylist())).encode())
        else:
            sums[name] = zlib.crc32(np.ascontiguousarray(_values(column)).data)
    return sums


def read_columns(
    path: Path, *names: str, recipe: Mapping[str, Any] | None = None
) -> tuple[dict[bytes, bytes], list[pa.ChunkedArray]]:
    """Reads metadata and columns of a part.

    Args:
        path: the part.
        *names: names of the columns to read.
        recipe: the recipe that the part must have been made with (default: any).

    Raises:
        ValueError: the part is damaged (Arrow's errors do not name it), or was made with another
            recipe.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            metadata = file.schema_arrow.metadata or {}
            table = file.read(list(names))
        if _PART.fullmatch(path.name):
            expected = json.loads(metadata.get(b"sums", b"{}"))
            for name, value in _checksums(table, metadata).items():
                if value != expected.get(name, value):
                    raise ValueError(f"the checksum of {name!r} does not match.")
    except (pa.ArrowException, OSError, ValueError, LookupError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged, or does not belong to this corpus: {error} Delete it and run the"
            " same encoding again, which writes this part only."
        ) from error

    stored = json.loads(metadata.get(b"recipe", b"null"))
    if stored and recipe:
        differences = _differences(stored, recipe)
        if differences:
            raise ValueError(
                f"{path} was made with other settings (of the file, of this call): {differences}."
                " Write to another folder, or delete this one."
            )
    return metadata, table.columns


def numbered_parts(folder: Path) -> dict[int, Path]:
    """Returns the parts that `encode_corpus` wrote, by number, in order.

    Args:
        folder: folder of a corpus.
    """
    parts = {}
    for path in sorted(folder.iterdir()):
        name = _PART.fullmatch(path.name)
        if name is not None:
            parts[int(name[1])] = path
    return parts


def _finished_parts(folder: Path) -> list[Path]:
    """Returns the parts of a corpus in order, if none is missing."""
    paths = sorted(folder.glob(FILES))
    if not paths:
        raise FileNotFoundError(
            f"There is no corpus in {folder}: it contains no Parquet file. encode_corpus writes"
            " one."
        )
    numbered = numbered_parts(folder)
    if numbered:
        count = len(numbered) + 1
        if (folder / DONE).exists():
            count = int((folder / DONE).read_text())
        missing = sorted(set(range(count)) - numbered.keys())
        if missing:
            raise ValueError(
                f"{folder} is incomplete: it lacks part {missing[0]}. Run the same encoding again."
            )
    return paths


@dataclass(frozen=True)
class EncodedDocument:
    """Holds a document of a corpus.

    Attributes:
        id: id of the document.
        vectors: plain chunk vectors, ``[n, D]`` float16.
        spans: the characters of each chunk, ``[n, 2]``.
    """

    id: str
    vectors: Tensor
    spans: Tensor


class VectorCorpus:
    """Opens a finished corpus, with random access to documents and to any run of chunk vectors.

    ``corpus["id"]`` and ``corpus[0]`` return a document with its ``id``, its plain chunk
    ``vectors`` [n, D] and the character ``spans`` [n, 2] of its chunks. ``len(corpus)`` is the
    number of documents, and a loop over the corpus yields them in order.

    A part is decoded when it is first read, into the hidden folder ``.vectors`` beside it (or into
    memory, if that folder cannot be written), and is then mapped into memory: a run of vectors is a
    view.

    Args:
        path: the corpus folder.
        recipe: `ChunkVectors.recipe`, for parts of an engine that does not keep a schema's
            metadata.

    Attributes:
        document_ids: ids of the documents, in the order of the parts' names.
        document_offsets: index of each document's first chunk, and N. The chunks of document i are
            ``document_offsets[i]`` to ``document_offsets[i + 1]``.
        empty: ids of documents without a token, which are in no other list; ``corpus[id]`` has no
            vectors.
        num_chunks: number of chunks of all documents.
        recipe: encoder and chunking that made the vectors.

    Raises:
        FileNotFoundError: if there is no corpus in the folder.
        ValueError: if a part is missing or has another recipe; also, when it is read, if a part is
            damaged.
    """

    def __init__(self, path: str | Path, recipe: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        self.document_ids = []
        self.empty = set()
        self._paths = _finished_parts(self.path)
        self._loaded: dict[int, Tensor] = {}
        chunks_of_parts = []
        for path_of_part in self._paths:
            metadata, (names, column) = read_columns(
                path_of_part, "document", "chunk", recipe=recipe
            )
            if recipe is None:
                recipe = json.loads(metadata.get(b"recipe", b"null"))
            if recipe is None:
                raise ValueError(
                    f"{path_of_part} contains no recipe (its encoder and chunking). Pass"
                    " recipe=ChunkVectors(…).recipe."
                )

            chunks = _values(column)
            chunks_of_parts.append(chunks)
            self.empty.update(json.loads(metadata.get(b"empty", b"[]")))
            self.document_ids += names.filter(pa.array(chunks == 0)).to_pylist()

        self.recipe = dict(recipe or {})
        self.hidden_size = self.recipe["encoder"]["hidden_size"]
        self.splitter = self.recipe["chunking"]["splitter"]

        self._starts = np.cumsum([0, *map(len, chunks_of_parts)]).tolist()
        chunks = np.concatenate(chunks_of_parts)
        self.num_chunks = len(chunks)
        self.document_offsets = np.append(np.flatnonzero(chunks == 0), self.num_chunks)
        self._check_order(chunks)

        self._index: dict[str, int] = {}
        for index, name in enumerate(self.document_ids):
            if name in self._index:
                raise ValueError(
                    f"{self.path} has two documents with the id {name!r}; ids must be unique."
                )
            self._index[name] = index

    def _check_order(self, chunks: np.ndarray) -> None:
        """Raises a ValueError unless the chunks of each document have the indices 0, 1, …."""
        row = np.arange(len(chunks))
        first_row = np.maximum.accumulate(np.where(chunks == 0, row, 0))
        if (chunks != row - first_row).any():
            raise ValueError(
                f"{self.path}: the rows of a document are not consecutive, in the order of its"
                " chunks. Sort the table by document and chunk."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": {}}  # a spawned worker maps the files itself

    def __len__(self) -> int:
        return len(self.document_ids)

    def __repr__(self) -> str:
        name = self.recipe["encoder"]["name"]
        return (
            f"VectorCorpus({str(self.path)!r}: {len(self)} documents, {self.num_chunks} chunks, by"
            f" {name})"
        )

    def fingerprint(self) -> str:
        """Returns the SHA-256 of ids, order and names of parts.

        The names hold hashes of recipe and texts.
        """
        names = [path.name for path in self._paths]
        offsets = self.document_offsets.tolist()
        return hashlib.sha256(json.dumps([names, self.document_ids, offsets]).encode()).hexdigest()

    def vectors(self, start: int, stop: int) -> Tensor:
        """Returns a run of chunk vectors, across documents and parts.

        Args:
            start: index in the corpus of the first chunk to return.
            stop: index one past the last chunk to return.

        Returns:
            ``[stop - start, D]`` float16.
        """
        if not 0 <= start <= stop <= self.num_chunks:
            raise IndexError(f"Chunks {start}:{stop} are not in {self!r}.")
        first = min(bisect_right(self._starts, start), len(self._paths)) - 1
        last = max(bisect_left(self._starts, stop) - 1, first)
        pieces = []
        for index in range(first, last + 1):
            if index not in self._loaded:
                self._loaded[index] = self._decoded(self._paths[index])
            begin = self._starts[index]
            pieces.append(self._loaded[index][max(start - begin, 0) : stop - begin])
        if len(pieces) == 1:
            return pieces[0]
        return torch.cat(pieces)

    @cached_property
    def _spans(self) -> Tensor:
        """Reads the characters of all chunks, ``[N, 2]``."""
        spans = []
        for path in self._paths:
            _, columns = read_columns(path, "start", "end")
            spans.append(np.stack([_values(column) for column in columns], axis=1))
        return torch.from_numpy(np.concatenate(spans))

    def __getitem__(self, document: int | str) -> EncodedDocument:
        """Returns a document.

        Args:
            document: id of the document, or its index, which may be negative.
        """
        if isinstance(document, str):
            if document in self.empty:
                return EncodedDocument(document, self.vectors(0, 0), self._spans[:0])
            if document not in self._index:
                raise KeyError(f"No document {document!r} in {self!r}.")
            index = self._index[document]
        else:
            index = document
        if not -len(self) <= index < len(self):
            raise IndexError(f"Document {index} is not in {self!r}.")
        index %= len(self)

        start = int(self.document_offsets[index])
        stop = int(self.document_offsets[index + 1])
        return EncodedDocument(
            id=self.document_ids[index],
            vectors=self.vectors(start, stop),
            spans=self._spans[start:stop],
        )

    def __iter__(self) -> Iterator[EncodedDocument]:
        return (self[index] for index in range(len(self)))

    def _decoded(self, path: Path) -> Tensor:
        """Returns all vectors of a part, ``[N, D]``, mapped from a decoded copy.

        The name of the copy holds the time of the part and a checksum; another copy is removed and
        made anew.
        """
        folder = path.parent / ".vectors"
        name = f"{path.stem}.{path.stat().st_mtime_ns:x}"
        for copy in folder.glob(f"{path.stem}.*.npy"):
            with suppress(EOFError, ValueError, OSError):  # of an incomplete copy
                array = np.load(copy, mmap_mode="c")
                if copy.stem == f"{name}.{zlib.crc32(array.data):08x}":
                    return torch.from_numpy(np.asarray(array))
            with suppress(OSError):  # in a folder that cannot be written
                copy.unlink()

        _, (column,) = read_columns(path, "vector")
        array = _values(column).reshape(-1, self.hidden_size).astype(np.float16)
        copy = folder / f"{name}.{zlib.crc32(array.data):08x}.npy"
        try:
            folder.mkdir(exist_ok=True)
            with whole_file(copy) as stream:
                np.save(stream, array)
            array = np.load(copy, mmap_mode="c")
        except OSError as error:
            logger.warning(
                "%s cannot be written (%s); %s stays in memory.", folder, error, path.name
            )
        return torch.from_numpy(np.asarray(array))

    def check_model(self, config: PreTrainedConfig, splitter: Splitter | str | None = None) -> None:
        """Checks that a model reads vectors of the same kind as the corpus.

        Args:
            config: configuration of the model.
            splitter: function that finds sentences, as passed to the model's `encode`.

        Raises:
            ValueError: fields of the recipe differ; the message names each of them.
        """
        encoder = {
            "name": config.chunk_encoder_name,
            "fingerprint": config.chunk_encoder_fingerprint,
            "pooling": config.chunk_encoder_pooling,
            "normalize": config.chunk_encoder_normalize,
            "hidden_size": config.chunk_hidden_size,
        }
        model = {"encoder": encoder, "chunking": chunking_recipe(config.chunking_rule(), splitter)}
        stored_encoder = {name: self.recipe["encoder"].get(name) for name in encoder}
        differences = _differences({**self.recipe, "encoder": stored_encoder}, model)
        if differences:
            raise ValueError(
                f"{self!r} does not fit the model (corpus, model): {differences}. Encode the"
                " documents again with the model's encoder and chunking, or load the model that"
                " fits."
            )

    def push_to_hub(
        self, repo_id: str, private: bool | None = None, token: str | None = None
    ) -> CommitInfo:
        """Uploads the parts as a dataset repository: vectors and character spans, not the texts.

        Args:
            repo_id: ``"user/name"``.
            private: if true, a new repository is private.
            token: access token of the Hub.
        """
        api = HfApi(token=token)
        repo = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True).repo_id
        card = _CARD.format(
            documents=len(self),
            chunks=self.num_chunks,
            size=self.hidden_size,
            encoder=self.recipe["encoder"]["name"],
            repo=repo,
        )
        api.upload_file(
            path_or_fileobj=card.encode(),
            path_in_repo="README.md",
            repo_id=repo,
            repo_type="dataset",
        )

        return api.upload_folder(
            repo_id=repo,
            folder_path=self.path,
            repo_type="dataset",
            allow_patterns=[DONE, FILES],
            delete_patterns=FILES,  # of an earlier, longer corpus
        )

    @classmethod
    def from_hub(
        cls, repo_id: str, revision: str | None = None, token: str | None = None
    ) -> VectorCorpus:
        """Downloads a corpus that `push_to_hub` uploaded, unless it is cached, and opens it.

        Args:
            repo_id: ``"user/name"``.
            revision: branch, tag or commit.
            token: access token of the Hub.
        """
        folder = snapshot_download(
            repo_id,
            repo_type="dataset",
            revision=revision,
            token=token,
            allow_patterns=[DONE, FILES],
        )
        return cls(folder)
