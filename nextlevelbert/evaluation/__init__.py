"""How well the models do: metrics that no library has.

`sentence_evaluator` is imported by its own name, because it needs sentence-transformers.
"""

from .chunk_scores import chunk_similarity
from .coreference import cluster_scores, coreference_scores
from .hotpotqa import hotpotqa_scores
from .masked_vectors import context_mean_baseline, masked_vector_scores
from .metrics import load_metric
from .retrieval import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from .rouge import greedy_oracle, rouge_scores
from .runs import ndcg, run_by_scores, run_documents, write_run

__all__ = [
    "RetrievalTask",
    "chunk_similarity",
    "cluster_scores",
    "context_mean_baseline",
    "coreference_scores",
    "greedy_oracle",
    "hotpotqa_scores",
    "load_metric",
    "masked_vector_scores",
    "ndcg",
    "rank_by_scores",
    "rank_documents",
    "retrieval_scores",
    "rouge_scores",
    "run_by_scores",
    "run_documents",
    "write_run",
]
