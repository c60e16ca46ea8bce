"""Document vectors of a model and of its baselines, and how they rank a collection: by one vector, or by chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional as F

from ...evaluation.chunk_scores import chunk_similarity
from ...evaluation.retrieval import DEPTH, Ranking, RetrievalTask, rank_by_scores, rank_documents
from ...finetuning.controls import MEAN, WHITENED, fitted_whitening
from ...finetuning.other_encoders import LateChunkingEncoder, OtherEncoder
from ...finetuning.vector_models import encode_in_parts
from ...models.modeling_nextlevelbert import DocumentEmbedding
from ...models.pooling import ChunkWhitening
from .lexical import bm25_scores, tfidf_scores

BEST = "best chunk"
Score = Literal["document", "chunks", "maxsim", "both"]

# Chunks of documents that are held at once to be compared with the queries': 150 MB at 384 dimensions.
_CHUNKS_PER_PART = 100_000


@dataclass(frozen=True)
class Vectors:
    """Of one row of the table: document vectors ``[N, D]``, and the chunk vectors ``[n, D]`` of each document."""

    document: torch.Tensor
    chunks: list[torch.Tensor]


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


def row_vectors(
    books: Sequence[DocumentEmbedding], kind: str, whitening: ChunkWhitening | None = None, own: bool = True
) -> dict[str, Vectors]:
    """Vectors by row of the table: the model's, and baselines over the same chunk vectors.

    Args:
        books: what the model gave for the documents.
        kind: name of the row; ``"avg_sbert"`` has the mean of the plain chunk vectors, ``"sbert"`` the first one,
            anything else the model's own vector, and of the chunks the contextual ones.
        whitening: of chunk vectors, for a row of their whitened mean.
        own: whether the model has plain chunk vectors of its own, for a row of their mean.
    """
    plain = [_filled(book.plain) for book in books]
    mean = [vectors.mean(dim=0) for vectors in plain]
    if kind == "avg_sbert":
        rows = {kind: (mean, plain)}
    elif kind == "sbert":
        rows = {kind: ([vectors[0].clone() for vectors in plain], plain)}
    else:
        rows = {kind: ([book.document for book in books], [_filled(book.chunks) for book in books])}
    if own and kind != "avg_sbert":
        rows[MEAN] = (mean, plain)
    if whitening is not None:
        white = [_filled(whitening(book.plain)) for book in books]
        rows[WHITENED] = ([vectors.mean(dim=0) for vectors in white], white)
    return {name: Vectors(torch.stack(document), chunks) for name, (document, chunks) in rows.items()}


def _filled(chunks: torch.Tensor) -> torch.Tensor:
    """Chunk vectors, and of a text without chunks one zero vector, which is like nothing."""
    return chunks if len(chunks) else chunks.new_zeros(1, chunks.shape[1])


def check_score(kind: str, score: str) -> None:
    """Raises a ValueError for a score by chunks of a row that has no chunk vectors."""
    if score != "document" and kind in ("tfidf", "bm25", "sbert"):
        raise ValueError(f"{kind} has no chunk vectors to compare; score it by document, not by {score}.")


def search(
    task: RetrievalTask,
    kind: str,
    model: Any = None,
    score: Score = "document",
    top_chunks: int = 3,
    depth: int = DEPTH,
    **encode: Any,
) -> dict[str, dict[str, Ranking]]:
    """Ranks documents by a model, and by what is made of the same chunk vectors without it.

    The whitened mean is fitted to the chunks of the pool, without judgements. Late chunking also has a row of its
    paper, which ranks a document by the chunk that is nearest to the query.

    Args:
        task: what to search for.
        kind: name of the row; ``"tfidf"``, ``"bm25"``, ``"avg_sbert"`` and ``"sbert"`` are these baselines.
        model: as in `Books`; not needed for word counts.
        score: by the cosine of document vectors, by `chunk_similarity` (``"chunks"`` are the nearest ones), or by
            ``"both"``, the sum of nearest chunks and document vectors. The rows by document vectors are always there.
        top_chunks: pairs of chunks that count for ``"chunks"`` and ``"both"``.
        depth: documents of a run.
        encode: further arguments of `model.encode`.

    Returns:
        For each row, the asked for first, the ranks of the relevant documents and the first documents.

    Raises:
        ValueError: for a score by chunks of a row that has one vector a text.
    """
    queries, documents = list(task.queries.values()), list(task.documents.values())
    check_score(kind, score)
    if score != "document" and isinstance(model, OtherEncoder):
        raise ValueError(f"{kind} gives one vector a text, so there are no chunks; leave out --score {score}.")
    if kind in ("tfidf", "bm25"):
        counted = (tfidf_scores if kind == "tfidf" else bm25_scores)(queries, documents)
        return {kind: _by_scores(task, counted, depth)}
    asked, books = (Books(model, part, **encode) for part in (queries, documents))
    late, whole = isinstance(model, LateChunkingEncoder), isinstance(model, OtherEncoder)
    own = not (late or whole)
    whitening = None if whole else fitted_whitening(book.plain for book in books)
    rows = row_vectors([*asked], kind, whitening, own)
    pool: dict[str, list[torch.Tensor]] = {name: [] for name in rows}
    scores: dict[str, list[torch.Tensor]] = {name: [] for name in rows}
    for part in _parts(iter(books)):
        for name, found in row_vectors(part, kind, whitening, own).items():
            pool[name].append(found.document)
            if score != "document":
                method: Any = "maxsim" if score == "maxsim" else "nearest"
                similar = chunk_similarity(rows[name].chunks, found.chunks, method, top_chunks)
                if score == "both":
                    similar = similar + F.normalize(rows[name].document) @ F.normalize(found.document).T
                scores[name].append(similar)
    label = {"chunks": f"{top_chunks} nearest chunks", "maxsim": "MaxSim of chunks"}
    label["both"] = f"{label['chunks']} + document vector"
    by_chunks = {
        f"{name}, {label[score]}": _by_scores(task, torch.cat(parts, dim=1).cpu().numpy(), depth)
        for name, parts in scores.items()
        if parts
    }
    by_document = {
        name: rank_documents(task, rows[name].document, torch.cat(parts), depth=depth) for name, parts in pool.items()
    }
    best = {BEST: _by_scores(task, best_chunk_scores(rows[kind].document, books), depth)} if late else {}
    return by_chunks | by_document | best


def _by_scores(task: RetrievalTask, scores: np.ndarray, depth: int) -> dict[str, Ranking]:
    return rank_by_scores(task, scores.round(6), depth)


def _parts(books: Iterator[DocumentEmbedding]) -> Iterator[list[DocumentEmbedding]]:
    """Some documents at a time, so that not all chunk vectors are held at once."""
    part: list[DocumentEmbedding] = []
    for book in books:
        part.append(book)
        if sum(len(one.plain) for one in part) >= _CHUNKS_PER_PART:
            yield part
            part = []
    if part:
        yield part


def best_chunk_scores(queries: torch.Tensor, documents: Iterable[DocumentEmbedding]) -> np.ndarray:
    """The highest cosine ``[Q, N]`` of each query ``[Q, D]`` with a chunk of each document; -1 without chunks."""
    unit = F.normalize(queries, dim=-1)
    columns = [
        (unit @ F.normalize(book.plain, dim=-1).T).amax(dim=1) if len(book.plain) else -torch.ones(len(unit))
        for book in documents
    ]
    return torch.stack(columns, dim=1).numpy()
