"""The table of everyday questions: its passages, its rows and its intervals, on a small folder."""

from argparse import Namespace

import numpy as np
import pytest
from scipy.stats import bootstrap

from benchmarks.studies import search_table
from benchmarks.studies.everyday_questions import Answer, Question

LID = Question(
    id="help-01",
    kind="help",
    half="report",
    question="Why does the laptop sleep when its lid is shut?",
    answers=(Answer(document="lid", quotation="The laptop sleeps if its lid is closed."),),
)
DOCUMENTS = [
    ("lid", "The laptop sleeps if its lid is closed. A setting of power changes that."),
    ("sound", "The music stops if no speaker is connected."),
    ("copy", "The music stops if no speaker is connected."),
    ("empty", " "),
    ("mouse", "The pointer moves faster if the mouse is fast."),
]


class LengthEncoder:
    """Encodes a text by its length, and remembers which texts it has read."""

    def __init__(self):
        self.read = []

    def encode(self, texts, normalize_embeddings):
        assert normalize_embeddings
        self.read += texts
        angles = np.array([len(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.fixture
def encoder(monkeypatch):
    encoder = LengthEncoder()
    monkeypatch.setattr(search_table, "SentenceTransformer", lambda *args, **options: encoder)
    return encoder


@pytest.fixture
def collection(monkeypatch, tmp_path):
    monkeypatch.setattr(search_table, "load_questions", lambda: [LID])
    args = Namespace(output_dir=tmp_path, passages=None)
    return search_table.open_collection("help", DOCUMENTS, half="report", args=args)


def test_the_passage_with_the_quotation_is_right_and_equal_texts_count_once(collection):
    assert collection.library.names[0].endswith("#lid")  # with an answer
    assert len(collection.texts) == 4  # without the empty document
    assert len(set(collection.numbers.tolist())) == 3
    assert collection.right == [{0}]


def test_every_row_ranks_the_passage_that_answers(collection, encoder, tmp_path):
    encoded = search_table.EncodedTexts("toy", tmp_path / "vectors")

    table = search_table.ranks(collection, encoded, "toy")

    lengths = np.array(sorted(set(map(len, collection.texts))))
    cosines = np.cos(lengths - len(LID.question))
    right = np.cos(len(collection.texts[0]) - len(LID.question))
    assert table["toy alone"] == [1 + np.count_nonzero(cosines > right + 1e-6)]
    assert table["search"] == table["bm25s"] == table["TF-IDF (scikit-learn)"] == [1]
    assert set(table) > {"search --rerank toy", "search --model toy"}


def test_a_text_is_encoded_once_also_in_a_later_run(encoder, tmp_path):
    texts = ["a sentence", "another one", "a sentence"]

    first = search_table.EncodedTexts("toy", tmp_path).vectors(texts)
    again = search_table.EncodedTexts("toy", tmp_path).vectors(texts)

    assert encoder.read == ["a sentence", "another one"]
    np.testing.assert_array_equal(first, again)


def test_an_interval_is_scipy_s_percentile_bootstrap():
    values = 1 / np.arange(1, 51)

    low, high = search_table.interval(values)

    drawn = bootstrap((values,), np.mean, method="percentile", rng=0).confidence_interval
    assert low == pytest.approx(drawn.low, abs=0.005)
    assert high == pytest.approx(drawn.high, abs=0.005)
