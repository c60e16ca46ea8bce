"""Token vectors trained with the model over them: `run_pretraining.py --train_chunk_encoder`."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from nextlevelbert import (
    ChunkingRule,
    Document,
    NextLevelBertForContrastiveLearning,
    NextLevelBertModel,
    encode_corpus,
    load_chunk_encoder,
)
from nextlevelbert.corpus.token_corpus import TokenCorpus
from nextlevelbert.pretraining.arguments import NextLevelBertArguments
from nextlevelbert.pretraining.segment_pairs import DataCollatorForSegmentPairs, SegmentPairs
from nextlevelbert.pretraining.trained_tokens import TokenPairs, TrainedTokens
from nextlevelbert.training.trainer import CardTrainer

from ..vector_toys import save_random_table

SCRIPT = Path(__file__).parents[2] / "run_pretraining.py"
SETTINGS = [
    "--do_train", "--chunk_size", "12", "--num_hidden_layers", "0", "--objective", "contrastive", "--min_segment", "2",
    "--max_segment", "8", "--pooling", "residual", "--whiten_chunks", "--per_device_train_batch_size", "4",
    "--max_steps", "6", "--learning_rate", "1e-2", "--logging_steps", "1", "--disable_tqdm", "true",
    "--validation_share", "0.25", "--save_strategy", "steps", "--save_steps", "2", "--eval_strategy", "no",
]  # fmt: skip
TRAINED = ["--train_chunk_encoder", "--token_dropout", "0.2"]


@pytest.fixture(scope="module")
def folder(minilm, tmp_path_factory):
    """A random table with MiniLM's tokenizer, normalised."""
    folder = tmp_path_factory.mktemp("static") / "words"
    save_random_table(minilm.tokenizer, 16, folder)
    return folder


@pytest.fixture(scope="module")
def source(folder):
    return load_chunk_encoder(folder)


@pytest.fixture(scope="module")
def books():
    draw, subjects = np.random.default_rng(0), ["the whale swims", "a train departs", "bread is baked", "stars shine"]
    return [
        Document(f"b{n}", " ".join(f"{subjects[draw.integers(4)]} {draw.integers(99)} times." for _ in range(60 + n)))
        for n in range(12)
    ]


@pytest.fixture(scope="module")
def start(folder, books, tmp_path_factory):
    file = tmp_path_factory.mktemp("books") / "books.jsonl"
    file.write_text("\n".join(json.dumps({"id": book.id, "text": book.text}) for book in books))

    def pretrain(output, *arguments):
        ours = ["--chunk_encoder", str(folder), "--train_file", str(file), "--output_dir", str(output)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [str(SCRIPT), *ours, *SETTINGS, *arguments])
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return load_file(output / "model.safetensors")

    return pretrain


@pytest.fixture(scope="module")
def straight(start, tmp_path_factory):
    """Folder and weights of a run that nothing interrupts."""
    output = tmp_path_factory.mktemp("straight") / "trained"
    return output, start(output, *TRAINED)


@pytest.fixture
def learner(source):
    model = NextLevelBertForContrastiveLearning.from_chunk_encoder(
        source, 12, num_hidden_layers=0, include_chunk_encoder=False
    )
    return TrainedTokens(model, source, 0.5)


@pytest.fixture
def pairs():
    return TokenPairs(SegmentPairs(DataCollatorForSegmentPairs(2, 8), 1), 12, "")


TABLE = "model.chunk_encoder.model.embedding.weight"


def test_tokens_of_a_corpus_are_those_of_its_documents(source, books, tmp_path):
    corpus = TokenCorpus(iter(books), source.tokenizer)
    for number, book in enumerate(books):
        assert corpus[number].tolist() == source.tokenizer(book.text)["input_ids"]
    assert corpus.document_ids == [book.id for book in books]
    stored = encode_corpus(books, source, ChunkingRule(12), tmp_path, progress=False)
    assert corpus.fingerprint() == stored.fingerprint()
    with pytest.raises(ValueError, match="Two documents have the id 'b1'"):
        TokenCorpus([*books, books[1]], source.tokenizer)


def test_vectors_are_those_of_the_chunk_encoder(learner, source):
    """Without dropout; with it, each vector is the mean of some of its tokens'."""
    ids = np.arange(1_000, 1_029)
    expected = source.encoder.encode(ids, np.array([0, 12, 24, 29]), ChunkingRule(12))
    padded = torch.full((36,), -1)
    padded[:29] = torch.from_numpy(ids)
    padded = padded.reshape(3, 12).int()
    learner.eval()
    torch.testing.assert_close(learner.chunk_vectors(padded), expected)
    learner.train()
    table = source.encoder.model.embedding.weight.detach()
    learner.chunk_vectors(padded)[2].sum().backward()
    read = learner.table.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert set(read) < set(ids[24:].tolist())
    torch.manual_seed(5)
    vector = learner.chunk_vectors(padded)[2]
    learner.table.grad = None
    vector.sum().backward()
    kept = learner.table.grad.abs().sum(dim=1) > 0
    torch.testing.assert_close(vector, torch.nn.functional.normalize(table[kept].mean(dim=0), dim=-1))


