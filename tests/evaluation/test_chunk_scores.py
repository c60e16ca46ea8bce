"""Similarity by chunks: against plain NumPy over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nextlevelbert import chunk_similarity

LENGTHS = ([1, 2, 7, 3, 1, 40], [5, 1, 64, 2, 13, 1, 30, 3])


def texts(seed: int, lengths: list[int], size: int = 6) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(length, size)) * draw.uniform(0.1, 9) for length in lengths]


def cosines_of(query: np.ndarray, document: np.ndarray) -> np.ndarray:
    lengths = np.outer(np.linalg.norm(query, axis=1), np.linalg.norm(document, axis=1))
    return query @ document.T / lengths


@pytest.mark.parametrize(
    ("score", "top_k"), [("nearest", 1), ("nearest", 3), ("nearest", 10_000), ("maxsim", 3)]
)
def test_a_score_is_the_mean_of_the_highest_cosines(score, top_k):
    """Of all pairs of chunks, or of each chunk of the query."""
    queries = texts(0, LENGTHS[0])
    documents = texts(1, LENGTHS[1])
    expected = np.zeros((len(queries), len(documents)))
    for row, column in np.ndindex(expected.shape):
        highest = cosines_of(queries[row], documents[column]).max(axis=1)
        if score == "nearest":
            cosines = cosines_of(queries[row], documents[column])
            highest = np.sort(cosines, axis=None)[-top_k:]
        expected[row, column] = highest.mean()
    scores = chunk_similarity(queries, documents, score, top_k=top_k)
    assert scores.dtype == torch.float32
    np.testing.assert_allclose(scores.numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("score", ["nearest", "maxsim"])
def test_equal_texts_tie_wherever_they_stand(score):
    [one] = texts(6, [9], 384)
    documents = [one, *texts(7, [12] * 20, 384), one, *texts(8, [3] * 9, 384), one]
    scores = chunk_similarity([one[:4]], documents, score)[0]
    assert scores[0] == scores[21] == scores[-1] == scores.max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_zero_vector_is_like_nothing(dtype):
    one = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=dtype)
    other = torch.tensor([[3.0, 4.0], [-4.0, 3.0]])
    assert chunk_similarity([one], [other], top_k=4).tolist() == [[0.25]]
    assert chunk_similarity([one], [other], "maxsim").tolist() == [[0.5]]


def test_what_cannot_be_compared():
    with pytest.raises(ValueError, match="no chunks"):
        chunk_similarity(texts(0, [3]), [np.zeros((0, 6))])
    with pytest.raises(ValueError, match="'best'"):
        chunk_similarity(texts(0, [3]), texts(0, [3]), "best")
