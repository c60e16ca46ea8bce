"""Predictions of masked chunk vectors that need no training: controls for masked models.

Notation for shapes: B sequences, L positions, M masked positions of the batch, D dimensions of a
chunk vector.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.nn import functional as F

from nextlevelbert.models.configuration_nextlevelbert import NOT_SPECIAL, SEP

# Vectors [B, L, D], special ids [B, L], and which positions are masked [B, L].
MaskedBatch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

SEVERAL = 512  # rows of a product at once


def neighbour_means(
    vectors: torch.Tensor, special_ids: torch.Tensor, mask_positions: torch.Tensor
) -> torch.Tensor:
    """Averages the nearest visible chunks before and after each masked chunk.

    Args:
        vectors: true vectors, ``[B, L, D]``.
        special_ids: special ids from `DataCollatorForVectorMasking`, ``[B, L]``.
        mask_positions: bool mask ``[B, L]``, true at masked positions.

    Returns:
        The means, ``[M, D]``; zero if no chunk of the same document is visible.
    """
    length = special_ids.shape[1]
    positions = torch.arange(length, device=special_ids.device).expand_as(special_ids)
    seen = (special_ids == NOT_SPECIAL) & ~mask_positions
    before = positions.where(seen, -1).cummax(dim=1).values
    after = positions.where(seen, length).flip(1).cummin(dim=1).values.flip(1)
    document = (special_ids == SEP).cumsum(dim=1)

    total = torch.zeros_like(vectors[mask_positions], dtype=torch.float32)
    count = torch.zeros(len(total), 1, device=vectors.device)
    rows, columns = mask_positions.nonzero(as_tuple=True)
    for nearest in (before, after):
        position = nearest[rows, columns]
        exists = (position >= 0) & (position < length)
        position = position.clamp(0, length - 1)
        exists &= document[rows, position] == document[rows, columns]
        total += vectors[rows, position].float() * exists[:, None]
        count += exists[:, None]
    return total / count.clamp(min=1)


def same_document(special_ids: torch.Tensor, mask_positions: torch.Tensor) -> torch.Tensor:
    """Says which chunks are visible to which of the same document, ``[B, L, L]``."""
    document = (special_ids == SEP).cumsum(dim=1)
    visible = (special_ids == NOT_SPECIAL) & ~mask_positions
    return (document[:, :, None] == document[:, None, :]) & visible[:, None, :]


def weighed_neighbours(
    vectors: torch.Tensor,
    special_ids: torch.Tensor,
    mask_positions: torch.Tensor,
    rate: float = 0.7,
) -> torch.Tensor:
    """Averages all visible chunks, weighed by a rate to the power of their distance.

    Args:
        vectors: true vectors, ``[B, L, D]``.
        special_ids: special ids from `DataCollatorForVectorMasking`, ``[B, L]``.
        mask_positions: bool mask ``[B, L]``, true at masked positions.
        rate: weight of the next chunk.

    Returns:
        The means, ``[M, D]``; zero if no chunk of the same document is visible.
    """
    positions = torch.arange(special_ids.shape[1], device=special_ids.device)
    distances = (positions[:, None] - positions).abs()
    weights = rate**distances * same_document(special_ids, mask_positions)
    means = weights @ vectors.float() / weights.sum(dim=-1, keepdim=True).clamp(min=1e-6)
    return means[mask_positions]


def neighbour_terms(
    vectors: torch.Tensor,
    special_ids: torch.Tensor,
    mask_positions: torch.Tensor,
    reach: int = 8,
) -> torch.Tensor:
    """Returns what least squares weighs: a sum for each distance, and the mean of the window.

    Arguments are those of `weighed_neighbours`.

    Returns:
        Visible chunks at distance 1 to `reach` on both sides, added up, and the mean of all visible
        chunks of the sequence, ``[M, reach + 1, D]``.
    """
    positions = torch.arange(special_ids.shape[1], device=special_ids.device)
    distances = (positions[:, None] - positions).abs()
    visible = same_document(special_ids, mask_positions)
    terms = []
    for distance in range(1, reach + 1):
        sums = ((distances == distance) & visible).float() @ vectors.float()
        terms.append(sums[mask_positions])
    seen = ((special_ids == NOT_SPECIAL) & ~mask_positions).float()
    means = torch.einsum("bl,bld->bd", seen, vectors.float()) / seen.sum(dim=1, keepdim=True)
    rows, _ = mask_positions.nonzero(as_tuple=True)
    return torch.stack([*terms, means[rows]], dim=1)


def least_squares(batches: Iterable[MaskedBatch], reach: int = 8) -> torch.Tensor:
    """Fits the weights of `neighbour_terms` to the masked vectors, ``[reach + 1]``."""
    products = torch.zeros(reach + 1, reach + 1)
    right = torch.zeros(reach + 1)
    for vectors, special_ids, mask_positions in batches:
        terms = neighbour_terms(vectors, special_ids, mask_positions, reach=reach)
        products += torch.einsum("mad,mbd->ab", terms, terms).cpu()
        right += torch.einsum("mad,md->a", terms, vectors[mask_positions]).cpu()
    return torch.linalg.solve(products, right)


def hits(predictions: torch.Tensor, targets: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Says which targets ``[M, D]`` are nearer to their prediction than all `others`, ``[M]``.

    Nearness is the cosine. Vectors in `others` that are equal to the target do not count.
    """
    predictions = F.normalize(predictions, dim=-1)
    targets = F.normalize(targets, dim=-1)
    others = F.normalize(others, dim=-1)
    right = []
    for rows in torch.arange(len(targets)).split(SEVERAL):
        scores = predictions[rows] @ others.T
        copies = targets[rows] @ others.T > 1 - 1e-4
        best = scores.masked_fill(copies, -2).amax(dim=-1)
        right.append((predictions[rows] * targets[rows]).sum(dim=-1) > best)
    return torch.cat(right)
