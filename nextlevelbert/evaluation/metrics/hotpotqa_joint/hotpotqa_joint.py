"""HotpotQA's exact match and F1 of answers, supporting facts, and both; see README.md."""

import datasets
import evaluate

from nextlevelbert.evaluation.hotpotqa import answers_of, hotpotqa_scores


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
        return hotpotqa_scores(answers_of(predictions), answers_of(references))
