"""Scores of HotpotQA as its official evaluation (``hotpot_evaluate_v1.py``; Yang et al., 2018) defines them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_NAMED = 5  # most ids that a message names
_NOT_SPANS = {"yes", "no", "noanswer"}
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class _Scores(NamedTuple):
    em: float
    f1: float
    precision: float
    recall: float


def hotpotqa_scores(
    predictions: Mapping[str, tuple[str, Collection[tuple[str, int]]]],
    references: Mapping[str, tuple[str | None, Collection[tuple[str, int]]]],
) -> dict[str, float]:
    """Exact match (EM), F1, precision and recall of answers, of supporting facts, and of both together.

    - Answers are compared by the words that `normalize_answer` leaves: EM is 1 where they are the same, precision and
      recall count words in common. Where one of the two is yes, no or noanswer and the other differs, all are 0.
    - Supporting facts are compared as sets.
    - Jointly, precision and recall are the products of those of answer and facts, F1 follows from these products,
      and EM takes both to be right.

    All are means over the questions, F1 too.

    Args:
        predictions: question id → the answer, and the title and sentence number of each supporting fact. Other
            questions may be among them; they are not scored.
        references: the same of the questions to score, as the data has them.

    Returns:
        ``answer_em``, ``answer_f1``, ``answer_precision``, ``answer_recall``, then the same of ``support_`` and of
        ``joint_``, each from 0 to 1.

    Raises:
        ValueError: for no questions, or questions without an answer or a prediction (named; the official evaluation
            counts the latter as 0).

    Example:
        >>> predicted, right = ("the Austen", [("Emma", 0), ("Emma", 1)]), ("Jane Austen", [("Emma", 1)])
        >>> found = hotpotqa_scores({"q": predicted}, {"q": right})
        >>> [found[name] for name in ("answer_precision", "answer_recall", "support_precision", "joint_precision")]
        [1.0, 0.5, 0.5, 0.5]
    """
    if not references:
        raise ValueError("Got no questions; give at least one.")
    if unknown := [number for number, (answer, _) in references.items() if answer is None]:
        raise ValueError(f"{len(unknown)} questions have no answer to score against: {_names(unknown)}.")
    if missing := [number for number in references if number not in predictions]:
        raise ValueError(
            f"{len(missing)} of {len(references)} questions have no prediction: {_names(missing)}. Give one for each."
        )
    rows = []
    for number, (right, facts) in references.items():
        text, found = predictions[number]
        answer = _answer_scores(text, right or "")
        support = _support_scores({(title, sentence) for title, sentence in found}, set(facts))
        precision, recall = answer.precision * support.precision, answer.recall * support.recall
        joint = _Scores(answer.em * support.em, _f1(precision, recall), precision, recall)
        rows.append([*answer, *support, *joint])
    names = [f"{part}_{name}" for part in ("answer", "support", "joint") for name in _Scores._fields]
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation and the words a, an, the, and with single spaces between the others.

    Example:
        >>> normalize_answer("The  U.S., a state's")
        'us states'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _answer_scores(predicted: str, answer: str) -> _Scores:
    predicted, answer = normalize_answer(predicted), normalize_answer(answer)
    same = float(predicted == answer)
    words, wanted = Counter(predicted.split()), Counter(answer.split())
    common = (words & wanted).total()
    # Nothing in common also means that neither is divided by 0, where an answer is nothing but articles.
    if not common or (not same and {predicted, answer} & _NOT_SPANS):
        return _Scores(same, 0.0, 0.0, 0.0)
    precision, recall = common / words.total(), common / wanted.total()
    return _Scores(same, _f1(precision, recall), precision, recall)


def _support_scores(predicted: set[tuple[str, int]], facts: set[tuple[str, int]]) -> _Scores:
    right = len(predicted & facts)
    precision = right / len(predicted) if predicted else 0.0
    recall = right / len(facts) if facts else 0.0
    return _Scores(float(predicted == facts), _f1(precision, recall), precision, recall)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _names(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_NAMED]) + (", ..." if len(ids) > _NAMED else "")
