"""Scores of classes, values, choices and pairs, by scikit-learn and SciPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..data.rows import short


def predicted(problem_type: str, logits: np.ndarray) -> np.ndarray:
    """What logits ``[N, K]`` say: the best class or candidate ``[N]``, classes above 0.5 ``[N, K]``, values ``[N]``.

    Example:
        >>> predicted("multi_label_classification", np.array([[2.0, -1.0, 0.1]])).tolist()
        [[1, 0, 1]]
    """
    if problem_type == "regression":
        return logits.reshape(len(logits))
    if problem_type == "multi_label_classification":
        return (logits > 0).astype(int)  # the sigmoid is above 0.5
    return logits.argmax(axis=-1)


def task_scores(problem_type: str, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Scores of a set of predictions.

    Args:
        problem_type: as in `TaskData`.
        logits: ``[N, K]``.
        labels: ``[N]``, or ``[N, K]`` zeros and ones for several labels.

    Returns:
        ``accuracy``, ``macro_f1`` and ``micro_f1`` of classes; with two classes also ``f1`` of class 1. With
        several labels a row, accuracy counts rows with all of them right. ``mse``, ``pearson`` and ``spearman``
        of values (NaN where predictions or labels are all the same). ``accuracy`` of multiple choice.
    """
    from sklearn.metrics import accuracy_score, f1_score, mean_squared_error

    found = predicted(problem_type, logits)
    if problem_type == "regression":
        from scipy.stats import pearsonr, spearmanr

        scores = {"mse": float(mean_squared_error(labels, found)), "pearson": math.nan, "spearman": math.nan}
        # Equal predictions differ by rounding, which correlates with anything.
        if len(labels) > 2 and np.ptp(found) > 1e-6 * np.abs(found).max() and np.ptp(labels) > 0:
            scores["pearson"] = float(pearsonr(labels, found).statistic)
            scores["spearman"] = float(spearmanr(labels, found).statistic)
        return scores
    scores = {"accuracy": float(accuracy_score(labels, found))}
    if problem_type == "multiple_choice":
        return scores
    if problem_type == "single_label_classification" and logits.shape[-1] == 2:
        scores["f1"] = float(f1_score(labels, found, zero_division=0.0))
    for average in ("macro", "micro"):
        scores[f"{average}_f1"] = float(f1_score(labels, found, average=average, zero_division=0.0))
    return scores


def majority_scores(problem_type: str, train_labels: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """Scores of always giving the most frequent training label, or the mean of the values: what knowing nothing gives.

    Args:
        problem_type: as in `TaskData`.
        train_labels, labels: ``[N]``, or ``[N, K]``.
        classes: K.
    """
    if problem_type == "regression":
        logits = np.full((len(labels), 1), train_labels.mean())
    elif problem_type == "multi_label_classification":
        logits = np.tile(train_labels.mean(axis=0) - 0.5, (len(labels), 1))
    else:
        logits = np.tile(np.bincount(train_labels, minlength=classes), (len(labels), 1))
    return task_scores(problem_type, logits, labels)


def binary_scores(labels: Sequence[int] | np.ndarray, scores: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Accuracy, and precision, recall and F1 of label 1, which is predicted where the score is above 0.5.

    Where nothing is predicted or nothing is there to find, what would be divided by 0 is 0.

    Args:
        labels: ``[N]`` of 0 and 1.
        scores: ``[N]`` probabilities of label 1, from 0 to 1.

    Returns:
        ``accuracy``, ``precision``, ``recall`` and ``f1``, by scikit-learn.

    Raises:
        ValueError: for different numbers of labels and scores, or none, or values other than those named.

    Example:
        >>> binary_scores([1, 1, 0, 0], [0.9, 0.5, 0.6, 0.1])
        {'accuracy': 0.5, 'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    if len(labels) != len(scores) or not len(labels):
        raise ValueError(
            f"Got {len(scores)} scores for {len(labels)} labels; give one score per label, and at least one."
        )
    if wrong := [label for label in labels if label not in (0, 1)]:
        raise ValueError(f"Labels must be 0 or 1, got {short(wrong[0])}.")
    if outside := [score for score in scores if not 0 <= score <= 1]:
        raise ValueError(f"Scores must be probabilities from 0 to 1, got {short(outside[0])}.")
    found = np.asarray(scores) > 0.5
    precision, recall, f1, _ = precision_recall_fscore_support(labels, found, average="binary", zero_division=0.0)
    names = ("accuracy", "precision", "recall", "f1")
    return dict(zip(names, map(float, (accuracy_score(labels, found), precision, recall, f1)), strict=True))
