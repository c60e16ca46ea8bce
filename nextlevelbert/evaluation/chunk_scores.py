"""Scores that compare documents by their chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch.nn import functional as F

ChunkScore = Literal["nearest", "maxsim"]
ChunkMatrix = torch.Tensor | np.ndarray


def chunk_similarity(
    queries: Sequence[ChunkMatrix],
    documents: Sequence[ChunkMatrix],
    score: ChunkScore = "nearest",
    top_k: int = 3,
) -> torch.Tensor:
    """Computes how similar each document is to each query by the cosines of their chunk vectors.

    ``"nearest"`` is the mean of the `top_k` highest cosines among all pairs of a chunk of the query
    and a chunk of the document; if two texts have fewer pairs, the mean of all pairs. ``"maxsim"``
    is the mean, over the chunks of the query, of the highest cosine with a chunk of the document:
    ColBERT's score (Khattab and Zaharia 2020, section 3.3) of chunks, divided by their number, as
    sentence-transformers computes it. Both favour documents of many chunks.

    Args:
        queries: the chunk vectors ``[n, D]`` of Q texts, at least one chunk each, such as
            ``[book.plain for book in model.encode(texts)]``.
        documents: the chunk vectors ``[n, D]`` of N texts.
        score: ``"nearest"`` or ``"maxsim"``.
        top_k: the number of pairs of chunks that count for ``"nearest"``.

    Returns:
        ``[Q, N]`` float32, rounded to six decimals, so that equal documents tie.

    Raises:
        ValueError: for another score, or a text without chunks.

    Example:
        >>> one, other = torch.eye(4)[:2], torch.eye(4)[1:]
        >>> chunk_similarity([one], [one, other], top_k=2)
        tensor([[1.0000, 0.5000]])
    """
    if score not in ("nearest", "maxsim"):
        raise ValueError(f"score must be nearest or maxsim, got {score!r}.")
    query_units = _unit_vectors(queries)
    document_units = _unit_vectors(documents)
    if score == "maxsim":
        from sentence_transformers.util import mean_maxsim

        return mean_maxsim(query_units, document_units).round(decimals=6)

    scores = torch.zeros(len(queries), len(documents))
    for row, query in enumerate(query_units):
        for column, document in enumerate(document_units):
            cosines = (query @ document.T).flatten()
            scores[row, column] = cosines.topk(min(top_k, len(cosines))).values.mean()
    return scores.round(decimals=6)


def _unit_vectors(texts: Sequence[ChunkMatrix]) -> list[torch.Tensor]:
    """Returns the chunk vectors ``[n, D]`` of each text with length 1, in float32."""
    units = []
    for text in texts:
        if len(text) == 0:
            raise ValueError("A text has no chunks, so there is nothing to compare; leave it out.")
        vectors = torch.as_tensor(text).detach().double()
        units.append(F.normalize(vectors, dim=1).float())
    return units
