"""CoNLL's coreference scores as a metric of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from nextlevelbert.evaluation.coreference import cluster_scores, coreference_scores

_DESCRIPTION = """
MUC, B³, CEAF_e and LEA of clusters of coreferent mentions, and the CoNLL score: the mean F1 of the first three.
"""

_CITATION = """
@inproceedings{pradhan-etal-2014-scoring,
    title = "Scoring Coreference Partitions of Predicted Mentions: A Reference Implementation",
    author = "Pradhan, Sameer and Luo, Xiaoqiang and Recasens, Marta and
        Hovy, Eduard and Ng, Vincent and Strube, Michael",
    booktitle = "Proceedings of the 52nd Annual Meeting of the Association for Computational Linguistics",
    year = "2014",
    pages = "30--35",
}
"""

_INPUTS = """
Args:
    predictions, references: in one of two forms, the same for both.
        The mentions are given: the cluster of every mention, by any text, or by any whole number. The two sides need
        not use the same labels.
        Mentions differ: for every document a list of clusters, each a list of mentions, each a list of whole numbers,
        such as the first and the last token.

Returns:
    muc_recall, muc_precision, muc_f1, the same of b3, ceafe and lea, and conll_f1, each from 0 to 1.

Example:
    >>> from nextlevelbert.evaluation import load_metric
    >>> metric = load_metric("conll_coreference")
    >>> metric.compute(predictions=["7", "7", "8"], references=["quake", "quake", "trial"])["conll_f1"]
    1.0
"""


def _features(value: Any) -> datasets.Features:
    return datasets.Features({"predictions": value, "references": value})


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class ConllCoreference(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        mention = datasets.Sequence(datasets.Value("int64"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=[
                _features(datasets.Value("string")),
                _features(datasets.Value("int64")),
                _features(datasets.Sequence(datasets.Sequence(mention))),
            ],
            reference_urls=["https://github.com/conll/reference-coreference-scorers"],
        )

    def _compute(self, predictions: list, references: list) -> dict[str, float]:
        if not isinstance(references[0], list):
            return coreference_scores(references, predictions)
        return cluster_scores(_clusters(references), _clusters(predictions))


def _clusters(documents: list[list[list[list[int]]]]) -> list[list[tuple[int, ...]]]:
    """The clusters of all documents, whose mentions are told apart by the number of the document."""
    return [
        [(number, *mention) for mention in cluster]
        for number, clusters in enumerate(documents)
        for cluster in clusters
    ]
