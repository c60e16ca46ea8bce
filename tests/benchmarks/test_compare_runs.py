"""Two runs compared, by hand and by SciPy."""

import itertools
from operator import itemgetter

import numpy as np
import pytest
from scipy import stats

from benchmarks.studies import compare_runs
from metrics.conll_coreference.conll_coreference import coreference_scores

from ..toys.finetuning import write


def mention_topics(topics, wrong):
    """Predictions of mentions; in some topics everything is one cluster."""
    rows = []
    for topic, place in itertools.product(topics, range(4)):
        row = {"document": f"{topic}_1ecb", "start": place, "end": place + 1}
        row["gold"] = f"g{topic}-{place % 2}"
        row["cluster"] = place % 2
        if topic in wrong:
            row["cluster"] = 0
        rows.append(row)
    return rows


def test_two_runs_compared(tmp_path):
    right = mention_topics(range(8), wrong=set())
    wrong = mention_topics(range(8), wrong=set(range(1, 8)))
    for name, records in (("one", right), ("other", wrong)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "test_predictions.jsonl", records)
    name, comparison = compare_runs.compare_runs(tmp_path / "one", tmp_path / "other", 500)

    assert (name, comparison.first) == ("CoNLL F1", 1.0)

    gold = list(map(itemgetter("gold"), wrong))
    by_hand = coreference_scores(gold, list(map(itemgetter("document", "cluster"), wrong)))

    assert comparison.second == pytest.approx(by_hand["conll_f1"])
    # Seven topics differ, all in one direction.
    assert comparison.permutation_p == pytest.approx(2 / 2**7)

    write(tmp_path / "other" / "test_predictions.jsonl", right[1:2])
    with pytest.raises(ValueError, match="predict other rows"):
        compare_runs.compare_runs(tmp_path / "one", tmp_path / "other")


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ({"query": "q", "ranks_of_relevant_documents": [4, 7]}, 0.25),
        ({"id": 1, "probability": 0.4, "label": 0}, 1.0),
        ({"id": 1, "prediction": "a", "label": "b"}, 0.0),
    ],
)
def test_the_value_of_a_prediction(row, value):
    assert compare_runs.value(row) == value


def test_the_interval_is_that_of_a_paired_t_test():
    rng = np.random.default_rng(0)
    second = rng.normal(size=400)
    first = second + rng.normal(0.1, 0.5, size=400)
    comparison = compare_runs.compare(list(first), list(second), resamples=3_000)
    exact = stats.ttest_rel(first, second).confidence_interval(0.95)

    assert comparison.interval == pytest.approx((exact.low, exact.high), abs=0.01)
    assert comparison.bootstrap_p == pytest.approx(stats.ttest_rel(first, second).pvalue, abs=0.01)

    same = compare_runs.compare([1.0, 0.0, 1.0], [1.0, 0.0, 1.0], resamples=100)

    assert (same.interval, same.bootstrap_p, same.permutation_p) == ((0.0, 0.0), 1.0, 1.0)
