"""Metrics, rankings, and rows of tables that need no model."""

from .retrieval import Ranking, RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from .rouge import greedy_oracle, rouge_scores
from .vectors import find_targets

__all__ = [
    "Ranking",
    "RetrievalTask",
    "find_targets",
    "greedy_oracle",
    "rank_by_scores",
    "rank_documents",
    "retrieval_scores",
    "rouge_scores",
]
