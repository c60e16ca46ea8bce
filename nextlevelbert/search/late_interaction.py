"""Compares a question with passages word by word, by the token vectors of a static encoder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ..data.words import search_words
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
        words: the words of the question, from `search_words`; each once.
        weights: the weight of each word, 0 or more.
        texts: the n passages.
        encoder: an encoder that has token vectors.

    Returns:
        The weighted means of the largest cosines, each 0 or more, ``[n]``.
    """
    words_of_texts = [search_words(text) for text in texts]
    distinct = list(dict.fromkeys(chain(words, *words_of_texts)))  # those of the question first
    tokenizer = encoder.tokenizer
    ids = []
    for word in distinct:
        encoding = tokenizer.backend_tokenizer.encode(word, add_special_tokens=False)
        ids.append(encoding.ids or [tokenizer.unk_token_id])
    counts = np.array(list(map(len, ids)), np.int64)
    tokens = np.fromiter(chain.from_iterable(ids), np.int64)
    is_known = tokens != tokenizer.unk_token_id
    vectors = unit(encoder.token_vectors(tokens))
    vectors *= is_known[:, None]

    weights = np.repeat(weights, counts[: len(words)])
    weights = weights * is_known[: len(weights)]  # [q]
    cosines = vectors[: len(weights)] @ vectors.T
    of_words = np.maximum.reduceat(cosines, np.cumsum(counts) - counts, axis=1)  # [q, distinct]
    row_of = {word: row for row, word in enumerate(distinct)}
    largest = []
    for words_of_text in words_of_texts:
        rows = [row_of[word] for word in words_of_text]
        largest.append(of_words[:, rows].max(axis=1, initial=0))
    return np.stack(largest) @ weights / max(weights.sum(), 1e-9)
