"""Losses, one function each.

Those of masked vector modelling have a value for each of the M selected positions of a batch:

| function        | value of a position                                      | source |
|-----------------|----------------------------------------------------------|--------|
| `smooth_l1`     | Huber loss with beta 1, mean over the D dimensions       | NextLevelBERT, section 2.2 |
| `l1`, `l2`      | mean absolute, mean squared difference                   | authors' options |
| `cosine`        | 1 - cosine                                               | authors' option |
| `p_norm`        | distance of softmax(prediction targets^T) to identity    | HATE, "Masked Sentence Prediction" |
| `cross_entropy` | find the own vector among the batch's masked ones        | HATE, as InfoNCE (2018)    |

`pair_loss` is that of the contrastive objective, over pairs of document vectors. `classification_loss` is that of
classifiers, `single_label_loss` the part of it that chooses one of several. `labelled_loss` is that of heads that
score parts of a document: sentences of a summary, pairs of mentions, supporting sentences.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.loss.loss_utils import ForSequenceClassificationLoss


def smooth_l1(predictions: torch.Tensor, targets: torch.Tensor, **_: float) -> torch.Tensor:
    """Smooth L1 with beta 1. Between unit vectors every difference is below 1, so it is half the mean square."""
    return F.smooth_l1_loss(predictions, targets, reduction="none").mean(dim=-1)


def l1(predictions: torch.Tensor, targets: torch.Tensor, **_: float) -> torch.Tensor:
    """Mean absolute difference."""
    return F.l1_loss(predictions, targets, reduction="none").mean(dim=-1)


def l2(predictions: torch.Tensor, targets: torch.Tensor, **_: float) -> torch.Tensor:
    """Mean squared difference."""
    return F.mse_loss(predictions, targets, reduction="none").mean(dim=-1)


def cosine(predictions: torch.Tensor, targets: torch.Tensor, **_: float) -> torch.Tensor:
    """One minus the cosine of prediction and target; lengths do not matter."""
    return 1.0 - F.cosine_similarity(predictions, targets, dim=-1)


def p_norm(predictions: torch.Tensor, targets: torch.Tensor, *, p: float = 2.0, **_: float) -> torch.Tensor:
    """Distance between what is predicted over the batch's own vocabulary and the right answers.

    Row i of softmax(Ŝ Lᵀ) is a distribution over the batch's M masked vectors for prediction i; the loss is the p-norm
    of its difference from row i of the identity. It lies between 0 and 2^(1/p).
    """
    chosen = (predictions @ targets.T).softmax(dim=-1)  # [M, M]
    right = torch.eye(len(chosen), device=chosen.device, dtype=chosen.dtype)
    return torch.linalg.vector_norm(chosen - right, ord=p, dim=-1)


def cross_entropy(
    predictions: torch.Tensor, targets: torch.Tensor, *, temperature: float = 0.05, **_: float
) -> torch.Tensor:
    """Cross-entropy of finding the own target among all M targets of the batch by cosine / temperature.

    Use it where a regression would predict the mean vector: here that gains nothing.
    """
    scores = F.normalize(predictions, dim=-1) @ F.normalize(targets, dim=-1).T / temperature  # [M, M]
    return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device), reduction="none")


VECTOR_LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "smooth_l1": smooth_l1,
    "l1": l1,
    "l2": l2,
    "cosine": cosine,
    "p_norm": p_norm,
    "cross_entropy": cross_entropy,
}

# Losses that look for a masked vector among those of its batch: they need at least two.
CONTRASTIVE_LOSSES = ("p_norm", "cross_entropy")


def masked_vector_loss(
    name: str,
    predictions: torch.Tensor,
    targets: torch.Tensor,
    temperature: float = 0.05,
    p: float = 2.0,
    sequences: torch.Tensor | None = None,
) -> torch.Tensor:
    """The mean of the named loss, in float32; zero (with a gradient path) for a batch without a selected position.

    Args:
        name: a key of `VECTOR_LOSSES`.
        predictions, targets: ``[M, D]``.
        temperature: that of ``"cross_entropy"``.
        p: order of the norm of ``"p_norm"``.
        sequences: ``[M]``, the sequence of each position: the mean is over sequences of the means within them, as in
            the NextLevelBERT authors' code. By default it is over all positions.
    """
    if len(predictions) == 0:
        return predictions.sum() * 0.0
    with torch.autocast(predictions.device.type, enabled=False):  # it would compute the products in bfloat16
        losses = VECTOR_LOSSES[name](predictions.float(), targets.float(), temperature=temperature, p=p)  # [M]
        if sequences is None:
            return losses.mean()
        counts = sequences.bincount()  # [B]
        return (losses / counts[sequences]).sum() / (counts > 0).sum()


def comparable_segments(document_ids: torch.Tensor, spans: torch.Tensor | None = None) -> torch.Tensor:
    """Which first segments (rows) are compared with which second ones, ``[N, N]`` bool: own pairs and negatives.

    Args:
        document_ids: ``[N]``, the document of each pair; segments of different documents are always compared.
        spans: ``[N, 2, 2]``, first chunk and end of both segments. With them, two segments of one document are
            compared if at least one chunk lies between them: segments that touch are as close as the right answer.
            Without, never.
    """
    same = document_ids[:, None] == document_ids[None, :]  # [N, N]
    near = same
    if spans is not None:
        (first_start, first_end), (second_start, second_end) = spans[:, 0].T, spans[:, 1].T  # [N] each
        near = same & (first_start[:, None] <= second_end) & (second_start <= first_end[:, None])
    return ~near | torch.eye(len(same), dtype=torch.bool, device=same.device)


def pair_loss(
    first: torch.Tensor, second: torch.Tensor, comparable: torch.Tensor, scale: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric cross-entropy of finding each segment's partner; returns it with its scores ``[N, N]``.

    Args:
        first, second: ``[N, D]`` document vectors of both segments of each pair.
        comparable: ``[N, N]`` bool; the diagonal must be true.
        scale: factor of the cosines.
    """
    with torch.autocast(first.device.type, enabled=False):
        scores = F.normalize(first.float(), dim=-1) @ F.normalize(second.float(), dim=-1).T * scale  # [N, N]
        scores = scores.masked_fill(~comparable, -torch.inf)
        right = torch.arange(len(scores), device=scores.device)
        return (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)) / 2, scores


