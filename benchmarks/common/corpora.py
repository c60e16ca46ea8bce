"""Corpora of chunk vectors that benchmarks read: random ones, and documents encoded once and kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from nextlevelbert import ChunkingRule, Document, VectorCorpus, encode_corpus, load_chunk_encoder
from nextlevelbert.models.chunk_encoder import ChunkEncoder
from nextlevelbert.models.chunking import ChunkingMode
from nextlevelbert.models.encoder_loading import LoadedChunkEncoder


class _RandomVectors(ChunkEncoder):
    """In place of the encoder where its work is not measured."""

    def encode(self, input_ids: np.ndarray, boundaries: np.ndarray, *args: object) -> torch.Tensor:
        return torch.randn(len(boundaries) - 1, self.hidden_size)


def random_corpus(encoder: str, folder: str) -> VectorCorpus:
    """100 documents of 1,000 random vectors of the encoder's size."""
    source = load_chunk_encoder(encoder)
    source.encoder = _RandomVectors(source.encoder.model.config)
    documents = (Document(f"document-{number}", "word " * 14_000) for number in range(100))
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)
    return encode_corpus(documents, source, rule, folder, progress=False)


def kept_corpus(
    documents: Iterable[Document], source: LoadedChunkEncoder, chunk_size: int, chunking: ChunkingMode, folder: Path
) -> VectorCorpus:
    """Documents as a corpus of chunk vectors, encoded in bfloat16 where the folder does not hold it yet."""
    manifest = folder / "manifest.json"
    if not (manifest.exists() and json.loads(manifest.read_text())["complete"]):
        rule = ChunkingRule.from_tokenizer(source.tokenizer, chunk_size, chunking, source.max_chunk_size)
        encode_corpus(documents, source, rule, folder, dtype=torch.bfloat16, characters_per_shard=1_000_000)
    return VectorCorpus(folder)
