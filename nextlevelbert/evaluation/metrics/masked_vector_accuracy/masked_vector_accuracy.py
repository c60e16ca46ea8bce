"""Accuracy of predicted vectors at masked positions as a metric of `evaluate`."""

from __future__ import annotations

import datasets
import evaluate
import torch

from nextlevelbert.evaluation.masked_vectors import masked_vector_scores, summarize

_DESCRIPTION = """
Does a model over vectors predict the masked ones? The cosine of each prediction to its target, and how often the
target is the nearest among all targets of its pool.
"""

_CITATION = """
@inproceedings{czinczoll-etal-2024-nextlevelbert,
    title = "{NextLevelBERT}: Masked Language Modeling with Higher-Level Representations for Long Documents",
    author = {Czinczoll, Tamara and H{\"o}nes, Christoph and Schall, Maximilian and de Melo, Gerard},
    booktitle = "Proceedings of the 62nd Annual Meeting of the Association for Computational Linguistics",
    year = "2024",
}
"""

_INPUTS = """
Args:
    predictions, references: predicted and target vectors, a list of numbers for each masked position.
    pools: the pool of each position, by any number; the target is searched for in its own pool. By default all
        positions are in one.

Returns:
    masked_cosine: mean cosine of prediction and target.
    masked_accuracy: share of predictions whose target is the nearest of the pool. Of k that are equally near, each
        counts 1 / k, so a constant prediction scores as chance does.
    chance_accuracy: what guessing scores.

Example:
    >>> from nextlevelbert.evaluation import load_metric
    >>> metric = load_metric("masked_vector_accuracy")
    >>> vectors = [[1.0, 0.0], [0.0, 1.0]]
    >>> metric.compute(predictions=vectors, references=vectors)["masked_accuracy"]
    1.0
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class MaskedVectorAccuracy(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        vector = datasets.Sequence(datasets.Value("float32"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": vector, "references": vector}),
            reference_urls=["https://arxiv.org/abs/2402.17682"],
        )

    def _compute(
        self, predictions: list[list[float]], references: list[list[float]], pools: list[int] | None = None
    ) -> dict[str, float]:
        if pools is not None and len(pools) != len(references):
            raise ValueError(f"Got {len(pools)} pools for {len(references)} vectors; give one for each.")
        found, targets = torch.tensor(predictions), torch.tensor(references)  # [M, D]
        numbers = torch.zeros(len(targets)) if pools is None else torch.as_tensor(pools)
        tables = []
        for pool in numbers.unique():
            inside = numbers == pool
            everywhere = torch.ones(1, int(inside.sum()), dtype=torch.bool)
            tables.append(masked_vector_scores(found[inside], targets[inside], everywhere))
        return summarize(torch.cat(tables))
