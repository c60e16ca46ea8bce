"""TF-IDF and BM25 by hand, in any script."""

import numpy as np

from nextlevelbert.evaluation import bm25_scores, tfidf_scores

POOL = ["the whale and the sea the sea", "the ball in Bath", "the ship at sea"]


def test_tfidf_by_hand():
    """Only words of a single document are left (half of three is 1.5), so all have one weight but
    for their counts."""
    scores = tfidf_scores(["whale whale ball", "nothing known"], POOL)
    # Documents keep {whale, and}, {ball, in, bath}, {ship, at}; the query {whale: 1 + ln 2, ball:
    # 1}.
    whale, ball = 1 + np.log(2), 1.0
    row = np.array([whale / np.sqrt(2), ball / np.sqrt(3), 0]) / np.hypot(whale, ball)
    np.testing.assert_allclose(scores, [row, [0, 0, 0]], rtol=1e-6)


def test_bm25_by_hand():
    """Lucene's formula: ln(1 + (N - n + 0.5) / (n + 0.5)) · f / (f + k1 (1 - b + b · length / mean
    length))."""
    scores = bm25_scores(["The sea!", "sea whale", "of the"], POOL)
    lengths = np.asarray([3, 2, 2])  # whale sea sea; ball bath; ship sea: without stop words
    counts = {"sea": np.asarray([2, 0, 1]), "whale": np.asarray([1, 0, 0])}

    def weight(word):
        documents = (counts[word] > 0).sum()
        idf = np.log(1 + (3 - documents + 0.5) / (documents + 0.5))
        return idf * counts[word] / (counts[word] + 1.5 * (0.25 + 0.75 * lengths / lengths.mean()))

    np.testing.assert_allclose(
        scores, [weight("sea"), weight("sea") + weight("whale"), np.zeros(3)], rtol=1e-5
    )


def test_words_of_other_scripts_are_counted():
    """A word that both texts share is found, also if it is one character of a clause."""
    pool = ["猫坐在垫子上。", "बिल्ली बैठी थी।", "Кошка спала."]
    queries = ["垫", "थी", "КОШКА"]
    for scores in (tfidf_scores(queries, pool), bm25_scores(queries, pool)):
        assert (scores > 0).tolist() == np.eye(3, dtype=bool).tolist()
