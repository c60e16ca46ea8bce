"""Scores of coreference, against the published test cases of the reference scorers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from nextlevelbert.evaluation.coreference import cluster_scores, coreference_scores


def clusters(text: str) -> list[set[str]]:
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
        f1 = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
        got = [scores[f"{metric}_{part}"] for part in ("recall", "precision", "f1")]
        assert got == pytest.approx([recall, precision, f1], abs=1e-5), metric
    assert scores["conll_f1"] == pytest.approx(
        (scores["muc_f1"] + scores["b3_f1"] + scores["ceafe_f1"]) / 3
    )


def test_random_clusters_by_the_definitions():
    """Counted over mentions, pairs of mentions and all alignments, as the papers define the
    metrics."""
    rng = np.random.default_rng(3)

    def draw() -> list[set[int]]:
        labels = rng.integers(0, 5, size=9)
        kept = rng.random(9) < 0.8
        groups = [
            {mention for mention in range(9) if kept[mention] and labels[mention] == group}
            for group in range(5)
        ]
        return [group for group in groups if group] or [{0}]

    def parts(cluster: set[int], response: list[set[int]]) -> int:
        return sum(bool(cluster & other) for other in response) + len(
            cluster - set().union(*response)
        )

    def links(cluster: set[int]) -> set[frozenset[int]]:
        return {frozenset(pair) for pair in itertools.combinations(cluster, 2)} or {
            frozenset(cluster)
        }

    def recalls(key: list[set[int]], response: list[set[int]]) -> dict[str, float]:
        size, needed = sum(map(len, key)), sum(len(cluster) - 1 for cluster in key)
        b3 = sum(len(one & other) ** 2 / len(one) for one in key for other in response)
        linked = set().union(*map(links, response))
        lea = sum(
            len(cluster) * len(links(cluster) & linked) / len(links(cluster)) for cluster in key
        )
        short, long = sorted((key, response), key=len)
        ceafe = max(
            sum(
                2 * len(one & other) / (len(one) + len(other))
                for one, other in zip(short, order, strict=False)
            )
            for order in itertools.permutations(long, len(short))
        )
        kept = sum(len(cluster) - parts(cluster, response) for cluster in key)
        muc = kept / needed if needed else 0.0
        return {"muc": muc, "b3": b3 / size, "ceafe": ceafe / len(key), "lea": lea / size}

    for _ in range(100):
        key, response = draw(), draw()
        scores = cluster_scores(key, response)
        for part, expected in (
            ("recall", recalls(key, response)),
            ("precision", recalls(response, key)),
        ):
            assert {name: scores[f"{name}_{part}"] for name in expected} == pytest.approx(
                expected
            ), (key, response)


def test_labels_stand_for_clusters():
    gold, predicted = list("aabccc"), [5, 5, 9, 9, 7, 7]
    assert coreference_scores(gold, predicted) == cluster_scores(
        [{0, 1}, {2}, {3, 4, 5}], [{0, 1}, {2, 3}, {4, 5}]
    )
    assert (
        coreference_scores(gold, gold)["conll_f1"]
        == coreference_scores(gold, gold)["lea_f1"]
        == 1.0
    )
    alone = coreference_scores([0, 1, 2], [0, 1, 2])
    assert alone["muc_f1"] == 0.0
    assert alone["conll_f1"] == pytest.approx(2 / 3)
    assert all(math.isfinite(score) for score in cluster_scores([], [{"a"}]).values())


def test_what_is_refused():
    with pytest.raises(ValueError, match="every mention"):
        coreference_scores([1, 2], [1])
    with pytest.raises(ValueError, match="two clusters"):
        cluster_scores([{"a"}], [{"a", "b"}, {"b"}])
