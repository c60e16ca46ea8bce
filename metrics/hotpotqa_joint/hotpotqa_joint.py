"""HotpotQA's exact match and F1 of answers, supporting facts, and both; see README.md.

The scores are those of the official ``hotpot_evaluate_v1.py`` (Yang et al., 2018).
"""

import re
import string
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import datasets
import evaluate
import numpy as np

Facts = Collection[tuple[str, int]]  # title and index of the sentence of each supporting fact

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED_ANSWERS = {"yes", "no", "noanswer"}

Scores = tuple[float, float, float]  # exact match, precision and recall


CITATION = """\
@inproceedings{yang2018hotpotqa,
  title={HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question Answering},
  author={Yang, Zhilin and Qi, Peng and Zhang, Saizheng and Bengio, Yoshua and Cohen, William W. and
    Salakhutdinov, Ruslan and Manning, Christopher D.},
  booktitle={Proceedings of the 2018 Conference on Empirical Methods in Natural Language
    Processing},
  year={2018}
}
"""
INPUTS = """
Args:
    predictions: for each question its id, the predicted answer, and the predicted supporting_facts
        with the title and sent_id of each.
    references: for each question its id, answer and supporting_facts.

Returns:
    answer_em, answer_f1, answer_precision, answer_recall, and the same of support_ and joint_.
"""


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
            description=__doc__,
            citation=CITATION,
            inputs_description=INPUTS,
            features=features,
        )

    def _compute(self, predictions, references):
        if not references:
            raise ValueError("There are no predictions. Give at least one, and its reference.")
        return hotpotqa_scores(answers_of(predictions), answers_of(references))


def hotpotqa_scores(
    predictions: Mapping[str, tuple[str, Facts]], references: Mapping[str, tuple[str | None, Facts]]
) -> dict[str, float]:
    """Computes exact match (EM), F1, precision and recall, as means over the questions.

    Answers are compared by the words that `normalize_answer` leaves: EM is 1 if they are the same,
    and precision and recall count words in common. If one of the two is yes, no or noanswer and the
    other differs, all are 0. Supporting facts are compared as sets. Jointly, EM is 1 if both are
    right, precision is the product of the precisions of answer and facts, recall the product of
    both recalls, and F1 follows from these products.

    Args:
        predictions: question id → the answer and its supporting facts. Predictions without a
            reference do not count.
        references: question id → the right answer and its supporting facts.

    Returns:
        ``answer_em``, ``answer_f1``, ``answer_precision``, ``answer_recall``, and the same of
        ``support_`` and of ``joint_``, each from 0 to 1.

    Raises:
        ValueError: if a question has no prediction.

    Example:
        >>> facts = [("Emma", 0)]
        >>> scores = hotpotqa_scores({"q": ("the Austen", facts)}, {"q": ("Jane Austen", facts)})
        >>> [scores[name] for name in ("answer_precision", "answer_recall", "joint_recall")]
        [1.0, 0.5, 0.5]
    """
    missing = references.keys() - predictions.keys()
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(references)} questions have no prediction, such as"
            f" {min(missing)}."
        )

    answers = []
    supports = []
    for question, (right_answer, right_facts) in references.items():
        predicted_answer, predicted_facts = predictions[question]
        answers.append(_answer_scores(predicted_answer, right_answer or ""))

        facts = set(map(tuple, predicted_facts))
        expected = set(map(tuple, right_facts))
        supports.append(_overlap(Counter(facts), Counter(expected)))

    answer = np.array(answers)  # [questions, 3]
    support = np.array(supports)
    arrays = {
        "answer": answer,
        "support": support,
        "joint": answer * support,
    }
    scores = {}
    for name, rows in arrays.items():
        em, precision, recall = rows.T
        total = precision + recall
        f1 = 2 * precision * recall / np.where(total > 0, total, 1.0)
        columns = {
            "em": em,
            "f1": f1,
            "precision": precision,
            "recall": recall,
        }
        for score, values in columns.items():
            scores[f"{name}_{score}"] = float(values.mean())
    return scores


def answers_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, set[tuple[str, int]]]]:
    """Returns the answer and the supporting facts of each row, as `hotpotqa_scores` takes them.

    Args:
        rows: rows of HotpotQA's data set, with ``id``, ``answer`` and ``supporting_facts``.

    Returns:
        Question id → the answer and its supporting facts.

    Raises:
        ValueError: if two rows have the same id.
    """
    answers = {}
    for row in rows:
        if row["id"] in answers:
            raise ValueError(f"The question {row['id']} is given twice; give each id once.")
        facts = row["supporting_facts"]
        pairs = zip(facts["title"], facts["sent_id"], strict=True)
        answers[row["id"]] = (row["answer"], set(pairs))
    return answers


def normalize_answer(text: str) -> str:
    """Returns text in lower case, without ASCII punctuation and articles, with single spaces."""
    words = re.sub(r"\b(?:a|an|the)\b", " ", text.lower().translate(_PUNCTUATION))
    return " ".join(words.split())


def _answer_scores(predicted: str, right: str) -> Scores:
    predicted = normalize_answer(predicted)
    right = normalize_answer(right)
    if predicted != right and {predicted, right} & _CLOSED_ANSWERS:
        return 0.0, 0.0, 0.0

    words = Counter(predicted.split())
    right_words = Counter(right.split())
    _, precision, recall = _overlap(words, right_words)
    return float(predicted == right), precision, recall


def _overlap(predicted: Counter, right: Counter) -> Scores:
    common = (predicted & right).total()
    precision = common / max(predicted.total(), 1)
    recall = common / max(right.total(), 1)
    return float(predicted == right), precision, recall
