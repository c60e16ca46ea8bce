"""Whole runs of run_pretraining.py with the contrastive objective, with both, and in two stages."""

from __future__ import annotations

import json
import math
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from nextlevelbert import (
    DataCollatorForSegmentPairs,
    DataCollatorForVectorMasking,
    NextLevelBertForContrastiveLearning,
    NextLevelBertModel,
    SegmentPairDataset,
)
from nextlevelbert.fitting import fit_whitening
from nextlevelbert.pretraining.segment_pairs import pairs_found
from nextlevelbert.training.trainer import CardTrainer

from ..segment_toys import batch_of, close, corpus_of_books, unit, vectors_of, whitened

SCRIPT = Path(__file__).parents[2] / "run_pretraining.py"


@pytest.fixture(scope="module")
def corpus(toy_encoder_path, tmp_path_factory):
    return corpus_of_books(toy_encoder_path, tmp_path_factory.mktemp("corpus"))


SEGMENTS = ["--objective", "contrastive", "--min_segment", "2", "--max_segment", "12"]
RESIDUAL = ["--pooling", "residual", "--whiten_chunks"]
SETTINGS = [
    "--do_train", "--chunk_size", "12", "--per_device_train_batch_size", "4", "--num_train_epochs", "3",
    "--learning_rate", "1e-2", "--logging_steps", "1", "--disable_tqdm", "true", "--validation_share", "0.25",
    "--save_strategy", "steps", "--save_steps", "3", "--sequence_length", "16", "--masking_probability", "0.3",
]  # fmt: skip
HELD_OUT = np.sort(np.random.default_rng(42).permutation(12)[:3])
TRAINED_ON = np.setdiff1d(np.arange(12), HELD_OUT)


@pytest.fixture(scope="module")
def start(toy_encoder_path, corpus):
    """A run in this process; in a fixture of the module, which may not have the narrower `run_script`."""

    def pretrain(output, *arguments):
        ours = ["--chunk_encoder", toy_encoder_path, "--corpus_dir", str(corpus.path), "--output_dir", str(output)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [str(SCRIPT), *ours, *SETTINGS, *arguments])
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return Path(output)

    return pretrain


@pytest.fixture(scope="module")
def straight(start, tmp_path_factory):
    return start(tmp_path_factory.mktemp("straight"), *SEGMENTS, *RESIDUAL)


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(ours, theirs, names=None):
    return all(torch.equal(ours[name], theirs[name]) for name in names or ours.keys() | theirs.keys())


def test_a_contrastive_run_learns_and_measures_what_it_says(straight, toy_encoder_path, corpus):
    results = json.loads((straight / "eval_results.json").read_text())
    model = NextLevelBertForContrastiveLearning.from_pretrained(straight)
    training = [corpus[int(number)].vectors for number in TRAINED_ON]  # none that is held out
    assert torch.equal(model.model.whitening.weight, fit_whitening(training)[1])
    collator, held_out = DataCollatorForSegmentPairs(2, 12), SegmentPairDataset(corpus, 2, 12, documents=HELD_OUT)
    assert len(held_out) <= 8  # one batch of evaluation
    batch = batch_of(held_out, collator, range(len(held_out)))
    with torch.no_grad():
        output = model(**batch)
    found = [output.scores.numpy().argmax(axis=axis) == np.arange(len(held_out)) for axis in (0, 1)]
    others = [int((batch["document_ids"] != document).sum()) for document in batch["document_ids"]]
    assert results["eval_pair_accuracy"] == pytest.approx(np.mean(found))
    assert results["eval_chance_accuracy"] == pytest.approx(np.mean([1 / (1 + count) for count in others]))
    assert results["eval_loss"] == pytest.approx(output.loss.item(), abs=1e-4)
    new = NextLevelBertForContrastiveLearning.from_chunk_encoder(
        toy_encoder_path, chunk_size=12, pooling="residual", whiten_chunks=True
    )
    new.model.fit_whitening(training)
    seen, losses = SegmentPairDataset(corpus, 2, 12, documents=TRAINED_ON), {new: 0.0, model: 0.0}
    for seen.epoch in range(100, 115):  # places that it has not seen
        batch = batch_of(seen, collator, range(len(seen)))
        with torch.no_grad():
            losses = {each: loss + each(**batch).loss.item() / 15 for each, loss in losses.items()}
    assert losses[model] < losses[new] - 0.2
    card = (straight / "README.md").read_text()
    assert "| objective | `contrastive, segments of one document` |" in card
    assert "x 1 pairs an epoch, of 2 to 12 chunks` |" in card
    assert str(straight) not in card


