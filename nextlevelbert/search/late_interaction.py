"""Compares a question with passages word by word, by the token vectors of a static encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..data.words import search_words
from ..models.tokenizing import private_tokenizer
from .encoders.files import unit
from .encoders.static import StaticEncoder

if TYPE_CHECKING:
    from .encoders.torch import TorchEncoder


def late_interaction(
    words: Sequence[str],
    weights: np.ndarray,
    texts: Sequence[str],
    encoder: StaticEncoder | TorchEncoder,
) -> np.ndarray:
    """Measures how near passages come to each word of a question.

    For each token of a word, the nearest token of the passage counts, as in ColBERT (Khattab and
    Zaharia 2020, section 3.3); here a token has the same vector in all contexts.

    Args:
        words: the words of the question, from `search_words`.
        weights: the weight of each word, 0 or more.
        texts: the n passages.
        encoder: an encoder that has token vectors.

    Returns:
        The weighted means of the largest cosines, each 0 or more, ``[n]``.
    """
    normalized = [" ".join(search_words(text)) for text in texts]
    terms = [*words, *normalized]
    documents = private_tokenizer(encoder.tokenizer)(terms)
    ids = [document.input_ids for document in documents]
    tokens, rows = np.unique(np.concatenate(ids), return_inverse=True)
    is_known = tokens != encoder.tokenizer.unk_token_id
    vectors = unit(encoder.token_vectors(tokens))
    vectors *= is_known[:, None]

    counts = [0, *map(len, documents)]
    ends = np.cumsum(counts)
    question, *passages = np.split(rows, ends[len(words) : -1])
    weights = np.repeat(weights, counts[1 : len(words) + 1])
    weights = weights * is_known[question]  # [q]
    cosines = vectors[question] @ vectors.T  # [q, t]

    largest = [cosines[:, passage].max(axis=1, initial=0) for passage in passages]
    return np.stack(largest) @ weights / max(weights.sum(), 1e-9)
