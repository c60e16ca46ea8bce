"""Search: scores against cosines by hand and bm25s's BM25, and what is printed."""

import re
from itertools import pairwise

import bm25s
import numpy as np
import pytest
import torch

from nextlevelbert import NextLevelBertModel
from nextlevelbert.search.library import Library, ranking
from nextlevelbert.search.store import open_store
from nextlevelbert.spans import whole_sentences

from .conftest import COURT, KITCHEN, SEA

QUESTION = "Where does the captain hunt the whale?"
TEXTS = {"far/court.txt": COURT, "kitchen.txt": KITCHEN, "sea.txt": SEA}


def by_words(pieces: list[str], question: str) -> tuple[np.ndarray, float]:
    """BM25 as bm25s indexes it in Robertson's form, at least a tenth of Lucene's (k1 1.2, b 0.75),
    without the words that more than half of the pieces hold; and the length of the rarities."""
    words = [re.findall(r"\w+", piece.lower()) for piece in pieces]
    reference = bm25s.BM25(method="robertson", k1=1.2)
    lucene = bm25s.BM25(method="lucene", k1=1.2)
    for index in (reference, lucene):
        index.index(words, show_progress=False)
    asked = re.findall(r"\w+", question.lower())
    containing = np.array([sum(word in piece for piece in words) for word in asked])
    odds = (len(pieces) - containing + 0.5) / (containing + 0.5)
    rarities = np.maximum(np.log(np.maximum(odds, 1)), np.log1p(odds) / 10)
    scores = [
        np.maximum(reference.get_scores([word]), lucene.get_scores([word]) / 10)
        for word, count in zip(asked, containing, strict=True)
        if 0 < count <= len(pieces) / 2
    ]
    return np.sum(scores, axis=0), float(np.linalg.norm(rarities))


@pytest.mark.parametrize("whitened", [False, True])
def test_scores(toy_encoder_path, books, reading, whitened):
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=16, whiten_chunks=whitened
    )
    mean = np.zeros(32)
    matrix = np.eye(32)
    if whitened:
        mean = np.random.default_rng(0).normal(size=32) / 9
        matrix = np.random.default_rng(1).normal(size=(32, 32))
        model.whitening.mean.copy_(torch.from_numpy(mean))
        model.whitening.weight.copy_(torch.from_numpy(matrix))
    library = Library(open_store(str(books), model, reading))
    answer = library.ask(QUESTION)

    def unit(plain: torch.Tensor) -> np.ndarray:
        vectors = (plain.double().numpy() - mean) @ matrix.T
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    query = unit(model.encode(QUESTION).plain)[0]
    cosines = []
    pieces = []
    for text in TEXTS.values():
        encoded = model.encode(text)
        cosines.extend(unit(encoded.plain) @ query)
        for start, end in whole_sentences(text, encoded.spans):
            pieces.append(text[start:end])
    words, length = by_words(pieces, QUESTION)
    share = {False: 0.6, True: 0.5}[whitened]
    both = share * np.array(cosines) + (1 - share) * words / length
    np.testing.assert_allclose(answer.cosine, cosines, atol=1e-5)
    np.testing.assert_allclose(answer.bm25, words, atol=1e-5)
    np.testing.assert_allclose(answer.score, both, atol=1e-5)


def test_the_order_of_documents_and_passages(toy, books, open_library):
    """A document's score is the mean of its three best passages; equal passages count once."""
    library = open_library(toy, books)
    answer = library.ask(QUESTION, documents=2, passages=7)
    best = []
    for start, end in pairwise(library.starts):
        best.append(np.sort(answer.score[start:end])[-3:].mean())
    for number, score in answer.documents:
        assert score == pytest.approx(max(best))
        assert best.index(max(best)) == number
        best[number] = -1.0

    texts = []
    for passage in np.argsort(-answer.score, kind="stable"):
        text = library.passage(passage).text
        if text not in texts:
            texts.append(text)
    assert [library.passage(passage).text for passage in answer.passages] == texts[:7]
    assert library.names == list(TEXTS)
    for number, text in enumerate(TEXTS.values()):
        assert library.document(number).text == text


def test_vectors_of_documents_are_kept_in_float16(toy, books, reading):
    """2 ** -10 is a unit in the last place."""
    store = open_store(str(books), toy, reading)

    for run, text in zip(store.runs, TEXTS.values(), strict=True):
        [vector] = store.array("document_vectors", run)
        np.testing.assert_allclose(vector, toy.encode(text).document, rtol=2**-10, atol=1e-6)


