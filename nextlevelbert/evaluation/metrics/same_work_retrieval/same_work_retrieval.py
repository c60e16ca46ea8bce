"""Retrieval of passages of the same work as a metric of `evaluate`."""

from __future__ import annotations

import datasets
import evaluate

from nextlevelbert.evaluation.retrieval import RetrievalTask, rank_documents, retrieval_scores

_DESCRIPTION = """
Do the vectors of passages tell which work they are from? Every passage searches all others by cosine for those of its
own work.
"""

_CITATION = ""

_INPUTS = """
Args:
    predictions: vectors of passages, a list of numbers each.
    references: the work of each passage, by any text, or by any whole number. The only passage of a work is in the
        pool that is searched, but searches for nothing itself.
    k: where mrr@k, hit_rate@k and recall@k cut the ranking.

Returns:
    mrr, mrr@k, hit_rate@k, map, recall@k: means over the passages that have others of their work. A tie counts against
        the vectors.
    queries: the number of these passages.

Example:
    >>> from nextlevelbert.evaluation import load_metric
    >>> metric = load_metric("same_work_retrieval")
    >>> vectors = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
    >>> metric.compute(predictions=vectors, references=["Emma", "Emma", "Moby-Dick", "Moby-Dick"])["map"]
    1.0
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class SameWorkRetrieval(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        vector = datasets.Sequence(datasets.Value("float32"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=[
                datasets.Features({"predictions": vector, "references": datasets.Value(kind)})
                for kind in ("string", "int64")
            ],
        )

    def _compute(self, predictions: list[list[float]], references: list[str | int], k: int = 10) -> dict[str, float]:
        works: dict[str | int, list[str]] = {}
        for number, work in enumerate(references):
            works.setdefault(work, []).append(str(number))
        relevant = {
            passage: dict.fromkeys(set(passages) - {passage}, 1)
            for passages in works.values()
            if len(passages) > 1
            for passage in passages
        }
        if not relevant:
            raise ValueError(f"Got {len(references)} passages, no two of them of one work: there is nothing to find.")
        pool = [str(number) for number in range(len(references))]
        task = RetrievalTask("same work", dict.fromkeys(relevant, ""), dict.fromkeys(pool, ""), relevant)
        queries = [predictions[int(passage)] for passage in task.queries]
        return retrieval_scores(rank_documents(task, queries, predictions), k)
