"""Documents compared by their chunks: how near do the nearest chunks of two documents come?

One vector for a document averages everything that it says, and a single shared scene is lost in it. Late interaction
keeps the parts: ColBERT (Khattab and Zaharia 2020, section 3.3) sums, over the tokens of a query, the similarity of
the nearest token of a document. Here the parts are chunks, so a book is some hundreds of vectors, not 100,000.

Notation for shapes: Q queries, N documents in the pool, D size of a vector; a block has q texts of up to l chunks on
one side and n texts of up to m chunks on the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm

from ..models.chunk_encoder import micro_batches

ChunkScore = Literal["nearest", "maxsim"]
Vectors = torch.Tensor | np.ndarray

# Padded chunks of one side in a block, and cosines in memory at once (16 MiB). One row of a block may be larger.
_CHUNKS_PER_BLOCK, _COSINES_PER_PASS = 2**11, 2**22

# Scores that differ by less are one: equal documents may differ in the last bits, by their place in a block.
_DECIMALS = 6


def chunk_similarity(
    queries: Sequence[Vectors],
    documents: Sequence[Vectors],
    score: ChunkScore = "nearest",
    top_k: int = 3,
    document_weight: float = 0.0,
    query_vectors: Vectors | None = None,
    document_vectors: Vectors | None = None,
) -> torch.Tensor:
    """How similar each document is to each query, by the cosines of their chunk vectors.

    ``"nearest"`` is the mean of the `top_k` highest cosines among all pairs of a chunk of the query and a chunk of the
    document; of two texts with fewer pairs, the mean of all. ``"maxsim"`` is the mean, over the chunks of the query,
    of the highest cosine with a chunk of the document: ColBERT's score divided by the number of chunks. Only the first
    is symmetric. Both favour documents of many chunks, which have more chances of a high cosine.

    Computed in float32, block by block: besides the scores, memory holds a copy of the vectors, 16 MiB of cosines
    and a few blocks of vectors. Scores are rounded to six decimals, so that equal documents tie.

    Args:
        queries, documents: the chunk vectors ``[n, D]`` of each text, at least one each, in any floating dtype; for
            example ``[book.plain for book in model.encode(texts)]``. A zero vector has cosine 0 with everything.
        score: ``"nearest"`` or ``"maxsim"``.
        top_k: pairs of chunks that count for ``"nearest"``.
        document_weight: what the cosine of the document vectors is multiplied by before it is added; 0 leaves it out.
        query_vectors, document_vectors: document vectors ``[Q, E]`` and ``[N, E]``; by default the means of the chunk
            vectors.

    Returns:
        ``[Q, N]`` float32, on the device of the documents.

    Raises:
        ValueError: for no texts, a text without chunks, vectors of different sizes, NaN or infinity (the texts are
            numbered), an unknown score, a `top_k` below 1, or document vectors that do not fit or are not used.

    Example:
        >>> one, other = torch.eye(4)[:2], torch.eye(4)[1:]
        >>> chunk_similarity([one], [one, other], top_k=2)
        tensor([[1.0000, 0.5000]])
    """
    if score not in get_args(ChunkScore):
        raise ValueError(f"score must be one of {', '.join(get_args(ChunkScore))}, got {score!r}.")
    if top_k < 1:
        raise ValueError(f"top_k must be 1 or more, got {top_k}.")
    if (query_vectors is None) != (document_vectors is None) or (document_vectors is not None and not document_weight):
        raise ValueError(
            "Give both query_vectors and document_vectors, and a document_weight other than 0; or neither."
        )
    device = torch.as_tensor(documents[0]).device if len(documents) else torch.device("cpu")
    ours, theirs = _unit_chunks(queries, "queries", device), _unit_chunks(documents, "documents", device)
    if ours[0].shape[1] != theirs[0].shape[1]:
        raise ValueError(
            f"Chunk vectors of queries and documents must have the same size, got {ours[0].shape[1]} and "
            f"{theirs[0].shape[1]}."
        )
    scores = torch.zeros(len(ours), len(theirs), device=device)
    with tqdm(total=len(theirs), unit="document", desc="comparing chunks", delay=2, leave=False) as bar:
        for columns, chunks, missing in _blocks(theirs):
            for rows, query_chunks, query_missing in _blocks(ours):
                found = _compare(query_chunks, query_missing, chunks, missing, top_k if score == "nearest" else 0)
                scores[rows[:, None], columns] = found
            bar.update(len(columns))
    if document_weight:
        one = _means(queries, device) if query_vectors is None else query_vectors
        other = _means(documents, device) if document_vectors is None else document_vectors
        scores += document_weight * _cosines(one, other, scores)
    return scores.round(decimals=_DECIMALS)


def _unit_chunks(texts: Sequence[Vectors], what: str, device: torch.device) -> list[torch.Tensor]:
    """Chunk vectors ``[n, D]`` of length 1 of each text, in float32; zero vectors stay zero."""
    if not len(texts):
        raise ValueError(f"{what} is empty; give the chunk vectors [n, D] of at least one text.")
    found: list[torch.Tensor] = []
    for number, text in enumerate(texts):
        vectors = torch.as_tensor(text).detach()
        if vectors.ndim != 2 or not vectors.shape[1] or not vectors.is_floating_point():
            raise ValueError(
                f"{what}[{number}] must be chunk vectors [n, D] of floating numbers, got {vectors.dtype} "
                f"{[*vectors.shape]}."
            )
        if not len(vectors):
            raise ValueError(
                f"{what}[{number}] has no chunks, so there is nothing to compare. Leave it out, or give it one zero "
                "vector, which has cosine 0 with everything."
            )
        if found and vectors.shape[1] != found[0].shape[1]:
            raise ValueError(
                f"All chunk vectors must have the same size, got {found[0].shape[1]} in {what}[0] and "
                f"{vectors.shape[1]} in {what}[{number}]."
            )
        if not torch.isfinite(vectors).all():
            raise ValueError(f"{what}[{number}] contains NaN or infinity; encode it again.")
        # In float64, in which the squares of no float32 number overflow or vanish.
        found.append(F.normalize(vectors.to(device).double(), dim=1, eps=1e-100).float())
    return found


def _blocks(texts: list[torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Texts of similar length together: their places ``[q]``, chunks ``[q, l, D]``, and where none is ``[q, l]``."""
    lengths = np.array([len(text) for text in texts])
    for places in micro_batches(lengths, _CHUNKS_PER_BLOCK):
        chunks = pad_sequence([texts[place] for place in places], batch_first=True)
        own = torch.from_numpy(lengths[places]).to(chunks.device)
        yield torch.from_numpy(places), chunks, torch.arange(chunks.shape[1], device=chunks.device) >= own[:, None]


