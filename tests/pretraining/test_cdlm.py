"""Pretraining of a CDLM from sets of documents to a checkpoint that opens, and its perplexity alone."""

from __future__ import annotations

import json
import math

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoProcessor

from nextlevelbert import (
    CdlmForMaskedLM,
    CdlmModel,
    CdlmProcessor,
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
)
from nextlevelbert.pretraining import cdlm
from nextlevelbert.pretraining.document_sets import read_document_sets

from .test_document_sets import sets, write

SETTINGS = [
    "--max_length", "48", "--attention_window", "8", "--per_device_train_batch_size", "2",
    "--gradient_accumulation_steps", "1", "--warmup_steps", "1", "--learning_rate", "3e-3",
    "--eval_steps", "3", "--disable_tqdm", "true", "--validation_share", "0.25", "--eval_strategy", "steps",
    "--save_strategy", "no",
]  # fmt: skip


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    return write(tmp_path_factory.mktemp("news") / "news.jsonl", [{"document": texts} for texts in sets(6, 5)])


@pytest.fixture
def run(toy_encoder_path, news):
    def pretrain(output, *words, model=toy_encoder_path, files=("--train_file", str(news))):
        cdlm.main([*files, "--model", str(model), "--output_dir", str(output), *SETTINGS, *words])
        return json.loads((output / "results.json").read_text())

    return pretrain


def test_pretraining_leaves_a_checkpoint_that_opens(run, news, tmp_path):
    folder = tmp_path / "cdlm"
    results = run(folder, "--do_train", "--max_steps", "6")
    evaluations = [entry for entry in results["log"] if "eval_loss" in entry]
    assert [entry["step"] for entry in evaluations] == [0, 3, 6]
    scores = results["rows"]["validation"]
    assert scores["loss"] == pytest.approx(evaluations[-1]["eval_loss"])
    assert scores["loss"] < evaluations[0]["eval_loss"]
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    # What is saved opens, and its perplexity on the same sets is the one that was told.
    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(model) is CdlmForMaskedLM
    assert not info["missing_keys"]
    assert not model.config.sparse_prediction
    assert AutoProcessor.from_pretrained(folder).max_length == model.config.max_sequence_length == 48
    assert run(tmp_path / "alone", model=folder)["rows"]["validation"] == pytest.approx(scores, abs=1e-3)
    card = (folder / "README.md").read_text()
    assert f"| validation | {scores['loss']:.4f} | {scores['perplexity']:.4f} |" in card
    with pytest.raises(ValueError, match="do_train"):  # an evaluation leaves the results of the training as they are
        run(folder, "--max_steps", "6")
    assert json.loads((folder / "results.json").read_text()) == results


def test_perplexity_without_training_and_on_a_test_set(run, news, toy_encoder_path, tmp_path):
    results = run(tmp_path, "--global_attention", "none", files=("--test_file", str(news)))["rows"]["test"]
    torch.manual_seed(42)
    model = CdlmForMaskedLM.from_encoder(toy_encoder_path, max_length=48, attention_window=8)
    processor = CdlmProcessor.from_model(model, 48)
    dataset = ClusterDataset([*read_document_sets(news).values()], processor)
    collator = DataCollatorForCrossDocumentMasking(processor, "none")
    with torch.no_grad():
        expected = model(**collator([dataset[index] for index in range(len(dataset))])).loss
    assert results["loss"] == pytest.approx(float(expected), abs=0.05)  # the markers' rows are drawn
    assert not (tmp_path / "model.safetensors").exists()
    with pytest.raises(ValueError, match="--do_train"):
        run(tmp_path, "--do_train", files=("--test_file", str(news)))


def test_global_projections_that_learn_nothing_end_as_copies(run, toy_encoder_path, tmp_path):
    run(tmp_path, "--do_train", "--global_attention", "none", "--max_steps", "2")
    before = CdlmModel.from_encoder(toy_encoder_path, max_length=48).encoder.layer[0].attention.self
    layers = [layer.attention.self for layer in AutoModel.from_pretrained(tmp_path).encoder.layer]
    for layer in layers:
        for part in ("query", "key", "value"):
            assert torch.equal(getattr(layer, f"{part}_global").weight, getattr(layer, part).weight)
            assert torch.equal(getattr(layer, f"{part}_global").bias, getattr(layer, part).bias)
    assert not torch.equal(layers[0].query.weight, before.query.weight)
