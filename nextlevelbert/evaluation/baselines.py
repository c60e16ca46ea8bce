"""Baselines that search by word counts: TF-IDF and BM25."""

from collections.abc import Sequence

import numpy as np

from ..data.words import split_terms


def tfidf_scores(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Computes cosines of TF-IDF vectors.

    Counts are scaled to 1 + log of the count. Words in more than half of the documents are ignored.

    Args:
        queries: Q texts.
        documents: N texts.

    Returns:
        The cosines ``[Q, N]``.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        tokenizer=split_terms,
        token_pattern=None,
        sublinear_tf=True,
        max_df=0.5,
        dtype=np.float32,
    )
    pool = vectorizer.fit_transform(documents)  # [N, words], rows of length 1
    return (vectorizer.transform(queries) @ pool.T).toarray()


def bm25_scores(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Computes BM25 as Lucene does (`bm25s`: k1 1.5, b 0.75), without English stop words.

    Args:
        queries: Q texts. A query of stop words only scores 0 with every document.
        documents: N texts.

    Returns:
        The scores ``[Q, N]``.
    """
    import bm25s
    from bm25s.tokenization import Tokenizer

    tokenizer = Tokenizer(splitter=split_terms, stopwords="english")

    def words_of(texts: Sequence[str]) -> list[list[str]]:
        return tokenizer.tokenize(
            list(texts), return_as="string", show_progress=False, allow_empty=False
        )

    index = bm25s.BM25()
    index.index(words_of(documents), show_progress=False)

    scores = np.zeros((len(queries), len(documents)), np.float32)
    for row, words in zip(scores, words_of(queries), strict=True):
        if words:
            row[:] = index.get_scores(words)

    return scores
