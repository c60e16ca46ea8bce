"""Scores of pairs, by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def binary_scores(labels: Sequence[int] | np.ndarray, scores: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Accuracy, and precision, recall and F1 of label 1, which is predicted where a probability is above 0.5.

    Where nothing is predicted or nothing is there to find, what would be divided by 0 is 0.

    Example:
        >>> binary_scores([1, 1, 0, 0], [0.9, 0.5, 0.6, 0.1])
        {'accuracy': 0.5, 'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    predictions = np.asarray(scores) > 0.5
    *values, _ = precision_recall_fscore_support(labels, predictions, average="binary", zero_division=0.0)
    names = ("accuracy", "precision", "recall", "f1")
    return dict(zip(names, map(float, (accuracy_score(labels, predictions), *values)), strict=True))
