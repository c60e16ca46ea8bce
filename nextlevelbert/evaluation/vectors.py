"""Scores of predicted vectors: is the target the nearest of all?"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class FoundTargets(NamedTuple):
    """Scores ``[M]`` of predictions.

    `cosine` compares prediction and target, `found` is the share of the target that was found (0 to
    1), and `chance` is the expected share for a random guess.
    """

    cosine: Tensor
    found: Tensor
    chance: Tensor


def find_targets(predictions: Tensor, targets: Tensor) -> FoundTargets:
    """Searches the target of each prediction by cosine.

    A target is found if no other target has as high a cosine to the prediction. Among k that tie
    for the highest it counts 1 / k, so that a constant prediction scores as chance does.

    Args:
        predictions: predicted vectors, ``[M, D]``.
        targets: target of each prediction, ``[M, D]``.

    Example:
        >>> vectors = torch.eye(2)
        >>> find_targets(vectors, vectors.flip(0)).found
        tensor([0., 0.])
        >>> find_targets(torch.ones(2, 2), vectors).found
        tensor([0.5000, 0.5000])
    """
    prediction_units = F.normalize(predictions, dim=-1)
    target_units = F.normalize(targets, dim=-1)
    cosines = prediction_units @ target_units.T  # [M, M]
    own = cosines.diagonal().unsqueeze(1)  # [M, 1]
    better = (cosines > own).sum(dim=1)
    # The target itself counts, too; chunks that repeat are told apart by luck.
    tied = (cosines == own).sum(dim=1).clamp(min=1)
    found = torch.where(better == 0, 1.0 / tied, 0.0)
    chance = torch.full_like(found, len(cosines)).reciprocal()
    return FoundTargets(own.squeeze(1), found=found, chance=chance)
