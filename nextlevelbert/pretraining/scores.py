"""Scores of what training on vectors has learned.

Notation for shapes: B sequences in a batch, L positions, M masked positions of the batch, D hidden
size, N pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from ..evaluation.vectors import find_targets
from ..models.configuration_nextlevelbert import MASK, NOT_SPECIAL
from .datasets import VectorSequence

if TYPE_CHECKING:  # it brings Trainer and peft, which opening a model does not need
    from transformers import EvalPrediction


@dataclass
class MaskedVectorMetrics:
    """Computes what masked vector modelling has learned, for the evaluations of a `Trainer`.

    A regression loss also falls if the predictions only shrink towards the mean. These metrics
    show whether the model has learned more than that. They count the vectors that became [MASK];
    those that are to be predicted but stay visible, or get another vector, do not count.

    - ``masked_accuracy``: share of the masked vectors that are found, which means that the
      prediction is nearer to its target (by cosine) than to all other masked vectors of the batch.
    - ``chance_accuracy``: accuracy of guessing, 1 / number of masked vectors in the batch.
    - ``count``: number of masked vectors, of which both are shares.
    - ``r2``, for the loss smooth_l1: 1 - squared error / squared error of the constant mean of all
      targets. Smooth L1 is half the squared error where no coordinate is off by more than 1, as
      between chunk vectors of length 1. 0 is no better than the mean.
    - ``masked_cosine``: cosine of prediction and target. It can be high although nothing was
      learned, if all vectors are similar.

    A `Trainer` needs both functions, because it would otherwise gather all predicted vectors: give
    it ``preprocess_logits_for_metrics=metrics.score_batch`` and ``compute_metrics=metrics``, and
    its arguments ``label_names=["mask_positions", "special_ids"]``. README shows a whole training.

    Args:
        loss: loss of the model's configuration; decides whether ``r2`` is reported.
    """

    loss: str = "smooth_l1"

    def score_batch(
        self, outputs: tuple[torch.Tensor, ...], labels: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        """Scores a batch, as `preprocess_logits_for_metrics`.

        Args:
            outputs: predictions and targets ``[M, D]``, from the model.
            labels: mask positions and special ids, ``[B, L]`` each, from
                ``TrainingArguments(label_names=[…])``. Several processes pad both with -100.

        Returns:
            The sums of `masked_vector_scores`, a row for each sequence.

        Raises:
            ValueError: if the labels are others.
        """
        if not isinstance(labels, tuple) or len(labels) != 2:
            raise ValueError(
                "Expected mask_positions and special_ids as labels. Set"
                " TrainingArguments(label_names=['mask_positions', 'special_ids'])."
            )
        predictions, targets = outputs[:2]
        mask_positions, special_ids = labels
        return masked_vector_scores(predictions, targets, mask_positions == 1, special_ids)

    def __call__(self, evaluation: EvalPrediction) -> dict[str, float]:
        """Computes the metrics of an evaluation, as `compute_metrics`.

        Args:
            evaluation: predictions that consist of the rows from `score_batch`.

        Returns:
            The metrics by name; zeros if nothing was masked.

        Raises:
            ValueError: if the predictions did not go through `score_batch`.
        """
        rows = evaluation.predictions
        if isinstance(rows, list):  # of each batch, with eval_do_concat_batches=False
            rows = np.concatenate(rows)
        if isinstance(rows, tuple):
            raise ValueError(
                "Got predicted vectors, of which a Trainer keeps only a part. Also set"
                " Trainer(preprocess_logits_for_metrics=metrics.score_batch)."
            )
        return self.summarize(torch.as_tensor(rows))

    def summarize(self, scores: torch.Tensor) -> dict[str, float]:
        """Computes the metrics from the rows of `masked_vector_scores`.

        Returns:
            The metrics by name; zeros if nothing was masked.
        """
        totals = scores.double().sum(dim=0)
        selected, cosine, found, chance, error, squares = totals[:6].tolist()
        count = max(selected, 1.0)
        metrics = {"masked_accuracy": found / count, "chance_accuracy": chance / count}
        if self.loss == "smooth_l1":
            variation = squares - float(totals[6:].square().sum()) / count
            metrics["r2"] = 0.0
            if variation > 1e-6 * squares:
                metrics["r2"] = 1.0 - error / variation

        metrics["masked_cosine"] = cosine / count
        metrics["count"] = int(selected)
        return metrics


def masked_vector_scores(
    predictions: torch.Tensor,
    targets: torch.Tensor,
    mask_positions: torch.Tensor,
    special_ids: torch.Tensor,
) -> torch.Tensor:
    """Sums scores over the masked vectors of each sequence, so that evaluation keeps one row each.

    `find_targets` says when a target is found among the M targets of the batch.

    Args:
        predictions: predicted vectors ``[P, D]``, in the row-by-row order of `mask_positions`.
        targets: true vectors ``[P, D]``, in the same order.
        mask_positions: bool mask ``[B, L]``, true at the P positions to predict.
        special_ids: ``[B, L]``, [MASK] at the M positions whose vectors are hidden.

    Returns:
        ``[B, 6 + D]`` float32: number of masked positions; sums over them of the cosine, of
        finding the target (0 to 1), of the chance to find it (1 / M), of the squared error, of the
        target's squared length, and of the target itself.
    """
    is_masked = special_ids == MASK  # [B, L]
    chosen = is_masked[mask_positions]  # [P]
    predictions = predictions[chosen].float()  # [M, D]
    targets = targets[chosen].float()
    sequence = (mask_positions & is_masked).nonzero()[:, 0]
    cosine, found, chance = find_targets(predictions, targets)
    error = (predictions - targets).square().sum(dim=-1)
    squares = targets.square().sum(dim=-1)

    columns = [torch.ones_like(cosine), cosine, found, chance, error, squares]
    table = torch.cat([torch.stack(columns, dim=1), targets], dim=1)  # [M, 6 + D]
    sums = table.new_zeros(len(mask_positions), table.shape[1])
    return sums.index_add(0, sequence, table)


def context_mean_baseline(
    dataset: Dataset,
    collate: Callable[[list[VectorSequence]], dict[str, torch.Tensor]],
    batch_size: int,
    prepare: Callable[[torch.Tensor], torch.Tensor],
    metrics: MaskedVectorMetrics,
) -> dict[str, float]:
    """Scores the mean of a sequence's other vectors as the prediction of its masked vectors.

    A model that uses the order of the vectors must score higher than this baseline.

    Args:
        dataset: sequences to evaluate on.
        collate: collator that masks the sequences.
        batch_size: sequences in a batch, whose masked vectors are the candidates.
        prepare: function that makes targets of vectors, such as the model's `prepare_targets`.
        metrics: computes the scores.
    """
    tables = []
    for batch in DataLoader(dataset, batch_size, collate_fn=collate):
        mask_positions = batch["mask_positions"]  # [B, L]
        visible = (batch["special_ids"] == NOT_SPECIAL) & ~mask_positions  # [B, L]
        labels = prepare(batch["labels"].float())
        count = visible.sum(dim=1, keepdim=True).clamp(min=1)
        mean = (labels * visible.unsqueeze(-1)).sum(dim=1) / count  # [B, D]
        predictions = mean[mask_positions.nonzero()[:, 0]]
        targets = labels[mask_positions]
        scores = masked_vector_scores(predictions, targets, mask_positions, batch["special_ids"])
        tables.append(scores)

    return metrics.summarize(torch.cat(tables))


def pairs_found(scores: torch.Tensor, document_ids: torch.Tensor) -> torch.Tensor:
    """Computes how many segments of each pair find their partner, and the chance to.

    Args:
        scores: scores ``[N, N]`` of first against second segments, -inf for segments that are not
            compared.
        document_ids: ignored ``[N]``; accepted because a `Trainer` passes the labels.

    Returns:
        ``[N, 2]``: shares of the two segments that find their partner, and chances.
    """
    right = torch.arange(len(scores), device=scores.device)
    partners = (scores.argmax(dim=1) == right).float() + (scores.argmax(dim=0) == right).float()
    compared = scores > -torch.inf
    chance = 1 / compared.sum(dim=1) + 1 / compared.sum(dim=0)
    return torch.stack([partners, chance], dim=1) / 2


def pair_metrics(evaluation: EvalPrediction) -> dict[str, float]:
    """Computes the metrics of an evaluation, as `compute_metrics`, from rows of `pairs_found`."""
    accuracy, chance = evaluation.predictions.mean(axis=0).tolist()
    segments = 2 * len(evaluation.predictions)
    return {"pair_accuracy": accuracy, "chance_accuracy": chance, "count": segments}
