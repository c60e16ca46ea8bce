"""Chunk vectors on disk, found again by encoder and token ids, so that no chunk is encoded twice.

Notation for shapes: N chunks, D hidden size.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from .chunk_encoder import ChunkEncoder
from .chunking import ChunkingRule
from .vector_database import PAGE_BYTES, TRANSACTION_BYTES, VectorDatabase

FILE_NAME = "vectors.sqlite3"

_KEY_BYTES = 32
_KEYS_PER_QUERY = 500
_MIN_PAGES = 64
_ROW_OVERHEAD = 64  # key, check sum, row id and SQLite's own header: 52 to 60 bytes

# Least recently used goes first, without a time stamp that every read would have to write: the row id is the stamp.
# Ids only rise, so the smallest was placed longest ago, and eviction takes rows from that end, which empties whole
# pages. The upper bits of an id are the generation, a counter that rises whenever `write` has been given 1/8 of
# max_bytes. A read places a row anew only if it is of an older generation. So without new vectors, reads of the
# current generation write nothing; a row moves at most once per generation, however often it is read; and the order
# of eviction is right to 1/8 of the cache. No clock is needed, so none can be wrong.
_GENERATIONS = 8
_GENERATION_SHIFT = 32

# New vectors are written after so many chunks, so that little of a long document is lost when a process is killed.
_CHUNKS_PER_WRITE = 1_024


class VectorCache:
    """Vectors on disk, found again by their keys (for chunks: `chunk_keys`). A full cache drops its oldest vectors.

    Several processes may use one folder at once; each opens its own `VectorCache`, and so does each thread.
    A process may be killed at any time: all that a finished `write` wrote is there, and nothing is half-written.
    (A power cut can lose the last writes, but leaves whole ones.) Not for a network file system.

    Args:
        path: a folder on a local disk; made if it is missing. Holds `vectors.sqlite3` and, beside it, SQLite's log.
        max_bytes: most bytes of `vectors.sqlite3`; the least recently used vectors make room. The log comes on top,
            usually less than 64 MiB. A larger file is made smaller, so processes that share a folder should give the
            same number.

    Raises:
        ValueError: if `max_bytes` is below 1 MiB, or the folder holds something that is not a cache of this
            version, or a damaged one.
        OSError: if the folder cannot be made or written to.

    Example:
        >>> import hashlib, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> keys = [hashlib.sha256(text).digest() for text in (b"one", b"two")]
        >>> with VectorCache(folder.name) as cache:
        ...     cache.write(keys[:1], np.ones((1, 2), np.float32))
        ...     found, vectors = cache.read(keys, hidden_size=2)
        >>> found.tolist(), vectors.tolist()
        ([True, False], [[1.0, 1.0], [0.0, 0.0]])
        >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, max_bytes: int = 8 * 2**30) -> None:
        self.path = Path(path)
        self.file = self.path / FILE_NAME
        self.max_bytes = operator.index(max_bytes)
        self._max_pages = self.max_bytes // PAGE_BYTES
        if self._max_pages < _MIN_PAGES:
            raise ValueError(
                f"max_bytes must be at least {_MIN_PAGES * PAGE_BYTES} (1 MiB), got {max_bytes}; "
                "a million vectors of 384 values take 1.7 GB."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise ValueError(
                f"A vector cache is a folder, but {str(self.path)!r} is a file; give a folder."
            ) from error
        self._database = VectorDatabase(self.file, self._max_pages)

    def read(self, keys: Sequence[bytes], hidden_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Looks up vectors; a key may occur several times.

        Args:
            keys: N keys of 32 bytes.
            hidden_size: D, values in a vector.

        Returns:
            ``[N]`` bool, which keys were found; ``[N, D]`` float32, their vectors with the bits that were written,
            zero where nothing was found.

        Raises:
            ValueError: for a key that is not 32 bytes, one that was written with another D, or a damaged cache.
            OSError: if the cache cannot be read, or cannot note that rows were used.
        """
        _check_keys(keys)
        number: dict[bytes, int] = {}
        places = [number.setdefault(key, len(number)) for key in keys]
        distinct = list(number)
        found = np.zeros(len(distinct), bool)
        vectors = np.zeros((len(distinct), hidden_size), "<f4")
        stale: list[bytes] = []
        with self._database.explained():
            generation = self._database.value("SELECT generation FROM state")
            for start in range(0, len(distinct), _KEYS_PER_QUERY):
                some = distinct[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(some))
                query = f"SELECT key, id, crc, vector FROM vectors WHERE key IN ({marks})"
                for key, row, crc, vector in self._database.execute(query, some).fetchall():
                    self._check_row(key, crc, vector, hidden_size)
                    found[number[key]] = True
                    vectors[number[key]] = np.frombuffer(vector, "<f4")
                    if row >> _GENERATION_SHIFT < generation:
                        stale.append(key)
        if stale:
            self._put(stale, vectors[[number[key] for key in stale]], are_new=False)
        vectors = vectors.astype(np.float32, copy=False)  # the machine's own byte order
        return found[places], vectors[places]

    def write(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Stores vectors; one stored before under the same key is replaced.

        Up to 4 MiB (and 1/8 of `max_bytes`) are one transaction; more are several, so that the log stays small.

        Args:
            keys: N keys of 32 bytes.
            vectors: ``[N, D]`` float32.

        Raises:
            ValueError: for a key that is not 32 bytes, vectors of another shape or type, vectors too large for
                `max_bytes`, or a damaged cache.
            OSError: if the disk is full or read-only, or another process holds the cache for 30 seconds.
        """
        _check_keys(keys)
        if not isinstance(vectors, np.ndarray) or vectors.dtype != np.float32 or vectors.shape[:-1] != (len(keys),):
            got = f"{vectors.dtype} {vectors.shape}" if isinstance(vectors, np.ndarray) else type(vectors).__name__
            raise ValueError(f"vectors must be a NumPy array [{len(keys)}, D] of float32, one row per key, got {got}.")
        needed = 8 * _pages(1, vectors.shape[1])
        if needed > self._max_pages:
            raise ValueError(
                f"max_bytes {self.max_bytes} is too small for vectors of {vectors.shape[1]} values; "
                f"give at least {needed * PAGE_BYTES}."
            )
        self._put(list(keys), vectors, are_new=True)

    def close(self) -> None:
        """Closes the file; the cache cannot be used after it."""
        self._database.close()

    def __enter__(self) -> VectorCache:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _put(self, keys: list[bytes], vectors: np.ndarray, are_new: bool) -> None:
        """Puts rows after all others, in transactions of bounded size, after making room for them."""
        size = vectors.shape[1]
        most = min(TRANSACTION_BYTES, self.max_bytes // _GENERATIONS) // (4 * size + _ROW_OVERHEAD) or 1
        for start in range(0, len(keys), most):
            some = keys[start : start + most]
            data = [vector.tobytes() for vector in vectors[start : start + most].astype("<f4", copy=False)]
            with self._database.transaction():
                generation, filled = self._database.execute("SELECT generation, filled FROM state").fetchone()
                if are_new:
                    filled += len(some) * (4 * size + 2 * _ROW_OVERHEAD)  # twice: once more for the key's index
                    if filled >= self.max_bytes // _GENERATIONS:
                        generation, filled = generation + 1, 0
                    self._database.execute("UPDATE state SET generation = ?, filled = ?", (generation, filled))
                else:  # first, so that they free their own room
                    self._database.executemany("DELETE FROM vectors WHERE key = ?", [(key,) for key in some])
                self._database.make_room(_pages(len(some), size))
                last = self._database.value("SELECT coalesce(max(id), 0) FROM vectors")
                first = max(last + 1, generation << _GENERATION_SHIFT)
                crcs = map(_checksum, some, data)
                rows = zip(range(first, first + len(some)), some, crcs, data, strict=True)
                self._database.executemany("REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)
                self._database.make_room(0)  # in case the index grew more than estimated
            self._database.trim_log()

    def _check_row(self, key: bytes, crc: int, vector: bytes, hidden_size: int) -> None:
        if _checksum(key, vector) != crc:
            raise self._database.damaged("a vector is not what was written")
        if len(vector) != 4 * hidden_size:
            raise ValueError(
                f"hidden_size is {hidden_size}, but a vector of {len(vector) // 4} values is stored under the same "
                f"key in {str(self.file)!r}; `encoder` in chunk_keys must be different for different encoders."
            )


def chunk_keys(
    encoder: str,
    input_ids: np.ndarray,
    boundaries: np.ndarray,
    prefix_ids: Sequence[int],
    suffix_ids: Sequence[int],
) -> list[bytes]:
    """Keys of chunks: equal if encoder, special tokens and token ids are equal, wherever the chunk is.

    A key is SHA-256(head + ids), ids as little-endian int32. The head is the SHA-256 of encoder, prefix and
    suffix, each with its length before it, so no two inputs give the same bytes.

    Args:
        encoder: all else that a vector depends on (hash of the weights, dtype, pooling, normalisation), as a text.
        input_ids: ``[T]`` ids of all chunks, without special tokens.
        boundaries: ``[N + 1]``; chunk k is ``input_ids[boundaries[k]:boundaries[k + 1]]``.
        prefix_ids, suffix_ids: the special tokens put around every chunk.

    Returns:
        N keys of 32 bytes.

    Raises:
        ValueError: for ids that are not int32 numbers ``[T]``, or boundaries that fall or leave 0 to T.
    """
    ids = np.asarray(input_ids)
    wide = ids.dtype != np.int32
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or (wide and len(ids) and not _fits_int32(ids)):
        raise ValueError(f"input_ids must be integers [T] from -2**31 to 2**31 - 1, got {ids.dtype} {ids.shape}.")
    cuts = np.asarray(boundaries)
    if cuts.ndim != 1 or len(cuts) == 0 or cuts.dtype.kind not in "iu":
        raise ValueError(f"boundaries must be integers [N + 1], at least one, got {cuts.dtype} {cuts.shape}.")
    if cuts.min() < 0 or cuts.max() > len(ids) or (cuts[1:] < cuts[:-1]).any():
        raise ValueError(
            f"boundaries must rise within 0 to {len(ids)}, the number of input_ids, got {cuts.min()} to {cuts.max()}"
            f"{' with a fall between' if (cuts[1:] < cuts[:-1]).any() else ''}."
        )
    head = hashlib.sha256()
    for part in (encoder.encode(), np.asarray(prefix_ids, "<i8").tobytes(), np.asarray(suffix_ids, "<i8").tobytes()):
        head.update(len(part).to_bytes(8, "little") + part)
    start, flat, sha256 = head.digest(), ids.astype("<i4").tobytes(), hashlib.sha256
    ends = (cuts.astype(np.int64) * 4).tolist()
    return [sha256(start + flat[a:b]).digest() for a, b in itertools.pairwise(ends)]


def _checksum(key: bytes, vector: bytes) -> int:
    # SQLite guarantees whole transactions, but does not notice bits of its file that change afterwards: it has check
    # sums in its log only. A wrong vector would go unseen, so each row gets one, for 1 microsecond.
    return zlib.crc32(vector, zlib.crc32(key))


def _check_keys(keys: Sequence[bytes]) -> None:
    for index, key in enumerate(keys):
        if type(key) is not bytes or len(key) != _KEY_BYTES:
            got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise ValueError(f"A key is {_KEY_BYTES} bytes, as chunk_keys makes them, but key {index} is {got}.")


def _pages(rows: int, hidden_size: int) -> int:
    """An upper bound on the pages that new rows need: their own, split index pages, and some to spare."""
    row = 4 * hidden_size + _ROW_OVERHEAD
    rows_per_page = PAGE_BYTES // row
    own = -(-rows // rows_per_page) if rows_per_page else rows * (row // PAGE_BYTES + 2)
    return own + rows // 64 + 4


def _fits_int32(ids: np.ndarray) -> bool:
    limits = np.iinfo(np.int32)
    return limits.min <= int(ids.min()) and int(ids.max()) <= limits.max


@contextmanager
def opened(cache: str | Path | VectorCache | None) -> Iterator[VectorCache | None]:
    """A cache opened from a folder and closed at the end; a given cache, left open; or None."""
    if cache is None or isinstance(cache, VectorCache):
        yield cache
    else:
        with VectorCache(cache) as own:
            yield own


class CachedEncoder:
    """`ChunkEncoder.encode` that looks in a cache first and adds to it what was not there.

    A chunk that occurs twice is encoded once. The chunks that share a micro-batch depend on what the cache holds, so a
    vector can differ from that of an uncached run in the last bits (1e-6 in float32).

    Args:
        encoder: its weights are hashed here and must not change while this object is in use.
        cache: an open cache.
    """

    def __init__(self, encoder: ChunkEncoder, cache: VectorCache) -> None:
        self._encoder, self._cache, self._identity = encoder, cache, encoder.identity()

    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        tokens_per_batch: int | None = None,
        bar: tqdm | None = None,
    ) -> torch.Tensor:
        """Arguments and result as those of `ChunkEncoder.encode`: ``[N, D]`` float32 on the encoder's device."""
        keys = chunk_keys(self._identity, input_ids, boundaries, rule.prefix_ids, rule.suffix_ids)
        found, vectors = self._cache.read(keys, self._encoder.hidden_size)
        first: dict[bytes, int] = {}
        for index in np.flatnonzero(~found):
            first.setdefault(keys[index], int(index))
        new = np.fromiter(first.values(), np.int64, len(first))
        if bar is not None:
            bar.update(len(keys) - len(new))
        device_type = self._encoder.device.type
        for start in range(0, len(new), _CHUNKS_PER_WRITE):
            part = new[start : start + _CHUNKS_PER_WRITE]
            texts = [input_ids[boundaries[index] : boundaries[index + 1]] for index in part]
            cuts = np.cumsum([0] + [len(text) for text in texts])
            with torch.autocast(device_type, enabled=False):  # what is stored must not depend on the first caller
                encoded = self._encoder.encode(np.concatenate(texts), cuts, rule, tokens_per_batch, bar)
            vectors[part] = encoded.cpu().numpy()
            sound = part[np.isfinite(vectors[part]).all(axis=1)]  # a fault must not stay after its cause is gone
            self._cache.write([keys[index] for index in sound], vectors[sound])
        for index in np.flatnonzero(~found):
            vectors[index] = vectors[first[keys[index]]]
        return torch.from_numpy(vectors).to(self._encoder.device)