def test_chunk_borders_are_new_in_every_epoch(learner, pairs, books, source):
    corpus = TokenCorpus(books, source.tokenizer)
    dataset, starts = pairs.dataset(corpus, None, 0), set()
    for dataset.epoch in range(8):
        item = dataset[3]
        document = corpus[item["document"]]
        for ids, first in zip((*item["first"], *item["second"]), item["starts"][0].tolist(), strict=True):
            assert torch.equal(ids, document[first : first + len(ids)])
            starts.add(first % 12)
    assert len(starts) > 4
    dataset.epoch = 0
    batch = pairs.collator([dataset[number] for number in range(4)])
    assert next(iter(batch)) == "special_ids"
    rows = batch["token_ids"][batch["special_ids"] == -1]
    assert rows.shape[1] == 12
    assert (rows >= 0).all()  # segments are whole chunks
    loss = learner(**batch).loss
    loss.backward()
    assert set(learner.table.grad.abs().sum(dim=1).nonzero().flatten().tolist()) <= set(rows.unique().tolist())
    assert learner.table.grad.abs().max() > 0


def test_the_table_is_trained_and_saved_with_the_model(straight, source, books):
    output, weights = straight
    before = source.encoder.model.embedding.weight
    moved = (weights[TABLE] - before).abs().amax(dim=1)
    read = set(TokenCorpus(books, source.tokenizer).ids(0, 10**9).unique().tolist())
    assert moved[list(read)].max() > 0.01
    assert moved[[number for number in range(len(before)) if number not in read]].max() < 1e-2  # weight decay alone
    model, own = NextLevelBertModel.from_pretrained(output), load_chunk_encoder(output)
    assert own.fingerprint == own.encoder.fingerprint() == model.config.chunk_encoder_fingerprint != source.fingerprint
    assert model.config.chunk_encoder_name == own.name == "trained"
    book, ids = model.encode(books[0].text), source.tokenizer(books[0].text)["input_ids"]
    by_hand = torch.nn.functional.normalize(weights[TABLE][ids[:12]].mean(dim=0), dim=-1)
    torch.testing.assert_close(book.plain[0], by_hand)
    found = SentenceTransformer(str(output), device="cpu").encode([books[0].text])
    np.testing.assert_allclose(found[0], book.document.numpy(), atol=1e-5)
    assert not (output.parent / "trained-corpus").exists()
    card = (output / "README.md").read_text()
    assert "| token vectors | `trained, from those of words; 20% of the tokens dropped` |" in card
    assert "chunk encoder (trained)" in card
    assert "frozen sentence encoder" not in card
    settings = json.loads((output / "settings.json").read_text())
    assert (settings["train_chunk_encoder"], settings["token_dropout"]) == (True, 0.2)


def test_the_table_is_frozen_by_default(start, source, tmp_path):
    assert torch.equal(start(tmp_path / "frozen", "--max_steps", "1")[TABLE], source.encoder.model.embedding.weight)


class Killed(Exception):
    """Like a signal, it is caught nowhere."""


def test_a_run_that_was_killed_goes_on_to_the_same_weights(start, straight, tmp_path, monkeypatch):
    genuine, killed = CardTrainer.training_step, []

    def step(self, *args, **kwargs):
        if self.state.global_step == 3 and not killed:
            killed.append(True)
            raise Killed
        return genuine(self, *args, **kwargs)

    monkeypatch.setattr(CardTrainer, "training_step", step)
    with pytest.raises(Killed):
        start(tmp_path / "trained", *TRAINED)
    ours, theirs = start(tmp_path / "trained", *TRAINED), straight[1]
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_second_run_goes_on_from_the_trained_table(start, straight, tmp_path):
    again = [each for each in SETTINGS if each not in ("--whiten_chunks",)]
    again = [*again[: again.index("--num_hidden_layers")], *again[again.index("--num_hidden_layers") + 2 :]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.SETTINGS", again)
        more = [
            "--model",
            str(straight[0]),
            "--chunk_encoder",
            str(straight[0]),
            "--learning_rate",
            "0",
            "--max_steps",
            "1",
        ]
        assert torch.equal(start(tmp_path / "more", *TRAINED, *more)[TABLE], straight[1][TABLE])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chunk_encoder", "{toy}"], "and 'model' is a bert, which stays frozen"),
        (["--objective", "masked"], "does not go with --objective masked"),
        (["--objective", "both"], "does not go with --objective both"),
        (["--positives", "neighbours"], "does not go with --positives neighbours"),
        (
            ["--chunking", "sentences", "--no_include_chunk_encoder"],
            "--chunking sentences, --no_include_chunk_encoder.",
        ),
        (["--corpus_dir", "x", "--do_train", "false"], "--corpus_dir, a run without --do_train."),
    ],
)
def test_what_a_run_refuses(start, toy_encoder_path, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        start(tmp_path / "out", *TRAINED, *[each.format(toy=toy_encoder_path) for each in arguments])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_dropout_that_makes_no_sense_is_refused(share):
    with pytest.raises(ValueError, match=f"must be from 0 to below 1, got {share}"):
        NextLevelBertArguments(token_dropout=share, train_chunk_encoder=True)


def test_dropout_of_stored_vectors_is_refused(start, tmp_path):
    with pytest.raises(ValueError, match="--token_dropout needs --train_chunk_encoder or --objective passages"):
        start(tmp_path / "out", "--token_dropout", "0.2")
