"""HotpotQA's official scores, worked by hand, and against the rules of its official script."""

import random
import re
import string

import pytest

from metrics.hotpotqa_joint.hotpotqa_joint import hotpotqa_scores


def reference(
    answer: str | None, *facts: tuple[str, int]
) -> tuple[str | None, set[tuple[str, int]]]:
    return answer, set(facts)


def test_scores_worked_by_hand():
    questions = {
        "1": reference("the Battle of Hastings", ("A", 0), ("B", 1)),
        "2": reference("yes", ("A", 0), ("B", 0)),
        "3": reference("New York City", ("A", 0), ("B", 0), ("B", 2)),
    }
    predictions = {
        # All right; a fact given twice counts once.
        "1": ("Battle of Hastings!", [("A", 0), ("B", 1), ("B", 1)]),
        # A word in common, but not the answer yes.
        "2": ("yes, it is", [("A", 0), ("B", 0)]),
        # Of the words 2 of 3, and 2 of 3; of the facts 2 of 4, and 2 of 3.
        "3": ("city of York", [["B", 2], ["C", 0], ["C", 1], ["A", 0]]),
        "other": ("no", []),
    }
    scores = hotpotqa_scores(predictions, questions)
    # Of the third question, jointly.
    precision = 2 / 3 * 1 / 2
    recall = 2 / 3 * 2 / 3
    f1 = 2 * precision * recall / (precision + recall)
    sums = {name: 3 * score for name, score in scores.items()}

    assert sums == pytest.approx(
        {
            "answer_em": 1,
            "answer_f1": 1 + 2 / 3,
            "answer_precision": 1 + 2 / 3,
            "answer_recall": 1 + 2 / 3,
            "support_em": 2,
            "support_f1": 2 + 4 / 7,
            "support_precision": 2 + 1 / 2,
            "support_recall": 2 + 2 / 3,
            "joint_em": 1,
            "joint_f1": 1 + f1,
            "joint_precision": 1 + precision,
            "joint_recall": 1 + recall,
        }
    )


@pytest.mark.parametrize(
    ("predicted", "answer", "em", "f1"),
    [
        ("YES.", "yes", 1, 1),
        ("no", "no way", 0, 0),
        ("no way", "no", 0, 0),
        ("no answer", "noanswer", 0, 0),
        ("yes man", "the Yes Man", 1, 1),
        ("the", "an", 1, 0),  # both are nothing once the articles are gone
        ("", "Paris", 0, 0),
        ("Paris Paris", "Paris", 0, 2 / 3),
        ("rock-n-roll", "rocknroll", 1, 1),
        ("a-ha", "aha", 1, 1),  # punctuation goes before articles
    ],
)
def test_answers_worked_by_hand(predicted, answer, em, f1):
    scores = hotpotqa_scores({"1": (predicted, [("A", 0)])}, {"1": reference(answer, ("A", 0))})

    assert (scores["answer_em"], scores["answer_f1"]) == (em, pytest.approx(f1))
    assert (scores["joint_em"], scores["joint_f1"]) == (em, pytest.approx(f1))


def test_a_fact_whose_sentence_is_not_there_counts_in_the_recall():
    scores = hotpotqa_scores({"1": ("x", [("A", 0)])}, {"1": reference("x", ("A", 0), ("A", 9))})

    assert (scores["support_precision"], scores["support_recall"]) == (1.0, 0.5)
    assert hotpotqa_scores({"1": ("x", [])}, {"1": reference("x", ("A", 0))})["joint_f1"] == 0


def test_a_question_without_prediction_is_named():
    with pytest.raises(ValueError, match="such as 2"):
        hotpotqa_scores({"1": ("x", [])}, {"1": reference("x"), "2": reference("x")})


# The rules of the official script, written for one question at a time.


def official_words(text):
    """Lower case, without punctuation, then without articles."""
    kept = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def official_answer(predicted, right):
    """Exact match, F1, precision, recall of an answer."""
    words = official_words(predicted)
    gold = official_words(right)
    exact = float(words == gold)
    closed = (["yes"], ["no"], ["noanswer"])
    if words != gold and (words in closed or gold in closed):
        return exact, 0.0, 0.0, 0.0

    left = list(gold)
    same = 0
    for word in words:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return exact, 0.0, 0.0, 0.0
    precision = same / len(words)
    recall = same / len(gold)
    return exact, 2 * precision * recall / (precision + recall), precision, recall


def official_support(predicted, right):
    """Exact match, F1, precision, recall of the supporting facts."""
    hits = 0
    misses = 0
    for fact in set(predicted):
        if fact in right:
            hits += 1
        else:
            misses += 1
    forgotten = len(set(right) - set(predicted))

    precision = 0.0
    if hits + misses > 0:
        precision = hits / (hits + misses)
    recall = 0.0
    if hits + forgotten > 0:
        recall = hits / (hits + forgotten)
    f1 = 0.0
    if precision + recall > 0:
        f1 = 2 * precision * recall / (precision + recall)
    return float(misses + forgotten == 0), f1, precision, recall


def official_joint(answer, support):
    precision = answer[2] * support[2]
    recall = answer[3] * support[3]
    f1 = 0.0
    if precision + recall > 0:
        f1 = 2 * precision * recall / (precision + recall)
    return answer[0] * support[0], f1, precision, recall


ANSWERS = ("yes", "No.", "noanswer", "the", "", "York", "New York", "the New York!", "new new york")
FACTS = [(title, index) for title in "AB" for index in range(3)]


def test_scores_are_those_of_the_official_rules():
    draw = random.Random(0)
    for _ in range(100):
        references = {}
        predictions = {}
        totals = [0.0] * 12
        for name in "abcde":
            facts = draw.sample(FACTS, draw.randint(1, 4))
            references[name] = (draw.choice(ANSWERS), set(facts))
            predictions[name] = (draw.choice(ANSWERS), draw.choices(FACTS, k=draw.randint(0, 4)))
            answer = official_answer(predictions[name][0], references[name][0])
            support = official_support(predictions[name][1], facts)
            values = (*answer, *support, *official_joint(answer, support))
            totals = list(map(sum, zip(totals, values, strict=True)))

        scores = hotpotqa_scores(predictions, references)

        for index, name in enumerate(NAMES):
            assert scores[name] == pytest.approx(totals[index] / 5, abs=1e-12), name


NAMES = (
    *("answer_em", "answer_f1", "answer_precision", "answer_recall"),
    *("support_em", "support_f1", "support_precision", "support_recall"),
    *("joint_em", "joint_f1", "joint_precision", "joint_recall"),
)
