"""Scores of predicted vectors against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from nextlevelbert.evaluation import context_mean_baseline, masked_vector_scores
from nextlevelbert.evaluation.masked_vectors import summarize
from nextlevelbert.models.configuration_nextlevelbert import CLS, NOT_SPECIAL, SEP


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
