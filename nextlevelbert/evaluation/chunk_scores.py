"""Documents compared by their chunks: how near do the nearest chunks of two documents come?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.nn import functional as F

ChunkScore = Literal["nearest", "maxsim"]


def chunk_similarity(
    queries: Sequence[Any], documents: Sequence[Any], score: ChunkScore = "nearest", top_k: int = 3
) -> torch.Tensor:
    """How similar each document is to each query, by the cosines of their chunk vectors.

    ``"nearest"`` is the mean of the `top_k` highest cosines among all pairs of a chunk of the query
    and a chunk of the document; of two texts with fewer pairs, the mean of all. ``"maxsim"`` is the
    mean, over the chunks of the query, of the highest cosine with a chunk of the document:
    ColBERT's score (Khattab and Zaharia 2020, section 3.3) of chunks, divided by their number;
    sentence-transformers computes it. Both favour documents of many chunks.

    Args:
        queries, documents: the chunk vectors ``[n, D]`` of each text, at least one each, such as
            ``[book.plain for book in model.encode(texts)]``.
        score, top_k: what is compared, and the pairs of chunks that count for ``"nearest"``.

    Returns:
        ``[Q, N]`` float32, rounded to six decimals, so that equal documents tie.

    Example:
        >>> one, other = torch.eye(4)[:2], torch.eye(4)[1:]
        >>> chunk_similarity([one], [one, other], top_k=2)
        tensor([[1.0000, 0.5000]])
    """
    if score not in ("nearest", "maxsim"):
        raise ValueError(f"score must be nearest or maxsim, got {score!r}.")
    if any(len(text) == 0 for texts in (queries, documents) for text in texts):
        raise ValueError("A text has no chunks, so there is nothing to compare; leave it out.")
    units = [
        [F.normalize(torch.as_tensor(text).detach().double(), dim=1).float() for text in texts]
        for texts in (queries, documents)
    ]
    if score == "maxsim":
        from sentence_transformers.util import mean_maxsim

        scores = mean_maxsim(*units)
    else:
        cosines = [[(query @ document.T).flatten() for document in units[1]] for query in units[0]]
        scores = torch.tensor(
            [[row.topk(min(top_k, len(row))).values.mean() for row in rows] for rows in cosines]
        )
    return scores.round(decimals=6)
