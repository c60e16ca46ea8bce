"""Losses and scores against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from nextlevelbert.evaluation import context_mean_baseline, masked_vector_scores
from nextlevelbert.evaluation.masked_vectors import summarize
from nextlevelbert.models.configuration_vector_document import CLS, NOT_SPECIAL, SEP
from nextlevelbert.models.losses import masked_vector_loss
from nextlevelbert.models.pooling import pool

PREDICTIONS = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
TARGETS = torch.tensor([[0.0, 4.0], [1.0, 0.5]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("smooth_l1", (2.5 + 0 + 0 + 0.125) / 4),  # |3| - 0.5 above beta, 0.5 * 0.5 ** 2 below
        ("l1", (3 + 0.5) / 4),
        ("l2", (9 + 0.25) / 4),
        ("cosine", 1 - (0.8 + 1 / math.sqrt(1.25)) / 2),
    ],
)
def test_regression_losses(name, value):
    assert masked_vector_loss(name, PREDICTIONS, TARGETS).item() == pytest.approx(value, abs=1e-6)


def test_cross_entropy_over_the_batch():
    """Every entry of the matrix of cosines worked out, at temperature 0.5."""
    unit_p, unit_t = [(0.6, 0.8), (1.0, 0.0)], [(0.0, 1.0), (1 / math.sqrt(1.25), 0.5 / math.sqrt(1.25))]
    scores = [[(p[0] * t[0] + p[1] * t[1]) / 0.5 for t in unit_t] for p in unit_p]
    expected = -sum(s[i] - math.log(sum(math.exp(v) for v in s)) for i, s in enumerate(scores)) / 2
    assert masked_vector_loss("cross_entropy", PREDICTIONS, TARGETS, 0.5).item() == pytest.approx(expected, abs=1e-6)


def test_smooth_l1_between_unit_vectors_is_half_the_square():
    a, b = (torch.nn.functional.normalize(torch.randn(50, 384), dim=-1) for _ in range(2))
    assert masked_vector_loss("smooth_l1", a, b) == pytest.approx(masked_vector_loss("l2", a, b).item() / 2, rel=1e-5)


def test_scores_by_sequence():
    predictions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    positions = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])
    table = masked_vector_scores(predictions, targets, positions)
    cosines = [1.0, 0.2 / math.sqrt(1.04), 1 / math.sqrt(2)]
    # The second is nearest to (0, 1); the third to (1, 0.2), at cosine 0.83.
    assert table[:, 0].tolist() == [2, 1, 0]
    assert table[:, 1].tolist() == pytest.approx([cosines[0] + cosines[1], cosines[2], 0], abs=1e-6)
    assert table[:, 2].tolist() == [1, 0, 0]
    summary = summarize(table)
    assert summary["masked_accuracy"] == pytest.approx(1 / 3)
    assert summary["chance_accuracy"] == pytest.approx(1 / 3)
    assert summary["masked_cosine"] == pytest.approx(sum(cosines) / 3, abs=1e-6)


def test_a_constant_prediction_scores_as_chance():
    for constant in (torch.zeros(5, 4), torch.ones(5, 4)):
        targets = torch.ones(5, 4) if constant.any() else torch.randn(5, 4)
        table = masked_vector_scores(constant, targets, torch.ones(1, 5, dtype=torch.bool))
        assert summarize(table)["masked_accuracy"] == pytest.approx(1 / 5)


def test_scores_of_an_empty_selection():
    table = masked_vector_scores(torch.zeros(0, 4), torch.zeros(0, 4), torch.zeros(2, 3, dtype=torch.bool))
    assert table.tolist() == [[0] * 4] * 2
    assert summarize(table) == {"masked_cosine": 0.0, "masked_accuracy": 0.0, "chance_accuracy": 0.0}


def test_the_mean_of_the_context():
    vectors = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [0.0, 0.0]])
    rows = [{"vectors": vectors}]

    def collate(batch):
        return {
            "labels": torch.stack([row["vectors"] for row in batch]),
            "special_ids": torch.tensor([[CLS, NOT_SPECIAL, NOT_SPECIAL, NOT_SPECIAL, SEP]]),
            "mask_positions": torch.tensor([[False, False, False, True, False]]),
        }

    assert context_mean_baseline(rows, collate, 8)["masked_cosine"] == pytest.approx(1.0)


def test_pooling_by_hand():
    hidden = torch.tensor([[[1.0, -2.0], [3.0, 0.0], [9.0, 9.0]], [[7.0, 7.0]] * 3])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    expected = {
        "mean": [2.0, -1.0],
        "max": [3.0, 0.0],
        "cls": [1.0, -2.0],
        "lasttoken": [3.0, 0.0],
        "mean_sqrt_len_tokens": [4 / math.sqrt(2), -2 / math.sqrt(2)],
    }
    for mode, row in expected.items():
        torch.testing.assert_close(pool(hidden, mask, mode), torch.tensor([row, [0.0, 0.0]]))
    with pytest.raises(ValueError, match="Unknown pooling 'median'"):
        pool(hidden, mask, "median")
