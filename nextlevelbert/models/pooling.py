"""From many vectors to one: masked pooling over the second-to-last axis, as sentence-transformers defines it."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional as F

PoolingMode = Literal["mean", "sum", "max", "cls", "mean_sqrt_len_tokens", "lasttoken"]


def masked_mean(hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Mean of the rows that a mask keeps, all without one: ``[B, L, D]`` to ``[B, D]`` float32, zero where none is."""
    if mask is None:
        return hidden.mean(dim=1, dtype=torch.float32)
    keep = mask.bool().unsqueeze(-1)  # [B, L, 1]
    total = hidden.masked_fill(~keep, 0.0).sum(dim=1, dtype=torch.float32)  # [B, D]
    return total / keep.sum(dim=1).clamp(min=1)


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    """Rows of length 1, zero where they are zero: in half precision the guard against that would vanish."""
    return F.normalize(vectors.float(), dim=-1).to(vectors.dtype)


class ResidualProjection(nn.Linear):
    """A square matrix that starts as a multiple of the identity."""

    def __init__(self, hidden_size: int, start: float) -> None:
        super().__init__(hidden_size, hidden_size, bias=False)
        self.start = start


class ResidualPooling(nn.Module):
    """Document vectors ``[B, D]`` of length 1 that keep the plain mean: normalise(A p + C c).

    p is the mean of the chunk vectors and c that of the contextual ones, both ``[B, D]`` and normalised. A starts as
    the identity and C at zero, so that training starts at the mean of the chunk vectors and not below it.
    """

    def __init__(self, hidden_size: int, contextual_start: float = 0.0) -> None:
        super().__init__()
        self.plain = ResidualProjection(hidden_size, start=1.0)
        self.contextual = ResidualProjection(hidden_size, start=contextual_start)

    def forward(self, plain: torch.Tensor, contextual: torch.Tensor) -> torch.Tensor:
        return _unit(self.plain(_unit(plain)) + self.contextual(_unit(contextual)))


def pool(hidden: torch.Tensor, mask: torch.Tensor, mode: PoolingMode = "mean") -> torch.Tensor:
    """Pools the rows that the mask keeps; a batch entry with no such row gives the zero vector.

    Args:
        hidden: ``[B, L, D]`` vectors.
        mask: ``[B, L]``, nonzero where a vector counts.
        mode: ``"mean"``, ``"sum"``, ``"max"``, ``"cls"`` (the first counting row), ``"lasttoken"`` (the last one), or
            ``"mean_sqrt_len_tokens"`` (sum over the square root of the count).

    Returns:
        ``[B, D]`` in the dtype of `hidden`; means are summed in float32.

    Raises:
        ValueError: for an unknown mode.
    """
    keep = mask.bool().unsqueeze(-1)  # [B, L, 1]
    if mode == "mean":
        return masked_mean(hidden, mask).to(hidden.dtype)
    if mode == "sum":
        return (masked_mean(hidden, mask) * keep.sum(dim=1)).to(hidden.dtype)
    if mode == "mean_sqrt_len_tokens":
        return (masked_mean(hidden, mask) * keep.sum(dim=1).sqrt()).to(hidden.dtype)
    if mode == "max":
        largest = hidden.masked_fill(~keep, torch.finfo(hidden.dtype).min).amax(dim=1)  # [B, D]
        return largest.masked_fill(~keep.any(dim=1), 0.0)
    if mode in ("cls", "lasttoken"):
        flags = keep.squeeze(-1).long()  # [B, L]
        position = flags.argmax(dim=1) if mode == "cls" else flags.shape[1] - 1 - flags.flip(1).argmax(dim=1)
        row = hidden[torch.arange(len(hidden), device=hidden.device), position]  # [B, D]
        return row.masked_fill(~keep.any(dim=1), 0.0)
    raise ValueError(f"Unknown pooling {mode!r}; choose one of {', '.join(get_args(PoolingMode))}.")
