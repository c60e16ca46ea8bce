"""Metrics, rankings, and rows of tables that need no model."""

from .chunk_scores import chunk_similarity
from .coreference import cluster_scores, coreference_scores
from .hotpotqa import hotpotqa_scores
from .metrics import load_metric
from .retrieval import Ranking, RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from .rouge import greedy_oracle, rouge_scores

__all__ = [
    "Ranking",
    "RetrievalTask",
    "chunk_similarity",
    "cluster_scores",
    "coreference_scores",
    "greedy_oracle",
    "hotpotqa_scores",
    "load_metric",
    "rank_by_scores",
    "rank_documents",
    "retrieval_scores",
    "rouge_scores",
]
