"""Words of passages, and BM25 against `bm25s`."""

from __future__ import annotations

from collections import Counter

import bm25s
import numpy as np
import pytest

from nextlevelbert.commands.words import bm25, count_words, split_words, word_hash

from .conftest import COURT, KITCHEN, SEA

PIECES = [text[start : start + 40] for text in (SEA, KITCHEN, COURT) for start in range(0, len(text), 40)]
QUESTIONS = ["The whale", "the the whale whale oven", "Whose jury leaves?", "nothing of this"]


def test_counts():
    found = count_words(["The whale, the ship", "", "THE whale"])
    assert found.lengths.tolist() == [4, 0, 2]
    assert found.words.tolist() == sorted(map(word_hash, ("the", "whale", "ship")))
    pairs = {}
    for number, word in enumerate(found.words.tolist()):
        chosen = slice(*found.starts[number : number + 2])
        pairs[word] = list(zip(found.chunks[chosen].tolist(), found.counts[chosen].tolist(), strict=True))
    assert pairs == {
        word_hash("the"): [(0, 2), (2, 1)],
        word_hash("whale"): [(0, 1), (2, 1)],
        word_hash("ship"): [(0, 1)],
    }
    assert found.chunks.dtype == found.counts.dtype == np.uint8


def test_many_passages_and_a_word_that_is_often_there():
    found = count_words(["word " * 300, *["other"] * 299, "word"])
    pairs = slice(*found.starts[found.words.tolist().index(word_hash("word")) :][:2])
    assert found.chunks[pairs].tolist() == [0, 300]
    assert found.counts[pairs].tolist() == [300, 1]


@pytest.mark.parametrize("question", QUESTIONS)
def test_scores_are_those_of_bm25s(question):
    index = bm25s.BM25(method="robertson")
    index.index([split_words(piece) for piece in PIECES], show_progress=False)
    np.testing.assert_allclose(
        bm25([count_words(PIECES)], question), index.get_scores(split_words(question)), atol=1e-6
    )


def test_a_word_in_half_of_the_passages_counts_for_nothing():
    pieces = ["the whale and", "the ball and", "the ship", "the sea"]
    assert bm25([count_words(pieces)], "the and").tolist() == [0] * 4
    assert (bm25([count_words(pieces)], "the and whale") > 0).tolist() == [True, False, False, False]


def test_parts_are_scored_as_one():
    parts = [count_words(part) for part in (PIECES[:5], [], PIECES[5:6], PIECES[6:])]
    for question in QUESTIONS:
        np.testing.assert_allclose(bm25(parts, question), bm25([count_words(PIECES)], question), rtol=1e-6)


@pytest.mark.parametrize("pieces", [[], [""], ["...", "?"]])
def test_nothing_to_find(pieces):
    assert bm25([count_words(pieces)], "whale").tolist() == [0] * len(pieces)
    assert bm25([count_words(pieces)], "").tolist() == [0] * len(pieces)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't STOP 42", ["don", "t", "stop", "42"]),
        ("Brontë, Bronte\u0308", ["bronte", "bronte"]),
        ("白鯨 Ahab", ["白", "鯨", "ahab"]),
        ("Кит и море", ["кит", "и", "море"]),
        ("हिन्दी। किताब", ["हिन्दी", "किताब"]),
        ("ปลาวาฬใหญ่ น้ำ", ["ปลาวาฬใหญ่", "น้ำ"]),
        ("الحوت في البحر،", ["الحوت", "في", "البحر"]),
    ],
)
def test_words_of_any_language(text, words):
    assert split_words(text) == words
    assert count_words([text]).lengths.tolist() == [sum(Counter(words).values())]
