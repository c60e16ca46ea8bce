"""A corpus: chunk vectors in a folder of Parquet parts that any tool reads.

A row is a chunk: ``document``, ``chunk`` (its index in the document), ``start`` and ``end`` (its
characters) and ``vector`` (float16); the rows of a document are next to each other. The *recipe*
says how the vectors were made; it is in the metadata of the schema.

Shapes: N chunks of all documents, n of one, D values.
"""

from __future__ import annotations

import glob
import logging
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from huggingface_hub import CommitInfo, HfApi, snapshot_download
from torch import Tensor
from transformers import PreTrainedConfig

from ..models.files import local_path, whole_file
from ..models.identity import digest_of
from ..models.sentences import Splitter
from .folder import CorpusFolder
from .parts import DONE, FILES, column_values, finished_parts, part_metadata, read_part
from .recipe import chunking_recipe, recipe_differences

logger = logging.getLogger(__name__)
PartReader = Callable[..., np.ndarray]  # of the index of a part, and names of columns
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

    A part is decoded when it is first read out of order, into the hidden folder ``.vectors`` beside
    it (or into memory, if that folder cannot be written), and is then mapped into memory: a run of
    vectors is a view. A loop over the corpus keeps one part in memory, and writes nothing.

    The path may be an address that fsspec opens, such as ``s3://bucket/corpus``,
    ``gs://bucket/corpus`` or ``hf://datasets/me/corpus``. Decoded parts are then in the cache of
    the Hub on this machine (``HF_ASSETS_CACHE``), where they take at most as much as is left free
    on the disk; parts that were used longest ago are removed first.

    Args:
        path: the corpus folder, or its address. Access rights come from the environment.
        recipe: `ChunkVectors.recipe`, for parts of an engine that does not keep a schema's
            metadata.

    Attributes:
        path: the folder, or the address as a text.
        document_offsets: index of each document's first chunk, and N. The chunks of document i are
            ``document_offsets[i]`` to ``document_offsets[i + 1]``.
        empty: ids of documents without a token, which are in no other list; ``corpus[id]`` has no
            vectors.
        num_chunks: number of chunks of all documents.
        recipe: encoder and chunking that made the vectors.

    Raises:
        FileNotFoundError: if there is no corpus in the folder.
        OSError: if an address cannot be reached.
        ValueError: if a part is missing or has another recipe; also, when it is read, if a part is
            damaged.
    """

    def __init__(self, path: str | Path, recipe: Mapping[str, Any] | None = None) -> None:
        self._folder = CorpusFolder(path)
        self.path = self._folder.path
        self.empty: set[str] = set()
        self._stamps = finished_parts(self._folder)
        self._names = [*self._stamps]
        self._copies: dict[tuple, np.ndarray] = {}

        self.num_chunks = 0
        self._starts: list[int] = []  # index of the first chunk of each part
        self.recipe = dict(recipe or {})
        self._read_index()

        self.hidden_size = self.recipe["encoder"]["hidden_size"]
        self.splitter = self.recipe["chunking"]["splitter"]

        self._order = pc.sort_indices(self._ids)  # in which ids are looked up
        self._check_ids()

    def _read_index(self) -> None:
        """Reads the recipe of the parts, the ids of the documents, and where they start.

        Frees the columns of the parts when it returns, so that sorting ids can use their memory.
        """
        ids = []
        first_chunks = []
        last = -1  # index of the last chunk in its document
        for name in self._names:
            table = read_part(self._folder, name, "document", "chunk", recipe=self.recipe)
            self.recipe = self.recipe or part_metadata(table, "recipe")
            if not self.recipe:
                raise ValueError(
                    f"{self.path}/{name} contains no recipe (its encoder and chunking). Pass"
                    " recipe=ChunkVectors(…).recipe."
                )

            chunks = column_values(table["chunk"])
            steps = np.diff(chunks, prepend=last)
            if ((chunks != 0) & (steps != 1)).any():
                raise ValueError(
                    f"{self.path}: the rows of a document are not consecutive, in the order of its"
                    " chunks. Sort the table by document and chunk."
                )
            last += int(steps.sum())
            is_first = chunks == 0
            names = table["document"].filter(pa.array(is_first))
            ids.append(names.combine_chunks().cast(pa.large_string()))
            first_chunks.append(np.flatnonzero(is_first) + self.num_chunks)
            self.empty.update(part_metadata(table, "empty") or [])
            self._starts.append(self.num_chunks)
            self.num_chunks += len(chunks)

        self.document_offsets = np.concatenate([*first_chunks, [self.num_chunks]])
        self._ids = pa.concat_arrays(ids)  # Python's own texts would take three times as much

    def _check_ids(self) -> None:
        """Raises a ValueError if two documents have the same id."""
        ids = self._ids.take(self._order)
        is_twice = pc.equal(ids[:-1], ids[1:])
        first = pc.min(self._order[:-1].filter(is_twice)).as_py()
        if first is not None:
            raise ValueError(
                f"{self.path} has two documents with the id {self._ids[first].as_py()!r}; ids must"
                " be unique."
            )

    @property
    def document_ids(self) -> list[str]:
        """Returns the ids of the documents, in the order of the parts' names, as a new list."""
        return self._ids.to_pylist()

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker maps the files itself.
        return {**self.__dict__, "_copies": {}}

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        return (
            f"VectorCorpus({str(self.path)!r}: {len(self)} documents, {self.num_chunks} chunks, by"
            f" {self.recipe['encoder']['name']})"
        )

    def fingerprint(self) -> str:
        """Returns the SHA-256 of ids, order and names of parts.

        The names hold hashes of recipe and texts.
        """
        return digest_of(self._names, self.document_ids, self.document_offsets.tolist())

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
        return self._run(start, stop, self._mapped, "vector")

    def _run(self, start: int, stop: int, read: PartReader, *columns: str) -> Tensor:
        """Returns columns of rows of one or several parts; of one part, as a view."""
        first = bisect_right(self._starts, start) - 1
        last = max(bisect_left(self._starts, stop), first + 1)
        pieces = []
        for index in range(first, last):
            begin = self._starts[index]
            pieces.append(read(index, *columns)[max(start - begin, 0) : stop - begin])
        rows = pieces[0]
        if len(pieces) > 1:
            rows = np.concatenate(pieces)
        return torch.from_numpy(rows)

    def _read(self, index: int, *columns: str) -> np.ndarray:
        """Reads columns of a part: the vectors, ``[N, D]`` float16, or the spans, ``[N, 2]``."""
        table = read_part(self._folder, self._names[index], *columns)
        values = list(map(column_values, table.columns))
        if columns == ("vector",):
            return values[0].astype(np.float16).reshape(-1, self.hidden_size)
        return np.stack(values, axis=1)

    def _mapped(self, index: int, *columns: str) -> np.ndarray:
        """Returns columns of a part like `_read`, and keeps them mapped into memory."""
        key = (index, columns)
        if key not in self._copies:
            values = self._decoded(index, *columns)
            if self._folder.limit_copies():
                self._copies.clear()
            self._copies[key] = values
        return self._copies[key]

    def __getitem__(self, document: int | str) -> EncodedDocument:
        """Returns a document.

        Args:
            document: id of the document, or its index, which may be negative.
        """
        if isinstance(document, str):
            if document in self.empty:
                spans = self._run(0, 0, self._mapped, "start", "end")
                return EncodedDocument(document, self.vectors(0, 0), spans)
            index = self._index(document)
        else:
            index = document
        if not -len(self) <= index < len(self):
            raise IndexError(f"Document {index} is not in {self!r}.")
        return self._document(index % len(self), self._mapped)

    def _index(self, name: str) -> int:
        """Returns the index of a document."""
        position = bisect_left(
            self._order, name, key=lambda index: self._ids[index.as_py()].as_py()
        )
        order = self._order[position : position + 1]
        if self._ids.take(order).to_pylist() != [name]:
            raise KeyError(f"No document {name!r} in {self!r}.")
        return order[0].as_py()

    def _document(self, index: int, read: PartReader) -> EncodedDocument:
        start, stop = self.document_offsets[index : index + 2].tolist()
        return EncodedDocument(
            id=self._ids[index].as_py(),
            plain=self._run(start, stop, read, "vector"),
            spans=self._run(start, stop, read, "start", "end"),
        )

    def __iter__(self) -> Iterator[EncodedDocument]:
        # The vectors and the spans of a part, and for a document that ends in the next part, spans
        # of both.
        read = lru_cache(maxsize=3)(self._read)
        for index in range(len(self)):
            yield self._document(index, read)

    def _decoded(self, index: int, *columns: str) -> np.ndarray:
        """Returns columns of a part like `_read`, mapped from a decoded copy.

        The name of the copy holds the stamp of the part and a checksum; another copy is removed and
        made anew.
        """
        part = self._names[index]
        name = f"{part}.{columns[0]}"
        stamp = self._stamps[part]
        folder = self._folder.copies
        for copy in folder.glob(f"{glob.escape(name)}.*.npy"):
            # A copy may be incomplete, and its folder may be read-only.
            with suppress(EOFError, ValueError, OSError):
                array = np.load(copy, mmap_mode="c")
                if copy.stem == f"{name}.{stamp}.{zlib.crc32(array):08x}":
                    if not isinstance(self.path, Path):
                        copy.touch()  # when it was last used
                    return array
                copy.unlink()

        values = self._read(index, *columns)
        copy = folder / f"{name}.{stamp}.{zlib.crc32(values.data):08x}.npy"
        try:
            with whole_file(copy) as stream:
                np.save(stream, values)
            values = np.load(copy, mmap_mode="c")
        except OSError as error:
            logger.warning("%s cannot be written (%s); %s stays in memory.", folder, error, part)
        return values

    def check_model(self, config: PreTrainedConfig, splitter: Splitter | str | None = None) -> None:
        """Checks that a model reads vectors of the same kind as the corpus.

        Raises:
            ValueError: fields of the recipe differ; the message names each of them.
        """
        rule = replace(config.chunking_rule(), prompt=config.encoder_prompts().passage)
        model = {
            "encoder": {
                **self.recipe["encoder"],
                "name": config.chunk_encoder_name,
                "fingerprint": config.chunk_encoder_fingerprint,
                "pooling": config.chunk_encoder_pooling,
                "normalize": config.chunk_encoder_normalize,
                "hidden_size": config.chunk_hidden_size,
            },
            "chunking": chunking_recipe(rule, splitter),
        }
        differences = recipe_differences(self.recipe, model)
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
            folder_path=local_path(self.path),
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
