"""HotpotQA's exact match and F1 of answers, of supporting facts, and of both together; see
README.md."""

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
        return evaluate.MetricInfo(
            description=__doc__, citation="", inputs_description="", features=features
        )

    def _compute(self, predictions, references):
        return hotpotqa_scores(by_id(predictions), by_id(references))


def by_id(rows):
    if len({row["id"] for row in rows}) < len(rows):
        raise ValueError("A question is given twice; give each id once.")
    facts = {row["id"]: row["supporting_facts"] for row in rows}
    pairs = {
        name: list(zip(fact["title"], fact["sent_id"], strict=True)) for name, fact in facts.items()
    }
    return {row["id"]: (row["answer"], pairs[row["id"]]) for row in rows}
