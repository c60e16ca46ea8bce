"""Similarity by chunks: against plain NumPy over all pairs, and against the MaxSim of sentence-transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers.util import mean_maxsim

from nextlevelbert import chunk_similarity
from nextlevelbert.evaluation import chunk_scores as module

LENGTHS = ([1, 2, 7, 3, 1, 40], [5, 1, 64, 2, 13, 1, 30, 3])


def texts(seed: int, lengths: list[int], size: int = 6) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(length, size)) * draw.uniform(0.1, 9) for length in lengths]


def by_hand(queries: list[np.ndarray], documents: list[np.ndarray], top_k: int) -> np.ndarray:
    """The mean of the k highest cosines of all pairs, with k = 0 the mean of the highest of each row."""
    scores = np.zeros((len(queries), len(documents)))
    for row, query in enumerate(queries):
        for column, document in enumerate(documents):
            cosines = (query / np.linalg.norm(query, axis=1)[:, None]) @ (
                document / np.linalg.norm(document, axis=1)[:, None]
            ).T
            scores[row, column] = np.sort(cosines, axis=None)[-top_k:].mean() if top_k else cosines.max(axis=1).mean()
    return scores


@pytest.mark.parametrize("top_k", [1, 3, 8, 10_000])
@pytest.mark.parametrize(("chunks", "cosines"), [(2**11, 2**22), (16, 300), (1, 1)])
def test_nearest_chunks_are_those_of_all_pairs(top_k, chunks, cosines, monkeypatch):
    """In one block, in many, and one row of one pair of texts at a time."""
    monkeypatch.setattr(module, "_CHUNKS_PER_BLOCK", chunks)
    monkeypatch.setattr(module, "_COSINES_PER_PASS", cosines)
    queries, documents = texts(0, LENGTHS[0]), texts(1, LENGTHS[1])
    found = chunk_similarity(queries, documents, top_k=top_k)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), by_hand(queries, documents, top_k), atol=1e-6)
    turned = chunk_similarity(documents, queries, top_k=top_k)
    torch.testing.assert_close(turned.T, found, atol=2e-6, rtol=0)


@pytest.mark.parametrize(("chunks", "cosines"), [(2**11, 2**22), (16, 300), (1, 1)])
def test_maxsim_is_that_of_sentence_transformers(chunks, cosines, monkeypatch):
    monkeypatch.setattr(module, "_CHUNKS_PER_BLOCK", chunks)
    monkeypatch.setattr(module, "_COSINES_PER_PASS", cosines)
    queries, documents = texts(2, LENGTHS[0]), texts(3, LENGTHS[1])
    found = chunk_similarity(queries, documents, "maxsim")
    one, other = (
        [torch.nn.functional.normalize(torch.from_numpy(text).float(), dim=1) for text in side]
        for side in (queries, documents)
    )
    torch.testing.assert_close(found, mean_maxsim(one, other), atol=2e-6, rtol=0)
    np.testing.assert_allclose(found.numpy(), by_hand(queries, documents, 0), atol=1e-6)


def test_the_document_score_is_added():
    queries, documents = texts(4, LENGTHS[0]), texts(5, LENGTHS[1])
    alone = chunk_similarity(queries, documents)
    means = [torch.stack([torch.from_numpy(text).mean(dim=0) for text in side]) for side in (queries, documents)]
    cosines = torch.nn.functional.cosine_similarity(means[0][:, None], means[1][None], dim=2).float()
    both = chunk_similarity(queries, documents, document_weight=0.5)
    torch.testing.assert_close(both, alone + 0.5 * cosines, atol=2e-6, rtol=0)
    given = chunk_similarity(
        queries, documents, document_weight=0.5, query_vectors=means[0], document_vectors=means[1].numpy()
    )
    assert torch.equal(given, both)


@pytest.mark.parametrize("score", ["nearest", "maxsim"])
def test_equal_texts_tie_wherever_they_stand(score, monkeypatch):
    monkeypatch.setattr(module, "_CHUNKS_PER_BLOCK", 50)
    [one] = texts(6, [9], 384)
    documents = [one, *texts(7, [12] * 20, 384), one, *texts(8, [3] * 9, 384), one]
    found = chunk_similarity([one[:4]], documents, score)[0]
    assert found[0] == found[21] == found[-1] == found.max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_vectors_of_any_precision_and_length(dtype):
    """Zero vectors are like nothing; the length of a vector does not matter, however long or short."""
    one = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=dtype)
    far = torch.tensor([[3.0, 4.0], [-4.0, 3.0]]) * torch.tensor([[1e30], [1e-30]])
    assert chunk_similarity([one], [far], top_k=4).tolist() == [[0.25]]
    assert chunk_similarity([one], [far], "maxsim").tolist() == [[0.5]]


def test_what_cannot_be_compared_is_named():
    good = texts(0, [3, 2])
    holed = [*good, np.full((2, 6), np.nan)]
    for arguments, message in [
        (([], good), "queries is empty"),
        ((good, []), "documents is empty"),
        ((good, [*good, np.zeros((0, 6))]), r"documents\[2\] has no chunks"),
        ((holed, good), r"queries\[2\] contains NaN or infinity"),
        ((good, [np.zeros(6)]), r"documents\[0\] must be chunk vectors \[n, D\] of floating numbers, got .* \[6\]"),
        ((good, [np.zeros((2, 6), np.int64)]), "got torch.int64"),
        ((good, [*good, np.zeros((2, 5))]), r"got 6 in documents\[0\] and 5 in documents\[2\]"),
        ((good, texts(0, [3], 5)), "the same size, got 6 and 5"),
        ((good, good, "best"), "one of nearest, maxsim, got 'best'"),
        ((good, good, "nearest", 0), "top_k must be 1 or more, got 0"),
        ((good, good, "nearest", 3, 1.0, np.zeros((2, 3))), "both query_vectors and document_vectors"),
        ((good, good, "nearest", 3, 0.0, np.ones((2, 3)), np.ones((2, 3))), "document_weight other than 0"),
        ((good, good, "nearest", 3, 1.0, np.ones((2, 3)), np.ones((1, 3))), r"\[2, E\] for the documents, got"),
        ((good, good, "nearest", 3, 1.0, np.ones((2, 3)), np.full((2, 3), np.inf)), "contain NaN or infinity"),
    ]:
        with pytest.raises(ValueError, match=message):
            chunk_similarity(*arguments)


def test_memory_does_not_grow_with_the_number_of_pairs(monkeypatch):
    """The largest tensor of cosines in a pass, where all pairs at once would be 200 times as many."""
    monkeypatch.setattr(module, "_COSINES_PER_PASS", 5_000)
    monkeypatch.setattr(module, "_CHUNKS_PER_BLOCK", 100)
    largest, matmul = 0, torch.Tensor.__matmul__

    def watched(one, other):
        nonlocal largest
        product = matmul(one, other)
        largest = max(largest, product.numel())
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", watched)
    texts_ = texts(9, [40] * 20 + [200])
    chunk_similarity(texts_, texts_)
    assert 0 < largest <= 5_000
