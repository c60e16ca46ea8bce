"""How well the models do: metrics that no library has."""

from .chunk_scores import chunk_similarity
from .coreference import cluster_scores, coreference_scores
from .hotpotqa import hotpotqa_scores
from .masked_vectors import context_mean_baseline, masked_vector_scores
from .metrics import load_metric
from .retrieval import Ranking, RetrievalTask, rank_by_scores, rank_documents, retrieval_scores, write_run
from .rouge import greedy_oracle, rouge_scores

__all__ = [
    "Ranking",
    "RetrievalTask",
    "chunk_similarity",
    "cluster_scores",
    "context_mean_baseline",
    "coreference_scores",
    "greedy_oracle",
    "hotpotqa_scores",
    "load_metric",
    "masked_vector_scores",
    "rank_by_scores",
    "rank_documents",
    "retrieval_scores",
    "rouge_scores",
    "write_run",
]
