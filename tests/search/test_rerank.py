"""Passages that a second model ranks again: their scores, and that each is read once."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from nextlevelbert import NextLevelBertModel, static_checkpoint
from nextlevelbert.command import options
from nextlevelbert.search import Reranker, rerank
from nextlevelbert.search.encoders.choice import SearchModel
from nextlevelbert.search.encoders.torch import open_model
from nextlevelbert.search.rerank import PASSAGES, scores_again
from nextlevelbert.vector_cache import VectorCache

from ..toys.encoders import CONFIGS, TEXT, save_encoder
from .conftest import Said

QUESTION = "Where does the captain hunt the whale?"


@pytest.fixture
def library(toy, books, open_library):
    return open_library(toy, books)


@pytest.fixture
def second(toy_encoder_path) -> NextLevelBertModel:
    return open_model(toy_encoder_path)


def test_scores(library, second, toy_encoder_path):
    """Six parts sentence-transformers' cosine, four parts words; the others stay behind."""
    before = library.ask(QUESTION, passages=99)
    answer = library.ask(QUESTION, passages=99, rerank=Reranker(second, passages=6))

    first = before.passages[:6]
    reference = SentenceTransformer(toy_encoder_path, device="cpu")
    texts = list(map(library.passage_text, first))
    cosines = reference.similarity(reference.encode(QUESTION), reference.encode(texts))[0].numpy()
    words = (before.score[first] - 0.6 * before.cosine[first]) / 0.4
    np.testing.assert_allclose(answer.rerank_cosine[first], cosines, atol=1e-5)
    np.testing.assert_allclose(answer.score[first], 0.6 * cosines + 0.4 * words, atol=1e-5)
    assert np.isnan(answer.rerank_cosine).sum() == len(answer.score) - 6
    assert sorted(answer.passages[:6]) == sorted(first)
    assert answer.passages[6:] == before.passages[6:]


def test_scores_after_late_interaction(second, books, open_library):
    """Six parts the cosine, and four parts the score that late interaction made."""
    static = open_library(SearchModel(static_checkpoint()), books)
    before = static.ask(QUESTION, passages=99)
    answer = static.ask(QUESTION, passages=99, rerank=Reranker(second, passages=6))

    first = before.passages[:6]
    expected = 0.6 * answer.rerank_cosine[first] + 0.4 * before.score[first]
    np.testing.assert_allclose(answer.score[first], expected, atol=1e-5)


def test_passages_that_were_read_come_first():
    """A copy of a passage has its score; the others keep their order and their distances."""
    scores = np.array([0.9, 0.2, 0.8, 0.9, 0.4], np.float32)
    texts = np.array([7, 1, 3, 7, 2])
    ranked = np.array([0.1, np.nan, 0.3, np.nan, np.nan], np.float32)

    again = scores_again(scores, texts, ranked)

    np.testing.assert_allclose(again, [0.1, -0.101, 0.3, 0.1, 0.099], atol=1e-6)


def test_a_passage_is_read_once(library, second, toy, books, open_library, encoded):
    """Also by a later command, and for another question; only by the same model."""
    reranker = Reranker(second, passages=4)
    first = library.ask(QUESTION, rerank=reranker)
    read = [text for text in encoded if text != QUESTION]
    assert len(read) == 4
    encoded.clear()

    again = open_library(toy, books).ask(QUESTION, rerank=Reranker(second, passages=4))
    library.ask("Who bakes the bread?", rerank=Reranker(second, passages=99))

    assert set(encoded).isdisjoint(read)
    np.testing.assert_array_equal(again.rerank_cosine, first.rerank_cosine)
    encoded.clear()
    library.ask(QUESTION, rerank=Reranker(second.to(torch.bfloat16), passages=4))
    assert set(read) < set(encoded)


def test_a_killed_command_keeps_what_it_has_read(library, second, encoded, monkeypatch):
    monkeypatch.setattr(rerank, "_PASSAGES_PER_WRITE", 3)
    write = VectorCache.write

    def write_and_stop(self, keys, vectors):
        write(self, keys, vectors)
        raise KeyboardInterrupt

    monkeypatch.setattr(VectorCache, "write", write_and_stop)
    with pytest.raises(KeyboardInterrupt):
        library.ask(QUESTION, rerank=Reranker(second, passages=5))
    read = set(encoded)
    encoded.clear()
    monkeypatch.setattr(VectorCache, "write", write)

    library.ask(QUESTION, rerank=Reranker(second, passages=5))

    assert len(read) == 4  # three passages and the question
    assert read.intersection(encoded) == {QUESTION}
    assert len(set(encoded)) == 3


def test_models_of_other_sizes_do_not_mix(library, second, toy_encoder_path, tmp_path):
    """Vectors of both lie in one database."""
    narrow = str(tmp_path / "narrow")
    SentenceTransformer(toy_encoder_path, truncate_dim=8, device="cpu").save(narrow)
    wide = library.ask(QUESTION, rerank=Reranker(second)).rerank_cosine

    short = library.ask(QUESTION, rerank=Reranker(open_model(narrow))).rerank_cosine

    assert not np.allclose(short, wide)
    again = library.ask(QUESTION, rerank=Reranker(second)).rerank_cosine
    np.testing.assert_array_equal(again, wide)


