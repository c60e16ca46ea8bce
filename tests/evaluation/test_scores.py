"""Scores by length, by hand."""

import numpy as np

from nextlevelbert.evaluation import RetrievalTask, rank_by_scores
from nextlevelbert.evaluation.scores import scores_by_length


def test_the_mean_length_of_all_relevant_documents_decides_the_bucket():
    documents = {"short": "word " * 130, "long": "word " * 300}
    task = RetrievalTask("toy", {"q": "?"}, documents, {"q": {"short": 1, "long": 1}})
    rankings = rank_by_scores(task, np.array([[0.9, 0.1]]))

    [row] = scores_by_length(task, rankings)

    assert (row["from_words"], row["below_words"]) == (128, 256)