def classification_loss(logits: torch.Tensor, labels: torch.Tensor, config: PreTrainedConfig) -> torch.Tensor:
    """transformers' loss for one label, several, or values; zero (with a gradient path) where all labels are -100.

    Args:
        logits: ``[N, K]``.
        labels: ``[N]`` class numbers (-100: not counted) or values, or ``[N, K]`` zeros and ones.
        config: with `problem_type`; where that is None, it is inferred from the labels and set.
    """
    if labels.dtype == torch.long and (labels == -100).all():
        return logits.sum() * 0.0
    return ForSequenceClassificationLoss(labels=labels, pooled_logits=logits, config=config)


def single_label_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits ``[N, K]`` and class numbers ``[N]``: the mean over rows with a label above -1, or 0."""
    total = F.cross_entropy(logits.float(), labels, reduction="sum")
    return total / (labels != -100).sum().clamp(min=1)


def labelled_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy: the mean over rows of the mean over the labels of a row; zero where there is no label.

    Row by row, so that it does not depend on how processes and steps share out the rows.

    Args:
        logits: ``[B, P]``.
        labels: ``[B, P]``, 0 or 1, and -100 where there is no label.
    """
    known = labels != -100
    losses = F.binary_cross_entropy_with_logits(logits.float(), labels.clamp(min=0).float(), reduction="none")
    counts = known.sum(dim=1)  # [B]
    return ((losses * known).sum(dim=1) / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(min=1)
