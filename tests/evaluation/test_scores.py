"""Scores of pairs, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nextlevelbert.evaluation.scores import binary_scores


def test_binary_scores_worked_by_hand():
    # Predicted are the first three: two of them right, of three that are there.
    scores = binary_scores([1, 1, 0, 1, 0, 0], np.array([0.9, 0.51, 0.7, 0.5, 0.2, 0.0]))
    assert scores == pytest.approx({"accuracy": 4 / 6, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3})
    assert binary_scores([0, 1], [0.1, 0.2]) == {"accuracy": 0.5, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert binary_scores(np.array([1]), [1.0])["f1"] == 1.0
