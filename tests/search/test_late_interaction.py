"""Late interaction: by hand, by a plain loop, and in the scores of a search."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from nextlevelbert import NextLevelBertModel, static_checkpoint
from nextlevelbert.data.words import search_words
from nextlevelbert.search import open_library
from nextlevelbert.search.encoders.choice import SearchModel
from nextlevelbert.search.encoders.static import StaticEncoder
from nextlevelbert.search.late_interaction import late_interaction

from .conftest import COURT, KITCHEN, SEA

INSTALLED = static_checkpoint()
QUESTION = "Where did the captain's whale bake 14.2 loaves?"
# A vector that is not of length 1 counts by its direction.
VECTORS = {"[UNK]": [1, 1], "sea": [1, 0], "ship": [3, 4], "oven": [0, 2], "mast": [-1, 0]}


class Table:
    """An encoder of five words with vectors of two dimensions."""

    def __init__(self) -> None:
        vocabulary = {word: index for index, word in enumerate(VECTORS)}
        backend = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
        backend.pre_tokenizer = WhitespaceSplit()
        self.tokenizer = SimpleTokenizer(backend)

    def token_vectors(self, ids: np.ndarray) -> np.ndarray:
        return np.array([*VECTORS.values()], np.float32)[ids]


class SimpleTokenizer(SimpleNamespace):
    is_fast = True
    split_special_tokens = False
    unk_token_id = 0
    __hash__ = object.__hash__

    def __init__(self, backend_tokenizer: Tokenizer) -> None:
        super().__init__(backend_tokenizer=backend_tokenizer)


def test_values_by_hand():
    """The cosine of sea and ship is 3/5, that of oven and ship 4/5; sea weighs three times as much."""
    texts = ["A ship!", "Sea, sea", "mast", "!"]

    scores = late_interaction(["sea", "oven"], np.array([3, 1]), texts, Table())

    by_hand = [(3 * 0.6 + 0.8) / 4, 3 / 4, 0, 0]
    np.testing.assert_allclose(scores, by_hand, atol=1e-6)


def test_words_that_the_encoder_does_not_know_do_not_count():
    some = late_interaction(["sea", "zebra"], np.array([3, 1]), ["ship and zebra"], Table())
    none = late_interaction(["zebra"], np.array([1]), ["ship and zebra"], Table())
    no_words = late_interaction([], np.array([]), ["!", "ship"], Table())

    np.testing.assert_allclose(some, [0.6], atol=1e-6)
    np.testing.assert_array_equal(none, [0])
    np.testing.assert_array_equal(no_words, [0, 0])


def test_values_by_a_plain_loop():
    encoder = StaticEncoder(Path(INSTALLED))
    words = search_words(QUESTION)
    weights = np.random.default_rng(0).uniform(size=len(words))
    texts = [SEA, COURT, KITCHEN, "Où est l'œuf?"]

    scores = late_interaction(words, weights, texts, encoder)

    def unit_vectors(text: str) -> np.ndarray:
        backend = encoder.tokenizer.backend_tokenizer
        vectors = encoder.token_vectors(backend.encode(text, add_special_tokens=False).ids)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    for text, score in zip(texts, scores, strict=True):
        total = 0.0
        count = 0.0
        for word, weight in zip(words, weights, strict=True):
            for vector in unit_vectors(word):
                total += weight * max(0.0, *(unit_vectors(" ".join(search_words(text))) @ vector))
                count += weight
        assert score == pytest.approx(total / count, abs=1e-5)


@pytest.fixture(scope="module")
def notes(tmp_path_factory) -> str:
    """A table of 130 notes, two of which are equal, and the first of which answers best."""
    folder = tmp_path_factory.mktemp("notes")
    words = np.array([*(SEA + KITCHEN + COURT).split()])
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, size=20)) for _ in range(130)]
    texts[0] = texts[129] = "The captain hunts the whale."
    rows = [json.dumps({"id": str(index), "text": text}) for index, text in enumerate(texts)]
    (folder / "notes.jsonl").write_text("\n".join(rows))
    return str(folder)


def test_the_first_hundred_passages_are_ranked_again(notes, reading, monkeypatch):
    library = open_library(notes, SearchModel(INSTALLED), reading)
    monkeypatch.setattr(StaticEncoder, "has_token_vectors", False)
    before = library.ask("Which captain is on the sea?", passages=200)
    monkeypatch.undo()
    after = library.ask("Which captain is on the sea?", passages=200)

    first = before.passages[:100]
    late = after.late_interaction
    assert before.late_interaction is None
    assert sorted(np.flatnonzero(~np.isnan(late))) == sorted(first)
    expected = 0.7 * late[first] + 0.3 * before.score[first]
    np.testing.assert_allclose(after.score[first], expected, atol=1e-6)
    assert sorted(after.passages[:100]) == sorted(first)
    assert after.passages[100:] == before.passages[100:]
    assert after.score[129] == after.score[0]


def test_rare_words_count_more(notes, reading):
    """The weights by hand: ln(1 + (N - n + 0.5) / (n + 0.5)) of a word that n passages hold."""
    library = open_library(notes, SearchModel(INSTALLED), reading)
    answer = library.ask("captain zebra")
    passages = len(answer.score)
    holders = np.count_nonzero(library.ask("captain").bm25)

    weights = np.log1p((passages - np.array([holders, 0]) + 0.5) / np.array([holders + 0.5, 0.5]))
    texts = list(map(library.passage_text, answer.passages))
    encoder = StaticEncoder(Path(INSTALLED))
    expected = late_interaction(["captain", "zebra"], weights, texts, encoder)
    late = answer.late_interaction[answer.passages]
    np.testing.assert_allclose(late, expected, atol=1e-6)


def test_the_opened_model_ranks_as_its_files_do(notes, reading):
    files = open_library(notes, SearchModel(INSTALLED), reading)
    model = open_library(notes, NextLevelBertModel.from_pretrained(INSTALLED), reading)

    one = files.ask(QUESTION)
    other = model.ask(QUESTION)

    assert one.passages == other.passages
    np.testing.assert_allclose(one.score, other.score, atol=1e-5)


@pytest.mark.parametrize("question", ["!!!", "\u0e31 ?", "где кит", "ปลาวาฬ"])
def test_a_question_without_known_words_is_answered(notes, reading, question):
    library = open_library(notes, SearchModel(INSTALLED), reading)

    assert len(library.ask(question).passages) == 5


def test_it_is_printed_as_json(command, notes):
    said = command("search", notes, "captain", "--model", INSTALLED, "--json")

    [first, *_] = said.json["passages"]
    assert first["score"] < first["late_interaction"] <= 1
