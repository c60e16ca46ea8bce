"""How well clusters of coreferent mentions are found: MUC, B³, CEAF_e, LEA and the CoNLL score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

Shared = Counter[
    tuple[int, int]
]  # how many mentions two clusters, one of each side, have in common, where any


def coreference_scores(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> dict[str, float]:
    """`cluster_scores` of mentions that are the same on both sides.

    `gold` and `predicted` are the cluster of every mention, in the same order, by any labels of
    their own.

    Example:
        >>> coreference_scores(["quake", "quake", "trial"], [7, 8, 9])["b3_recall"]
        0.6666666666666666
    """
    if len(gold) != len(predicted):
        raise ValueError(
            f"Give a gold and predicted cluster for every mention; got {len(gold)} and"
            f" {len(predicted)}."
        )
    sides = []
    for labels in (gold, predicted):
        groups: dict[Hashable, list[int]] = {}
        for number, label in enumerate(labels):
            groups.setdefault(label, []).append(number)
        sides.append(list(groups.values()))
    return cluster_scores(*sides)


def cluster_scores(
    key: Sequence[Collection[Hashable]], response: Sequence[Collection[Hashable]]
) -> dict[str, float]:
    """Recall, precision and F1 of clusters against the right ones, 0 to 1, as the reference scorers
    compute them.

    MUC (Vilain et al., 1995) counts the links that a cluster needs at least, B³ (Bagga and Baldwin,
    1998) averages over mentions, CEAF_e (Luo, 2005, similarity φ4) aligns clusters one to one, and
    LEA (Moosavi and Strube, 2016) counts all links in a cluster, weighted by its size. The CoNLL
    score (Pradhan et al., 2012) is the mean F1 of MUC, B³ and CEAF_e. Predicted mentions are
    treated as Pradhan et al. (2014) do: none is added or removed, so a mention on one side only
    costs the recall or precision of its side.

    A cluster of one mention has no link for MUC, which is 0 where all are of one; it counts in B³
    and CEAF_e like any other; for LEA it has one link to itself. Whatever would be divided by 0 is
    0.

    Args:
        key: the right clusters, each the mentions in it; a mention is in one cluster only.
        response: the predicted clusters. Its mentions may be others than the key's.

    Returns:
        ``muc_recall``, ``muc_precision``, ``muc_f1``, the same of ``b3``, ``ceafe`` and ``lea``,
        and ``conll_f1``.

    Example:
        >>> scores = cluster_scores([{"a", "b", "c"}, {"d", "e", "f", "g"}], [{"a", "b"}, {"c", "d"}, set("fghi")])
        >>> {name: round(score, 2) for name, score in scores.items() if name.endswith("f1")}
        {'muc_f1': 0.4, 'b3_f1': 0.45, 'ceafe_f1': 0.52, 'lea_f1': 0.28, 'conll_f1': 0.46}
    """
    rows, columns = (
        {mention: number for number, cluster in enumerate(clusters) for mention in cluster}
        for clusters in (key, response)
    )
    sizes, other_sizes = (
        [len(set(cluster)) for cluster in clusters] for clusters in (key, response)
    )
    if sum(sizes) != len(rows) or sum(other_sizes) != len(columns):
        raise ValueError("A mention is in two clusters of one side; it may be in one only.")
    shared = Counter((row, columns[mention]) for mention, row in rows.items() if mention in columns)
    turned = Counter({(column, row): count for (row, column), count in shared.items()})
    similarity = np.zeros(
        (len(sizes), len(other_sizes))
    )  # φ4, the Dice coefficient of two clusters
    for (row, column), count in shared.items():
        similarity[row, column] = 2 * count / (sizes[row] + other_sizes[column])
    aligned = float(similarity[linear_sum_assignment(similarity, maximize=True)].sum())
    parts = {
        "muc": (_muc(sizes, shared), _muc(other_sizes, turned)),
        "b3": (_b_cubed(sizes, shared), _b_cubed(other_sizes, turned)),
        "ceafe": (_ratio(aligned, len(key)), _ratio(aligned, len(response))),
        "lea": (_lea(sizes, other_sizes, shared), _lea(other_sizes, sizes, turned)),
    }
    scores: dict[str, float] = {}
    for name, (recall, precision) in parts.items():
        scores |= {f"{name}_recall": recall, f"{name}_precision": precision}
        scores[f"{name}_f1"] = _ratio(2 * recall * precision, recall + precision)
    scores["conll_f1"] = (scores["muc_f1"] + scores["b3_f1"] + scores["ceafe_f1"]) / 3
    return scores


def _muc(sizes: list[int], shared: Shared) -> float:
    """Of the links that the clusters need, the share that stays when the other side's clusters cut
    them in parts."""
    return _ratio(sum(shared.values()) - len(shared), sum(sizes) - len(sizes))


def _b_cubed(sizes: list[int], shared: Shared) -> float:
    return _ratio(
        sum(count**2 / sizes[cluster] for (cluster, _), count in shared.items()), sum(sizes)
    )


def _lea(sizes: list[int], other_sizes: list[int], shared: Shared) -> float:
    links = [size * (size - 1) // 2 for size in range(max(sizes, default=0) + 1)]
    kept = 0.0
    for (cluster, other), count in shared.items():
        if (size := sizes[cluster]) == 1:
            kept += other_sizes[other] == 1
        else:
            kept += size * links[count] / links[size]
    return _ratio(kept, sum(sizes))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
