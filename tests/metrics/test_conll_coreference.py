"""Scores of coreference, against the published test cases of the reference scorers."""

import csv
import math
from fractions import Fraction
from operator import itemgetter
from pathlib import Path

import pytest

from metrics.conll_coreference.conll_coreference import cluster_scores, coreference_scores


def clusters(text):
    """Two clusters from "ab c": a letter is a mention."""
    return [set(cluster) for cluster in text.split()]


# Recall and precision in the test cases of the CoNLL reference scorer
# (conll/reference-coreference-scorers) and, for LEA, of its authors' scorer (ns-moosavi/coval),
# under their names there. A metric is missing where the case says nothing of it. "paper" is the
# worked example of Pradhan et al. (2014), rounded as there.
with Path(__file__).with_name("coreference_cases.csv").open(encoding="utf-8") as file:
    PUBLISHED = list(csv.DictReader(file))


@pytest.mark.parametrize("case", PUBLISHED, ids=itemgetter("case"))
def test_published_cases(case):
    scores = cluster_scores(clusters(case["key"]), clusters(case["response"]))
    for metric in ("muc", "b3", "ceafe", "lea"):
        for part, expected in zip(("recall", "precision"), case[metric].split(), strict=False):
            assert scores[f"{metric}_{part}"] == pytest.approx(float(Fraction(expected)), abs=1e-5)
        recall = scores[f"{metric}_recall"]
        precision = scores[f"{metric}_precision"]
        f1 = 2 * recall * precision / max(recall + precision, 1e-9)
        assert scores[f"{metric}_f1"] == pytest.approx(f1)

    assert scores["conll_f1"] == pytest.approx(
        (scores["muc_f1"] + scores["b3_f1"] + scores["ceafe_f1"]) / 3
    )


def test_labels_stand_for_clusters():
    gold = list("aabccc")
    predicted = [5, 5, 9, 9, 7, 7]
    by_cluster = cluster_scores([{0, 1}, {2}, {3, 4, 5}], [{0, 1}, {2, 3}, {4, 5}])

    assert coreference_scores(gold, predicted) == by_cluster
    assert all(math.isfinite(score) for score in cluster_scores([], [{"a"}]).values())


def test_what_is_refused():
    with pytest.raises(ValueError, match="every mention"):
        coreference_scores([1, 2], [1])
    with pytest.raises(ValueError, match="two gold clusters"):
        cluster_scores([{"a"}], [{"a", "b"}, {"b"}])
