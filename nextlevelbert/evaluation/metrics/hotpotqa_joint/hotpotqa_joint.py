"""HotpotQA's scores of answers, supporting facts, and both together, as a metric of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from nextlevelbert.evaluation.hotpotqa import hotpotqa_scores

_DESCRIPTION = """
Exact match, F1, precision and recall of answers, of supporting facts, and of both together, as HotpotQA's official
evaluation computes them.
"""

_CITATION = """
@inproceedings{yang2018hotpotqa,
    title = "{HotpotQA}: A Dataset for Diverse, Explainable Multi-hop Question Answering",
    author = "Yang, Zhilin and Qi, Peng and Zhang, Saizheng and Bengio, Yoshua and
        Cohen, William W. and Salakhutdinov, Ruslan and Manning, Christopher D.",
    booktitle = "Proceedings of the 2018 Conference on Empirical Methods in Natural Language Processing",
    year = "2018",
}
"""

_INPUTS = """
Args:
    predictions: for each question its id, the answer, and the supporting facts: the titles and the numbers of the
        sentences, as in rows of the data set hotpot_qa.
    references: the same of the right answers, in any order.

Returns:
    answer_em, answer_f1, answer_precision, answer_recall, and the same of support and joint, each from 0 to 1.

Example:
    >>> from nextlevelbert.evaluation import load_metric
    >>> metric = load_metric("hotpotqa_joint")
    >>> right = {"id": "q", "answer": "Jane Austen", "supporting_facts": {"title": ["Emma"], "sent_id": [1]}}
    >>> predicted = {**right, "answer": "the Austen"}
    >>> metric.compute(predictions=[predicted], references=[right])["joint_f1"]
    0.6666666666666666
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _INPUTS)
class HotpotqaJoint(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        facts = datasets.Sequence({"title": datasets.Value("string"), "sent_id": datasets.Value("int32")})
        question = {"id": datasets.Value("string"), "answer": datasets.Value("string"), "supporting_facts": facts}
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": question, "references": question}),
            homepage="https://hotpotqa.github.io",
            reference_urls=["https://github.com/hotpotqa/hotpot"],
        )

    def _compute(self, predictions: list[dict[str, Any]], references: list[dict[str, Any]]) -> dict[str, float]:
        return hotpotqa_scores(_by_id(predictions), _by_id(references))


def _by_id(rows: list[dict[str, Any]]) -> dict[str, tuple[str, list[tuple[str, int]]]]:
    found = {}
    for row in rows:
        facts = row["supporting_facts"]
        if row["id"] in found:
            raise ValueError(f"The question {row['id']!r} is given twice; give each once.")
        found[row["id"]] = (row["answer"], list(zip(facts["title"], facts["sent_id"], strict=True)))
    return found
