"""TF-IDF and BM25 by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nextlevelbert.tasks.retrieval import bm25_scores, tfidf_scores

POOL = ["the whale and the sea the sea", "the ball in Bath", "the ship at sea"]


def test_tfidf_by_hand():
    """Only words of a single document are left (half of three is 1.5), so all have one weight but for their counts."""
    scores = tfidf_scores(["whale whale ball", "nothing known"], POOL)
    assert scores.dtype == np.float32
    # Documents keep {whale, and}, {ball, in, bath}, {ship, at}; the query {whale: 1 + ln 2, ball: 1}.
    whale, ball = 1 + np.log(2), 1.0
    length = np.hypot(whale, ball)
    np.testing.assert_allclose(
        scores, [[whale / length / np.sqrt(2), ball / length / np.sqrt(3), 0], [0, 0, 0]], rtol=1e-6
    )


def test_tfidf_leaves_out_words_of_more_than_half_of_the_pool():
    pool = ["whale sea ship", "ball sea ship", "moor sea", "attic", "train"]
    assert tfidf_scores(["sea", "ship"], pool).astype(bool).tolist() == [
        [False] * 5,
        [True, True, False, False, False],
    ]
    assert tfidf_scores(["sea"], ["whale sea", "ball sea", "moor", "attic"]).any()  # just half


def test_bm25_by_hand():
    """Lucene's formula: ln(1 + (N - n + 0.5) / (n + 0.5)) · f / (f + k1 (1 - b + b · length / mean length))."""
    scores = bm25_scores(["The sea!", "sea whale"], POOL)
    assert scores.dtype == np.float32
    lengths = np.asarray([3, 2, 2])  # whale sea sea; ball bath; ship sea: without stop words
    counts = {"sea": np.asarray([2, 0, 1]), "whale": np.asarray([1, 0, 0])}

    def weight(word):
        found = (counts[word] > 0).sum()
        idf = np.log(1 + (3 - found + 0.5) / (found + 0.5))
        return idf * counts[word] / (counts[word] + 1.5 * (0.25 + 0.75 * lengths / lengths.mean()))

    np.testing.assert_allclose(scores, [weight("sea"), weight("sea") + weight("whale")], rtol=1e-5)
    for nothing in ("unheard of", "of the", "?"):  # an unknown word, stop words only, no word
        np.testing.assert_array_equal(bm25_scores([nothing], POOL), np.zeros((1, 3)))


@pytest.mark.parametrize("scorer", [tfidf_scores, bm25_scores])
def test_word_counts_of_unusable_input(scorer):
    for queries, documents in (("one text", POOL), (["one"], "one text"), ([], POOL), (["one"], POOL[:1])):
        with pytest.raises(ValueError, match="Give a list of at least one query"):
            scorer(queries, documents)


def test_a_pool_of_one_text_twice_has_no_tfidf():
    with pytest.raises(ValueError, match="No word of the 2 documents"):
        tfidf_scores(["whale"], ["a whale", "a whale"])
