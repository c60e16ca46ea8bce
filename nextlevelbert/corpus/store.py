"""A corpus: chunk vectors in a folder of Parquet parts that any tool reads.

A row is a chunk: ``document``, ``chunk`` (its index in the document), ``start`` and ``end`` (its
characters) and ``vector`` (float16); the rows of a document are next to each other. The *recipe*
says how the vectors were made; it is in the metadata of the schema.

Shapes: N chunks of all documents, n of one, D values.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from huggingface_hub import CommitInfo, HfApi, snapshot_download
from torch import Tensor
from transformers import PreTrainedConfig

from ..models.files import local_path, whole_file
from ..models.sentences import Splitter
from .parts import DONE, FILES, PART, column_values, finished_parts, read_columns
from .recipe import chunking_recipe, recipe_differences

logger = logging.getLogger(__name__)
_COARSEST_TIME = 2 * 10**9  # nanoseconds in a step of the slowest clocks of file systems
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


@dataclass(frozen=True)
class EncodedDocument:
    """Holds a document of a corpus.

    Attributes:
        id: id of the document.
        plain: plain chunk vectors, ``[n, D]`` float16, as in `DocumentEmbedding`.
        spans: the characters of each chunk, ``[n, 2]``.
    """

    id: str
    plain: Tensor
    spans: Tensor


class VectorCorpus:
    """Opens a finished corpus, with random access to documents and to any run of chunk vectors.

    ``corpus["id"]`` and ``corpus[0]`` return a document with its ``id``, its ``plain`` chunk
    vectors [n, D] and the character ``spans`` [n, 2] of its chunks. ``len(corpus)`` is the number
    of documents, and a loop over the corpus yields them in order.

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
        self.path = local_path(path)
        self.document_ids = []
        self.empty = set()
        self._paths = finished_parts(self.path)
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

            chunks = column_values(column)
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
            spans.append(np.stack([column_values(column) for column in columns], axis=1))
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
            plain=self.vectors(start, stop),
            spans=self._spans[start:stop],
        )

    def __iter__(self) -> Iterator[EncodedDocument]:
        return (self[index] for index in range(len(self)))

    def _decoded(self, path: Path) -> Tensor:
        """Returns all vectors of a part, ``[N, D]``, mapped from a decoded copy.

        The name of the copy holds the time of the part and a checksum; another copy is removed and
        made anew. So is a copy that is not newer than the part by a step of the clock, in which the
        part may have been written again, unless the name of the part holds a hash of its texts.
        """
        folder = path.parent / ".vectors"
        written = path.stat().st_mtime_ns
        name = f"{path.stem}.{written:x}"
        for copy in folder.glob(f"{path.stem}.*.npy"):
            with suppress(EOFError, ValueError, OSError):  # of an incomplete copy
                array = np.load(copy, mmap_mode="c")
                is_later = copy.stat().st_mtime_ns > written + _COARSEST_TIME
                if (
                    is_later or PART.fullmatch(path.name)
                ) and copy.stem == f"{name}.{zlib.crc32(array.data):08x}":
                    return torch.from_numpy(np.asarray(array))
            with suppress(OSError):  # in a folder that cannot be written
                copy.unlink()

        _, (column,) = read_columns(path, "vector")
        array = column_values(column).reshape(-1, self.hidden_size).astype(np.float16)
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
        rule = replace(config.chunking_rule(), prompt=config.encoder_prompts().passage)
        model = {"encoder": encoder, "chunking": chunking_recipe(rule, splitter)}
        stored_encoder = {name: self.recipe["encoder"].get(name) for name in encoder}
        differences = recipe_differences({**self.recipe, "encoder": stored_encoder}, model)
        if differences:
            raise ValueError(
                f"{self!r} does not fit the model (corpus, model): {differences}. Encode the"
                " documents again with the model's encoder and chunking, or load the model that"
                " fits."
            )

    def push_to_hub(
        self, repo_id: str, private: bool | None = None, token: str | None = None
    ) -> CommitInfo:
        """Uploads the parts as a dataset repository: vectors and character spans, not the texts."""
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
        """Downloads a corpus that `push_to_hub` uploaded, unless it is cached, and opens it."""
        folder = snapshot_download(
            repo_id,
            repo_type="dataset",
            revision=revision,
            token=token,
            allow_patterns=[DONE, FILES],
        )
        return cls(folder)
