"""Retrieval scores by the length of documents."""

from __future__ import annotations

import numpy as np
import pytest

from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, retrieval_scores
from nextlevelbert.tasks.retrieval import plot_by_length, scores_by_length


def task_of(queries: int, documents: int, relevant: dict[int, dict[int, int]]) -> RetrievalTask:
    return RetrievalTask(
        "toy",
        {f"q{number}": f"query {number}" for number in range(queries)},
        {f"d{number}": "word " * (number + 1) for number in range(documents)},
        {
            f"q{query}": {f"d{document}": grade for document, grade in found.items()}
            for query, found in relevant.items()
        },
    )


def test_scores_by_length_and_their_plot(tmp_path):
    """Document n has n + 1 words, and only the queries for short ones find theirs first."""
    task = task_of(30, 30, {number: {number: 1} for number in range(30)})
    scores = np.eye(30)
    scores[8:] = 0.0
    ranks = rank_by_scores(task, scores)
    rows = scores_by_length(task, ranks, edges=[3, 9, 17], k=10)
    assert [(row["from_words"], row["below_words"], row["queries"]) for row in rows] == [
        (0, 3, 2), (3, 9, 6), (9, 17, 8), (17, 31, 14)
    ]  # fmt: skip
    assert [row["mrr"] for row in rows] == pytest.approx([1, 1, 1 / 30, 1 / 30])
    [default] = scores_by_length(task, ranks)
    assert {key: default[key] for key in retrieval_scores(ranks)} == retrieval_scores(ranks)
    plot_by_length({"model": rows, "other": rows}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="same buckets"):
        plot_by_length({"model": rows, "other": rows[1:]}, tmp_path / "plot.png")


def test_length_is_the_mean_of_several_relevant_documents():
    task = task_of(1, 300, {0: {199: 1, 299: 1}})  # 200 and 300 words
    [row] = scores_by_length(task, rank_by_scores(task, np.zeros((1, 300))))
    assert (row["from_words"], row["below_words"]) == (128, 256)
    own = RetrievalTask(
        "own",
        {"d0": "", "d1": ""},
        {"d0": "word", "d1": "word " * 9},
        {"d0": {"d0": 1, "d1": 1}, "d1": {"d0": 1, "d1": 1}},
    )
    rows = scores_by_length(own, rank_by_scores(own, np.zeros((2, 2))), edges=[2, 9])
    # Itself does not count, so one query looks for one word and the other for nine, which is the longest there is.
    assert [(row["from_words"], row["below_words"]) for row in rows] == [(0, 2), (9, 10)]
