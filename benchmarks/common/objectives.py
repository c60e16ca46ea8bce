"""Objectives of masked vector modelling beside the losses that a model has on its own.

`benchmarks.studies.masked_objectives` compares them; none is a default. Notation for shapes: B
sequences, L positions, M masked positions of the batch, D dimensions of a chunk vector, K codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from nextlevelbert import DataCollatorForVectorMasking
from nextlevelbert.fitting import fit_whitening

NEAR_COPY = 0.95  # cosine from which a candidate is the same text, so that it is no wrong answer


def device() -> torch.device:
    """Returns the device that models run on: the accelerator, or the CPU without one."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator or torch.device("cpu")


@dataclass
class DataCollatorForSpanMasking(DataCollatorForVectorMasking):
    """Masks spans of chunk vectors. The vectors of a span have one fate, like a single one.

    Args:
        shortest: fewest chunk vectors in a span.
        longest: most chunk vectors in a span.
    """

    shortest: int = 1
    longest: int = 1

    def draw_mask(
        self, maskable: np.ndarray, key: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draws the mask of a sequence; overlapping spans select slightly less than the share."""
        rng = np.random.default_rng(list(key))
        # A span selects so many positions on average, so spans start that much more rarely.
        mean_length = (self.shortest + self.longest) / 2
        is_start = rng.random(len(maskable)) < self.probability / mean_length
        fate = rng.random(len(maskable))  # decides between [MASK], another vector, and no change

        selected = np.zeros(len(maskable), bool)
        for start in np.flatnonzero(is_start):
            end = start + rng.integers(self.shortest, self.longest + 1)
            selected[start:end] = True
            fate[start:end] = fate[start]
        selected &= maskable
        masked = selected & (fate < self.mask_share)
        replaced = selected & ~masked & (fate < self.mask_share + self.random_share)
        return selected, masked, replaced


class TargetSpace(nn.Module):
    """Maps chunk vectors to targets, W (v - m); before a fit, W is the identity and m is zero.

    Mean and matrix are buffers, so that checkpoints hold them.
    """

    mean: torch.Tensor
    weight: torch.Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("weight", torch.eye(size))

    def standardise(self, documents: Iterable[torch.Tensor]) -> None:
        """Gives each dimension mean 0 and variance 1 over these chunk vectors ``[n, D]``."""
        vectors = torch.cat([document.float() for document in documents])
        self.mean.copy_(vectors.mean(dim=0))
        self.weight.copy_(torch.diag(1 / vectors.std(dim=0).clamp(min=1e-6)))

    def whiten(self, documents: Iterable[torch.Tensor]) -> None:
        """Whitens chunk vectors ``[n, D]`` of documents, at their natural length of about √D."""
        mean, weight = fit_whitening(documents)
        self.mean.copy_(mean)
        self.weight.copy_(weight)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return (vectors.float() - self.mean) @ self.weight.T


class Regression(nn.Module):
    """Computes Smooth L1 to the target, summed over its dimensions."""

    def decode(self, outputs: torch.Tensor) -> torch.Tensor:
        """Returns the vector ``[M, D]`` that the model predicts."""
        return outputs

    def forward(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        anchors: torch.Tensor,
        others: torch.Tensor,
    ) -> torch.Tensor:
        """Computes the mean loss over masked vectors.

        Args:
            outputs: outputs of the model's head, ``[M, D]``.
            targets: targets in the target space, ``[M, D]``.
            anchors: vectors that `decode` is added to, ``[M, D]``: zero, or the mean of the
                neighbours.
            others: further chunk vectors of the batch's documents, ``[N, D]``.
        """
        predictions = anchors + self.decode(outputs)
        return F.smooth_l1_loss(predictions, targets, reduction="none").sum(dim=-1).mean()


class Choice(Regression):
    """Chooses the target among all targets of the batch and a memory of stored vectors (InfoNCE).

    Args:
        memory: stored vectors in the target space, ``[N, D]``; frozen, because chunk vectors are
            frozen.
        temperature: temperature of the softmax over cosines.
    """

    memory: torch.Tensor

    def __init__(self, memory: torch.Tensor, temperature: float = 0.05) -> None:
        super().__init__()
        self.register_buffer("memory", F.normalize(memory, dim=-1), persistent=False)
        self.temperature = temperature

    def forward(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        anchors: torch.Tensor,
        others: torch.Tensor,
    ) -> torch.Tensor:
        """Computes the mean loss; arguments as in `Regression`."""
        targets = F.normalize(targets, dim=-1)
        candidates = torch.cat([targets, F.normalize(others, dim=-1), self.memory])
        predictions = F.normalize(anchors + self.decode(outputs), dim=-1)
        scores = predictions @ candidates.T / self.temperature  # [M, M + N + memory]
        right = torch.arange(len(targets), device=targets.device)
        copies = targets @ candidates.T > NEAR_COPY
        copies[right, right] = False
        return F.cross_entropy(scores.masked_fill(copies, -torch.inf), right)


class Codes(Regression):
    """Predicts the code of the nearest centre, and the code of the residual's nearest centre.

    Args:
        codebooks: centres in the target space, and centres of the residuals, ``[K, D]`` each.
    """

    def __init__(self, codebooks: Sequence[torch.Tensor]) -> None:
        super().__init__()
        size = codebooks[0].shape[1]
        self.codebooks = nn.ParameterList(codebooks).requires_grad_(requires_grad=False)
        self.heads = nn.ModuleList([nn.Linear(size, len(codebook)) for codebook in codebooks])

    def decode(self, outputs: torch.Tensor) -> torch.Tensor:
        """Averages the centres by their probability, and sums over the codebooks."""
        parts = []
        for head, codebook in zip(self.heads, self.codebooks, strict=True):
            parts.append(head(outputs).softmax(dim=-1) @ codebook)
        return torch.stack(parts).sum(dim=0)

    def forward(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        anchors: torch.Tensor,
        others: torch.Tensor,
    ) -> torch.Tensor:
        """Computes the mean loss; arguments as in `Regression`."""
        left = targets - anchors
        losses = []
        for head, codebook in zip(self.heads, self.codebooks, strict=True):
            codes = torch.cdist(left, codebook).argmin(dim=-1)  # [M]
            losses.append(F.cross_entropy(head(outputs), codes))
            left = left - codebook[codes]
        return torch.stack(losses).sum()
