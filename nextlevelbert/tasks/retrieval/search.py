"""Retrieval without training: document vectors of a model or a baseline, ranked, scored, plotted, written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ...evaluation.retrieval import Ranks, RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from ...training.plots import results_table
from ..classification.vectors import encode_in_parts
from .lengths import plot_by_length, scores_by_length
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


def write_search(output: Path, task: RetrievalTask, name: str, ranks: Ranks, k: int) -> str:
    """Writes scores, ranks of every query and the plot over document length.

    Args:
        output: folder for ``results.json``, ``predictions.jsonl`` and ``mrr_by_length.png``.
        task, ranks: of `search`.
        name: of the model, for the table.
        k: where hit rate and recall cut the ranking.

    Returns:
        The scores as a table in markdown.
    """
    output.mkdir(parents=True, exist_ok=True)
    scores, lengths = retrieval_scores(ranks, k), scores_by_length(task, ranks, k=k)
    plot_by_length({name: lengths}, output / "mrr_by_length.png", title=task.name)
    results = {"task": task.name, "model": name, "scores": scores, "by_length": lengths}
    (output / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    with (output / "predictions.jsonl").open("w", encoding="utf-8") as file:
        for query, found in ranks.items():
            file.write(json.dumps({"query": query, "ranks_of_relevant_documents": found.tolist()}) + "\n")
    return results_table({name: scores})
