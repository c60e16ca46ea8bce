"""Studies of passages, hidden chunks and late chunking: what decides their figures is looked at closely."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.nn import functional as F

from benchmarks.common.passages import PassageJudge, Task
from benchmarks.studies import gated_pooling, hidden_chunks, late_chunking, passages
from nextlevelbert import Document, NextLevelBertForContrastiveLearning, load_chunk_encoder
from nextlevelbert.corpus.token_corpus import TokenCorpus
from nextlevelbert.models.pooling import ChunkWhitening

from .vector_toys import save_random_table

SEA = "The ship sailed out of the harbour into the storm. The captain watched the waves. "
KITCHEN = "The cook kneaded the dough for the bread. The oven was hot and the kitchen smelled sweet. "


@pytest.fixture(scope="module")
def source(minilm, tmp_path_factory):
    """A random table of token vectors with MiniLM's tokenizer."""
    folder = tmp_path_factory.mktemp("static") / "words"
    save_random_table(minilm.tokenizer, 32, folder)
    return load_chunk_encoder(folder)


def test_chunks_of_late_chunking(minilm, minilm_path):
    """Alone they are sentence-transformers' vectors; in a window, means of tokens that have seen each other."""
    ids = torch.tensor(minilm.tokenizer(SEA * 3 + KITCHEN * 3, add_special_tokens=False)["input_ids"][:104])
    chunks = ids.reshape(4, 26).clone()
    chunks[2, 5:9] = -1  # a sentence is missing
    alone = late_chunking.read(minilm, chunks, late=False)
    other = SentenceTransformer(minilm_path, device="cpu")
    bare = {"add_special_tokens": True, "return_tensors": "pt"}
    for row, vector in zip(chunks, alone, strict=True):
        text = minilm.tokenizer.decode(row[row >= 0])
        assert minilm.tokenizer(text, **bare)["input_ids"][0, 1:-1].tolist() == row[row >= 0].tolist()
        torch.testing.assert_close(vector, torch.from_numpy(other.encode(text)), atol=1e-5, rtol=0)
    late = late_chunking.read(minilm, chunks, late=True)
    whole = [101, *chunks[chunks >= 0].tolist(), 102]
    with torch.no_grad():
        tokens = minilm.encoder.model(input_ids=torch.tensor([whole])).last_hidden_state[0, 1:-1]
    means = [part.mean(dim=0) for part in tokens.split([26, 26, 22, 26])]
    torch.testing.assert_close(late, F.normalize(torch.stack(means), dim=1), atol=1e-5, rtol=0)
    assert (late * alone).sum(dim=1).max() < 0.99


def test_windows_hold_whole_chunks():
    assert late_chunking.windows([3, 4, 5, 20, 1, 2], 8) == [[0, 1], [2], [3], [4, 5]]


def test_vectors_are_read_once(minilm, tmp_path):
    chunks = torch.tensor([[2003, 2009], [2009, -1]])
    found = late_chunking.kept_in(tmp_path / "some.safetensors", minilm, [[chunks], []], late=True)
    torch.testing.assert_close(found[0][0], late_chunking.read(minilm, chunks, late=True))
    again = late_chunking.kept_in(tmp_path / "some.safetensors", minilm, [[], []], late=True)
    assert torch.equal(again[0][0], found[0][0])


