"""Losses. Those of masked vector modelling have a value for each of the M selected positions of a batch:

| name            | value of a position                                      | source |
|-----------------|----------------------------------------------------------|--------|
| `smooth_l1`     | Huber loss with beta 1, mean over the D dimensions       | NextLevelBERT, section 2.2 |
| `l1`, `l2`      | mean absolute, mean squared difference                   | authors' options |
| `cosine`        | 1 - cosine                                               | authors' option |
| `p_norm`        | distance of softmax(prediction targets^T) to identity    | HATE, "Masked Sentence Prediction" |
| `cross_entropy` | find the own vector among the batch's masked ones        | HATE, as InfoNCE (2018)    |
"""

from __future__ import annotations

import torch
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.loss.loss_utils import ForSequenceClassificationLoss


def vector_losses(
    name: str, predictions: torch.Tensor, targets: torch.Tensor, temperature: float, p: float
) -> torch.Tensor:
    """The named loss of each of M predicted vectors ``[M, D]``: ``[M]``.

    `p_norm`: row i of softmax(Ŝ Lᵀ) is a distribution over the batch's M masked vectors for prediction i; the loss is
    the p-norm of its difference from row i of the identity, between 0 and 2^(1/p). `cross_entropy`, that of finding
    the own target by cosine / temperature, is for where a regression would predict the mean vector.
    """
    if name in ("smooth_l1", "l1", "l2"):
        loss = {"smooth_l1": F.smooth_l1_loss, "l1": F.l1_loss, "l2": F.mse_loss}[name]
        return loss(predictions, targets, reduction="none").mean(dim=-1)
    if name == "cosine":
        return 1.0 - F.cosine_similarity(predictions, targets, dim=-1)
    if name == "p_norm":
        chosen = (predictions @ targets.T).softmax(dim=-1)  # [M, M]
        return torch.linalg.vector_norm(chosen - torch.eye(len(chosen)).to(chosen), ord=p, dim=-1)
    scores = F.normalize(predictions, dim=-1) @ F.normalize(targets, dim=-1).T / temperature  # [M, M]
    return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device), reduction="none")


def masked_vector_loss(
    name: str, predictions: torch.Tensor, targets: torch.Tensor, temperature: float = 0.05, p: float = 2.0,
    sequences: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """The mean of the named loss of ``[M, D]``, in float32; zero (with a gradient path) without a selected position.

    With `sequences` ``[M]``, the sequence of each position, it is over sequences of the means within them, as in the
    NextLevelBERT authors' code; by default over all positions.
    """
    if len(predictions) == 0:
        return predictions.sum() * 0.0
    with torch.autocast(predictions.device.type, enabled=False):  # it would compute the products in bfloat16
        losses = vector_losses(name, predictions.float(), targets.float(), temperature, p)  # [M]
        if sequences is None:
            return losses.mean()
        counts = sequences.bincount()  # [B]
        return (losses / counts[sequences]).sum() / (counts > 0).sum()


def pair_loss(
    first: torch.Tensor, second: torch.Tensor, document_ids: torch.Tensor, scale: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric cross-entropy of finding each segment's partner ``[N, D]``, and its scores ``[N, N]``: scaled cosines.

    Further segments of one document, by `document_ids` ``[N]``, are not compared.
    """
    with torch.autocast(first.device.type, enabled=False):
        scores = F.normalize(first.float(), dim=-1) @ F.normalize(second.float(), dim=-1).T * scale  # [N, N]
        right = torch.arange(len(scores), device=scores.device)
        same = (document_ids[:, None] == document_ids) & (right[:, None] != right)
        scores = scores.masked_fill(same, -torch.inf)
        return (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)) / 2, scores


def classification_loss(logits: torch.Tensor, labels: torch.Tensor, config: PreTrainedConfig) -> torch.Tensor:
    """transformers' loss for one label, several, or values; zero (with a gradient path) where all labels are -100."""
    if labels.dtype == torch.long and (labels == -100).all():
        return logits.sum() * 0.0
    return ForSequenceClassificationLoss(labels=labels, pooled_logits=logits, config=config)


def single_label_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of ``[N, K]`` and class numbers ``[N]``: the mean over rows whose label is not -100, or zero."""
    total = F.cross_entropy(logits.float(), labels, reduction="sum")
    return total / (labels != -100).sum().clamp(min=1)


def labelled_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of ``[B, P]``: the mean over rows of the mean over their labels (-100: none), or zero.

    Row by row, so that it does not depend on how processes and steps share out the rows.
    """
    known = labels != -100
    losses = F.binary_cross_entropy_with_logits(logits.float(), labels.clamp(min=0).float(), reduction="none")
    counts = known.sum(dim=1)  # [B]
    return ((losses * known).sum(dim=1) / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(min=1)
