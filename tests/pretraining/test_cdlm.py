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
from nextlevelbert.pretraining.cdlm import main
from nextlevelbert.pretraining.document_sets import hold_out_sets, read_document_sets

from .test_document_sets import sets, write

SETTINGS = [
    "--max_length", "48", "--attention_window", "8", "--per_device_train_batch_size", "2",
    "--gradient_accumulation_steps", "1", "--max_steps", "6", "--warmup_steps", "1", "--learning_rate", "3e-3",
    "--logging_steps", "1", "--save_steps", "2", "--eval_steps", "3", "--save_total_limit", "9", "--disable_tqdm",
    "true", "--validation_share", "0.25", "--eval_samples_per_cluster", "2",
]  # fmt: skip


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    return write(tmp_path_factory.mktemp("news") / "news.jsonl", [{"document": texts} for texts in sets(6, 5)])


@pytest.fixture
def run(toy_encoder_path, news):
    def pretrain(output, *words, model=toy_encoder_path, files=("--train_file", str(news))):
        main([*files, "--model", str(model), "--output_dir", str(output), *SETTINGS, *words])

    return pretrain


def loss_of(model, texts, **masking):
    """Of all sequences of the sets that a run would evaluate."""
    processor = CdlmProcessor.from_model(model, 48)
    dataset = ClusterDataset([*texts.values()], processor, samples_per_cluster=2)
    rows = [dataset[index] for index in range(len(dataset))]
    with torch.no_grad():
        batch = DataCollatorForCrossDocumentMasking(processor, **masking)(rows)
        return float(model.eval()(**batch).loss)


def test_pretraining_leaves_a_checkpoint_that_opens(run, news, tmp_path):
    folder = tmp_path / "cdlm"
    run(folder, "--do_train")
    results = json.loads((folder / "results.json").read_text())
    history = results["log"]
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert len(losses) == 6
    assert all(map(math.isfinite, losses))
    evaluations = [entry for entry in history if "eval_loss" in entry]
    assert [entry["step"] for entry in evaluations][:3] == [0, 3, 6]
    assert all(entry["eval_perplexity"] == pytest.approx(math.exp(entry["eval_loss"])) for entry in evaluations)
    assert evaluations[-1]["eval_loss"] < evaluations[0]["eval_loss"]
    # What is saved opens, and its loss is the one that was told.
    told = results["rows"]["validation"]
    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(model) is CdlmForMaskedLM
    assert not info["missing_keys"]
    assert not model.config.sparse_prediction
    assert AutoProcessor.from_pretrained(folder).max_length == model.config.max_sequence_length == 48
    _, held = hold_out_sets(read_document_sets(news), 0.25, 42)
    assert len(held) == 2
    assert loss_of(model, held) == pytest.approx(told["loss"], abs=1e-4)
    card = (folder / "README.md").read_text()
    assert f"| validation | {told['loss']:.4f} | {told['perplexity']:.4f} |" in card
    assert str(tmp_path) not in card
    with pytest.raises(ValueError, match="document_share"):
        run(folder, "--do_train", "--document_share", "0.5")


@pytest.mark.parametrize("pattern", ["masked", "none"])
def test_perplexity_without_training_and_on_a_test_set(run, news, toy_encoder_path, tmp_path, pattern):
    run(tmp_path, "--global_attention", pattern, files=("--test_file", str(news)))
    results = json.loads((tmp_path / "results.json").read_text())["rows"]["test"]
    torch.manual_seed(42)
    model = CdlmForMaskedLM.from_encoder(toy_encoder_path, max_length=48, attention_window=8)
    expected = loss_of(model, read_document_sets(news), pattern=pattern)
    assert results["loss"] == pytest.approx(expected, abs=0.05)  # the markers' rows are drawn
    assert results["perplexity"] == pytest.approx(math.exp(results["loss"]))
    assert not (tmp_path / "model.safetensors").exists()
    with pytest.raises(ValueError, match="--do_train"):
        run(tmp_path, "--do_train", files=("--test_file", str(news)))


def global_and_local(folder):
    for layer in AutoModel.from_pretrained(folder).encoder.layer:
        for part in ("query", "key", "value"):
            yield getattr(layer.attention.self, f"{part}_global"), getattr(layer.attention.self, part)


def test_without_global_attention_its_projections_end_as_copies(run, toy_encoder_path, tmp_path):
    run(tmp_path, "--do_train", "--global_attention", "none", "--max_steps", "2", "--eval_samples_per_cluster", "1")
    before = CdlmModel.from_encoder(toy_encoder_path, max_length=48).encoder.layer[0].attention.self
    for wide, local in global_and_local(tmp_path):
        assert torch.equal(wide.weight, local.weight)
        assert torch.equal(wide.bias, local.bias)
    [(_, local), *_] = global_and_local(tmp_path)
    assert not torch.equal(local.weight, before.query.weight)


def test_unrelated_sets_train_and_a_cdlm_is_trained_further(run, tmp_path):
    short = ("--do_train", "--max_steps", "2", "--eval_samples_per_cluster", "1")
    run(tmp_path / "random", "--random_clusters", *short)
    assert any(not torch.equal(wide.weight, local.weight) for wide, local in global_and_local(tmp_path / "random"))
    run(tmp_path / "further", *short, model=tmp_path / "random")
    first = json.loads((tmp_path / "further" / "results.json").read_text())["log"][0]
    last = json.loads((tmp_path / "random" / "results.json").read_text())["rows"]["validation"]
    # It goes on from what was learnt: held-out sets are the same, and asked in the same way.
    assert first["eval_loss"] == pytest.approx(last["loss"], abs=1e-4)
