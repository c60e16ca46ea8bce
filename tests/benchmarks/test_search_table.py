"""The table of everyday questions: its passages, its rows and its intervals, on a small folder."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from benchmarks.studies import search_table
from benchmarks.studies.everyday_questions import Answer, Question
from nextlevelbert.search.encoders.choice import SearchModel
from nextlevelbert.search.rerank import Reranker

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


@pytest.fixture
def documents(tmp_path):
    return search_table.write_documents("help", DOCUMENTS, tmp_path)


@pytest.fixture
def collection(documents):
    return search_table.open_collection(documents, [LID])


def test_the_passage_with_the_quotation_is_right_and_equal_texts_count_once(collection):
    assert len(collection.texts) == 4  # without the empty document
    assert len(set(collection.numbers.tolist())) == 3
    assert collection.right == [{0}]


def test_every_row_ranks_the_passage_that_answers(collection):
    table = search_table.ranks(collection)

    assert table["search"] == table["bm25s"] == table["TF-IDF (scikit-learn)"] == [1]


def test_rows_of_an_encoder_are_those_of_the_commands(collection, documents):
    """With the encoder of the default, each row is that of the default."""
    model = SearchModel()
    own = search_table.open_collection(documents, [LID], model)

    table = search_table.ranks_with_encoder(
        collection, own, reranker=Reranker(model), name="static"
    )

    vectors = collection.library.ask(LID.question).cosine
    assert table["search --rerank static"] == table["search --model static"] == [1]
    assert table["static alone"] == [collection.rank(0, vectors)]


def test_the_rank_is_that_of_the_first_right_passage(collection):
    lid, *others = range(4)
    scores = np.zeros(4)
    scores[others] = 1  # two of them have the same text

    assert collection.rank(lid, scores) == 3


def test_an_interval_is_scipy_s_percentile_bootstrap():
    values = 1 / np.arange(1, 51)

    low, high = search_table.interval(values)

    drawn = bootstrap((values,), np.mean, method="percentile", rng=0).confidence_interval
    assert low == pytest.approx(drawn.low, abs=0.005)
    assert high == pytest.approx(drawn.high, abs=0.005)


def test_differences_are_those_of_search_and_of_search_ranked_again():
    table = {
        "search": np.array([1, 2, 4]),
        "search --rerank minilm": np.array([1, 1, 2]),
        "minilm alone": np.array([1, 3, 1]),
    }

    figures = search_table.figures_of(table)

    alone = figures["minilm alone"]
    assert (alone["won / lost"], alone["sign test"]) == ("1 / 1", "1.000")
    assert alone["search minus"][0] == pytest.approx((0 + 1 / 6 - 3 / 4) / 3)
    assert alone["search --rerank minilm minus"][0] == pytest.approx((0 + 2 / 3 - 1 / 2) / 3)
    assert "minilm alone minus" not in alone
