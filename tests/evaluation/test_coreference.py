"""Scores of coreference, against the published test cases of the reference scorers."""

import itertools
import math

import numpy as np
import pytest

from nextlevelbert.evaluation.coreference import cluster_scores, coreference_scores


def clusters(text):
    """Two clusters from "ab c": a letter is a mention."""
    return [set(cluster) for cluster in text.split()]


# Recall and precision in the test cases of the CoNLL reference scorer
# (conll/reference-coreference-scorers) and, for LEA, of its authors' scorer (ns-moosavi/coval),
# under their names there. A metric is missing where the case says nothing of it.
PUBLISHED = {
    "A2": (
        "a bc def",
        "a de",
        {"muc": (1 / 3, 1), "b3": (7 / 18, 1), "ceafe": (0.6, 0.9), "lea": (1 / 3, 1)},
    ),
    "A3": (
        "a bc def",
        "a bcx defy z",
        {"muc": (1, 3 / 5), "b3": (1, 55 / 108), "ceafe": (0.88571, 0.66429), "lea": (1, 4 / 9)},
    ),
    "A4": (
        "a bc def",
        "a bcx dy z",
        {
            "muc": (1 / 3, 1 / 3),
            "b3": (5 / 9, 17 / 42),
            "ceafe": (0.73333, 0.55),
            "lea": (1 / 2, 2 / 7),
        },
    ),
    "A10": ("a bc def", "a b c d e f", {"muc": (0, 0), "b3": (1 / 2, 1), "lea": (1 / 6, 1 / 6)}),
    "A11": ("a bc def", "abcdef", {"muc": (1, 3 / 5), "b3": (1, 7 / 18), "lea": (5 / 6, 4 / 15)}),
    "A13": (
        "a bc def",
        "axycdez",
        {"muc": (1 / 3, 1 / 6), "b3": (17 / 36, 6 / 49), "lea": (1 / 6, 1 / 21)},
    ),
    "B1": ("ab cde", "bcx de", {"lea": (1 / 5, 2 / 5)}),
    "D1": (
        "12345 67 89ABC",
        "12345 6789ABC",
        {"muc": (1, 9 / 10), "b3": (1, 16 / 21), "lea": (1, (5 + 7 * 11 / 21) / 12)},
    ),
    "F1": ("ABCD", "AB CD", {"muc": (2 / 3, 1), "lea": (1 / 3, 1)}),
    "G1": ("AB CD", "ABCD", {"muc": (1, 2 / 3), "lea": (1, 1 / 3)}),
    "L1": ("ABC DEFG", "AB CD FGH", {"muc": (2 / 5, 1 / 2), "lea": (5 / 21, 3 / 7)}),
    "M1": ("abcdef", "abcdef", {"muc": (1, 1), "b3": (1, 1), "ceafe": (1, 1), "lea": (1, 1)}),
    "M3": ("abcdef", "ab cde f", {"lea": (4 / 15, 5 / 6)}),
    "N1": (
        "a b c d e f",
        "a b c d e f",
        {"muc": (0, 0), "b3": (1, 1), "ceafe": (1, 1), "lea": (1, 1)},
    ),
    "N3": ("a b c d e f", "ab cde f", {"lea": (1 / 6, 1 / 6)}),
    "N4": ("a b c d e f", "a b c x y z", {"muc": (0, 0), "lea": (1 / 2, 1 / 2)}),
    # The worked example of Pradhan et al. (2014), rounded as there.
    "paper": (
        "abc defg",
        "ab cd fghi",
        {"muc": (0.4, 0.4), "b3": (0.41667, 0.5), "ceafe": (0.65, 0.43333)},
    ),
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_published_cases(case):
    key, response, expected = PUBLISHED[case]
    scores = cluster_scores(clusters(key), clusters(response))
    for metric, (recall, precision) in expected.items():
        f1 = 2 * recall * precision / max(recall + precision, 1e-9)
        got = [scores[f"{metric}_{part}"] for part in ("recall", "precision", "f1")]
        assert got == pytest.approx([recall, precision, f1], abs=1e-5), metric
    assert scores["conll_f1"] == pytest.approx(
        (scores["muc_f1"] + scores["b3_f1"] + scores["ceafe_f1"]) / 3
    )


# The metrics as the papers define them, counted over mentions, pairs of mentions and alignments.


Clusters = list[set[int]]


def muc(key, response):
    """The share of links that stay when the response divides the clusters of the key."""
    kept = 0
    needed = 0
    for cluster in key:
        parts = sum(not cluster.isdisjoint(other) for other in response)
        alone = len(cluster.difference(*response))
        kept += len(cluster) - parts - alone
        needed += len(cluster) - 1
    if needed == 0:
        return 0.0
    return kept / needed


def b_cubed(key, response):
    total = 0.0
    for cluster, other in itertools.product(key, response):
        total += len(cluster & other) ** 2 / len(cluster)
    return total / sum(map(len, key))


def ceafe(key, response):
    """By the best of all alignments."""
    short, long = sorted((key, response), key=len)
    best = 0.0
    for order in itertools.permutations(long, len(short)):
        total = 0.0
        for one, other in zip(short, order, strict=True):
            total += 2 * len(one & other) / (len(one) + len(other))
        best = max(best, total)
    return best / len(key)


def links(cluster):
    """All pairs of mentions; a single mention has a link to itself."""
    if len(cluster) == 1:
        return {frozenset(cluster)}
    return set(map(frozenset, itertools.combinations(cluster, 2)))


def lea(key, response):
    found = set().union(*map(links, response))
    total = 0.0
    for cluster in key:
        total += len(cluster) * len(links(cluster) & found) / len(links(cluster))
    return total / sum(map(len, key))


def random_clusters(rng):
    """At most five clusters of some of nine mentions."""
    labels = rng.integers(0, 5, size=9)
    is_mention = rng.random(9) < 0.8
    is_mention[0] = True
    groups: dict[int, set[int]] = {}
    for mention in np.flatnonzero(is_mention).tolist():
        groups.setdefault(int(labels[mention]), set()).add(mention)
    return list(groups.values())


@pytest.mark.parametrize("metric", [muc, b_cubed, ceafe, lea])
def test_random_clusters_by_the_definitions(metric):
    rng = np.random.default_rng(3)
    name = {b_cubed: "b3"}.get(metric, metric.__name__)
    for _ in range(100):
        key = random_clusters(rng)
        response = random_clusters(rng)
        scores = cluster_scores(key, response)
        assert scores[f"{name}_recall"] == pytest.approx(metric(key, response))
        assert scores[f"{name}_precision"] == pytest.approx(metric(response, key))


def test_labels_stand_for_clusters():
    gold = list("aabccc")
    predicted = [5, 5, 9, 9, 7, 7]
    by_cluster = cluster_scores([{0, 1}, {2}, {3, 4, 5}], [{0, 1}, {2, 3}, {4, 5}])
    assert coreference_scores(gold, predicted) == by_cluster
    assert all(math.isfinite(score) for score in cluster_scores([], [{"a"}]).values())


def test_what_is_refused():
    with pytest.raises(ValueError, match="every mention"):
        coreference_scores([1, 2], [1])
    with pytest.raises(ValueError, match="two clusters"):
        cluster_scores([{"a"}], [{"a", "b"}, {"b"}])
