"""Searching a collection of documents by queries: tasks, the search, scores by length, and counts of words."""

from .data import read_beir_task, read_retrieval_task, retrieval_task_from_rows
from .lengths import plot_by_length, scores_by_length
from .lexical import bm25_scores, tfidf_scores

__all__ = [
    "bm25_scores",
    "plot_by_length",
    "read_beir_task",
    "read_retrieval_task",
    "retrieval_task_from_rows",
    "scores_by_length",
    "tfidf_scores",
]
