"""Does masked vector modelling learn context? Cosine to the target, and finding it among the batch's targets.

Notation for shapes: B sequences in a batch, S positions, M selected positions of the batch, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

import torch
from torch.nn import functional as F

from ..models.configuration_nextlevelbert import NOT_SPECIAL

_Row = TypeVar("_Row")

# Columns of the table that `masked_vector_scores` gives.
SELECTED, COSINE, FOUND, CHANCE = range(4)


def masked_vector_scores(
    predictions: torch.Tensor, targets: torch.Tensor, mask_positions: torch.Tensor
) -> torch.Tensor:
    """Sums for each sequence of a batch, so that evaluation keeps four numbers a sequence and no vectors.

    A target is found if no other of the batch's M targets has as high a cosine to the prediction; among k
    that tie for the highest it counts 1 / k, so that a constant prediction scores as chance does.

    Args:
        predictions, targets: ``[M, D]``, in the row-by-row order of `mask_positions`.
        mask_positions: ``[B, S]`` bool.

    Returns:
        ``[B, 4]`` float32: number of selected positions; sums over them of the cosine, of found (0 to 1),
        and of the chance to find (1 / M).
    """
    sequence = mask_positions.nonzero()[:, 0]
    scores = F.normalize(predictions.float(), dim=-1) @ F.normalize(targets.float(), dim=-1).T  # [M, M]
    own = scores.diagonal()
    better = (scores > own[:, None]).sum(dim=1)
    tied = (scores == own[:, None]).sum(dim=1).clamp(min=1)  # itself too; repeated chunks are told apart by luck
    found = torch.where(better == 0, 1.0 / tied, 0.0)
    chance = torch.full_like(own, 1 / max(len(own), 1))
    columns = torch.stack([torch.ones_like(own), own, found, chance], dim=1)  # [M, 4]
    return columns.new_zeros(len(mask_positions), 4).index_add(0, sequence, columns)


def summarize(scores: torch.Tensor) -> dict[str, float]:
    """Means over all selected positions: ``masked_cosine``, ``masked_accuracy``, ``chance_accuracy``."""
    total = scores.sum(dim=0)
    count = max(float(total[SELECTED]), 1.0)
    return {
        "masked_cosine": float(total[COSINE]) / count,
        "masked_accuracy": float(total[FOUND]) / count,
        "chance_accuracy": float(total[CHANCE]) / count,
    }


def context_mean_baseline(
    sequences: Iterable[_Row],
    collate: Callable[[list[_Row]], dict[str, torch.Tensor]],
    batch_size: int,
    prepare: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> dict[str, float]:
    """The same scores for always answering with the mean of the sequence's unmasked chunk vectors.

    What a model has to beat before it can be said to use the order of the chunks.

    Args:
        sequences: evaluation sequences, in order.
        collate: the collator, with the masks that the model is evaluated on.
        batch_size: as in the evaluation, because it is the size of the pool to search.
        prepare: what the model does to chunk vectors before it reads and predicts them (`model.prepare_chunks`).
    """
    remaining, found = iter(sequences), []
    while rows := list(islice(remaining, batch_size)):
        batch = collate(rows)
        visible = (batch["special_ids"] == NOT_SPECIAL) & ~batch["mask_positions"]  # [B, S]
        labels = batch["labels"].float() if prepare is None else prepare(batch["labels"].float())
        mean = (labels * visible.unsqueeze(-1)).sum(dim=1) / visible.sum(dim=1, keepdim=True).clamp(min=1)  # [B, D]
        sequence = batch["mask_positions"].nonzero()[:, 0]
        found.append(masked_vector_scores(mean[sequence], labels[batch["mask_positions"]], batch["mask_positions"]))
    return summarize(torch.cat(found))
