"""Scores of tables: of documents by their words alone, by the length of the texts, of pairs that
belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .retrieval import Ranking, RetrievalTask, retrieval_scores


def tfidf_scores(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Cosines ``[Q, N]`` of TF-IDF vectors: 1 + log of the count, without words in more than half
    of the pool."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, max_df=0.5, dtype=np.float32)
    pool = vectorizer.fit_transform(documents)  # [N, words], rows of length 1
    return (vectorizer.transform(queries) @ pool.T).toarray()


def bm25_scores(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """BM25 ``[Q, N]`` as Lucene computes it (`bm25s`: k1 1.5, b 0.75, English stop words left out,
    no stemming)."""
    import bm25s

    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(documents), show_progress=False), show_progress=False)
    words = bm25s.tokenize(list(queries), return_ids=False, show_progress=False)
    nothing = np.zeros(len(documents), np.float32)  # of a query of stop words only
    return np.stack([index.get_scores(query) if query else nothing for query in words])


def scores_by_length(
    task: RetrievalTask, rankings: Mapping[str, Ranking], k: int = 10
) -> list[dict[str, float]]:
    """Scores of queries whose pairs have about the same length (NextLevelBERT, figure 2).

    The length of a pair is that of its longer side in words, so in BookSum the chapter's; of
    several relevant documents it is their mean. Buckets, with ``from_words`` and ``below_words``,
    end at powers of two from 128 on.
    """
    words = {document: len(text.split()) for document, text in task.documents.items()}
    buckets: dict[int, dict[str, Ranking]] = {}
    for query, ranking in rankings.items():
        relevant = np.mean(
            [words[document] for document in task.relevant[query] if document != query]
        )
        longer = max(len(task.queries[query].split()), int(relevant), 64)
        buckets.setdefault(longer.bit_length(), {})[query] = ranking
    return [
        {
            "from_words": 2.0 ** (power - 1) * (power > 7),
            "below_words": 2.0**power,
            **retrieval_scores(rows, k),
        }
        for power, rows in sorted(buckets.items())
    ]


def binary_scores(
    labels: Sequence[int] | np.ndarray, scores: Sequence[float] | np.ndarray
) -> dict[str, float]:
    """Accuracy, and precision, recall and F1 of label 1 (0 where nothing is there), predicted above
    0.5.

    Example:
        >>> binary_scores([1, 1, 0, 0], [0.9, 0.5, 0.6, 0.1])
        {'accuracy': 0.5, 'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    predictions = np.asarray(scores) > 0.5
    *values, _ = precision_recall_fscore_support(
        labels, predictions, average="binary", zero_division=0.0
    )
    names = ("accuracy", "precision", "recall", "f1")
    return dict(zip(names, map(float, (accuracy_score(labels, predictions), *values)), strict=True))