def test_other_vectors_of_the_same_questions(minilm, source):
    ids = [torch.tensor(source.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (SEA, KITCHEN)]
    passages_of = [row[: len(row) // 2 * 2].reshape(2, -1) for row in ids]
    task = Task(
        passages_of, [row[None, :4] for row in ids] * 2, [0, 1, 0, 1], [0, 0, 1, 1], ["a", "b"], ("all", "own")
    )
    first = late_chunking.beginning(task, 1)
    assert (first.places, first.right, [len(rows) for rows in first.passages]) == ([0, 0], [0, 1], [1, 1])
    judge = PassageJudge([first], source, 128)
    vectors = torch.eye(2)
    alone, _ = judge.with_vectors([[[vectors[:1], vectors[1:]], [vectors[:1], vectors[:1]]]]).vectors(
        lambda rows: rows
    )
    assert alone == {"all": [1.0, 0.5], "own": [1.0, 1.0]}
    assert judge.vectors(lambda rows: rows)[0]["all"] == [1.0, 1.0]  # its own are as they were


@pytest.mark.parametrize("order", [False, True])
def test_chunks_are_hidden_between_visible_ones(order):
    hidden = hidden_chunks.hide([60, 7, 200], order, np.random.default_rng(0))
    seen = hidden.visible((3, 200))
    assert seen[1].all()  # too short
    runs = [
        "".join("v" if place else "h" for place in row[:length])
        for row, length in zip(seen, (60, 7, 200), strict=True)
    ]
    lengths = [len(run) for row in runs for run in row.split("v") if run]
    assert set(lengths) == ({2} if order else {1, 2, 3, 4})
    assert lengths == hidden.lengths.tolist()
    assert min(len(run) for row in runs for run in row.split("h") if run) >= 4


@pytest.mark.parametrize("name", [hidden_chunks.UNTRAINED, *hidden_chunks.ROWS])
def test_hidden_chunks_show_nothing_of_themselves(name, source):
    """A gap's vector is the same whatever is hidden there, and another where the visible chunks differ."""
    torch.manual_seed(0)
    reader = hidden_chunks.Reader(name, source).eval()
    size = len(reader.mask)
    vectors = F.normalize(torch.randn(2, 20, size), dim=-1)
    hidden = hidden_chunks.hide([20, 20], True, np.random.default_rng(0))
    visible = hidden.visible((2, 20))
    context = reader(vectors, visible)
    torch.testing.assert_close(reader(vectors.where(visible[..., None], vectors.flip(1)), visible), context)
    assert not torch.allclose(reader(vectors.where(~visible[..., None], vectors.flip(1)), visible), context)
    # The other way round, the score has the other sign.
    swapped = vectors.clone()
    one, two = (swapped[hidden.segments, hidden.starts + number].clone() for number in (0, 1))
    swapped[hidden.segments, hidden.starts], swapped[hidden.segments, hidden.starts + 1] = two, one
    scores = reader.scores_of_order(vectors, hidden)
    assert scores.abs().min() > 0
    torch.testing.assert_close(reader.scores_of_order(swapped, hidden), -scores)


def test_neighbours_find_the_span_between_them(source):
    """Where a document moves slowly from one direction to another, what is missing lies between what is there."""
    reader = hidden_chunks.Reader(hidden_chunks.UNTRAINED, source).eval()
    size = len(reader.mask)
    places = torch.linspace(0, 1, 60)[:, None] * torch.arange(1, size + 1) * 3
    rows = F.normalize(torch.cos(places), dim=-1)[None]
    spans, pairs = (hidden_chunks.hide([60], order, np.random.default_rng(0)) for order in (False, True))
    assert np.mean(reader.right("spans", rows, spans)) > 0.8
    assert np.mean(reader.right("order", rows, pairs)) > 0.9
    assert np.mean(reader.right("order", rows.flip(1), pairs)) > 0.9
    assert reader.right("spans", torch.ones_like(rows), spans) == [0.0] * len(spans.starts)  # equal scores


def test_layers_learn_with_a_rate_of_their_own_and_from_the_first_step(source):
    torch.manual_seed(0)
    model = NextLevelBertForContrastiveLearning.from_chunk_encoder(source, 16, neighbours=2, pooling="mean")
    learner = passages.AttentionLearner(model, source, 0.0, "sliding_attention")
    others, layers = passages.weight_groups(learner)
    assert "lr" not in others
    assert layers["lr"] == passages.LAYERS_RATE
    assert {id(weight) for weight in layers["params"]} == {id(weight) for weight in learner.layers.parameters()}
    vectors, real = torch.randn(1, 6, model.config.hidden_size), torch.ones(1, 6, dtype=torch.bool)
    near = passages.PassageLearner.contextual(learner, vectors, real)
    found = learner.contextual(vectors, real)
    assert 0.9 < (found * near).sum(dim=-1).min()
    assert (found - near).abs().max() > 1e-3
    (found * torch.randn_like(found)).sum().backward()
    read = [weight for name, weight in learner.layers.named_parameters() if not name.startswith("embeddings.tok")]
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in read)


def test_rows_that_read_hidden_chunks_are_trained(source, tmp_path):
    """The control's neighbours stay as they are, those of the convolution do not; both learn what they answer with."""
    texts = [Document(name, text * 200) for name, text in (("sea", SEA), ("kitchen", KITCHEN))]
    corpus = TokenCorpus(texts, source.tokenizer)
    names = [hidden_chunks.CONTROL, hidden_chunks.CONVOLUTION]
    options = argparse.Namespace(steps=3, batch_size=2, output_dir=tmp_path)
    readers = hidden_chunks.train(names, 0, "spans", corpus, ChunkWhitening(32), source, options)
    for name, reader in readers.items():
        convolution = reader.around.convolution
        assert torch.equal(convolution.weight, convolution.start()) == (name == hidden_chunks.CONTROL)
        assert not torch.equal(reader.answer.weight, torch.eye(32))
        assert all(weight.isfinite().all() for weight in reader.parameters())
    books = np.array(["a", "a", "b", "b"])
    found = hidden_chunks.summed({name: [[1.0, 0.0, 1.0, place]] for place, name in enumerate(names)}, books)
    table = hidden_chunks.write(options, {"spans": {"questions": 4, "chance": 0.5, "rows": found}})
    assert f"| {hidden_chunks.CONTROL} | 1 | 0.500 | +0.000 to +0.000 |" in table
    assert f"| {hidden_chunks.CONVOLUTION} | 1 | 0.750 | +0.000 to +0.500 |" in table
    assert (tmp_path / "table.md").read_text() == table


@pytest.mark.parametrize("gate", gated_pooling.ROWS)
def test_weights_begin_nearly_equal_and_padding_has_none(gate):
    torch.manual_seed(0)
    model = gated_pooling.GatedPooling(ChunkWhitening(32), gate).eval()
    chunks = torch.randn(2, 7, 32)
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    found = model(chunks, real)
    means = torch.stack([F.normalize(chunks[0], dim=-1).mean(dim=0), F.normalize(chunks[1, :4], dim=-1).mean(dim=0)])
    torch.testing.assert_close(found, F.normalize(means, dim=-1), atol=0.02, rtol=0)
    torch.testing.assert_close(model.encode([chunks[1, :4]])[0], found[1])


def test_a_weight_depends_on_the_context_in_one_row_only():
    torch.manual_seed(0)
    chunks, changed = torch.randn(1, 6, 32), torch.randn(1, 6, 32)
    changed[:, 0] = chunks[:, 0]
    moved = {}
    for gate in gated_pooling.ROWS:
        torch.manual_seed(0)
        model = gated_pooling.GatedPooling(ChunkWhitening(32), gate).eval()
        model.score.weight.data *= 1_000
        real = torch.ones(1, 6, dtype=torch.bool)
        first, second = (model.weights(F.normalize(each, dim=-1), real)[0, 0].item() for each in (chunks, changed))
        moved[gate] = abs(first - second) > 1e-4
    assert moved == {gated_pooling.EQUAL: False, gated_pooling.CHUNK: False, gated_pooling.CONTEXT: True}
