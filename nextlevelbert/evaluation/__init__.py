"""Metrics, rankings, and rows of tables that need no model."""

from ..data.words import count_words, split_words
from .baselines import bm25_scores, tfidf_scores
from .retrieval import (
    Ranking,
    RetrievalTask,
    rank_by_scores,
    rank_documents,
    retrieval_scores,
    trec_run,
)
from .vectors import find_targets

__all__ = [
    "Ranking",
    "RetrievalTask",
    "bm25_scores",
    "count_words",
    "find_targets",
    "rank_by_scores",
    "rank_documents",
    "retrieval_scores",
    "split_words",
    "tfidf_scores",
    "trec_run",
]
