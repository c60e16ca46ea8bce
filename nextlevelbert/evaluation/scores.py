"""Scores of pairs of documents."""

from collections.abc import Sequence

import numpy as np


def binary_scores(
    labels: Sequence[int] | np.ndarray, scores: Sequence[float] | np.ndarray
) -> dict[str, float]:
    """Computes accuracy, and precision, recall and F1 of label 1.

    Args:
        labels: label of each row, 0 or 1.
        scores: score of each row, from 0 to 1; label 1 is predicted above 0.5.

    Returns:
        ``accuracy``, ``precision``, ``recall`` and ``f1``; a ratio of nothing to nothing is 0.

    Example:
        >>> binary_scores([1, 1, 0, 0], [0.9, 0.5, 0.6, 0.1])
        {'accuracy': 0.5, 'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    predictions = np.asarray(scores) > 0.5
    precision, recall, f1, _ = precision_recall_fscore_support(
        labels, predictions, average="binary", zero_division=0.0
    )
    return {
        "accuracy": float(accuracy_score(labels, predictions)),
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
    }
