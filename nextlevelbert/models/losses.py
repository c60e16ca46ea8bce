"""Losses that several models share: of labels, and of masked chunk vectors.

Notation for shapes: N rows with K logits each; M masked vectors of size D.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.loss.loss_utils import ForSequenceClassificationLoss

# Scores that are computed at once: 64 MB in float32.
_SCORES_PER_PIECE = 2**24
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
    is_single_label = config.problem_type in (None, "single_label_classification")
    if is_single_label and labels.dtype == torch.long and config.num_labels > 1:
        # transformers' loss is NaN without a label, and a look at the labels waits for a GPU.
        config.problem_type = "single_label_classification"
        return single_label_loss(logits.view(-1, config.num_labels), labels.view(-1))
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
    rows. It is zero without labels.

    Args:
        logits: predicted logits, ``[B, P]``.
        labels: labels ``[B, P]``; -100 if there is no label.
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
    2018). Only predictions get a gradient. The scores are computed a piece at a time, and never
    exist together.

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
    with torch.autocast(predictions.device.type, enabled=False):  # which would use bfloat16
        targets = F.normalize(targets.detach().float(), dim=-1)
        choices = targets
        if candidates is not None:
            choices = torch.cat([targets, F.normalize(candidates.detach().float(), dim=-1)])
        losses = losses_of_choices(
            F.normalize(predictions.float(), dim=-1),
            choices,
            temperature=temperature,
            has_copies=candidates is not None,
        )

    return mean_of_losses(losses, sequences)


@torch.compiler.disable  # the number of pieces depends on the number of predictions
def losses_of_choices(
    predictions: Tensor, choices: Tensor, temperature: float, has_copies: bool
) -> Tensor:
    """Computes the cross-entropy of each choice, in pieces.

    Args:
        predictions: predicted vectors of length 1, ``[M, D]`` float32.
        choices: vectors of length 1 to choose among, ``[K, D]`` float32; row k is the right one for
            prediction k.
        temperature: temperature of the softmax.
        has_copies: if true, near copies of the right vector are no wrong answers.

    Returns:
        The losses, ``[M]``.
    """
    return _LossesOfChoices.apply(predictions, choices, temperature, has_copies)


class _LossesOfChoices(torch.autograd.Function):
    """Computes losses and their gradient together, so that no piece of scores is kept."""

    @staticmethod
    def forward(
        ctx: Any, predictions: Tensor, choices: Tensor, temperature: float, has_copies: bool
    ) -> Tensor:
        losses = predictions.new_empty(len(predictions))
        gradients = torch.empty_like(predictions)
        rows = max(1, _SCORES_PER_PIECE // max(1, len(choices)))
        for start in range(0, len(predictions), rows):
            piece = predictions[start : start + rows]
            row = torch.arange(len(piece), device=piece.device)
            own = row + start
            scores = (piece @ choices.T).div_(temperature)  # [rows, K]
            if has_copies:
                is_copy = choices[start : start + len(piece)] @ choices.T > _NEAR_COPY
                is_copy[row, own] = False
                scores.masked_fill_(is_copy, -torch.inf)

            normalizers = scores.logsumexp(dim=1)
            losses[start : start + rows] = normalizers - scores[row, own]
            if ctx.needs_input_grad[0]:
                shares = scores.sub_(normalizers[:, None]).exp_()
                shares[row, own] -= 1
                gradients[start : start + rows] = (shares @ choices).div_(temperature)

        ctx.save_for_backward(gradients)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_of_losses: Tensor) -> tuple[Tensor, None, None, None]:
        (gradients,) = ctx.saved_tensors
        return gradient_of_losses[:, None] * gradients, None, None, None


def mean_of_losses(losses: Tensor, sequences: Tensor | None) -> Tensor:
    """Averages the losses of masked vectors; zero without losses.

    Args:
        losses: loss of each vector, ``[M]``.
        sequences: index of the sequence of each vector, ``[M]``. Losses are averaged within each
            sequence first, then over sequences, as in the authors' code (default: over all
            vectors).
    """
    if len(losses) == 0:
        return losses.sum()
    if sequences is None:
        return losses.mean()
    # The number of sequences is not known here, and to ask for it would wait for a GPU.
    counts = (sequences[:, None] == sequences).sum(dim=1)  # [M], vectors of the same sequence
    weights = 1 / counts
    return (losses * weights).sum() / weights.sum()
