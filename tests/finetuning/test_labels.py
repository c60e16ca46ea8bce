"""Labels, predictions in words, and scores by hand."""

import math

import numpy as np
import pytest
from datasets import Dataset

from nextlevelbert.finetuning.labels import (
    CHOICE,
    SEVERAL,
    SINGLE,
    LabelSet,
    pair_texts,
    write_predictions,
)

from ..toys.finetuning import predictions


def test_the_texts_beside_a_document():
    assert pair_texts({"text": "x"}) == []
    assert pair_texts({"text": "x", "question": "Who?"}) == ["Who?"]

    row = {"text": "x", "question": "Who is _ ?", "choices": ["Ann", "Bob"]}

    assert pair_texts(row) == ["Who is _ ? Ann", "Who is _ ? Bob"]


@pytest.mark.parametrize(
    ("labels", "label", "logits", "expected"),
    [
        (
            LabelSet(SINGLE, ("n", "y")),
            {"label": 1},
            [[0.0, math.log(3)]],
            {"prediction": "y", "label": "y", "scores": [0.25, 0.75]},
        ),
        (
            LabelSet(SEVERAL, ("n", "y")),
            {"label": [0]},
            [[-1.0, 0.0]],
            {"prediction": [], "label": ["n"], "scores": [0.268941, 0.5]},
        ),
        (
            LabelSet(CHOICE, choices=2),
            {},
            [[0.0, math.log(3)]],
            {"prediction": 1, "scores": [0.25, 0.75]},
        ),
    ],
)
def test_predictions_in_words(tmp_path, labels, label, logits, expected):
    data = Dataset.from_list([{"id": "ü", "text": "text", **label}])
    write_predictions(tmp_path / "p.jsonl", data, labels, logits=np.array(logits))

    assert predictions(tmp_path / "p.jsonl") == [{"id": "ü", **expected}]
    assert "ü" in (tmp_path / "p.jsonl").read_text(encoding="utf-8")


def test_scores_of_one_class_worked_by_hand():
    labels = LabelSet(SINGLE, ("n", "y"))
    logits = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 2.0], [5.0, 1.0]])  # says 0, 1, 1, 0
    # Class 1: one found of two, one of two findings right: precision = recall = 1/2; class 0
    # likewise.
    scores = labels.scores(np.array([0, 1, 0, 1]), logits)

    assert scores == {"accuracy": 0.5, "f1": 0.5, "macro_f1": 0.5, "micro_f1": 0.5}


def test_scores_of_several_classes_worked_by_hand():
    labels = LabelSet(SEVERAL, ("n", "y"))
    logits = np.array([[1.0, -1.0], [1.0, 0.3], [-1.0, -1.0]])  # says {0}, {0, 1}, {}
    # Class 0: 2 of 2; class 1: none found of one, one wrong. Micro: 2 right of 3 said and of 3 that
    # are.
    scores = labels.scores(labels.array([[0], [0], [1]]), logits)

    assert scores == pytest.approx({"accuracy": 1 / 3, "macro_f1": 0.5, "micro_f1": 2 / 3})


def test_scores_of_a_class_that_a_row_has_or_has_not():
    labels = LabelSet(SEVERAL, ("y",))
    logits = np.array([[1.0], [2.0], [-1.0], [-2.0], [0.5]])  # says yes, yes, no, no, yes
    # Two of three found rightly, one of the three that are is missed: precision = recall = 2/3.
    scores = labels.scores(labels.array([[0], [], [0], [], [0]]), logits)

    assert scores == pytest.approx({"accuracy": 3 / 5, "f1": 2 / 3})


def test_scores_of_choices():
    labels = LabelSet(CHOICE, choices=4)

    assert labels.scores(np.array([0, 1, 0, 0]), np.eye(4)) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("labels", "rows", "expected"),
    [
        (LabelSet(SEVERAL, ("n", "y")), [[0], [0], [1]], [True, False]),
        (LabelSet(SINGLE, ("n", "y")), [1, 1, 0], [True, True]),
        (LabelSet(CHOICE, choices=3), [1, 1, 0], [True, True, False]),
    ],
)
def test_the_most_frequent_label(labels, rows, expected):
    train = Dataset.from_dict({"label": rows})
    logits = labels.majority_logits(train)

    assert (logits > 0).tolist() == [expected]

    if labels.problem_type != SEVERAL:
        assert logits.argmax() == 1
    single = Dataset.from_dict({"label": rows[:1]})

    assert labels.majority_scores(train, single)["accuracy"] == 1.0
