"""Scores of HotpotQA as its official evaluation (``hotpot_evaluate_v1.py``; Yang et al., 2018)
defines them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

Facts = Collection[tuple[str, int]]  # title and number of the sentence of each supporting fact


def hotpotqa_scores(
    predictions: Mapping[str, tuple[str, Facts]], references: Mapping[str, tuple[str | None, Facts]]
) -> dict[str, float]:
    """Exact match (EM), F1, precision and recall of answers, of supporting facts, and of both
    together.

    Answers are compared by the words that `normalize_answer` leaves: EM is 1 where they are the
    same, precision and recall count words in common; where one of the two is yes, no or noanswer
    and the other differs, all are 0. Supporting facts are compared as sets. Jointly, precision and
    recall are the products of those of answer and facts, F1 follows from these products, and EM
    takes both to be right. All are means over the questions, F1 too.

    Both sides are question id → the answer and the supporting facts; predictions without a
    reference do not count. Returns ``answer_em``, ``answer_f1``, ``answer_precision``,
    ``answer_recall``, and the same of ``support_`` and of ``joint_``, each from 0 to 1.

    Example:
        >>> scores = hotpotqa_scores({"q": ("the Austen", [("Emma", 0)])}, {"q": ("Jane Austen", [("Emma", 0)])})
        >>> [scores[name] for name in ("answer_precision", "answer_recall", "joint_recall")]
        [1.0, 0.5, 0.5]
    """
    if missing := [number for number in references if number not in predictions]:
        raise ValueError(
            f"{len(missing)} of {len(references)} questions have no prediction, such as"
            f" {missing[0]}."
        )
    rows = []
    for number, (right, facts) in references.items():
        predicted, answer = normalize_answer(predictions[number][0]), normalize_answer(right or "")
        words, expected = Counter(predicted.split()), Counter(answer.split())
        if predicted != answer and {predicted, answer} & {"yes", "no", "noanswer"}:
            words = Counter()
        support = Counter({(title, sentence) for title, sentence in predictions[number][1]})
        one = [float(predicted == answer), *_overlap(words, expected)]
        two = [float(support.keys() == set(facts)), *_overlap(support, Counter(set(facts)))]
        joint = [first * second for first, second in zip(one, two, strict=True)]  # all but F1
        rows.append([*one, *two, joint[0], _f1(joint[2], joint[3]), joint[2], joint[3]])
    names = [
        f"{part}_{name}"
        for part in ("answer", "support", "joint")
        for name in ("em", "f1", "precision", "recall")
    ]
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation and the words a, an, the, and with single spaces
    between the others."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(re.sub(r"\b(?:a|an|the)\b", " ", plain).split())


def _overlap(predicted: Counter, expected: Counter) -> tuple[float, float, float]:
    """F1, precision and recall of what is predicted."""
    common = (predicted & expected).total()
    precision, recall = common / max(predicted.total(), 1), common / max(expected.total(), 1)
    return _f1(precision, recall), precision, recall


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
