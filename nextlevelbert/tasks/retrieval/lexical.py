"""What word counts alone can find: TF-IDF and BM25, which a document model has to be compared with.

Notation for shapes: Q queries, N documents in the pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def tfidf_scores(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Cosine of TF-IDF vectors (scikit-learn): 1 + log of the count, without words in more than half of the pool.

    Args:
        queries: texts to search with; a word that is not in the pool counts for nothing.
        documents: the pool; document frequencies come from it.

    Returns:
        ``[Q, N]`` float32.

    Raises:
        ValueError: for fewer than two documents, no query, or a pool in which no word tells documents apart.

    Example:
        >>> tfidf_scores(["a white whale"], ["the whale", "the ball", "the ship"]).round(2).tolist()
        [[1.0, 0.0, 0.0]]
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # half a second to import

    _check(queries, documents)
    vectorizer = TfidfVectorizer(sublinear_tf=True, max_df=0.5, dtype=np.float32)
    try:
        pool = vectorizer.fit_transform(documents)  # [N, words], rows of length 1
    except ValueError as error:
        raise ValueError(
            f"No word of the {len(documents)} documents is in at most half of them, so TF-IDF cannot tell them apart; "
            "give more, or more different, documents."
        ) from error
    return (vectorizer.transform(queries) @ pool.T).toarray()  # [Q, N]


def bm25_scores(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """BM25 as Lucene computes it (package `bm25s`: k1 1.5, b 0.75, English stop words left out, no stemming).

    Args:
        queries: texts to search with; a word counts as often as it occurs.
        documents: the pool.

    Returns:
        ``[Q, N]`` float32, from 0 upwards without a bound.

    Raises:
        ValueError: for fewer than two documents, or no query.
        ImportError: without the package ``bm25s``.

    Example:
        >>> scores = bm25_scores(["white whale"], ["the whale", "the ball", "the ship"])
        >>> (scores > 0).tolist()
        [[True, False, False]]
    """
    try:
        import bm25s
    except ImportError as error:
        raise ImportError("BM25 needs the package bm25s: pip install nextlevelbert[retrieval]") from error
    _check(queries, documents)
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(documents), show_progress=False), show_progress=False)
    words = bm25s.tokenize(list(queries), return_ids=False, show_progress=False)
    scores = np.zeros((len(words), len(documents)), np.float32)  # a query of stop words only finds nothing
    for row, query in zip(scores, words, strict=True):
        if query:
            row[:] = index.get_scores(query)
    return scores  # [Q, N]


def _check(queries: Sequence[str], documents: Sequence[str]) -> None:
    if isinstance(queries, str) or isinstance(documents, str) or len(documents) < 2 or not queries:
        raise ValueError(
            "Give a list of at least one query and a list of at least two documents, "
            f"got {type(queries).__name__} of {len(queries)} and {type(documents).__name__} of {len(documents)}."
        )
