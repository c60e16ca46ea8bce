"""Metrics, rankings, and rows of tables that need no model."""

from .coreference import cluster_scores, coreference_scores
from .hotpotqa import hotpotqa_scores
from .metrics import load_metric
from .retrieval import Ranking, RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from .words import split_words

__all__ = [
    "Ranking",
    "RetrievalTask",
    "cluster_scores",
    "coreference_scores",
    "hotpotqa_scores",
    "load_metric",
    "rank_by_scores",
    "rank_documents",
    "retrieval_scores",
    "split_words",
]
