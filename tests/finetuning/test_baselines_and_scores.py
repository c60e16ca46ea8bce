"""Baselines and scores of fine-tuning, worked by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from nextlevelbert.evaluation.scores import majority_scores, predicted, task_scores
from nextlevelbert.finetuning.results import mean_and_deviation
from nextlevelbert.finetuning.trainer import labels_of
from nextlevelbert.tasks.classification.baselines import ChunkMeanClassifier, tfidf_logistic_regression
from nextlevelbert.tasks.classification.data import read_classification


def test_the_chunk_mean_baseline_by_hand():
    torch.manual_seed(0)
    model = ChunkMeanClassifier(4, "multiple_choice", 0, text_pair=False)
    documents, pairs = torch.randn(2, 3, 4), torch.randn(3, 2, 4)
    mask, index = torch.tensor([[1, 1, 0], [1, 1, 1]]), torch.tensor([0, 1, 1])
    labels = torch.tensor([1, 0, 1])
    output = model(documents, mask, pairs, index, labels)
    means = torch.stack([documents[0, :2].mean(0), documents[1].mean(0)])[index]
    features = torch.cat([means[:, None].expand(3, 2, 4), pairs], dim=-1)
    logits = model.classifier[2](model.classifier[0](features).clamp(min=0)).squeeze(-1)
    torch.testing.assert_close(output.logits, logits)
    torch.testing.assert_close(output.loss, nn.functional.nll_loss(logits.log_softmax(-1), labels))


def test_word_counts_with_several_labels(tmp_path):
    subjects = {"the ship sailed the sea": ["sea"], "the stock market fell": ["money"]}
    subjects["the ship was sold on the market"] = ["money", "sea"]
    rows = [{"text": f"{text} {n}", "label": label} for n in range(6) for text, label in subjects.items()]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    train = read_classification(tmp_path / "rows.jsonl")
    [logits] = tfidf_logistic_regression(train, [train])
    assert logits.shape == (18, 2)
    assert ((logits > 0) == labels_of(train)).all()


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
    table = [{"test": {"accuracy": 0.5}}, {"test": {"accuracy": 0.7}}]
    assert mean_and_deviation(table, "test")["accuracy"] == pytest.approx((0.6, 0.1 * 2**0.5))
