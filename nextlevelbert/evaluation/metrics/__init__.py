"""Metrics as modules of `evaluate`; each folder can be uploaded to the Hub as a Space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import evaluate

METRICS = ("conll_coreference", "hotpotqa_joint", "masked_vector_accuracy", "same_work_retrieval")


def load_metric(name: str) -> evaluate.EvaluationModule:
    """Loads a metric of this package for Hugging Face's `evaluate`, without the Hub.

    Args:
        name: ``"conll_coreference"``, ``"hotpotqa_joint"``, ``"masked_vector_accuracy"`` or
            ``"same_work_retrieval"``.

    Example:
        >>> metric = load_metric("conll_coreference")
        >>> metric.compute(predictions=[7, 7, 8], references=[1, 1, 2])["conll_f1"]
        1.0
    """
    import evaluate

    return evaluate.load(str(Path(__file__).parent / name))
