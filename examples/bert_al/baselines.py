"""Extractive summaries that need no training: the beginning, TF-IDF and the oracle.

`summarize.py` imports this file; it is no script of its own.
"""

import numpy as np
from datasets import Dataset
from rouge import greedy_oracle
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from nextlevelbert.models import select_sentences


def choose_without_model(
    train: Dataset, documents: Dataset, count: int
) -> dict[str, list[list[int]]]:
    """Chooses the first sentences, those nearest to the mean TF-IDF vector, and the oracle's.

    Returns:
        Indices of sentences for each document, by row of the table.
    """
    words = TfidfVectorizer().fit(" ".join(sentences) for sentences in train["sentences"])
    first = []
    central = []
    best = []
    for document in documents:
        sentences = document["sentences"]
        vectors = words.transform(sentences)
        [similarities] = cosine_similarity(np.asarray(vectors.mean(axis=0)), vectors)
        first.append(list(range(min(count, len(sentences)))))
        central.append(select_sentences(similarities, count))
        best.append(greedy_oracle(sentences, document["reference"], limit=count))
    return {
        f"first {count} sentences": first,
        "TF-IDF centroid": central,
        f"oracle, at most {count} sentences": best,
    }
