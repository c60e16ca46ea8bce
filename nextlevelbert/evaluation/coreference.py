"""How well clusters of coreferent mentions are found: MUC, B³, CEAF_e, LEA and the CoNLL score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

Shared = Counter[tuple[int, int]]  # how many mentions a cluster here and one there have in common, where any


def coreference_scores(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> dict[str, float]:
    """Scores of predicted clusters of given mentions: what `cluster_scores` gives.

    Args:
        gold: the cluster of every mention, by any label; a label that stands once is a mention by itself.
        predicted: the same of the prediction, in the same order. Its labels need not be those of `gold`.

    Raises:
        ValueError: for different numbers of labels, or none.

    Example:
        >>> scores = coreference_scores(["quake", "quake", "trial"], [7, 7, 8])
        >>> scores["conll_f1"], scores["lea_f1"]
        (1.0, 1.0)
        >>> coreference_scores(["quake", "quake", "trial"], [7, 8, 9])["b3_recall"]
        0.6666666666666666
    """
    if len(gold) != len(predicted) or not gold:
        raise ValueError(
            f"Got {len(gold)} gold and {len(predicted)} predicted clusters of mentions; give one of each for every "
            "mention, and at least one mention."
        )
    return cluster_scores(_grouped(gold), _grouped(predicted))


def _grouped(labels: Sequence[Hashable]) -> list[list[int]]:
    """Numbers of the mentions that share a label."""
    groups: dict[Hashable, list[int]] = {}
    for number, label in enumerate(labels):
        groups.setdefault(label, []).append(number)
    return list(groups.values())


def cluster_scores(key: Sequence[Collection[Hashable]], response: Sequence[Collection[Hashable]]) -> dict[str, float]:
    """Recall, precision and F1 of clusters against the right ones, 0 to 1, as the reference scorers compute them.

    MUC (Vilain et al., 1995) counts the links that a cluster needs at least, B³ (Bagga and Baldwin, 1998) averages
    over mentions, CEAF_e (Luo, 2005, similarity φ4) aligns clusters one to one, and LEA (Moosavi and Strube, 2016)
    counts all links in a cluster, weighted by its size. The CoNLL score (Pradhan et al., 2012) is the mean F1 of MUC,
    B³ and CEAF_e. Predicted mentions are treated as Pradhan et al. (2014) do: none is added or removed, so a mention
    on one side only costs the recall or precision of its side.

    A cluster of one mention has no link for MUC, which is 0 where all are of one; it counts in B³ and CEAF_e like any
    other; for LEA it has one link to itself, found if it is a cluster of one on both sides. Whatever would be divided
    by 0 is 0.

    Args:
        key: the right clusters, each the mentions in it.
        response: the predicted clusters. Its mentions may be others than the key's.

    Returns:
        ``muc_recall``, ``muc_precision``, ``muc_f1``, the same of ``b3``, ``ceafe`` and ``lea``, and ``conll_f1``.

    Raises:
        ValueError: for a cluster without mentions, or a mention in two clusters of one side.

    Example:
        The example of Pradhan et al. (2014):

        >>> scores = cluster_scores([{"a", "b", "c"}, {"d", "e", "f", "g"}], [{"a", "b"}, {"c", "d"}, set("fghi")])
        >>> {name: round(score, 2) for name, score in scores.items() if name.endswith("f1")}
        {'muc_f1': 0.4, 'b3_f1': 0.45, 'ceafe_f1': 0.52, 'lea_f1': 0.28, 'conll_f1': 0.46}
    """
    rows, columns = _cluster_of_mention(key, "key"), _cluster_of_mention(response, "response")
    sizes, found_sizes = ([len(set(cluster)) for cluster in clusters] for clusters in (key, response))
    shared = Counter((row, columns[mention]) for mention, row in rows.items() if mention in columns)
    turned = Counter({(column, row): count for (row, column), count in shared.items()})
    similarity = _best_alignment(sizes, found_sizes, shared)
    parts = {
        "muc": (_muc(sizes, shared), _muc(found_sizes, turned)),
        "b3": (_b_cubed(sizes, shared), _b_cubed(found_sizes, turned)),
        "ceafe": (_ratio(similarity, len(key)), _ratio(similarity, len(response))),
        "lea": (_lea(sizes, found_sizes, shared), _lea(found_sizes, sizes, turned)),
    }
    scores: dict[str, float] = {}
    for name, (recall, precision) in parts.items():
        scores |= {f"{name}_recall": recall, f"{name}_precision": precision}
        scores[f"{name}_f1"] = _ratio(2 * recall * precision, recall + precision)
    scores["conll_f1"] = (scores["muc_f1"] + scores["b3_f1"] + scores["ceafe_f1"]) / 3
    return scores


def _cluster_of_mention(clusters: Sequence[Collection[Hashable]], side: str) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    for number, cluster in enumerate(clusters):
        if not cluster:
            raise ValueError(f"Cluster {number} (counted from 0) of the {side} has no mention; leave it out.")
        for mention in cluster:
            if found.setdefault(mention, number) != number:
                raise ValueError(
                    f"The mention {mention!r} is in clusters {found[mention]} and {number} (counted from 0) of the "
                    f"{side}; it may be in one only."
                )
    return found


def _muc(sizes: list[int], shared: Shared) -> float:
    """Of the links that the clusters need, the share that stays when the other side's clusters cut them in parts.

    Every mention that the other side lacks is a part by itself.
    """
    kept = sum(shared.values()) - len(shared)
    return _ratio(kept, sum(sizes) - len(sizes))


def _b_cubed(sizes: list[int], shared: Shared) -> float:
    return _ratio(sum(count**2 / sizes[cluster] for (cluster, _), count in shared.items()), sum(sizes))


def _lea(sizes: list[int], other_sizes: list[int], shared: Shared) -> float:
    found = 0.0
    for (cluster, other), count in shared.items():
        if sizes[cluster] == 1:
            found += other_sizes[other] == 1
        else:
            found += sizes[cluster] * _links(count) / _links(sizes[cluster])
    return _ratio(found, sum(sizes))


def _links(mentions: int) -> int:
    return mentions * (mentions - 1) // 2


def _best_alignment(sizes: list[int], other_sizes: list[int], shared: Shared) -> float:
    """Sum of φ4, the Dice coefficient of two clusters, over the one-to-one alignment that makes it greatest."""
    similarity = np.zeros((len(sizes), len(other_sizes)))
    for (row, column), count in shared.items():
        similarity[row, column] = 2 * count / (sizes[row] + other_sizes[column])
    return float(similarity[linear_sum_assignment(similarity, maximize=True)].sum())


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
