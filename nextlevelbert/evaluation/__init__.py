"""Metrics, rankings, and rows of tables that need no model."""

from .coreference import cluster_scores, coreference_scores
from .hotpotqa import hotpotqa_scores
from .retrieval import Ranking, RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from .rouge import greedy_oracle, rouge_scores
from .vectors import find_targets

__all__ = [
    "Ranking",
    "RetrievalTask",
    "cluster_scores",
    "coreference_scores",
    "find_targets",
    "greedy_oracle",
    "hotpotqa_scores",
    "rank_by_scores",
    "rank_documents",
    "retrieval_scores",
    "rouge_scores",
]
