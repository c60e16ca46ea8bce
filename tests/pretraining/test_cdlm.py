"""`run_pretraining.py --model_type cdlm` from sets of documents to a checkpoint that opens and continues."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoProcessor

from nextlevelbert import (
    CdlmForMaskedLM,
    CdlmModel,
    CdlmProcessor,
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
)
from nextlevelbert.pretraining import cdlm
from nextlevelbert.pretraining.cdlm import read_clusters
from nextlevelbert.pretraining.cdlm_arguments import CdlmDataArguments
from nextlevelbert.pretraining.document_sets import hold_out_clusters, read_document_clusters

from .test_document_sets import sets, write

SCRIPT = Path(__file__).parents[2] / "run_pretraining.py"
SETTINGS = [
    "--model_type", "cdlm", "--max_length", "48", "--attention_window", "8", "--per_device_train_batch_size", "2",
    "--gradient_accumulation_steps", "1", "--max_steps", "6", "--warmup_steps", "1", "--learning_rate", "3e-3",
    "--logging_steps", "1", "--save_steps", "2", "--eval_steps", "3", "--save_total_limit", "9", "--disable_tqdm",
    "true", "--validation_share", "0.25", "--eval_samples_per_cluster", "2",
]  # fmt: skip


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    return write(
        tmp_path_factory.mktemp("news") / "news.jsonl", [{"document": texts} for texts in sets(6, 5).clusters]
    )


@pytest.fixture
def run(run_script, toy_encoder_path, news):
    """A run in this process."""

    def pretrain(output, *arguments, model=toy_encoder_path):
        given = ["--train_file", str(news), "--model", str(model), "--output_dir", str(output)]
        return run_script(SCRIPT, *given, *SETTINGS, *arguments)

    return pretrain


@torch.no_grad()
def test_pretraining_leaves_a_checkpoint_that_opens_and_goes_on_where_it_stopped(run, news, tmp_path):
    folder, later = tmp_path / "cdlm", tmp_path / "later"
    with torch.enable_grad():
        run(folder)
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert len(losses) == 6
    assert all(map(math.isfinite, losses))
    evaluations = [entry for entry in history if "eval_loss" in entry]
    assert [entry["step"] for entry in evaluations][:3] == [0, 3, 6]
    assert all(entry["eval_perplexity"] == pytest.approx(math.exp(entry["eval_loss"])) for entry in evaluations)
    assert evaluations[-1]["eval_loss"] < evaluations[0]["eval_loss"]
    results = json.loads((folder / "eval_results.json").read_text())
    assert results["eval_perplexity"] == pytest.approx(math.exp(results["eval_loss"]))
    # What is saved opens, and its loss is the one that was told.
    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(model) is CdlmForMaskedLM
    assert not info["missing_keys"]
    assert (model.config.max_sequence_length, model.config.attention_window) == (48, [8, 8])
    processor = AutoProcessor.from_pretrained(folder)
    assert type(processor) is CdlmProcessor
    assert processor.max_length == 48
    assert len(processor.tokenizer) == model.config.vocab_size
    _, held = hold_out_clusters(read_document_clusters(news), 0.25, 42)
    dataset = ClusterDataset(held, processor, samples_per_cluster=2)
    batch = DataCollatorForCrossDocumentMasking(processor)([dataset[index] for index in range(len(dataset))])
    assert len(dataset) == 4
    assert float(model.eval()(**batch).loss) == pytest.approx(results["eval_loss"], abs=1e-4)
    card = (folder / "README.md").read_text()
    assert f"| last evaluation | {results['eval_loss']:.4f} | {results['eval_perplexity']:.4f} |" in card
    assert "| documents | `news.jsonl: 6 sets` |" in card
    assert "| held out | `news.jsonl: 2 sets` |" in card
    assert "| longest sequence | 48 tokens |" in card
    assert str(tmp_path) not in card
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    # Without the last checkpoints and the model a second start repeats what is missing.
    shutil.copytree(folder, later)
    for gone in ("checkpoint-4", "checkpoint-6"):
        shutil.rmtree(later / gone)
    (later / "model.safetensors").unlink()
    with torch.enable_grad():
        run(later)
    ours, theirs = load_file(later / "model.safetensors"), load_file(folder / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.items())
    start = load_file(folder / "checkpoint-2" / "model.safetensors")
    assert not all(torch.equal(weight, start[name]) for name, weight in ours.items())


def global_and_local(folder):
    layers = AutoModel.from_pretrained(folder).encoder.layer
    for layer in layers:
        for part in ("query", "key", "value"):
            attention = layer.attention.self
            yield getattr(attention, f"{part}_global"), getattr(attention, part)


def test_without_global_attention_its_projections_end_as_copies(run, toy_encoder_path, tmp_path):
    run(tmp_path, "--global_attention", "none", "--max_steps", "2", "--eval_samples_per_cluster", "1")
    before = CdlmModel.from_encoder(toy_encoder_path, max_length=48).encoder.layer[0].attention.self
    for wide, local in global_and_local(tmp_path):
        assert torch.equal(wide.weight, local.weight)
        assert torch.equal(wide.bias, local.bias)
    [(wide, local), *_] = global_and_local(tmp_path)
    assert not torch.equal(local.weight, before.query.weight)
    assert "| global attention | `none` |" in (tmp_path / "README.md").read_text()


def test_unrelated_sets_train_and_a_cdlm_is_trained_further(run, tmp_path):
    short = ("--max_steps", "2", "--eval_samples_per_cluster", "1")
    run(tmp_path / "random", "--random_clusters", *short)
    assert "| documents | `news.jsonl: 6 sets, mixed` |" in (tmp_path / "random" / "README.md").read_text()
    assert any(not torch.equal(wide.weight, local.weight) for wide, local in global_and_local(tmp_path / "random"))
    run(tmp_path / "further", *short, model=tmp_path / "random")
    first = json.loads((tmp_path / "further" / "trainer_state.json").read_text())["log_history"][0]
    last = json.loads((tmp_path / "random" / "eval_results.json").read_text())
    # It goes on from what was learnt: held-out sets are the same, and asked in the same way.
    assert first["eval_loss"] == pytest.approx(last["eval_loss"], abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--validation_share", "1"], "The share to hold out must be above 0 and below 1"),
        (["--cluster_column", "topic"], "has no column 'text'"),
        (["--max_length", "13"], "A sequence of 13 tokens has no room for 3 documents"),
        (["--mlm_probability", "0"], "mlm_probability must be above 0"),
        (["--attention_window", "7"], "attention_window must be an even number"),
    ],
)
def test_what_a_run_refuses(run, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, *arguments)


def test_a_validation_file_or_split_takes_the_place_of_held_out_sets(news, tmp_path, monkeypatch):
    other = write(tmp_path / "other.jsonl", [{"document": texts} for texts in sets(6, 3).clusters])
    train, validation = read_clusters(CdlmDataArguments(train_file=str(news), validation_file=str(other)), seed=0)
    assert (train.source, len(train.clusters)) == ("news.jsonl", 8)
    assert (validation.source, len(validation.clusters)) == ("other.jsonl", 8)
    asked = []
    monkeypatch.setattr(cdlm, "read_document_clusters", lambda *where: asked.append(where) or sets())
    options = CdlmDataArguments(
        dataset_name="some/news", dataset_config_name="en", train_split="learn", validation_split="check"
    )
    read_clusters(options, seed=0)
    assert asked == [("some/news", None, None, "learn", "en"), ("some/news", None, None, "check", "en")]
