"""Encodes only the chunks whose vectors are not in a cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from .chunk_encoder import ChunkEncoder
from .chunking import ChunkingRule
from .vector_cache import VectorCache, chunk_keys

# New vectors are written after so many chunks, so that little of a long document is lost when a process is killed.
_CHUNKS_PER_WRITE = 1_024


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
