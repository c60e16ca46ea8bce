"""Pooling, from many vectors to one, and whitening, chunk vectors without what all of them share.

Pooling is masked and over the second-to-last axis, as sentence-transformers defines it.

Whitening centres chunk vectors and scales them down where chunks of one document differ most. Sentence encoders leave
a large common direction in every vector, and what varies most from chunk to chunk of a book (dialogue or narration,
indoors or out) says little about which book it is. Dividing by the within-document spread is within-class covariance
normalisation (Hatch, Kajarekar and Stolcke 2006) with the document as the class; with the total spread it would be
whitening as Su et al. (2021, arXiv 2103.15316) use it on sentence vectors.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import activation as _activations

PoolingMode = Literal["mean", "sum", "max", "cls", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def masked_mean(hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Mean of the rows that a mask keeps (all by default): ``[B, L, D]`` to ``[B, D]`` float32, zero without rows."""
    if mask is None:
        return hidden.mean(dim=1, dtype=torch.float32)
    keep = mask.bool().unsqueeze(-1)  # [B, L, 1]
    total = hidden.masked_fill(~keep, 0.0).sum(dim=1, dtype=torch.float32)  # [B, D]
    return total / keep.sum(dim=1).clamp(min=1)


def pool(hidden: torch.Tensor, mask: torch.Tensor, mode: PoolingMode = "mean") -> torch.Tensor:
    """Pools the rows that the mask keeps; a batch entry without such rows gives the zero vector.

    Args:
        hidden: ``[B, L, D]`` vectors.
        mask: ``[B, L]``, nonzero where a vector counts.
        mode: ``"mean"``, ``"sum"``, ``"max"``, ``"cls"`` (the first counting row), ``"lasttoken"`` (the last one),
            ``"mean_sqrt_len_tokens"`` (sum over the square root of the count), or ``"weightedmean"`` (the k-th
            counting row weighs k).

    Returns:
        ``[B, D]`` in the dtype of `hidden`; means are summed in float32.
    """
    keep = mask.bool().unsqueeze(-1)  # [B, L, 1]
    if mode in ("mean", "sum", "mean_sqrt_len_tokens"):
        power = {"mean": 0.0, "sum": 1.0, "mean_sqrt_len_tokens": 0.5}[mode]
        return (masked_mean(hidden, mask) * keep.sum(dim=1).float() ** power).to(hidden.dtype)
    if mode == "weightedmean":
        weights = mask.bool().cumsum(dim=1).masked_fill(~mask.bool(), 0).float()  # [B, L]
        total = torch.einsum("bl,bld->bd", weights, hidden.masked_fill(~keep, 0.0).float())
        return (total / weights.sum(dim=1, keepdim=True).clamp(min=1)).to(hidden.dtype)
    if mode == "max":
        row = hidden.masked_fill(~keep, torch.finfo(hidden.dtype).min).amax(dim=1)  # [B, D]
    else:
        flags = keep.squeeze(-1).long()  # [B, L]
        position = flags.argmax(dim=1) if mode == "cls" else flags.shape[1] - 1 - flags.flip(1).argmax(dim=1)
        row = hidden[torch.arange(len(hidden), device=hidden.device), position]  # [B, D]
    return row.masked_fill(~keep.any(dim=1), 0.0)


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    """Rows scaled to length 1, zero rows unchanged; in float32, since the epsilon against zero vanishes in float16."""
    return F.normalize(vectors.float(), dim=-1).to(vectors.dtype)


class ResidualProjection(nn.Linear):
    """A square matrix that starts as a multiple of the identity."""

    def __init__(self, hidden_size: int, start: float) -> None:
        super().__init__(hidden_size, hidden_size, bias=False)
        self.start = start


class ResidualPooling(nn.Module):
    """Document vectors ``[B, D]`` of length 1 that keep the plain mean: normalise(A p + C c).

    p is the mean of the chunk vectors and c that of the contextual ones, both ``[B, D]`` and normalised. A starts as
    the identity and C at zero, so that training starts no worse than the mean of the chunk vectors.
    """

    def __init__(self, hidden_size: int, contextual_start: float = 0.0) -> None:
        super().__init__()
        self.plain = ResidualProjection(hidden_size, start=1.0)
        self.contextual = ResidualProjection(hidden_size, start=contextual_start)

    def forward(self, plain: torch.Tensor, contextual: torch.Tensor) -> torch.Tensor:
        return _unit(self.plain(_unit(plain)) + self.contextual(_unit(contextual)))


class PlainPooling(nn.Module):
    """Document vectors ``[B, D]`` of length 1: the mean of the chunk vectors. Stands where `ResidualPooling` does."""

    def forward(self, plain: torch.Tensor, contextual: torch.Tensor) -> torch.Tensor:
        return _unit(plain)


class DenseLayer(nn.Module):
    """sentence-transformers' `Dense`, with the same names of weights; `activation` is a class of `torch.nn`."""

    def __init__(self, in_features: int, out_features: int, bias: bool, activation: str) -> None:
        super().__init__()
        if activation not in (*_activations.__all__, "Identity"):  # not whatever a changed config.json names
            raise ValueError(f"{activation!r} is no activation of torch.nn, such as 'Tanh' and 'Identity'.")
        self.activation_function = getattr(nn, activation)()
        self.linear = nn.Linear(in_features, out_features, bias)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """``[N, D]`` float32 to ``[N, K]`` float32, computed in the dtype of the weights."""
        return self.activation_function(self.linear(vectors.to(self.linear.weight.dtype))).float()


class ChunkCentring(nn.Module):
    """``[..., D]`` chunk vectors to centred ones of length 1: normalise(v - m).

    Mean and weight are buffers, not parameters: saved with the model, but out of reach of optimisers and of
    unfreezing. Before `fitting.fit_whitening` gives others they are zero and the identity.
    """

    mean: torch.Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(hidden_size))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return _unit(vectors.to(self.mean.dtype) - self.mean)


class ChunkWhitening(ChunkCentring):
    """``[..., D]`` chunk vectors to whitened ones of length 1, ``[..., K]``: normalise(W (v - m))."""

    weight: torch.Tensor

    def __init__(self, hidden_size: int, size: int | None = None) -> None:
        super().__init__(hidden_size)
        self.register_buffer("weight", torch.eye(size or hidden_size, hidden_size))  # [K, D]

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return _unit((vectors.to(self.mean.dtype) - self.mean) @ self.weight.T)