def _compare(
    rows: torch.Tensor, rows_missing: torch.Tensor, columns: torch.Tensor, missing: torch.Tensor, top_k: int
) -> torch.Tensor:
    """Scores ``[q, n]`` of a block, ``[q, l, D]`` against ``[n, m, D]``; MaxSim with a `top_k` of 0."""
    q, (n, m) = len(rows), columns.shape[:2]
    chunks = (~rows_missing).sum(dim=1)[:, None]  # [q, 1]
    flat = columns.flatten(0, 1).T  # [D, n * m]
    total = rows.new_zeros(q, n)
    best = rows.new_zeros(q, n, 0)
    step = max(_COSINES_PER_PASS // (q * n * m), 1)
    for part, none in zip(rows.split(step, dim=1), rows_missing.split(step, dim=1), strict=True):
        cosines = (part.flatten(0, 1) @ flat).view(q, -1, n, m)  # [q, s, n, m]
        if missing.any():
            cosines.masked_fill_(missing, -torch.inf)
        highest = cosines.amax(dim=3)  # [q, s, n]
        if not top_k:
            total += highest.masked_fill_(none[..., None], 0.0).sum(dim=1)
            continue
        # The k highest cosines lie in the k rows whose maxima are highest: every other row has k above all of its own.
        values, picked = highest.masked_fill_(none[..., None], -torch.inf).topk(min(top_k, part.shape[1]), dim=1)
        found = cosines.gather(1, picked[..., None].expand(-1, -1, -1, m))  # [q, k, n, m]
        found.masked_fill_(values.isneginf()[..., None], -torch.inf)
        pairs = torch.cat([best, found.transpose(1, 2).flatten(2)], dim=2)  # [q, n, pairs]
        best = pairs.topk(min(top_k, pairs.shape[2]), dim=2).values
    if not top_k:
        return total / chunks
    counted = (chunks * (~missing).sum(dim=1)).clamp(max=top_k)  # [q, n]
    return best.masked_fill(best.isneginf(), 0.0).sum(dim=2) / counted


def _means(texts: Sequence[Vectors], device: torch.device) -> torch.Tensor:
    return torch.stack([torch.as_tensor(text).to(device).double().mean(dim=0) for text in texts])


def _cosines(one: Vectors, other: Vectors, scores: torch.Tensor) -> torch.Tensor:
    """Cosines ``[Q, N]`` of document vectors, checked against the shape of the scores."""
    rows, columns = (torch.as_tensor(vectors).detach().to(scores.device).double() for vectors in (one, other))
    fits = rows.ndim == columns.ndim == 2 and rows.shape[1] == columns.shape[1]
    if not fits or (len(rows), len(columns)) != scores.shape:
        raise ValueError(
            f"Document vectors must be [{scores.shape[0]}, E] for the queries and [{scores.shape[1]}, E] for the "
            f"documents, got {[*rows.shape]} and {[*columns.shape]}."
        )
    if not (torch.isfinite(rows).all() and torch.isfinite(columns).all()):
        raise ValueError("query_vectors or document_vectors contain NaN or infinity; encode them again.")
    return (F.normalize(rows, dim=1) @ F.normalize(columns, dim=1).T).float()
