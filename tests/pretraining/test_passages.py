"""Sentences that look for the chunk they were taken from: `run_pretraining.py --objective passages`."""

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
from torch.nn import functional as F
from transformers import AutoModel

from nextlevelbert import Document, NextLevelBertForContrastiveLearning, NextLevelBertModel, load_chunk_encoder
from nextlevelbert.corpus.token_corpus import TokenCorpus
from nextlevelbert.models.chunking import sentence_token_ids
from nextlevelbert.pretraining.passages import DataCollatorForPassages, PassageDataset, PassageLearner
from nextlevelbert.training.trainer import CardTrainer

from ..vector_toys import save_random_table

SCRIPT = Path(__file__).parents[2] / "run_pretraining.py"
SETTINGS = [
    "--do_train", "--objective", "passages", "--chunk_size", "24", "--max_segment", "16", "--neighbours", "1",
    "--whiten_chunks", "--token_dropout", "0.2", "--per_device_train_batch_size", "2", "--max_steps", "6",
    "--learning_rate", "1e-2", "--logging_steps", "1", "--disable_tqdm", "true", "--validation_share", "0.25",
    "--save_strategy", "steps", "--save_steps", "2", "--eval_strategy", "no",
]  # fmt: skip


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
    """Each page of a book is about one thing, so its sentences are best found by what stands beside them."""
    draw = np.random.default_rng(0)
    things = ["whale", "train", "bread", "star", "horse", "river", "lamp", "clock"]
    return [
        Document(
            f"b{n}",
            " ".join(
                f"The {things[thing]} is seen {' '.join(str(draw.integers(99)) for _ in range(4))} times."
                for thing in draw.permutation(8)
                for _ in range(6)
            ),
        )
        for n in range(8)
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
    output = tmp_path_factory.mktemp("straight") / "found"
    return output, start(output)


@pytest.fixture
def model(source):
    return NextLevelBertForContrastiveLearning.from_chunk_encoder(
        source, 24, neighbours=1, whiten_chunks=True, pooling="mean", include_chunk_encoder=False
    )


@pytest.fixture
def batch(books, source):
    dataset = PassageDataset(TokenCorpus(books, source.tokenizer), 24, 4, 16)
    return DataCollatorForPassages(24, sentence_token_ids(source.tokenizer))([dataset[0], dataset[3]])


def test_a_sentence_is_taken_whole_out_of_its_chunk(books, source):
    """Question and what is left of the chunk are the chunk as it was; other chunks stay."""
    corpus = TokenCorpus(books, source.tokenizer)
    dataset = PassageDataset(corpus, 24, 4, 16)
    collate, starts, asked = DataCollatorForPassages(24, sentence_token_ids(source.tokenizer)), set(), set()
    for dataset.epoch in range(6):
        item = dataset[2]
        whole = item["input_ids"]
        batch = collate([item])
        chunks = batch["passage_ids"][0]  # [L, C]
        assert len(set(batch["question_chunks"].tolist())) == len(batch["question_chunks"]) > 4
        for number, before in enumerate(np.split(whole, range(24, len(whole), 24))):
            hidden = (chunks[number, : len(before)] == -1).nonzero().flatten().tolist()
            places = (batch["question_chunks"] == number).nonzero().flatten().tolist()
            assert bool(hidden) == bool(places)
            if places:
                assert hidden == list(range(hidden[0], hidden[-1] + 1))
                question = batch["question_ids"][places[0]]
                assert question[question >= 0].tolist() == before[hidden].tolist()
                words = source.tokenizer.decode(before[hidden])
                assert re.fullmatch(r"the \w+ is seen [\d ]+ times\.", words), words
                assert (dataset.epoch, number) not in asked
                asked.add((dataset.epoch, number))
        document = corpus[item["document"]].numpy()
        [first] = [n for n in range(len(document)) if np.array_equal(document[n : n + len(whole)], whole)]
        starts.add(first % 24)
    assert len(starts) > 2  # borders are new in every epoch
    dataset.epoch = 0
    assert all(torch.equal(value, collate([dataset[2]])[name]) for name, value in collate([dataset[2]]).items())


def test_every_weight_of_the_context_has_a_gradient_in_the_first_step(model, source, batch):
    learner = PassageLearner(model, source, 0.0)
    output = learner(**batch)
    output.loss.backward()
    for name, weight in model.model.neighbours.named_parameters():
        assert (weight.grad != 0).all(), name
    assert model.logit_scale.grad != 0
    assert learner.table.grad is None
    assert model.head[0].weight.grad is None


def test_questions_are_compared_with_the_chunks_of_their_document_alone(model, source, batch):
    learner = PassageLearner(model, source, 0.0).eval()
    output = learner(**batch)
    owners = batch["question_chunks"] // batch["passage_ids"].shape[1]
    real = (batch["passage_ids"] >= 0).any(dim=-1).sum(dim=1)
    assert batch["document_ids"].tolist() == [0, 3]
    torch.testing.assert_close(output.scores[:, 1], 1 / real.float())
    by_hand = []
    for row in range(2):
        mine = (owners == row).nonzero().flatten()
        one = learner(
            passage_ids=batch["passage_ids"][row : row + 1],
            question_ids=batch["question_ids"][mine],
            question_chunks=batch["question_chunks"][mine] - row * batch["passage_ids"].shape[1],
            document_ids=torch.tensor([7]),
        )
        torch.testing.assert_close(output.scores[row], one.scores[0])
        by_hand.append(one.loss * len(mine))
    torch.testing.assert_close(output.loss, sum(by_hand) / len(owners))


def test_a_batch_without_a_question_has_a_loss_of_zero(model, source):
    collate = DataCollatorForPassages(24, sentence_token_ids(source.tokenizer))
    output = PassageLearner(model, source, 0.0)(
        **collate([{"input_ids": np.arange(2_000, 2_096), "document": 0, "key": (0,)}])
    )
    assert output.loss == 0
    output.loss.backward()
    assert output.scores.tolist() == [[0, 0]]


def test_training_finds_more(start, tmp_path):
    output = tmp_path / "longer"
    start(output, "--max_steps", "60", "--save_strategy", "no", "--eval_strategy", "steps", "--eval_steps", "60")
    log = json.loads((output / "trainer_state.json").read_text())["log_history"]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    card = (output / "README.md").read_text()
    assert "a removed sentence finds its chunk" in card
    assert "a convolution over 1 chunks on either side" in card
    assert "chunk encoder (frozen)" in card
    assert "passage_accuracy" in card


def test_every_route_gives_the_same_vectors(straight, source, books):
    """`encode`, `forward` on ids and on vectors, remote code, sentence-transformers; and the formula by hand."""
    output, weights = straight
    model, text = NextLevelBertModel.from_pretrained(output), books[0].text
    book = model.encode(text)
    batch = source.tokenizer(text, return_tensors="pt", add_special_tokens=False)
    with torch.no_grad():
        by_ids = model(input_ids=batch["input_ids"]).last_hidden_state[0]
        by_vectors = model(inputs_embeds=book.plain[None]).last_hidden_state[0]
    torch.testing.assert_close(by_ids, book.chunks)
    torch.testing.assert_close(by_vectors, book.chunks)
    remote = AutoModel.from_pretrained(output, trust_remote_code=True)
    torch.testing.assert_close(remote.encode(text).chunks, book.chunks)
    found = SentenceTransformer(str(output), device="cpu").encode([text])
    np.testing.assert_allclose(found[0], book.document.numpy(), atol=1e-5)
    torch.testing.assert_close(book.chunks.norm(dim=1), torch.ones(len(book.chunks)))
    torch.testing.assert_close(book.document, book.chunks.mean(dim=0))
    x = F.pad(model.prepare_chunks(book.plain), (0, 0, 1, 1))
    left, own, right = weights["model.neighbours.convolution.weight"].squeeze(1).T  # [D] each
    mean = weights["model.neighbours.mean.weight"] @ x.sum(dim=0) / len(book.plain)
    near = x[:-2] * left + x[1:-1] * own + x[2:] * right
    by_hand = near @ weights["model.neighbours.map.weight"].T + mean
    torch.testing.assert_close(book.chunks, F.normalize(by_hand, dim=1), atol=1e-5, rtol=1e-5)
    assert torch.equal(weights["model.chunk_encoder.model.embedding.weight"], source.encoder.model.embedding.weight)


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
        start(tmp_path / "found")
    ours, theirs = start(tmp_path / "found"), straight[1]
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chunk_encoder", "{toy}"], "--objective passages needs the token vectors of a static chunk encoder"),
        (["--corpus_dir", "x", "--chunking", "sentences"], "does not go with --chunking sentences, --corpus_dir."),
        (["--neighbours", "17"], "neighbours must be from 0 to 16, got 17"),
        (["--num_hidden_layers", "1"], "takes the place of the layers over chunks"),
        (["--max_segment", "600"], "--max_segment 600 is above the 510 chunks"),
        (["--pooling", "cls"], "There is no [CLS] vector without layers"),
    ],
)
def test_what_a_run_refuses(start, toy_encoder_path, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        start(tmp_path / "out", *[each.format(toy=toy_encoder_path) for each in arguments])
    assert not (tmp_path / "out").exists()


def test_documents_that_are_too_short(books, source, caplog):
    corpus = TokenCorpus([Document("short", "One word."), *books], source.tokenizer)
    assert len(PassageDataset(corpus, 24, 4, 16)) == len(
        PassageDataset(TokenCorpus(books, source.tokenizer), 24, 4, 16)
    )
    assert "1 of 9 documents have fewer than 4 chunks" in caplog.text
    with pytest.raises(ValueError, match="none of the 1 chosen documents has 4 chunks of 24 tokens"):
        PassageDataset(corpus, 24, 4, 16, documents=[0])
    with pytest.raises(ValueError, match="2 <= min_segment <= max_segment, got 1 and 16"):
        PassageDataset(corpus, 24, 1, 16)
