"""A small corpus, and what the tests of contrastive learning do with models over it."""

from __future__ import annotations

import numpy as np
import torch

from nextlevelbert import ChunkingRule, Document, encode_corpus, load_chunk_encoder

SHORT = 5  # the book of one chunk


def corpus_of_books(toy_encoder_path, folder):
    """Eleven books of 16 to 80 chunks, no two alike in a book, and one that is too short for two segments."""
    source, draw = load_chunk_encoder(toy_encoder_path), np.random.default_rng(0)
    subjects = ["the whale swims", "a train departs", "bread is baked", "stars shine far"]
    books = [
        Document(
            f"book-{n}", " ".join(f"{subjects[draw.integers(4)]} {draw.integers(999)} times." for _ in range(size))
        )
        for n, size in enumerate(range(25, 109, 7))
    ]
    books[SHORT] = Document("short", "One line.")
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=512)
    corpus = encode_corpus(books, source, rule, folder, characters_per_part=5_000, progress=False)
    assert all(len(book.vectors.unique(dim=0)) == len(book.vectors) for book in corpus)
    return corpus


def close(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=1e-5)


def batch_of(dataset, collator, indices):
    return collator([dataset[index] for index in indices])


def whitened(model, vectors):
    """normalise(W (v - m)), in numpy and float64."""
    whitening = model.base_model.whitening
    mean, weight = whitening.mean.double().numpy(), whitening.weight.double().numpy()
    rows = np.einsum("ij,...j->...i", weight, vectors.double().numpy() - mean)
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=-1, keepdims=True)).float()


def unit(vectors):
    return vectors / vectors.norm(dim=-1, keepdim=True)


@torch.no_grad()
def vectors_of(model, vectors, **inputs):
    return model(inputs_embeds=vectors, **inputs).pooler_output
