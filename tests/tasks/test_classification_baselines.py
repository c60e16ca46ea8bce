"""The baselines of classification over chunk vectors and word counts, by hand and in the script."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from nextlevelbert.tasks.classification.baselines import ChunkMeanClassifier, tfidf_logistic_regression
from nextlevelbert.tasks.classification.data import Example, TaskData, read_classification

from ..finetuning_toys import sea_rows, start, write


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


def test_word_counts_find_the_subject(sea_files):
    train = read_classification(sea_files["--train_file"])
    test = read_classification(sea_files["--test_file"], label_names=train.label_names)
    [logits] = tfidf_logistic_regression(train, [test])
    assert (logits.argmax(-1) == test.labels()).all()
    np.testing.assert_allclose(np.exp(logits).sum(-1), 1)
    values = TaskData("regression", ["text"], [Example("x", 0, label=0.5)], None, "here")
    with pytest.raises(ValueError, match="TF-IDF baseline classifies, got regression"):
        tfidf_logistic_regression(values, [])


def test_the_baselines_in_the_same_script(toy_encoder_path, tmp_path):
    start_alike = "In the year that all of this happened to us nothing else was of interest. "
    options = {"--chunk_encoder": toy_encoder_path, "--chunk_size": "16", "--num_train_epochs": "12"}
    for option, count, seed in (("--train_file", 32, 1), ("--validation_file", 8, 2), ("--test_file", 11, 3)):
        made = [{**row, "text": start_alike + row["text"]} for row in sea_rows(count, seed)]
        options[option] = write(tmp_path / f"{seed}.jsonl", made)
    cache = ("--cache_dir", str(tmp_path / "cache"))
    accuracy = {}
    for model in ("avg_sbert", "sbert", "tobert", "tfidf"):
        start(tmp_path / model, model, *cache, **options)
        accuracy[model] = json.loads((tmp_path / model / "results.json").read_text())["seeds"]["0"]["accuracy"]
    assert accuracy["tfidf"] == 1.0
    assert accuracy["avg_sbert"] > 0.8
    # Two new layers over the chunk vectors (Pappagari et al. 2019); not trained for long enough here to be judged.
    config = json.loads((tmp_path / "tobert" / "config.json").read_text())
    assert (config["model_type"], config["encoder_config"]["num_hidden_layers"], config["chunking"]) == (
        "hate", 2, "fixed"
    )  # fmt: skip
    # Truncated to the first chunk of 14 tokens, which all documents have in common, it can only guess.
    assert accuracy["sbert"] <= 6 / 11
