"""Encodes only those chunks whose vectors are not in a cache."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from .chunk_encoder import ChunkEncoder
from .chunking import ChunkingRule
from .vector_cache import VectorCache

# New vectors go to the disk after so many, so that a kill loses little of a long document.
_CHUNKS_PER_WRITE = 1_024


def chunk_keys(
    encoder: str,
    input_ids: np.ndarray,
    boundaries: np.ndarray,
    prefix_ids: Sequence[int],
    suffix_ids: Sequence[int],
) -> list[bytes]:
    """Keys of chunks: equal where encoder, special tokens and token ids are equal, wherever a chunk stands.

    A key is SHA-256(head + ids), ids as little-endian int32. The head is the SHA-256 of encoder, prefix and
    suffix, each with its length before it, so no two inputs give the same bytes.

    Args:
        encoder: everything else that a vector depends on (hash of the weights, dtype, pooling, normalisation).
        input_ids: ``[T]`` ids of all chunks, no special tokens.
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


def _fits_int32(ids: np.ndarray) -> bool:
    limits = np.iinfo(np.int32)
    return limits.min <= int(ids.min()) and int(ids.max()) <= limits.max


@contextmanager
def opened(cache: str | Path | VectorCache | None) -> Iterator[VectorCache | None]:
    """A cache from a folder, closed at the end; one that is open already, left open; or none."""
    if cache is None or isinstance(cache, VectorCache):
        yield cache
    else:
        with VectorCache(cache) as own:
            yield own


class CachedEncoder:
    """`ChunkEncoder.encode` that looks into a cache first and puts in what was not there.

    A chunk that occurs twice is encoded once. Which chunks share a micro-batch depends on what is in the
    cache, so a vector can differ from that of an uncached run in the last bits (1e-6 in float32).

    Args:
        encoder: its weights are hashed here, and must not change while this object is used.
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
            with torch.autocast(device_type, enabled=False):  # what is stored must not depend on who asked first
                encoded = self._encoder.encode(np.concatenate(texts), cuts, rule, tokens_per_batch, bar)
            vectors[part] = encoded.cpu().numpy()
            sound = part[np.isfinite(vectors[part]).all(axis=1)]  # a fault must not outlive its cause
            self._cache.write([keys[index] for index in sound], vectors[sound])
        for index in np.flatnonzero(~found):
            vectors[index] = vectors[first[keys[index]]]
        return torch.from_numpy(vectors).to(self._encoder.device)
