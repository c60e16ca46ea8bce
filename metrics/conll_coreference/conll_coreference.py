"""MUC, B³, CEAF_e, LEA and the CoNLL score of clusters of mentions; see README.md."""

from collections.abc import Collection, Hashable, Sequence

import datasets
import evaluate
import numpy as np
from scipy.optimize import linear_sum_assignment

CITATION = """\
@inproceedings{pradhan2014scoring,
  title={Scoring Coreference Partitions of Predicted Mentions: A Reference Implementation},
  author={Pradhan, Sameer and Luo, Xiaoqiang and Recasens, Marta and Hovy, Eduard and Ng, Vincent
    and Strube, Michael},
  booktitle={Proceedings of the 52nd Annual Meeting of the Association for Computational
    Linguistics},
  year={2014}
}
"""
INPUTS = """
Args:
    predictions: the predicted cluster of each mention, by any label; or for each document its
        clusters, of which each is a list of mentions, and a mention a list of numbers.
    references: the right clusters, in the same form.

Returns:
    muc_recall, muc_precision, muc_f1, the same of b3, ceafe and lea; and conll_f1.
"""


class ConllCoreference(evaluate.Metric):
    def _info(self):
        mention = datasets.Sequence(datasets.Value("int64"))
        clusters = datasets.Sequence(datasets.Sequence(mention))
        forms = [datasets.Value("string"), datasets.Value("int64"), clusters]
        features = [datasets.Features({"predictions": form, "references": form}) for form in forms]
        return evaluate.MetricInfo(
            description=__doc__,
            citation=CITATION,
            inputs_description=INPUTS,
            features=features,
        )

    def add_batch(self, *, predictions=None, references=None, **kwargs):
        """Adds predictions and their references; `evaluate` itself fails at none."""
        if predictions is not None and len(predictions) == 0:
            raise ValueError("There are no predictions. Give at least one, and its reference.")
        super().add_batch(predictions=predictions, references=references, **kwargs)

    def _compute(self, predictions, references):
        if not isinstance(references[0], list):  # the cluster of each mention
            return coreference_scores(references, predictions)
        return cluster_scores(key=all_clusters(references), response=all_clusters(predictions))


def all_clusters(documents):
    """Returns the clusters of all documents, whose mentions begin with the index of theirs."""
    clusters = []
    for index, document in enumerate(documents):
        clusters += [[(index, *mention) for mention in cluster] for cluster in document]
    return clusters


