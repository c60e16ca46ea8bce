"""Baselines and scores of fine-tuning, worked by hand."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from nextlevelbert.finetuning.task import mean_and_deviation
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
    assert ((logits > 0) == train.labels()).all()


def test_mean_and_deviation_over_seeds():
    table = [{"accuracy": 0.5}, {"accuracy": 0.7}]
    assert mean_and_deviation(table)["accuracy"] == pytest.approx((0.6, 0.1 * 2**0.5))