def test_a_small_share_still_holds_two_documents_out(start, tmp_path):
    start(tmp_path, *SEGMENTS, *RESIDUAL, "--validation_share", "0.01", "--max_steps", "1")
    results = json.loads((tmp_path / "eval_results.json").read_text())
    assert 0 < results["eval_chance_accuracy"] < 1  # there was something to tell apart


class Killed(Exception):
    """Like a signal, it is caught nowhere."""


def test_a_run_that_was_killed_goes_on_to_the_same_weights(start, straight, tmp_path, monkeypatch):
    """From the middle of an epoch; and places are drawn anew in every one."""
    genuine, steps = CardTrainer.training_step, []

    def step(self, *args, **kwargs):
        if self.state.global_step == 5 and not steps.count("killed"):
            steps.append("killed")
            raise Killed
        steps.append(self.train_dataset.epoch)
        return genuine(self, *args, **kwargs)

    monkeypatch.setattr(CardTrainer, "training_step", step)
    with pytest.raises(Killed):
        start(tmp_path, *SEGMENTS, *RESIDUAL)
    assert not (tmp_path / "model.safetensors").exists()
    start(tmp_path, *SEGMENTS, *RESIDUAL)
    states = [json.loads((path / "trainer_state.json").read_text()) for path in (tmp_path, straight)]
    total = states[0]["global_step"]
    epochs = [epoch for epoch in range(3) for _ in range(total // 3)]
    assert steps == [*epochs[:5], "killed", *epochs[3:]]
    assert epochs[2] == epochs[3]
    assert same(weights(tmp_path), weights(straight))
    ours, theirs = ([entry["loss"] for entry in state["log_history"] if "loss" in entry] for state in states)
    assert ours == theirs


def test_both_objectives_over_neighbours(start, straight, corpus, tmp_path):
    """The head is trained, too, and segments of one document are told apart."""
    dataset = SegmentPairDataset(corpus, 2, 4, "neighbours", 2, documents=HELD_OUT)
    assert len(dataset) % 3  # the last batch of evaluation is smaller
    arguments = ["--positives", "neighbours", "--pairs_per_document", "2", "--max_segment", "4", "--loss", "l2"]
    arguments += ["--objective", "both", "--per_device_eval_batch_size", "3"]
    start(tmp_path, *SEGMENTS, *RESIDUAL, *arguments)
    ours, theirs = weights(tmp_path), weights(straight)
    assert ours.keys() == theirs.keys()
    assert same(ours, theirs, ["model.whitening.mean", "model.whitening.weight"])
    assert not same(ours, theirs, ["head.0.weight"])
    collator = DataCollatorForSegmentPairs(2, 4, "neighbours", DataCollatorForVectorMasking(0.3))
    with torch.no_grad():
        model = NextLevelBertForContrastiveLearning.from_pretrained(tmp_path)
        batches = [batch_of(dataset, collator, range(n, min(n + 3, len(dataset)))) for n in range(0, len(dataset), 3)]
        found = torch.cat([pairs_found(model(**batch).scores, batch["document_ids"]) for batch in batches])
    assert len(found) == 2 * len(dataset)  # every pair counts
    accuracy, chance = found.mean(dim=0).tolist()
    results = json.loads((tmp_path / "eval_results.json").read_text())
    assert results["eval_pair_accuracy"] == pytest.approx(accuracy)
    assert results["eval_chance_accuracy"] == pytest.approx(chance)
    assert 0 < chance < 1
    assert 0 <= accuracy <= 1
    card = (tmp_path / "README.md").read_text()
    assert "| objective | `contrastive, neighbouring segments, and l2 over 30% of the vectors` |" in card


def test_the_file_can_be_small_and_opens_in_float32(start, straight, tmp_path):
    start(tmp_path, *SEGMENTS, *RESIDUAL, "--save_dtype", "float16", "--no_include_chunk_encoder")
    ours, theirs = weights(tmp_path), weights(straight)
    assert {name for name in theirs if "chunk_encoder" not in name} == ours.keys()
    assert {tensor.dtype for tensor in ours.values()} == {torch.float16}
    assert all(torch.equal(tensor, theirs[name].half()) for name, tensor in ours.items())
    small, whole = AutoModel.from_pretrained(tmp_path), AutoModel.from_pretrained(straight)
    assert {tensor.dtype for tensor in small.state_dict().values() if tensor.is_floating_point()} == {torch.float32}
    assert not small.config.include_chunk_encoder
    vectors = unit(torch.randn(3, 9, 32))
    difference = (vectors_of(small, vectors) - vectors_of(whole, vectors)).abs().max()
    assert 0 < difference < 5e-3


def test_a_second_stage_starts_from_the_layers_of_the_first(start, straight, corpus, tmp_path):
    """At a learning rate of zero, what comes out is what it started from."""
    first = start(tmp_path / "first", "--whiten_chunks", "--num_train_epochs", "1")
    again = ["--model", str(first), "--pooling", "residual", "--learning_rate", "0", "--num_train_epochs", "1"]
    again += ["--temperature", "0.1"]
    second = start(tmp_path / "second", *SEGMENTS, *again)
    before, after = weights(first), weights(second)
    assert same(before, after, before.keys())
    assert not same(before, weights(straight), ["model.encoder.encoder.layer.0.output.dense.weight"])
    new = {name: after[name] for name in after.keys() - before.keys()}
    assert new.keys() == {f"model.residual_pooling.{n}.weight" for n in ("plain", "contextual")} | {"logit_scale"}
    assert torch.equal(new["model.residual_pooling.plain.weight"], torch.eye(32))
    assert torch.equal(new["model.residual_pooling.contextual.weight"], torch.zeros(32, 32))
    assert new["logit_scale"].item() == pytest.approx(math.log(10))
    model = AutoModel.from_pretrained(second)
    assert (model.config.pooling, model.config.whiten_chunks) == ("residual", True)
    book = corpus["book-3"].vectors[None].float()
    close(vectors_of(model, book), unit(whitened(model, book).mean(dim=1)))


@pytest.fixture(scope="module")
def short(straight, tmp_path_factory):
    """A checkpoint whose windows hold 8 chunks."""
    folder = tmp_path_factory.mktemp("short")
    NextLevelBertModel.from_pretrained(straight, max_chunks=8).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "{straight}", "--chunk_size", "16"], "--chunk_size 16 does not fit"),
        (["--model", "{straight}", "--chunking", "sentences"], "--chunking sentences does not fit"),
        ([*SEGMENTS, "--pooling", "cls"], "needs pooling='mean' or 'residual', got 'cls'"),
        (["--model", "{short}", "--sequence_length", "16"], "--sequence_length 16 is above the 10 positions that"),
        (["--model", "{short}", *SEGMENTS], "--max_segment 12 is above the 8 chunks that the model reads at once"),
        (["--model", "{straight}", "--chunk_encoder", "{minilm}"], "chunk_encoder_fingerprint"),
        (["--objective", "contrastive", "--max_segment", "511"], "give at most 510"),
        (["--objective", "contrastive", "--max_segment", "3"], "got 4 and 3"),
    ],
)
def test_what_a_run_refuses(start, straight, short, minilm_path, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        start(tmp_path, *[each.format(straight=straight, short=short, minilm=minilm_path) for each in arguments])
    assert not list(tmp_path.glob("checkpoint-*"))
