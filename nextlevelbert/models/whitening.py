"""Chunk vectors without what all chunks share: centred, and scaled down where chunks of one document differ most.

Sentence encoders leave a large common direction in every vector, and what varies most from chunk to chunk of a book
(dialogue or narration, indoors or out) says little of which book it is. Dividing by the within-document spread is
within-class covariance normalisation (Hatch, Kajarekar and Stolcke 2006) with the document as the class; with the
total spread it would be whitening as Su et al. (2021, arXiv 2103.15316) use it on sentence vectors.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional as F


class ChunkWhitening(nn.Module):
    """``[..., D]`` chunk vectors to whitened ones of length 1: normalise(W (v - m)).

    Buffers, not parameters: they are saved with the model, but no optimiser or unfreezing reaches them. Before
    `fit_whitening` they are zero and the identity.
    """

    mean: torch.Tensor
    weight: torch.Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(hidden_size))
        self.register_buffer("weight", torch.eye(hidden_size))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        centred = vectors.to(self.weight.dtype) - self.mean
        return F.normalize((centred @ self.weight.T).float(), dim=-1).to(self.weight.dtype)


def fit_whitening(documents: Iterable[torch.Tensor], shrinkage: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean m ``[D]`` and symmetric matrix W ``[D, D]`` of chunk vectors, in one pass over them and closed form.

    W = (S + shrinkage * mean variance * I)^(-1/2), where S is the covariance of chunk vectors around the mean of
    their own document.

    Args:
        documents: the chunk vectors ``[n, D]`` of each, in any floating dtype; at least two documents, and one of
            two chunks.
        shrinkage: how far directions without spread are held back.

    Raises:
        ValueError: for too few documents or chunks, chunks that do not differ, or a shrinkage that is not positive.
    """
    if not shrinkage > 0:
        raise ValueError(f"shrinkage must be positive, got {shrinkage}.")
    chunks = filled = 0
    total = scatter = torch.zeros(0, dtype=torch.float64)
    for document in documents:
        if len(document) == 0:
            continue
        vectors = document.double()
        if not filled:
            size = vectors.shape[1]
            total, scatter = vectors.new_zeros(size), vectors.new_zeros(size, size)
        around = vectors - vectors.mean(dim=0)
        total += vectors.sum(dim=0)
        scatter += around.T @ around
        chunks, filled = chunks + len(vectors), filled + 1
    if filled < 2 or chunks == filled:
        raise ValueError(
            f"Whitening is fitted to the spread of chunks within documents; got {chunks} chunk(s) in {filled} "
            "document(s). Give at least two documents, of more than one chunk."
        )
    if not scatter.trace() > 0:  # NaN, too
        raise ValueError(f"The {chunks} chunks do not differ within their documents, or hold NaN; nothing to whiten.")
    return (total / chunks).float(), inverse_root(scatter / chunks, shrinkage).float()


def inverse_root(covariance: torch.Tensor, shrinkage: float = 0.1) -> torch.Tensor:
    """(S + shrinkage * mean variance * I)^(-1/2) of a covariance S ``[D, D]``, symmetric."""
    values, axes = torch.linalg.eigh(covariance)
    return axes @ torch.diag((values + shrinkage * values.mean()).rsqrt()) @ axes.T