def coreference_scores(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> dict[str, float]:
    """Computes `cluster_scores` of mentions that are the same on both sides.

    Args:
        gold: the right cluster of every mention, by any labels.
        predicted: the predicted cluster of every mention, in the same order, by any labels.

    Returns:
        The scores that `cluster_scores` returns.

    Raises:
        ValueError: if the number of mentions differs.

    Example:
        >>> coreference_scores(["quake", "quake", "trial"], [7, 8, 9])["b3_recall"]
        0.6666666666666666
    """
    if len(gold) != len(predicted):
        raise ValueError(
            f"Give a gold and predicted cluster for every mention; got {len(gold)} and"
            f" {len(predicted)}."
        )
    return cluster_scores(key=_grouped(gold), response=_grouped(predicted))


def _grouped(labels: Sequence[Hashable]) -> list[list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for mention, label in enumerate(labels):
        groups.setdefault(label, []).append(mention)
    return list(groups.values())


def cluster_scores(
    key: Sequence[Collection[Hashable]], response: Sequence[Collection[Hashable]]
) -> dict[str, float]:
    """Computes recall, precision and F1 of clusters, from 0 to 1, as the reference scorers do.

    MUC (Vilain et al., 1995) counts the links that a cluster needs at least, B³ (Bagga and Baldwin,
    1998) averages over mentions, CEAF_e (Luo, 2005, similarity φ4) aligns clusters one to one, and
    LEA (Moosavi and Strube, 2016) counts all links in a cluster, weighted by its size. The CoNLL
    score (Pradhan et al., 2012) is the mean F1 of MUC, B³ and CEAF_e. Predicted mentions are
    treated as in Pradhan et al. (2014): none is added or removed, so a mention on one side only
    costs the recall or precision of its side.

    A cluster of one mention has no link for MUC, which is 0 if all clusters are of one mention. B³
    and CEAF_e count it like any other, and for LEA it has one link to itself. A ratio to 0 is 0.

    Args:
        key: the right clusters, each the mentions in it; a mention is in one cluster only.
        response: the predicted clusters, whose mentions may differ from those in the key.

    Returns:
        ``muc_recall``, ``muc_precision``, ``muc_f1``, the same of ``b3``, ``ceafe`` and ``lea``,
        and ``conll_f1``.

    Raises:
        ValueError: if a mention is in two clusters of one side.

    Example:
        >>> key = [{"a", "b", "c"}, {"d", "e", "f", "g"}]
        >>> scores = cluster_scores(key, response=[{"a", "b"}, {"c", "d"}, set("fghi")])
        >>> {name: round(score, 2) for name, score in scores.items() if name.endswith("f1")}
        {'muc_f1': 0.4, 'b3_f1': 0.45, 'ceafe_f1': 0.52, 'lea_f1': 0.28, 'conll_f1': 0.46}
    """
    key_cluster_of = _cluster_of_mentions(key)
    response_cluster_of = _cluster_of_mentions(response)
    # How many mentions two clusters, one of each side, have in common.
    shared = np.zeros((len(key), len(response)))
    common_mentions = key_cluster_of.keys() & response_cluster_of.keys()
    for mention in common_mentions:
        row = key_cluster_of[mention]
        column = response_cluster_of[mention]
        shared[row, column] += 1

    key_sizes = _sizes(key)
    response_sizes = _sizes(response)
    recall = _recalls(shared, sizes=key_sizes, other_sizes=response_sizes)
    precision = _recalls(shared.T, sizes=response_sizes, other_sizes=key_sizes)
    scores = {}
    for name in recall:
        scores[f"{name}_recall"] = recall[name]
        scores[f"{name}_precision"] = precision[name]
        product = recall[name] * precision[name]
        total = recall[name] + precision[name]
        scores[f"{name}_f1"] = _ratio(2 * product, total)

    conll_scores = [scores["muc_f1"], scores["b3_f1"], scores["ceafe_f1"]]
    scores["conll_f1"] = sum(conll_scores) / 3
    return scores


def _cluster_of_mentions(clusters: Sequence[Collection[Hashable]]) -> dict[Hashable, int]:
    """Returns the index of the cluster of each mention."""
    cluster_of = {}
    for index, cluster in enumerate(clusters):
        for mention in set(cluster):
            if mention in cluster_of:
                raise ValueError(
                    "A mention is in two gold clusters, or in two predicted ones. Put it into one"
                    " cluster of each."
                )
            cluster_of[mention] = index
    return cluster_of


def _sizes(clusters: Sequence[Collection[Hashable]]) -> np.ndarray:
    return np.array([len(set(cluster)) for cluster in clusters], dtype=float)


def _recalls(shared: np.ndarray, sizes: np.ndarray, other_sizes: np.ndarray) -> dict[str, float]:
    """Returns the recall of one side's clusters by the other side, for each measure.

    Args:
        shared: mentions that a cluster (row) has in common with one of the other side (column).
        sizes: mentions in each cluster.
        other_sizes: mentions in each cluster of the other side.
    """
    mentions = float(sizes.sum())
    size = sizes[:, np.newaxis]
    # MUC: a cluster of n mentions needs n - 1 links; in p parts on the other side, it keeps n - p.
    kept_links = shared.sum() - np.count_nonzero(shared)

    # CEAF_e: φ4, the Dice coefficient of two clusters.
    similarity = 2 * shared / np.maximum(size + other_sizes, 1)
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    aligned = similarity[rows, columns].sum()

    # B³: the share of its cluster that a mention keeps, summed over mentions.
    kept_mentions = shared**2 / np.maximum(size, 1)

    # LEA: the share of the links in a cluster; a single mention has a link to itself.
    are_single = (size == 1) & (other_sizes == 1)
    found_links = np.where(are_single, shared, _links(shared))
    links = np.maximum(_links(size), 1)
    found_shares = size * found_links / links
    return {
        "muc": _ratio(kept_links, mentions - len(sizes)),
        "b3": _ratio(kept_mentions.sum(), mentions),
        "ceafe": _ratio(aligned, len(sizes)),
        "lea": _ratio(found_shares.sum(), mentions),
    }


def _links(mentions: np.ndarray) -> np.ndarray:
    return mentions * (mentions - 1) / 2


def _ratio(part: float, whole: float) -> float:
    if whole == 0:
        return 0.0
    return float(part / whole)
