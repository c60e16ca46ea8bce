"""Scores of classes, values, choices and pairs, by scikit-learn and SciPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def predicted(problem_type: str, logits: np.ndarray) -> np.ndarray:
    """What logits ``[N, K]`` say: the best class or candidate ``[N]``, classes above 0.5 ``[N, K]``, values ``[N]``.

    Example:
        >>> predicted("multi_label_classification", np.array([[2.0, -1.0, 0.1]])).tolist()
        [[1, 0, 1]]
    """
    if problem_type == "regression":
        return logits.reshape(len(logits))
    return (logits > 0).astype(int) if problem_type == "multi_label_classification" else logits.argmax(axis=-1)


def task_scores(problem_type: str, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Scores of logits ``[N, K]``, for labels ``[N]``, or ``[N, K]`` zeros and ones for several labels.

    Returns:
        ``accuracy``, ``macro_f1`` and ``micro_f1`` of classes; with two classes also ``f1`` of class 1. With several
        labels a row, accuracy counts rows with all of them right. ``mse``, ``pearson`` and ``spearman`` of values
        (NaN where predictions or labels are all the same). ``accuracy`` of multiple choice.
    """
    from sklearn.metrics import accuracy_score, f1_score, mean_squared_error

    predictions = predicted(problem_type, logits)
    if problem_type == "regression":
        from scipy.stats import pearsonr, spearmanr

        scores = {"mse": float(mean_squared_error(labels, predictions)), "pearson": math.nan, "spearman": math.nan}
        # Equal predictions differ by rounding, which correlates with anything.
        if len(labels) > 2 and np.ptp(predictions) > 1e-6 * np.abs(predictions).max() and np.ptp(labels) > 0:
            scores["pearson"] = float(pearsonr(labels, predictions).statistic)
            scores["spearman"] = float(spearmanr(labels, predictions).statistic)
        return scores
    scores = {"accuracy": float(accuracy_score(labels, predictions))}
    if problem_type == "multiple_choice":
        return scores
    if problem_type == "single_label_classification" and logits.shape[-1] == 2:
        scores["f1"] = float(f1_score(labels, predictions, zero_division=0.0))
    for name in ("macro", "micro"):
        scores[f"{name}_f1"] = float(f1_score(labels, predictions, average=name, zero_division=0.0))
    return scores


def majority_scores(problem_type: str, train_labels: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """Scores of always giving the most frequent training label, or the mean of the values; with K = `classes`."""
    if problem_type == "regression":
        row = train_labels.mean(keepdims=True)
    elif problem_type == "multi_label_classification":
        row = train_labels.mean(axis=0) - 0.5
    else:
        row = np.bincount(train_labels, minlength=classes)
    return task_scores(problem_type, np.tile(row, (len(labels), 1)), labels)


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
