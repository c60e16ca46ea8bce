"""The study that compares tables of token vectors, on toy tables."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sklearn.metrics import average_precision_score

from benchmarks.studies import token_tables
from benchmarks.studies.second_whitening import own_document_task
from benchmarks.studies.token_tables import PRESENT
from nextlevelbert import load_chunk_encoder

from .toys.encoders import word_tokenizer
from .toys.vectors import save_random_table


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two random tables of one vocabulary."""
    tokenizer = word_tokenizer()
    paths = {}
    for name, size in ((PRESENT, 6), ("new", 8)):
        paths[name] = tmp_path_factory.mktemp("tables") / name
        save_random_table(tokenizer, size=size, folder=paths[name], rows=len(tokenizer))
    return paths


@pytest.fixture(scope="module")
def task():
    """Three documents of two texts, each of one chunk."""
    words = [word for word in word_tokenizer().get_vocab() if word.isalpha()]
    rng = np.random.default_rng(0)
    keys = ["a#0", "a#1", "b#0", "b#1", "c#0", "c#1"]
    return own_document_task("toy", {key: " ".join(rng.choice(words, 9)) for key in keys})


def average_precisions(folder, texts):
    """Scores the texts by sentence-transformers and scikit-learn; the right one is the next."""
    vectors = SentenceTransformer(str(folder), device="cpu").encode(texts)
    scores = []
    for index, cosines in enumerate(vectors @ vectors.T):
        others = np.delete(np.arange(len(texts)), index)
        scores.append(average_precision_score(others == index ^ 1, cosines[others]))
    return np.array(scores)


def test_scores_and_differences_are_those_of_scikit_learn(folders, task):
    tables = {name: load_chunk_encoder(str(folder)) for name, folder in folders.items()}
    maps = dict.fromkeys(tables, lambda chunks: chunks.mean(dim=0))

    figures = token_tables.compare(tables, maps, task, "map")

    texts = [*task.queries.values()]
    present = average_precisions(folders[PRESENT], texts)
    new = average_precisions(folders["new"], texts)
    mean, low, high = figures["new, difference"]
    assert figures["n"] == 6
    assert figures[PRESENT] == pytest.approx(present.mean())
    assert figures["new"] == pytest.approx(new.mean())
    assert mean == pytest.approx((new - present).mean())
    assert low < mean < high


def test_a_table_of_another_vocabulary_is_refused(folders):
    with pytest.raises(ValueError, match="another vocabulary"):
        token_tables.open_tables([folders["new"]])
