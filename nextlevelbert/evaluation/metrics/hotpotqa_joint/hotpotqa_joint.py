"""HotpotQA's exact match and F1 of answers, supporting facts, and both; see README.md."""

import datasets
import evaluate

from nextlevelbert.evaluation.hotpotqa import hotpotqa_scores


class HotpotqaJoint(evaluate.Metric):
    def _info(self):
        facts = datasets.Sequence(
            {"title": datasets.Value("string"), "sent_id": datasets.Value("int32")}
        )
        row = {
            "id": datasets.Value("string"),
            "answer": datasets.Value("string"),
            "supporting_facts": facts,
        }
        features = datasets.Features({"predictions": row, "references": row})
        return evaluate.MetricInfo(description=__doc__, citation="", features=features)

    def _compute(self, predictions, references):
        return hotpotqa_scores(by_id(predictions), by_id(references))


def by_id(rows):
    """Returns question id → the answer and pairs of title and sentence."""
    answers = {}
    for row in rows:
        if row["id"] in answers:
            raise ValueError("A question is given twice; give each id once.")
        facts = row["supporting_facts"]
        pairs = list(zip(facts["title"], facts["sent_id"], strict=True))
        answers[row["id"]] = (row["answer"], pairs)
    return answers