def test_the_command(command, settled, books, toy_encoder_path):
    words = ("search", books, QUESTION, "--json")
    plain = command(*words).json["passages"]

    said = command(*words, "--rerank", toy_encoder_path)

    assert "again with model on cpu in int8, by ONNX Runtime.\n" in said.err
    rows = said.json["passages"]
    assert "rerank_cosine" not in plain[0]
    assert rows[0]["score"] < rows[0]["rerank_cosine"]
    assert sorted(rows, key=lambda row: -row["score"]) == rows
    assert "the model './nowhere' cannot be used" in command(*words, "--rerank", "./nowhere").err


def test_prompts_and_passages_of_several_chunks(tmp_path):
    """Chunks have sentence-transformers' vectors, and count by the squares of their lengths."""
    prompts = {"query": "query : ", "passage": "passage : "}
    path = save_encoder(tmp_path, CONFIGS["bert"], prompts=prompts)
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=12, pooling="plain")
    passages = [TEXT, "the cat sat on the mat ."]

    cosines = Reranker(model).cosines("the red dog", passages, tmp_path / "cache")

    reference = SentenceTransformer(path, device="cpu")
    means = []
    for passage in passages:
        spans = model.encode(passage, prompt_name="passage").spans.tolist()
        chunks = [passage[start:end] for start, end in spans]
        vectors = reference.encode(chunks, prompt_name="passage")
        means.append(np.average(vectors, axis=0, weights=np.square(list(map(len, chunks)))))
    question = reference.encode("the red dog", prompt_name="query")
    expected = reference.similarity(question, np.stack(means).astype(np.float32))[0]
    assert len(chunks) == 1
    np.testing.assert_allclose(cosines, expected, atol=1e-5)


def test_as_many_passages_are_read_as_the_command_says(second):
    assert Reranker(second).passages == PASSAGES == options._RERANKED


@pytest.fixture
def default_command(command, monkeypatch) -> Callable[..., Said]:
    """The command with the installed checkpoint."""
    monkeypatch.delenv("NEXTLEVELBERT_MODEL")
    return command


def test_minilm_ranks_again_by_default(default_command, books):
    """A line says what reads, and how many passages; a second question reads none again."""
    said = default_command("search", books, QUESTION, "--json", "--rerank_depth", "2")

    line = "Ranking the first 2 passages again with sentence-transformers/all-MiniLM-L6-v2 on cpu"
    assert said.err == f"{line} in int8, by ONNX Runtime.\n"
    rows = said.json["passages"]
    cosines = [row["rerank_cosine"] for row in rows]
    assert cosines[2] is None
    for row in rows[:2]:
        plain = row["score"] - 0.6 * row["rerank_cosine"]
        before = 0.7 * row["late_interaction"] + 0.15 * row["cosine"]
        assert plain >= 0.4 * before - 1e-5


@pytest.mark.parametrize(
    "words", [("--rerank", "none"), ("--model", "nextlevelbert-static")], ids=lambda words: words[0]
)
def test_without_a_second_model(default_command, books, words):
    said = default_command("search", books, QUESTION, "--json", *words)

    assert said.err == ""
    assert "rerank_cosine" not in said.json["passages"][0]


def test_without_onnxruntime_nothing_is_ranked_again(default_command, books, monkeypatch):
    monkeypatch.setattr(rerank, "find_spec", lambda name: None)

    said = default_command("search", books, QUESTION, "--json")

    assert said.err == ""
    assert "rerank_cosine" not in said.json["passages"][0]


def test_vectors_of_both_precisions_do_not_mix(library, settled, toy_encoder_path, exports):
    """Passages are read in each of them, and a later question finds its own."""
    answers = {}
    for dtype in ("float32", "int8", "float32", "int8"):
        model = SearchModel(toy_encoder_path, dtype=dtype, cache_dir=exports)
        cosines = library.ask(QUESTION, rerank=Reranker(model, passages=4)).rerank_cosine
        answers.setdefault(dtype, []).append(cosines)

    np.testing.assert_allclose(*answers["float32"], atol=1e-6)
    np.testing.assert_allclose(*answers["int8"], atol=1e-6)
    difference = np.nanmax(np.abs(answers["float32"][0] - answers["int8"][0]))
    assert difference > 1e-4


def test_a_number_of_passages_is_positive(command, books):
    said = command("search", books, QUESTION, "--rerank_depth", "0")

    assert said.status == 2
    assert "must be 1 or more, got '0'" in said.err


def test_no_passage_is_no_ranking(second):
    with pytest.raises(ValueError, match="passages must be 1 or more, got 0"):
        Reranker(second, passages=0)
