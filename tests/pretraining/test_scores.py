"""Scores of masked vectors and of pairs, worked by hand."""

import math

import numpy as np
import pytest
import torch
from transformers import EvalPrediction

from nextlevelbert import MaskedVectorMetrics
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, SEP
from nextlevelbert.models.losses import smooth_l1_loss
from nextlevelbert.pretraining.scores import (
    context_mean_baseline,
    masked_vector_scores,
    pairs_found,
)

from ..toys.vectors import close


def test_pairs_that_find_each_other_worked_out_by_hand():
    scores = torch.tensor([[3.0, 1.0, -torch.inf], [2.0, 1.5, 4.0], [0.0, 1.0, 5.0]])
    # Row 1 finds 2, and column 1 finds 1.
    expected = [[2, 1 / 2 + 1 / 3], [1, 2 / 3], [2, 1 / 3 + 1 / 2]]

    close(pairs_found(scores, torch.arange(3)), torch.tensor(expected) / 2)


def all_masked(positions: torch.Tensor) -> torch.Tensor:
    """Special ids of sequences in which all positions to predict are hidden."""
    return torch.where(positions, MASK, NOT_SPECIAL)


def test_a_vector_that_stays_visible_does_not_count():
    """The second of three keeps its vector; other processes pad with -100."""
    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    predictions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    mask_positions = torch.tensor([[1, 1, 1, -100]])
    special_ids = torch.tensor([[MASK, NOT_SPECIAL, MASK, -100]])
    metrics = MaskedVectorMetrics("cross_entropy")

    scores = metrics.score_batch((predictions, vectors), (mask_positions, special_ids))

    # The first is found among (1, 0) and (0.6, 0.8), the third is nearer to the first.
    assert metrics.summarize(scores) == {
        "masked_accuracy": pytest.approx(1 / 2),
        "chance_accuracy": pytest.approx(1 / 2),
        "masked_cosine": pytest.approx((1 + 0.6) / 2),
        "count": 2,
    }


def test_scores_by_sequence():
    predictions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    positions = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])

    table = masked_vector_scores(predictions, targets, positions, all_masked(positions))

    cosines = [1.0, 0.2 / math.sqrt(1.04), 1 / math.sqrt(2)]
    # The second is nearest to (0, 1); the third to (1, 0.2), at cosine 0.83.
    assert table[:, 0].tolist() == [2, 1, 0]
    assert table[:, 1].tolist() == pytest.approx([cosines[0] + cosines[1], cosines[2], 0], abs=1e-6)
    assert table[:, 2].tolist() == [1, 0, 0]
    summary = MaskedVectorMetrics().summarize(table)
    assert summary["masked_accuracy"] == pytest.approx(1 / 3)
    assert summary["chance_accuracy"] == pytest.approx(1 / 3)
    assert summary["masked_cosine"] == pytest.approx(sum(cosines) / 3, abs=1e-6)
    assert "r2" not in MaskedVectorMetrics("cross_entropy").summarize(table)


def test_r2_is_the_loss_against_that_of_the_mean():
    """Of all sequences, not of each batch; the mean has 0, the target 1."""
    draw = torch.Generator().manual_seed(0)
    targets = torch.nn.functional.normalize(torch.randn(6, 8, generator=draw) + 1, dim=-1)
    predictions = targets + 0.1 * torch.randn(6, 8, generator=draw)
    mean = targets.mean(dim=0).expand(6, 8)
    positions = torch.tensor([[True, True], [False, True]])

    def r2(vectors: torch.Tensor) -> float:
        batches = [slice(0, 3), slice(3, 6)]
        ids = all_masked(positions)
        tables = [
            masked_vector_scores(vectors[rows], targets[rows], positions, ids) for rows in batches
        ]
        return MaskedVectorMetrics().summarize(torch.cat(tables))["r2"]

    loss = smooth_l1_loss(predictions, targets)
    loss_of_mean = smooth_l1_loss(mean, targets)
    assert r2(predictions) == pytest.approx(1 - (loss / loss_of_mean).item(), abs=1e-5)
    assert r2(mean) == pytest.approx(0, abs=1e-5)
    assert r2(targets) == 1


def test_metrics_say_what_a_trainer_must_be_given():
    metrics = MaskedVectorMetrics()
    vectors = torch.zeros(1, 4)

    with pytest.raises(ValueError, match="label_names"):
        metrics.score_batch((vectors, vectors), torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="preprocess_logits_for_metrics"):
        metrics(EvalPrediction(predictions=(vectors, vectors), label_ids=None))


@pytest.mark.parametrize(
    ("constant", "targets"),
    [(torch.zeros(5, 4), torch.randn(5, 4)), (torch.ones(5, 4), torch.ones(5, 4))],
)
def test_a_constant_prediction_scores_as_chance(constant, targets):
    positions = torch.ones(1, 5, dtype=torch.bool)

    table = masked_vector_scores(constant, targets, positions, all_masked(positions))

    assert MaskedVectorMetrics().summarize(table)["masked_accuracy"] == pytest.approx(1 / 5)


def test_no_selection_scores_as_nothing():
    positions = torch.zeros(2, 3, dtype=torch.bool)
    nothing = torch.zeros(0, 4)

    table = masked_vector_scores(nothing, nothing, positions, all_masked(positions))

    assert MaskedVectorMetrics().summarize(table) == {
        "masked_accuracy": 0.0,
        "chance_accuracy": 0.0,
        "r2": 0.0,
        "masked_cosine": 0.0,
        "count": 0,
    }


def test_the_mean_of_the_context():
    """Of the vectors that are seen: not of specials, of padding, or of what is to be found.

    Position 3 becomes [MASK]; position 4 is to be predicted, too, but keeps its vector, so that it
    does not count.
    """
    vectors = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [8.0, 6.0], [5.0, 0.0], [9.0, 0.0]]
    batch = {
        "labels": torch.tensor([vectors]),
        "special_ids": torch.tensor([[CLS, NOT_SPECIAL, NOT_SPECIAL, MASK, NOT_SPECIAL, SEP]]),
        "mask_positions": torch.tensor([[False, False, False, True, True, False]]),
    }

    def baseline(prepare) -> dict[str, float]:
        return context_mean_baseline(
            [None],
            lambda rows: batch,
            batch_size=8,
            prepare=prepare,
            metrics=MaskedVectorMetrics("cosine"),
        )

    as_they_are = baseline(lambda labels: labels)
    only_y = baseline(lambda labels: labels * torch.tensor([0.0, 1.0]))

    # The mean is (0.5, 0.5), with a cosine of 14 / (10 √2); with position 4 it would be (2, 1/3).
    assert as_they_are["masked_cosine"] == pytest.approx(0.7 * 2**0.5)
    assert only_y["masked_cosine"] == pytest.approx(1.0)


def test_rows_of_each_batch_have_the_scores_of_all_rows():
    metrics = MaskedVectorMetrics("smooth_l1")
    rows = np.random.default_rng(0).random((5, 10))

    of_batches = metrics(EvalPrediction([rows[:4], rows[4:]], None))

    assert of_batches == metrics(EvalPrediction(rows, None))
