"""Texts and batches for the tests of models over chunk vectors."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer
from transformers import BertConfig

from nextlevelbert import NextLevelBertConfig, VectorCorpus
from nextlevelbert.corpus.parts import chunk_table, corpus_schema, part_content
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, SEP

TEXTS = [
    "the whale and the sea " * 30,
    "one short text",
    "it was the best of times " * 9,
    "call me ishmael",
]

TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def toy_config(**overrides) -> NextLevelBertConfig:
    """A NextLevelBERT of two tiny encoders over MiniLM's vocabulary, 8 chunks in a window."""
    encoder = BertConfig(**TINY, max_position_embeddings=10, attention_probs_dropout_prob=0.0)
    chunk_encoder = BertConfig(**TINY, max_position_embeddings=64)
    fields = {
        "encoder_config": encoder.to_dict(),
        "chunk_encoder_config": chunk_encoder.to_dict(),
        "chunk_size": 8,
    }
    return NextLevelBertConfig(**{**fields, **overrides})


def packed_batch(hidden_size=32, length=10, rows=2):
    torch.manual_seed(5)
    special_ids = torch.full((rows, length), NOT_SPECIAL)
    special_ids[:, 0] = CLS
    special_ids[:, 4] = SEP
    special_ids[:, -1] = SEP
    positions = torch.zeros(rows, length, dtype=torch.bool)
    positions[:, 2] = positions[:, 6] = True
    special_ids[:, 2] = MASK
    vectors = torch.randn(rows, length, hidden_size)
    batch = {"inputs_embeds": vectors, "special_ids": special_ids}
    return {**batch, "mask_positions": positions, "labels": vectors.clone()}


def corpus_of(counts: list[int], folder: Path) -> VectorCorpus:
    """A corpus of documents with so many random vectors, each in a part of its own."""
    torch.manual_seed(0)
    encoder = {"name": "random", "hidden_size": 8}
    schema = corpus_schema({"encoder": encoder, "chunking": {"splitter": None}})
    for index, count in enumerate(counts):
        spans = np.zeros((count, 2), np.int64)
        table = chunk_table(schema, [index], [spans], torch.randn(count, 8).half().numpy())
        (folder / f"{index:06d}.parquet").write_bytes(part_content(table))
    return VectorCorpus(folder)


def close(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=1e-5)


def whitened(whitening, vectors):
    """normalise(W (v - m)), in numpy and float64."""
    mean = whitening.mean.double().numpy()
    weight = whitening.weight.double().numpy()
    rows = np.einsum("ij,...j->...i", weight, vectors.double().numpy() - mean)
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=-1, keepdims=True)).float()


def unit(vectors):
    return vectors / vectors.norm(dim=-1, keepdim=True)


@torch.no_grad()
def vectors_of(model, vectors, **inputs):
    return model(inputs_embeds=vectors, **inputs).pooler_output


def save_random_table(tokenizer: Any, size: int, folder: Path, rows: int = 30_522) -> None:
    """Saves a static encoder of sentence-transformers: a random table of token vectors,
    normalised."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    table = torch.randn(rows, size, generator=torch.Generator().manual_seed(0))
    SentenceTransformer(modules=[StaticEmbedding(backend, table), Normalize()], device="cpu").save(
        str(folder)
    )


def rows_of(dataset: Any) -> list:
    """Returns every row of a data set, in order."""
    return [dataset[index] for index in range(len(dataset))]


def ranking_loss(predictions: torch.Tensor, candidates: torch.Tensor, temperature: float):
    """Finds candidate i for prediction i by cosine, as sentence-transformers trains it."""
    columns = [{"sentence_embedding": predictions}, {"sentence_embedding": candidates}]
    loss = MultipleNegativesRankingLoss(torch.nn.Identity(), scale=1 / temperature)
    return loss(columns, labels=None)
