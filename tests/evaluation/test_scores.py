"""Scores of the classification tasks, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nextlevelbert.evaluation.scores import binary_scores, majority_scores, predicted, task_scores


def test_scores_worked_by_hand():
    logits = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 2.0], [5.0, 1.0]])  # says 0, 1, 1, 0
    scores = task_scores("single_label_classification", logits, np.array([0, 1, 0, 1]))
    # Class 1: one found of two, one of two findings right: precision = recall = 1/2; class 0 likewise.
    assert scores == {"accuracy": 0.5, "f1": 0.5, "macro_f1": 0.5, "micro_f1": 0.5}
    several = np.array([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])  # says {0}, {0, 1}, {}
    scores = task_scores("multi_label_classification", several, np.array([[1, 0], [1, 0], [0, 1]]))
    # Class 0: 2 of 2; class 1: none found of one, one wrong. Micro: 2 right of 3 given and 3 wanted.
    assert scores == pytest.approx({"accuracy": 1 / 3, "macro_f1": 0.5, "micro_f1": 2 / 3})
    flat = task_scores("regression", np.array([[1.0], [1.0], [1.0]]), np.array([1.0, 2.0, 3.0]))
    assert np.isnan(flat["pearson"])
    values = task_scores("regression", np.array([[1.0], [2.0], [4.0]]), np.array([1.0, 2.0, 3.0]))
    assert values == pytest.approx({"mse": 1 / 3, "pearson": 0.98198, "spearman": 1.0}, abs=1e-5)
    assert task_scores("multiple_choice", np.eye(4), np.array([0, 1, 0, 0])) == {"accuracy": 0.5}
    guess = majority_scores("single_label_classification", np.array([1, 1, 0]), np.array([0, 1, 1, 1]), 2)
    assert guess["accuracy"] == 0.75
    assert predicted("regression", np.array([[1.5]])).tolist() == [1.5]


def test_binary_scores_worked_by_hand():
    # Predicted are the first three: two of them right, of three that are there.
    found = binary_scores([1, 1, 0, 1, 0, 0], np.array([0.9, 0.51, 0.7, 0.5, 0.2, 0.0]))
    assert found == pytest.approx({"accuracy": 4 / 6, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3})
    assert binary_scores([0, 1], [0.1, 0.2]) == {"accuracy": 0.5, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert binary_scores(np.array([1]), [1.0])["f1"] == 1.0
