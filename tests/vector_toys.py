"""Texts and batches for the tests of models over chunk vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer

from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, SEP

TEXTS = ["the whale and the sea " * 30, "one short text", "it was the best of times " * 9, "call me ishmael"]


def packed_batch(hidden_size=32, length=10, rows=2):
    torch.manual_seed(5)
    special_ids = torch.full((rows, length), NOT_SPECIAL)
    special_ids[:, 0], special_ids[:, 4], special_ids[:, -1] = CLS, SEP, SEP
    positions = torch.zeros(rows, length, dtype=torch.bool)
    positions[:, 2] = positions[:, 6] = True
    special_ids[:, 2] = MASK
    vectors = torch.randn(rows, length, hidden_size)
    return {
        "inputs_embeds": vectors,
        "special_ids": special_ids,
        "mask_positions": positions,
        "labels": vectors.clone(),
    }


def close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def save_random_table(tokenizer: Any, size: int, folder: Path) -> None:
    """Saves a static encoder of sentence-transformers: a random table of token vectors, normalised."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    table = torch.randn(30_522, size, generator=torch.Generator().manual_seed(0))
    SentenceTransformer(modules=[StaticEmbedding(backend, table), Normalize()], device="cpu").save(str(folder))
