"""Labels as they stand in a source, to class indices or values."""

from __future__ import annotations

import math

import pytest

from nextlevelbert.data.labels import all_labelled, check_types, class_indices, class_name, guess_problem
from nextlevelbert.data.rows import Place


def labels_of(*values):
    return [(Place("rows.jsonl", f"row {number}"), value) for number, value in enumerate(values)]


def test_all_rows_have_a_label_or_none_has(caplog):
    assert all_labelled(labels_of("a", 0, False), "label", {})
    assert not all_labelled(labels_of(None, None), "label", {"text": "", "label": None})
    assert "No row has a label in column 'label' (columns: text, label)" in caplog.text
    with pytest.raises(ValueError, match=r"row 1, .*'label': has no label, but other rows have"):
        all_labelled(labels_of("a", None), "label", {})
    with pytest.raises(ValueError, match=r"row 1, .*'label': is nan"):
        all_labelled(labels_of(1.0, math.nan), "label", {})


def test_names_of_numbers():
    names = ("sea", "oven")
    assert [class_name(label, names) for label in (1, -1, "sea", True, 7)] == ["oven", None, "sea", True, 7]
    assert class_name([0, 1, -1], names) == ["sea", "oven", None]
    assert class_name(1, None) == 1


@pytest.mark.parametrize(
    ("values", "problem"),
    [(("a", "b"), "single_label_classification"), ((1, 0), "single_label_classification"), ((1, 0.5), "regression"),
     ((["a"], []), "multi_label_classification")],
)  # fmt: skip
def test_the_problem_follows_from_the_labels(values, problem):
    assert guess_problem(labels_of(*values)) == problem
    check_types(labels_of(*values), "label", problem)


@pytest.mark.parametrize(
    ("values", "problem"),
    [((0, True), "single_label_classification"), (("a",), "regression"), ((["a"], "b"), "multi_label_classification")],
)  # fmt: skip
def test_types_that_do_not_go_together(values, problem):
    with pytest.raises(ValueError, match=rf"'label': .* is no label for {problem}"):
        check_types(labels_of(*values), "label", problem)


@pytest.mark.parametrize(
    ("values", "names", "indices", "classes"),
    [
        (("b", "a", "b"), None, [1, 0, 1], ("a", "b")),
        ((2, 0, 1), None, [2, 0, 1], ("0", "1", "2")),
        ((True, False), None, [1, 0], ("False", "True")),
        (("b",), ("b", "a"), [0], ("b", "a")),
        ((3, 1), ("1", "3"), [1, 0], ("1", "3")),  # digits are names, not places
        ((1, 0), ("sea", "oven"), [1, 0], ("sea", "oven")),
    ],
)
def test_indices_of_classes(values, names, indices, classes):
    assert class_indices(labels_of(*values), "label", names, several=False) == (indices, classes)


def test_indices_of_several_classes():
    assert class_indices(labels_of(["b", "a"], [], ["b"]), "label", None, True) == ([(0, 1), (), (1,)], ("a", "b"))
    with pytest.raises(ValueError, match=r"row 0, .* names a class twice"):
        class_indices(labels_of(["a", "a"]), "label", None, True)
    with pytest.raises(ValueError, match="Give label_names"):
        class_indices(labels_of([]), "label", None, True)


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        (("a", "c"), ("a", "b"), r"row 1, .*: 'c' \(str\) is not one of the 2 classes: a, b"),
        ((0, 2), None, r"integer classes must be 0, 1, 2, \.\.\. without gaps, but these are \[0, 2"),
        (("a", " "), None, r"row 1, .*: holds ' ' \(str\)"),
        ((1.5,), None, r"row 0, .*: holds 1\.5 \(float\)"),
    ],
)
def test_classes_that_are_refused(values, names, message):
    with pytest.raises(ValueError, match=message):
        class_indices(labels_of(*values), "label", names, several=False)