def test_a_word_that_is_asked_twice_counts_as_once(toy, books, open_library):
    """BM25 doubles, and so does the length of the question's rarities."""
    library = open_library(toy, books)
    once = library.ask("whale")
    twice = library.ask("whale whale")
    np.testing.assert_allclose(twice.bm25, 2 * once.bm25, rtol=1e-5)
    by_words = once.score - library.cosine_weight * once.cosine
    doubled = twice.score - library.cosine_weight * twice.cosine
    np.testing.assert_allclose(doubled, by_words, atol=1e-5)


def test_a_word_of_no_passage_adds_to_the_length_of_the_question(toy, books, open_library):
    """Robertson's rarities by hand: ln((N - n + 0.5) / (n + 0.5)) of a word that n passages hold."""
    library = open_library(toy, books)
    alone = library.ask("whale")
    answer = library.ask("whale xylophone")
    passages = len(answer.score)
    holders = np.count_nonzero(alone.bm25)
    whale = np.log((passages - holders + 0.5) / (holders + 0.5))
    xylophone = np.log((passages + 0.5) / 0.5)

    by_words = answer.score - library.cosine_weight * answer.cosine
    share = 1 - library.cosine_weight
    expected = share * alone.bm25 / np.hypot(whale, xylophone)
    np.testing.assert_allclose(by_words, expected, atol=1e-5)


def test_of_equal_scores_the_first_in_the_folder_is_first():
    scores = np.tile([0.25, 0.5], 200)

    assert list(ranking(scores, np.arange(400))) == [*range(1, 400, 2), *range(0, 400, 2)]
    assert list(ranking(scores, np.arange(400) // 4)) == list(range(1, 400, 4))


def test_one_passage_without_words(command, tmp_path):
    """Nothing is nearer than another."""
    (tmp_path / "one.txt").write_text("!!!")
    [passage] = command("search", tmp_path / "one.txt", "whale", "--json").json["passages"]

    assert passage["score"] == pytest.approx(0.6 * passage["cosine"])
    assert passage["bm25"] == 0


def test_words_of_more_than_a_third_of_the_passages_tell_nothing(toy, tmp_path, open_library):
    (tmp_path / "notes").mkdir()
    for index in range(10):
        words = ["a", "note", str(index)]
        if index < 4:
            words.append("whale")
        if index < 3:
            words.append("captain")
        (tmp_path / "notes" / f"{index}.txt").write_text(" ".join(words))
    library = open_library(toy, tmp_path / "notes")

    telling = library.telling_words("The captain and a whale")

    assert len(library.ask("note", passages=99).passages) == 10
    assert telling == {"captain"}


def test_words_that_many_passages_hold_tell_nothing_beside_a_rare_one(toy, tmp_path, open_library):
    """What half the weight of the rarest word is, is seen without a list of stop words."""
    (tmp_path / "notes").mkdir()
    for index in range(40):
        text = "a note"
        if index < 12:
            text += " must"
        if index < 2:
            text += " whale"
        (tmp_path / "notes" / f"{index}.txt").write_text(f"{text} {index}")
    library = open_library(toy, tmp_path / "notes")

    telling = library.telling_words("must the whale")

    assert telling == {"whale"}
    assert library.telling_words("must it") == {"must"}
    assert library.telling_words("zephyrograph") == set()


def test_words_of_two_documents_count(command, tmp_path):
    (tmp_path / "a.txt").write_text("The constellation is a figure among the stars of the night.")
    (tmp_path / "b.txt").write_text("The almanac has the zephyrograph readings of the coast.")
    [first, second] = command("search", tmp_path, "zephyrograph", "--json").json["documents"]

    assert (first["place"], second["place"]) == ("b.txt", "a.txt")


def test_a_question_that_is_no_unicode(command, books):
    """A terminal in another encoding gives half of a surrogate pair for each byte."""
    said = command("search", books, "caf\udce9")

    assert said.status == 1
    assert "is not valid Unicode. Check character 4." in said.err


def test_a_question_without_a_token(command, books):
    said = command("search", books, "\u200b")

    assert said.status == 1
    assert "holds no word" in said.err


@pytest.mark.parametrize("question", ["Где плавает кит?", "zebras"])
def test_a_question_of_words_that_no_passage_holds(command, books, question):
    """Its words are named; a question with one known word has no note."""
    said = command("search", books, question, "--json")
    known = command("search", books, f"{question} whale", "--json")

    words = ", ".join(re.findall(r"\w+", question.lower()))
    assert f"note: no passage holds a word of the question ({words}), so that only" in said.err
    assert "the passages are near, and probably no answers" in said.err
    assert len(said.json["passages"]) == 5
    assert "note" not in known.err
