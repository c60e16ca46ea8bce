"""Chunk vectors on disk, found again by encoder and token ids, so that no chunk is encoded twice.

SQLite brings what would be hard to write: several processes at once, and whole transactions only,
whenever one is killed. Its log needs memory that processes share, so the folder has to be on a disk
of this machine, not a network's.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from .models.chunking import ChunkingRule

_KEYS_PER_QUERY = 500
_CHUNKS_PER_WRITE = 1_024  # little of a long document is lost when a process is killed


class VectorCache:
    """Vectors by their keys in a folder, which grows until it is deleted. Every thread opens its
    own.
    """

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(Path(folder) / "vectors.sqlite3", timeout=30)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)"
            " WITHOUT ROWID"
        )

    def read(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """The vectors ``[D]`` float32 of those keys that are there."""
        distinct = list(set(keys))
        rows = []
        for start in range(0, len(distinct), _KEYS_PER_QUERY):
            some = distinct[start : start + _KEYS_PER_QUERY]
            query = f"SELECT key, vector FROM vectors WHERE key IN ({','.join('?' * len(some))})"
            rows += self._database.execute(query, some).fetchall()
        return {key: np.frombuffer(vector, "<f4") for key, vector in rows}

    def write(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Adds the vectors ``[N, D]`` of N keys in one transaction; what is there stays."""
        rows = (
            (key, vector.tobytes()) for key, vector in zip(keys, vectors.astype("<f4"), strict=True)
        )
        with self._database:
            self._database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)


class CachedEncoder:
    """A chunk encoder that looks in a cache first and adds to it what was not there:
    ``encode(chunk_encoder=…)``.

    The chunks that share a micro-batch depend on what the cache holds, so a vector can differ from
    that of an uncached run by 1e-6. The encoder's weights are hashed here and must not change while
    this object is in use.
    """

    def __init__(self, encoder: Any, cache: str | Path | VectorCache) -> None:
        self.encoder = encoder
        self.cache = cache if isinstance(cache, VectorCache) else VectorCache(cache)
        self._head = f"{encoder.fingerprint()} {encoder.precision}"

    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        tokens_per_batch: int | None = None,
        bar: tqdm | None = None,
    ) -> torch.Tensor:
        """Arguments and result as those of `ChunkEncoder.encode`: ``[N, D]`` float32 on the
        encoder's device.
        """
        head = f"{self._head} {rule.prefix_ids} {rule.suffix_ids} ".encode()
        chunks = [input_ids[start:end] for start, end in itertools.pairwise(boundaries)]
        keys = [hashlib.sha256(head + chunk.astype("<i4").tobytes()).digest() for chunk in chunks]
        vectors = self.cache.read(keys)
        new = {key: chunk for key, chunk in zip(keys, chunks, strict=True) if key not in vectors}
        if bar is not None:
            bar.update(len(keys) - len(new))
        for start in range(0, len(new), _CHUNKS_PER_WRITE):
            part = list(new.items())[start : start + _CHUNKS_PER_WRITE]
            texts = [text for _, text in part]
            cuts = np.cumsum([0] + [len(text) for text in texts])
            encoded = (
                self.encoder.encode(np.concatenate(texts), cuts, rule, tokens_per_batch, bar)
                .cpu()
                .numpy()
            )
            self.cache.write([key for key, _ in part], encoded)
            vectors |= {key: vector for (key, _), vector in zip(part, encoded, strict=True)}
        rows = np.array([vectors[key] for key in keys], np.float32).reshape(
            len(keys), self.encoder.hidden_size
        )
        return torch.from_numpy(rows).to(self.encoder.device)
