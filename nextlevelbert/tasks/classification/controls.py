"""Rows of the table that need no training of a model: the mean and the whitened mean of the same chunk vectors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from ...evaluation.scores import task_scores
from ...finetuning.controls import MEAN, WHITENED, fitted_whitening
from ...finetuning.task import Row, Sets
from .data import TaskData

logger = logging.getLogger(__name__)

_ROWS_PER_PRODUCT = 4_096
_FEWEST = 2  # examples of a class, for a choice of the regularisation by cross-validation


@dataclass(frozen=True)
class TaskVectors:
    """The frozen vectors of a task.

    Attributes:
        documents: chunk vectors ``[n, D]`` of each document of `TaskData.documents`, float32.
        pairs: for each example the vector ``[D]`` of its question, or ``[C, D]`` of question and candidate; None for
            a task without questions.
    """

    documents: list[torch.Tensor]
    pairs: list[torch.Tensor] | None


def control_rows(sets: Sets[TaskData], vectors: Mapping[str, TaskVectors]) -> dict[str, Row]:
    """Scores on the reported set of the mean of the chunk vectors, and of the whitened mean.

    Classes are told apart by a logistic regression, several labels and values by a ridge regression; both choose their
    regularisation by cross-validation within the training set. The candidate is chosen whose vector (with the
    question's words) has the highest cosine with the document's, without training. The whitening is fitted to the
    chunks of the training documents.

    Args:
        sets: the task.
        vectors: of all chunks, by name of the set.

    Returns:
        The two rows; without the second, and a line that says why, where whitening cannot be fitted, and without both
        where a class has a single training example.
    """
    whitening = fitted_whitening(vectors["train"].documents)
    maps: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {MEAN: lambda rows: rows}
    if whitening is not None:
        maps[WHITENED] = whitening
    scored, train = sets.scored, sets.train
    rows: dict[str, Row] = {}
    for name, change in maps.items():
        documents = {part: _means(vectors[part], change) for part in ("train", sets.reported)}
        if train.problem_type == "multiple_choice":
            logits = _nearest(scored, documents[sets.reported], vectors[sets.reported], change)
            title = f"candidate nearest to the {name}"
        else:
            features = {
                part: _features(sets.by_name[part], documents[part], vectors[part], change) for part in documents
            }
            found = fit_regression(train, features["train"], features[sets.reported])
            if found is None:
                return {}
            kind, logits = found
            title = f"{name}, {kind}"
        rows[title] = {**task_scores(scored.problem_type, logits, scored.labels())}
    return rows


def _means(vectors: TaskVectors, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """``[documents, D]``; many documents in one product, since each reads the D x D matrix of a whitening."""
    means: list[torch.Tensor] = []
    waiting: list[torch.Tensor] = []
    count = 0
    for number, rows in enumerate(vectors.documents, 1):
        waiting.append(rows)
        count += len(rows)
        if number == len(vectors.documents) or count >= _ROWS_PER_PRODUCT:
            changed = change(torch.cat(waiting)).split([len(each) for each in waiting])
            means += [each.mean(dim=0) for each in changed]
            waiting, count = [], 0
    return torch.stack(means)


def _features(
    data: TaskData, documents: torch.Tensor, vectors: TaskVectors, change: Callable[[torch.Tensor], torch.Tensor]
) -> np.ndarray:
    """``[N, D]``, or ``[N, 2 D]`` with the vector of the question."""
    found = documents[[example.document for example in data.examples]]
    if vectors.pairs is not None:
        found = torch.cat([found, change(torch.stack(vectors.pairs))], dim=1)
    return found.numpy().astype(np.float64)


def _nearest(
    data: TaskData, documents: torch.Tensor, vectors: TaskVectors, change: Callable[[torch.Tensor], torch.Tensor]
) -> np.ndarray:
    """Cosines ``[N, C]`` of documents and candidates."""
    assert vectors.pairs is not None  # every question has candidates
    own = documents[[example.document for example in data.examples]]  # [N, D]
    return F.cosine_similarity(own[:, None], change(torch.stack(vectors.pairs)), dim=-1).numpy()


def fit_regression(train: TaskData, features: np.ndarray, others: np.ndarray) -> tuple[str, np.ndarray] | None:
    """A linear model of frozen vectors, with its regularisation chosen by cross-validation within the training set.

    Args:
        train: with labels; single ones take a logistic regression, several and values a ridge regression.
        features: ``[N, D]``, float64, one row for each training example.
        others: ``[M, D]``, what to predict.

    Returns:
        The kind of model, and its log-probabilities ``[M, K]`` of the classes, scores ``[M, K]`` of several labels, or
        values ``[M, 1]``; None, with a line why, where a class has a single example.
    """
    labels = train.labels()
    if features.shape[1] > len(features):
        # The penalty makes the weights a sum of training examples, so the axes of their span are enough: the optimum
        # is the same, and steps in thousands of dimensions take minutes.
        axes = np.linalg.qr(features.T)[0]  # [D, N]
        features, others = features @ axes, others @ axes  # [N, N], [M, N]
    if train.problem_type != "single_label_classification":
        from sklearn.linear_model import RidgeCV

        several = train.problem_type == "multi_label_classification"
        ridge = RidgeCV(alphas=np.logspace(-3, 3, 13)).fit(features, 2 * labels - 1 if several else labels)
        return "ridge regression", ridge.predict(others).reshape(len(others), -1)
    from sklearn.linear_model import LogisticRegressionCV

    known, counts = np.unique(labels, return_counts=True)
    if len(known) < 2 or counts.min() < _FEWEST:
        logger.warning("There is no row for the means of the chunk vectors: a class has fewer than two examples.")
        return None
    classifier = LogisticRegressionCV(
        Cs=np.logspace(0, 4, 5),  # for vectors of length 1 and less
        cv=int(min(5, counts.min())),
        max_iter=1000,
        scoring="neg_log_loss",
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    classifier.fit(features, labels)
    scores = np.full((len(others), len(train.label_names or known)), -np.inf)
    scores[:, known] = classifier.predict_log_proba(others)
    return "logistic regression", scores
