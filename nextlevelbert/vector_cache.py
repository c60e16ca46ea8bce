"""Chunk vectors on disk, found again by encoder and token ids, so that no chunk is encoded twice.

SQLite provides the difficult parts: several processes at once, and whole transactions only, even if
a process is killed.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .databases import named_errors, open_database, transaction
from .models.chunking import ChunkingRule
from .models.files import local_path

if TYPE_CHECKING:
    import torch
    from tqdm.auto import tqdm

    from .models.chunk_encoder import ChunkEncoder

Item = TypeVar("Item")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL);
"""
_REMEDY = (
    "Make room on its disk, or change its permissions. If it is damaged, delete this file and those"
    " that begin with its name; its vectors are then computed again."
)
_CHUNKS_PER_WRITE = 1_024  # little of a long document is lost when a process is killed


class VectorCache:
    """Stores vectors by their keys in a folder, which grows up to a size, or until you delete it.

    Several processes can use one folder. An object can be used only in the thread that made it, so
    make one in each thread.

    Args:
        folder: folder of the database, which is created if it does not exist. It must be on a disk
            of this machine, not on a network drive.
        most_vectors: number of vectors at which half of them, drawn at random, are deleted
            (default: no limit).
        name: name of the database in the folder.

    Raises:
        DatabaseError: the database is damaged, or cannot be opened or written.
    """

    def __init__(
        self,
        folder: str | Path,
        most_vectors: int | None = None,
        *,
        name: str = "vectors.sqlite3",
    ) -> None:
        folder = local_path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / name
        self._most_vectors = most_vectors
        with named_errors(self._path, _REMEDY):
            self._database = open_database(self._path, _SCHEMA)

    def read(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """Reads the vectors ``[D]`` float32 of those keys that are in the cache."""
        vectors = {}
        query = "SELECT vector FROM vectors WHERE key = ?"
        with named_errors(self._path, _REMEDY):
            for key in set(keys):
                for (vector,) in self._database.execute(query, [key]):
                    vectors[key] = np.frombuffer(vector, "<f4")
        return vectors

    def write(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Adds the vectors ``[N, D]`` of N keys in one transaction; existing vectors stay."""
        rows = [vector.tobytes() for vector in vectors.astype("<f4")]
        with named_errors(self._path, _REMEDY), transaction(self._database):
            self._database.executemany(
                "INSERT OR IGNORE INTO vectors VALUES (?, ?)", zip(keys, rows, strict=True)
            )
            [(count,)] = self._database.execute("SELECT count(*) FROM vectors")
            if self._most_vectors is not None and count > self._most_vectors:
                self._database.execute("DELETE FROM vectors WHERE random() % 2 = 0")

    def complete(
        self,
        keys: Sequence[bytes],
        items: Sequence[Item],
        encode: Callable[[list[Item]], np.ndarray],
        per_write: int,
        bar: tqdm | None = None,
    ) -> list[np.ndarray]:
        """Reads the vectors of N items, and encodes and adds those that are not in the cache.

        Args:
            keys: the key of each item.
            items: the items; items with the same key have the same vector.
            encode: function that encodes items.
            per_write: number of items that are encoded and added at once.
            bar: gets the number of items that need not be encoded.

        Returns:
            The vector of each item.
        """
        vectors = self.read(keys)
        new = {key: item for key, item in zip(keys, items, strict=True) if key not in vectors}
        if bar is not None:
            bar.update(len(keys) - len(new))
        new_keys = list(new)
        for start in range(0, len(new_keys), per_write):
            some = new_keys[start : start + per_write]
            rows = encode([new[key] for key in some])
            self.write(some, rows)
            vectors.update(zip(some, rows, strict=True))
        return [vectors[key] for key in keys]

    def close(self) -> None:
        """Closes the database; the object cannot be used any more."""
        self._database.close()


class CachedEncoder:
    """Encodes only those chunks whose vectors are not in a cache.

    Pass an object to a model's ``encode(chunk_encoder=…)``. New vectors are added to the cache.
    The chunks that share a micro-batch depend on the contents of the cache, so a vector can differ
    from the vector of an uncached run by 1e-6. The weights of the encoder are hashed when the
    object is made, and must not change while it is in use.

    Args:
        encoder: the chunk encoder of a model, `NextLevelBertModel.get_chunk_encoder`.
        cache: folder of a cache, or a cache that is already open.
    """

    def __init__(self, encoder: ChunkEncoder, cache: str | Path | VectorCache) -> None:
        from .models.identity import network_identity

        if not isinstance(cache, VectorCache):
            cache = VectorCache(cache)
        self.name = "a cached encoder"
        self.fingerprint = encoder.fingerprint()
        self.cached = encoder
        self._cache = cache
        self._head = network_identity(encoder, self.fingerprint)

    @property
    def encoder(self) -> CachedEncoder:
        """Returns this object, because callers use `LoadedChunkEncoder.encoder` to encode."""
        return self

    def cores_beside(self, threads: int) -> Callable[[], AbstractContextManager[object]]:
        """Returns the context of the encoder, see `ChunkEncoder.cores_beside`."""
        return self.cached.cores_beside(threads)

    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        tokens_per_batch: int | None = None,
        bar: tqdm | None = None,
    ) -> torch.Tensor:
        """Encodes chunks, with the arguments and the result of `ChunkEncoder.encode`.

        Returns:
            The chunk vectors, ``[N, D]`` float32 on the encoder's device.
        """
        import torch  # which takes longer to import than a search of stored vectors

        head = f"{self._head} {rule.head_ids} {rule.suffix_ids} {rule.unpooled} ".encode()
        chunks = [input_ids[start:end] for start, end in itertools.pairwise(boundaries)]
        keys = [hashlib.sha256(head + chunk.astype("<i4").tobytes()).digest() for chunk in chunks]

        def encode_new(new: list[np.ndarray]) -> np.ndarray:
            encoded = self.cached.encode(
                np.concatenate(new),
                boundaries=np.cumsum([0, *map(len, new)]),
                rule=rule,
                bar=bar,
                tokens_per_batch=tokens_per_batch,
            )
            return encoded.cpu().numpy()

        vectors = self._cache.complete(keys, chunks, encode_new, _CHUNKS_PER_WRITE, bar=bar)
        result = np.array(vectors, np.float32)
        result = result.reshape(len(keys), self.cached.hidden_size)  # also without chunks
        return torch.from_numpy(result).to(self.cached.device)
