"""Scores for tables of results: word counts, scores by length, and scores of pairs."""

from collections.abc import Mapping, Sequence

import numpy as np

from .retrieval import Ranking, RetrievalTask, retrieval_scores
from .words import count_words, split_terms

_SHORTEST_BUCKET = 64  # words; shorter pairs are in the first bucket, from 0 to 127 words


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


def scores_by_length(
    task: RetrievalTask, rankings: Mapping[str, Ranking], k: int = 10
) -> list[dict[str, float]]:
    """Scores queries in buckets of pairs with about the same length (NextLevelBERT, figure 2).

    The length of a pair is the length of its longer side in words: in BookSum, of the chapter. If a
    query has several relevant documents, their mean length counts.

    Args:
        task: the queries and documents.
        rankings: the ranking of each query.
        k: the cut-off rank of the scores.

    Returns:
        `retrieval_scores` of each bucket, with ``from_words`` and ``below_words``. Buckets end at
        powers of two, from 128 on.
    """
    words = {document: count_words(text) for document, text in task.documents.items()}
    buckets: dict[int, dict[str, Ranking]] = {}
    for query, ranking in rankings.items():
        relevant = [words[document] for document in task.relevant[query] if document != query]
        longer = max(count_words(task.queries[query]), int(np.mean(relevant)), _SHORTEST_BUCKET)
        buckets.setdefault(longer.bit_length(), {})[query] = ranking

    rows = []
    for power, bucket in sorted(buckets.items()):
        start = 0.0
        if power > _SHORTEST_BUCKET.bit_length():
            start = 2.0 ** (power - 1)
        scores = retrieval_scores(bucket, k)
        rows.append({"from_words": start, "below_words": 2.0**power, **scores})
    return rows


def binary_scores(
    labels: Sequence[int] | np.ndarray, scores: Sequence[float] | np.ndarray
) -> dict[str, float]:
    """Computes accuracy, and precision, recall and F1 of label 1.

    Args:
        labels: label of each row, 0 or 1.
        scores: score of each row, from 0 to 1; label 1 is predicted above 0.5.

    Returns:
        ``accuracy``, ``precision``, ``recall`` and ``f1``; a ratio of nothing to nothing is 0.

    Example:
        >>> binary_scores([1, 1, 0, 0], [0.9, 0.5, 0.6, 0.1])
        {'accuracy': 0.5, 'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    predictions = np.asarray(scores) > 0.5
    precision, recall, f1, _ = precision_recall_fscore_support(
        labels, predictions, average="binary", zero_division=0.0
    )
    return {
        "accuracy": float(accuracy_score(labels, predictions)),
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
    }
