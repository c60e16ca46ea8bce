"""The labels of a task: targets for a loss, predictions from a model's outputs, and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset, List
from numpy.typing import ArrayLike

from ..data.sets import names_of, source_of
from ..training.runs import write_json_lines

ProblemType = Literal[
    "single_label_classification", "multi_label_classification", "multiple_choice"
]
SINGLE: ProblemType = "single_label_classification"
SEVERAL: ProblemType = "multi_label_classification"
CHOICE: ProblemType = "multiple_choice"


@dataclass(frozen=True)
class LabelSet:
    """The labels of a training set, which all sets of a task share.

    Args:
        problem_type: problem type of transformers, or ``"multiple_choice"``.
        names: the classes, in the order of their indices; empty for choices.
        choices: number of choices in a row; 0 for classes.
    """

    problem_type: ProblemType
    names: tuple[str, ...] = ()
    choices: int = 0

    @classmethod
    def of(cls, train: Dataset) -> LabelSet:
        """Returns the labels of a training set.

        Raises:
            ValueError: for a set whose rows all have the same class.
        """
        if "choices" in train.features:
            return cls(CHOICE, choices=len(train[0]["choices"]))

        names = names_of(train)
        problem_type = SINGLE
        if isinstance(train.features["label"], List):
            problem_type = SEVERAL
        if problem_type == SINGLE and len(names) == 1:
            raise ValueError(
                f"{source_of(train)} has only one class. Give rows of at least two, or"
                " --label_names_file."
            )

        return cls(problem_type, names)

    def config(self) -> dict[str, Any]:
        """Returns the fields of a model's configuration; none for multiple choice."""
        if self.problem_type == CHOICE:
            return {}
        return {
            "id2label": dict(enumerate(self.names)),
            "label2id": {name: index for index, name in enumerate(self.names)},
            "problem_type": self.problem_type,
        }

    def array(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns labels ``[N]``, or ``[N, K]`` zeros and ones if a row may have several."""
        if self.problem_type != SEVERAL:
            return np.array(labels)
        array = np.zeros((len(labels), len(self.names)), int)
        for row, indices in zip(array, labels, strict=True):
            row[indices] = 1
        return array

    def targets(self, labels: Sequence[Any]) -> torch.Tensor:
        """Returns the labels for a loss: classes ``[N]``, or floats ``[N, K]`` if several."""
        targets = torch.from_numpy(self.array(labels))
        if self.problem_type == SEVERAL:
            return targets.float()
        return targets

    def predicted(self, logits: np.ndarray) -> np.ndarray:
        """Returns the predictions of logits ``[N, K]``.

        The predictions are the best class or choice of each row, ``[N]``. If a row may have several
        labels, they are ``[N, K]`` zeros and ones, with 1 for all classes with a probability above
        0.5.
        """
        if self.problem_type == SEVERAL:
            return (logits > 0).astype(int)
        return logits.argmax(axis=-1)

    def scores(self, labels: np.ndarray, logits: np.ndarray) -> dict[str, float]:
        """Scores logits by scikit-learn.

        Args:
            labels: labels of the rows, from `array`.
            logits: predicted logits, ``[N, K]``.

        Returns:
            ``accuracy``: with several labels, the share of rows that have all labels right. Except
            for multiple choice also ``macro_f1`` and ``micro_f1``. For two classes also ``f1`` of
            class 1; for a single class, which a row has or has not, only its ``f1``.
        """
        from sklearn.metrics import accuracy_score, f1_score

        predictions = self.predicted(logits)
        scores = {"accuracy": float(accuracy_score(labels, predictions))}
        if self.problem_type == CHOICE:
            return scores

        if len(self.names) == 1 or (self.problem_type == SINGLE and len(self.names) == 2):
            scores["f1"] = float(f1_score(labels, predictions, zero_division=0.0))
        if len(self.names) == 1:
            return scores  # scikit-learn would average over the absence of the class, too

        for average in ("macro", "micro"):
            value = f1_score(labels, predictions, average=average, zero_division=0.0)
            scores[f"{average}_f1"] = float(value)

        return scores

    def majority_logits(self, train: Dataset) -> np.ndarray:
        """Returns logits ``[1, K]`` that always predict the most frequent label of a set."""
        labels = self.array(train["label"])
        if self.problem_type == SEVERAL:
            return labels.mean(axis=0, keepdims=True) - 0.5
        return np.bincount(labels, minlength=len(self.names) or self.choices)[None]

    def majority_scores(self, train: Dataset, reported: Dataset) -> dict[str, float]:
        """Scores the most frequent label of the training set as prediction for another set."""
        logits = self.majority_logits(train).repeat(len(reported), axis=0)
        return self.scores(self.array(reported["label"]), logits)

    def text(self, label: ArrayLike) -> int | str | list[str]:
        """Returns the names of the classes of a label, or the index of a choice."""
        indices = np.atleast_1d(label).astype(int).tolist()
        if not self.names:
            return indices[0]
        if self.problem_type == SEVERAL:
            return [self.names[index] for index in indices]
        return self.names[indices[0]]


def write_predictions(path: Path, dataset: Dataset, labels: LabelSet, logits: np.ndarray) -> None:
    """Writes predictions as JSON lines: id, prediction, label (if there is one), and scores.

    Args:
        path: the file.
        dataset: the set.
        labels: labels of the task, which name the classes of the logits.
        logits: predicted logits, ``[N, K]``; the written scores are the probabilities.
    """
    values = torch.as_tensor(logits, dtype=torch.float64)
    if labels.problem_type == SEVERAL:
        probabilities = values.sigmoid()
    else:
        probabilities = values.softmax(-1)

    records = []
    rows = dataset.remove_columns("text")
    predictions = labels.predicted(logits)
    for row, predicted, scores in zip(rows, predictions, probabilities.tolist(), strict=True):
        indices = predicted
        if labels.problem_type == SEVERAL:
            indices = np.flatnonzero(predicted)
        record = {"id": row["id"], "prediction": labels.text(indices)}
        if "label" in row:
            record["label"] = labels.text(row["label"])
        record["scores"] = [round(score, 6) for score in scores]
        records.append(record)

    write_json_lines(path, records)


def pair_texts(row: Mapping[str, Any]) -> list[str]:
    """Returns the texts that a model reads with a document: a question, or one for each choice."""
    question = row.get("question")
    if "choices" in row:
        return [f"{question} {choice}" for choice in row["choices"]]
    if question is None:
        return []
    return [question]
