"""Class weights, and predictions in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.tasks.classification.baselines import ChunkMeanClassifier
from nextlevelbert.tasks.classification.data import Example, TaskData
from nextlevelbert.tasks.classification.options import VectorClassification
from nextlevelbert.tasks.classification.task import Classification
from nextlevelbert.tasks.classification.train import (
    Prepared,
    balanced_class_weights,
    train_classifier,
    write_predictions,
)
from nextlevelbert.tasks.classification.vectors import TaskVectorDataset, TaskVectors

from ..finetuning_toys import predictions


def data(labels, problem="single_label_classification", names=("a", "b", "c"), documents=None):
    examples = [Example(f"x{number}", number, label=label) for number, label in enumerate(labels)]
    return TaskData(problem, documents or [f"text {n}" for n in range(len(labels))], examples, names, "here")


def test_class_weights_are_scikit_learn_s_and_weigh_the_loss(tmp_path):
    task = data([0, 0, 0, 1, 2, 2])
    weights = balanced_class_weights(task)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=task.labels())
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="here has no training example of c"):
        balanced_class_weights(data([0, 1, 1]))
    with pytest.raises(ValueError, match="for single labels, not for regression"):
        balanced_class_weights(data([0.5, 1.0], "regression", None))


def test_a_run_with_class_weights(tmp_path):
    vectors = TaskVectors([torch.full((1, 32), float(n % 3)) for n in range(6)], None)
    dataset = TaskVectorDataset(data([0, 0, 0, 1, 2, 2]), vectors)
    weights = balanced_class_weights(dataset.data)
    args = FinetuningArguments(output_dir=str(tmp_path), max_steps=1, learning_rate=1e-9, report_to=[])
    task = Classification(VectorClassification(model="avg_sbert", train_file="-"), args)
    prepared = Prepared(
        {"train": dataset, "validation": dataset},
        lambda: ChunkMeanClassifier(32, "single_label_classification", 3, False),
    )
    found = train_classifier(task, 0, tmp_path / "seed-0", prepared, weights)
    logits = torch.tensor(found.logits["validation"])
    labels = torch.tensor(dataset.data.labels())
    # Not divided by the batch's own weights, so that it does not matter how examples are put into batches.
    by_hand = -(weights[labels] * logits.log_softmax(-1)[range(6), labels]).mean()
    assert found.scores["validation"]["loss"] == pytest.approx(by_hand.item(), abs=1e-5)


def test_predictions_in_words(tmp_path):
    task = data([(0,), (0, 2)], "multi_label_classification")
    write_predictions(tmp_path / "p.jsonl", task, np.array([[0.0, 1.0, -1.0], [3.0, -3.0, 3.0]]))
    first, second = predictions(tmp_path / "p.jsonl")
    assert (first["prediction"], first["label"], first["scores"][0]) == (["b"], ["a"], 0.5)
    assert second["prediction"] == second["label"] == ["a", "c"]
    write_predictions(tmp_path / "v.jsonl", data([1.5, None], "regression", None), np.array([[1.25], [0.0]]))
    assert predictions(tmp_path / "v.jsonl") == [
        {"id": "x0", "prediction": 1.25, "label": 1.5, "scores": [1.25]},
        {"id": "x1", "prediction": 0.0, "scores": [0.0]},
    ]
