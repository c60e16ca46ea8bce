"""Document vectors of a model and of its baselines, and the ranks that they give the relevant documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ...evaluation.retrieval import Ranks, RetrievalTask, rank_by_scores, rank_documents
from ...finetuning.controls import MEAN, WHITENED, fitted_whitening
from ...finetuning.other_encoders import LateChunkingEncoder, OtherEncoder
from ...finetuning.vector_models import encode_in_parts
from ...models.outputs import DocumentEmbedding
from ...models.pooling import ChunkWhitening
from .lexical import bm25_scores, tfidf_scores

BEST = "best chunk"


class Books:
    """The embeddings of texts, to be read several times.

    Those of late chunking, which nothing stores, are kept; all others are encoded again, from the cache of chunk
    vectors.

    Args:
        model: a `NextLevelBertModel`, a `HateModel`, an `OtherEncoder` or a `LateChunkingEncoder`.
        texts: whole documents.
        encode: further arguments of `model.encode`.
    """

    def __init__(self, model: Any, texts: Sequence[str], **encode: Any) -> None:
        self._model, self._texts, self._encode = model, texts, encode
        self._kept = [*self._read()] if isinstance(model, LateChunkingEncoder) else None

    def _read(self) -> Iterator[DocumentEmbedding]:
        return encode_in_parts(self._model, self._texts, "encoding", **self._encode)

    def __iter__(self) -> Iterator[DocumentEmbedding]:
        return self._read() if self._kept is None else iter(self._kept)


def document_vectors(
    books: Iterable[DocumentEmbedding], kind: str, whitening: ChunkWhitening | None = None, mean: bool = True
) -> dict[str, torch.Tensor]:
    """Document vectors ``[N, D]`` by row of the table: the model's, and baselines over the same chunk vectors.

    Args:
        books: embeddings of the documents.
        kind: name of the row; ``"avg_sbert"`` has the mean of the plain chunk vectors, ``"sbert"`` the first one,
            anything else the model's own vector.
        whitening: of chunk vectors, for a row of their whitened mean.
        mean: whether there is a row of their mean.
    """
    rows: dict[str, list[torch.Tensor]] = {}
    for book in books:
        average = book.plain.mean(dim=0) if len(book.plain) else torch.zeros(book.plain.shape[1])
        first = book.plain[0].clone() if len(book.plain) else average
        rows.setdefault(kind, []).append({"avg_sbert": average, "sbert": first}.get(kind, book.document))
        if mean and kind != "avg_sbert":
            rows.setdefault(MEAN, []).append(average)
        if whitening is not None:
            white = whitening(book.plain)
            rows.setdefault(WHITENED, []).append(white.mean(dim=0) if len(white) else average)
    return {name: torch.stack(vectors) for name, vectors in rows.items()}


def search(task: RetrievalTask, kind: str, model: Any = None, **encode: Any) -> dict[str, Ranks]:
    """Ranks of the relevant documents by a model, and by what is made of the same chunk vectors without it.

    The whitened mean is fitted to the chunks of the pool, without judgements. Late chunking also has a row of its
    paper, which ranks a document by the chunk that is nearest to the query.

    Args:
        task: what to search for.
        kind: name of the row; ``"tfidf"``, ``"bm25"``, ``"avg_sbert"`` and ``"sbert"`` are these baselines.
        model: as in `Books`; not needed for word counts.
        encode: further arguments of `model.encode`.

    Returns:
        For each row, the asked for first, and for each query id the ranks of its relevant documents; see
        `rank_documents`.
    """
    texts = list(task.queries.values()), list(task.documents.values())
    if kind == "tfidf":
        return {kind: rank_by_scores(task, tfidf_scores(*texts))}
    if kind == "bm25":
        return {kind: rank_by_scores(task, bm25_scores(*texts))}
    queries, documents = (Books(model, part, **encode) for part in texts)
    late, whole = isinstance(model, LateChunkingEncoder), isinstance(model, OtherEncoder)
    whitening = None if whole else fitted_whitening(book.plain for book in documents)
    found = [document_vectors(books, kind, whitening, mean=not (whole or late)) for books in (queries, documents)]
    rows = {name: rank_documents(task, vectors, found[1][name]) for name, vectors in found[0].items()}
    if late:
        rows[BEST] = rank_by_scores(task, best_chunk_scores(found[0][kind], documents))
    return rows


def best_chunk_scores(queries: torch.Tensor, documents: Iterable[DocumentEmbedding]) -> np.ndarray:
    """The highest cosine ``[Q, N]`` of each query ``[Q, D]`` with a chunk of each document; -1 without chunks."""
    unit = F.normalize(queries, dim=-1)
    columns = [
        (unit @ F.normalize(book.plain, dim=-1).T).amax(dim=1) if len(book.plain) else -torch.ones(len(unit))
        for book in documents
    ]
    return torch.stack(columns, dim=1).numpy()
