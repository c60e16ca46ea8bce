"""Document vectors of a model or a baseline, and the ranks that they give the relevant documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...evaluation.retrieval import Ranks, RetrievalTask, rank_by_scores, rank_documents
from ...finetuning.vector_models import encode_in_parts
from .lexical import bm25_scores, tfidf_scores


def document_vectors(model: Any, texts: Sequence[str], kind: str = "", **encode: Any) -> torch.Tensor:
    """Document vectors ``[N, D]``: the model's, or those of a baseline over the same chunk vectors.

    Args:
        model: a `NextLevelBertModel`.
        texts: whole documents.
        kind: ``"avg_sbert"`` for the mean of the plain chunk vectors, ``"sbert"`` for the first one.
        encode: further arguments of `model.encode`.
    """
    rows = []
    for book in encode_in_parts(model, texts, "encoding", **encode):
        if kind in ("avg_sbert", "sbert") and len(book.plain):
            rows.append(book.plain.mean(dim=0) if kind == "avg_sbert" else book.plain[0].clone())
        else:
            rows.append(book.document)
    return torch.stack(rows)


def search(task: RetrievalTask, kind: str, model: Any = None, **encode: Any) -> Ranks:
    """Ranks of the relevant documents by a model or a baseline.

    Args:
        task: what to search for.
        kind: ``"tfidf"``, ``"bm25"``, ``"avg_sbert"`` or ``"sbert"``; anything else is the model itself.
        model: a `NextLevelBertModel`, not needed for word counts.
        encode: further arguments of `model.encode`.

    Returns:
        For each query id the ranks of its relevant documents, see `rank_documents`.
    """
    queries, documents = list(task.queries.values()), list(task.documents.values())
    if kind == "tfidf":
        return rank_by_scores(task, tfidf_scores(queries, documents))
    if kind == "bm25":
        return rank_by_scores(task, bm25_scores(queries, documents))
    vectors = [document_vectors(model, texts, kind, **encode) for texts in (queries, documents)]
    return rank_documents(task, vectors[0], vectors[1])
