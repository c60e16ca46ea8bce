"""How well the models do: metrics that no library has, and document retrieval.

`sentence_evaluator` is imported by its own name, because it needs sentence-transformers.
"""

from .coreference import cluster_scores, coreference_scores
from .hotpotqa import hotpotqa_scores
from .lexical import bm25_scores, tfidf_scores
from .masked_vectors import context_mean_baseline, masked_vector_scores
from .retrieval import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from .retrieval_data import read_beir_task, read_retrieval_task, retrieval_task_from_rows
from .retrieval_lengths import plot_by_length, scores_by_length
from .rouge import greedy_oracle, rouge_scores

__all__ = [
    "RetrievalTask",
    "bm25_scores",
    "cluster_scores",
    "context_mean_baseline",
    "coreference_scores",
    "greedy_oracle",
    "hotpotqa_scores",
    "masked_vector_scores",
    "plot_by_length",
    "rank_by_scores",
    "rank_documents",
    "read_beir_task",
    "read_retrieval_task",
    "retrieval_scores",
    "retrieval_task_from_rows",
    "rouge_scores",
    "scores_by_length",
    "tfidf_scores",
]
