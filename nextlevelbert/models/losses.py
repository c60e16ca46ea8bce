"""The losses of all models: of labels, and of masked chunk vectors.

Notation for shapes: N rows with K logits each; M masked vectors of size D.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.loss.loss_utils import ForSequenceClassificationLoss

# Cosine from which two chunks are the same text, so that neither is a wrong answer.
_NEAR_COPY = 0.95


def classification_loss(logits: Tensor, labels: Tensor, config: PreTrainedConfig) -> Tensor:
    """Returns transformers' loss for one label, several, or values.

    Args:
        logits: predicted logits, ``[N, K]``.
        labels: labels in the form that transformers expects for the problem type.
        config: configuration with the problem type; transformers stores an inferred type in it.

    Returns:
        A scalar; zero (with a gradient path) if all labels are -100.
    """
    if labels.dtype == torch.long and (labels == -100).all():
        return logits.sum() * 0.0
    return ForSequenceClassificationLoss(labels=labels, pooled_logits=logits, config=config)


def single_label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean cross-entropy over rows whose label is not -100; zero without such rows.

    Args:
        logits: predicted logits, ``[N, K]``.
        labels: class of each row, ``[N]``.
    """
    is_label = labels != -100
    count = is_label.sum().clamp(min=1)
    total = F.cross_entropy(logits.float(), labels, reduction="sum")
    return total / count


def labelled_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the binary cross-entropy: the mean over rows of the mean over the labels of a row.

    The loss is computed row by row, so that it does not depend on how processes and steps share the
    rows.

    Args:
        logits: predicted logits, ``[B, P]``.
        labels: labels ``[B, P]``; -100 if there is no label.

    Returns:
        A scalar; zero without labels.
    """
    is_label = labels != -100
    targets = labels.clamp(min=0).float()
    losses = F.binary_cross_entropy_with_logits(logits.float(), targets, reduction="none")
    counts = is_label.sum(dim=1)  # [B]
    totals = (losses * is_label).sum(dim=1)
    means = totals / counts.clamp(min=1)
    labelled_rows = (counts > 0).sum()
    return means.sum() / labelled_rows.clamp(min=1)


def smooth_l1_loss(
    predictions: Tensor,
    targets: Tensor,
    sequences: Tensor | None = None,
) -> Tensor:
    """Returns NextLevelBERT's loss: Huber with beta 1, averaged over dimensions (section 2.2).

    Args:
        predictions: predicted vectors, ``[M, D]``.
        targets: true vectors, ``[M, D]``.
        sequences: index of the sequence of each vector, see `mean_of_losses`.

    Returns:
        A float32 scalar; zero (with a gradient path) without predictions.
    """
    losses = F.smooth_l1_loss(predictions.float(), targets.float(), reduction="none")  # [M, D]
    losses = losses.mean(dim=-1)
    return mean_of_losses(losses, sequences)


def choice_loss(
    predictions: Tensor,
    targets: Tensor,
    candidates: Tensor | None = None,
    temperature: float = 0.05,
    sequences: Tensor | None = None,
) -> Tensor:
    """Returns the cross-entropy of choosing the right target by cosine / temperature.

    A prediction chooses among all targets and further candidates (InfoNCE; van den Oord et al.,
    2018).

    Args:
        predictions: predicted vectors, ``[M, D]``.
        targets: true vectors, ``[M, D]``.
        candidates: further vectors to choose among, ``[N, D]``. With them, near copies of a target
            are no wrong answers (default: only the targets).
        temperature: temperature of the softmax.
        sequences: index of the sequence of each vector, see `mean_of_losses`.

    Returns:
        A float32 scalar; zero (with a gradient path) without predictions.
    """
    own = torch.arange(len(targets), device=targets.device)
    with torch.autocast(predictions.device.type, enabled=False):  # which would use bfloat16
        targets = F.normalize(targets.float(), dim=-1)
        choices = targets
        if candidates is not None:
            choices = torch.cat([targets, F.normalize(candidates.float(), dim=-1)])
        cosines = F.normalize(predictions.float(), dim=-1) @ choices.T  # [M, M + N]
        scores = cosines / temperature
        if candidates is not None:
            is_copy = targets @ choices.T > _NEAR_COPY
            is_copy[own, own] = False
            scores = scores.masked_fill(is_copy, -torch.inf)
    losses = F.cross_entropy(scores, own, reduction="none")
    return mean_of_losses(losses, sequences)


def p_norm_loss(
    predictions: Tensor,
    targets: Tensor,
    p: float = 2.0,
    sequences: Tensor | None = None,
) -> Tensor:
    """Returns HATE's loss: the norm of the rows of softmax(Ŝ Lᵀ) - I, from 0 to 2^(1/p).

    Row i of softmax(Ŝ Lᵀ) is a distribution for prediction i over the masked vectors of the batch.

    Args:
        predictions: predicted vectors Ŝ, ``[M, D]``.
        targets: true vectors L, ``[M, D]``.
        p: order of the norm.
        sequences: index of the sequence of each vector, see `mean_of_losses`.

    Returns:
        A float32 scalar; zero (with a gradient path) without predictions.
    """
    if len(predictions) == 0:  # torch has no norm of order inf over no values
        return predictions.sum() * 0.0
    with torch.autocast(predictions.device.type, enabled=False):  # which would use bfloat16
        scores = predictions.float() @ targets.float().T  # [M, M]
        distributions = scores.softmax(dim=-1)
        identity = torch.eye(len(scores)).to(scores)
        losses = torch.linalg.vector_norm(distributions - identity, ord=p, dim=-1)
    return mean_of_losses(losses, sequences)


def mean_of_losses(losses: Tensor, sequences: Tensor | None) -> Tensor:
    """Averages the losses of masked vectors.

    Args:
        losses: loss of each vector, ``[M]``.
        sequences: index of the sequence of each vector, ``[M]``. Losses are averaged within each
            sequence first, then over sequences, as in the authors' code (default: over all
            vectors).

    Returns:
        A scalar; zero without losses.
    """
    if len(losses) == 0:
        return losses.sum()
    if sequences is None:
        return losses.mean()
    counts = sequences.bincount()  # [B]
    used_sequences = (counts > 0).sum()
    weighted = losses / counts[sequences]
    return weighted.sum() / used_sequences
