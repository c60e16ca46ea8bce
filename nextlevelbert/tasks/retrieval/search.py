"""Document vectors of a model and of its baselines, and the ranks that they give the relevant documents."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...evaluation.retrieval import Ranks, RetrievalTask, rank_by_scores, rank_documents
from ...finetuning.vector_models import OtherEncoder, encode_in_parts
from ...models.pooling import ChunkWhitening, fit_whitening
from .lexical import bm25_scores, tfidf_scores

logger = logging.getLogger(__name__)

MEAN, WHITENED = "mean of the chunk vectors", "whitened mean"


def document_vectors(
    model: Any, texts: Sequence[str], kind: str, whitening: ChunkWhitening | None = None, **encode: Any
) -> dict[str, torch.Tensor]:
    """Document vectors ``[N, D]`` by row of the table: the model's, and baselines over the same chunk vectors.

    Args:
        model: a `NextLevelBertModel`, a `HateModel` or an `OtherEncoder`.
        texts: whole documents.
        kind: name of the row; ``"avg_sbert"`` has the mean of the plain chunk vectors, ``"sbert"`` the first one,
            anything else the model's own vector.
        whitening: of chunk vectors, for a row of their whitened mean.
        encode: further arguments of `model.encode`.
    """
    rows: dict[str, list[torch.Tensor]] = {}
    for book in encode_in_parts(model, texts, "encoding", **encode):
        mean = book.plain.mean(dim=0) if len(book.plain) else torch.zeros(book.plain.shape[1])
        if kind == "avg_sbert":
            rows.setdefault(kind, []).append(mean)
        elif kind == "sbert":
            rows.setdefault(kind, []).append(book.plain[0].clone() if len(book.plain) else mean)
        else:
            rows.setdefault(kind, []).append(book.document)
            if not isinstance(model, OtherEncoder):
                rows.setdefault(MEAN, []).append(mean)
        if whitening is not None:
            white = whitening(book.plain)
            rows.setdefault(WHITENED, []).append(white.mean(dim=0) if len(white) else mean)
    return {name: torch.stack(vectors) for name, vectors in rows.items()}


def search(task: RetrievalTask, kind: str, model: Any = None, **encode: Any) -> dict[str, Ranks]:
    """Ranks of the relevant documents by a model, and by what is made of the same chunk vectors without it.

    The whitened mean is fitted to the chunks of the pool, without judgements.

    Args:
        task: what to search for.
        kind: name of the row; ``"tfidf"``, ``"bm25"``, ``"avg_sbert"`` and ``"sbert"`` are these baselines.
        model: as in `document_vectors`; not needed for word counts.
        encode: further arguments of `model.encode`.

    Returns:
        For each row, the asked for first, and for each query id the ranks of its relevant documents; see
        `rank_documents`.
    """
    queries, documents = list(task.queries.values()), list(task.documents.values())
    if kind == "tfidf":
        return {kind: rank_by_scores(task, tfidf_scores(queries, documents))}
    if kind == "bm25":
        return {kind: rank_by_scores(task, bm25_scores(queries, documents))}
    whitening = None
    if kind != "sbert" and not isinstance(model, OtherEncoder):
        whitening = _whitening(encode_in_parts(model, documents, "fitting the whitening", **encode))
    found = [document_vectors(model, texts, kind, whitening, **encode) for texts in (queries, documents)]
    return {name: rank_documents(task, vectors, found[1][name]) for name, vectors in found[0].items()}


def _whitening(documents: Iterator[Any]) -> ChunkWhitening | None:
    """Whitening within documents; None, and a line that says why, where it cannot be fitted."""
    try:
        mean, weight = fit_whitening(book.plain for book in documents)
    except ValueError as error:
        logger.warning("There is no row for the whitened mean: %s", error)
        return None
    whitening = ChunkWhitening(len(mean))
    whitening.mean.copy_(mean)
    whitening.weight.copy_(weight)
    return whitening
