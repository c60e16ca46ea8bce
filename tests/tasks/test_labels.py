"""Labels to class indices: what `tests/tasks/test_labelled_documents.py` does not read from files."""

from __future__ import annotations

import pytest

from nextlevelbert.data.rows import Place
from nextlevelbert.tasks.labels import check_types, class_indices, class_name


def labels_of(*values):
    return [(Place("rows.jsonl", f"row {number}"), value) for number, value in enumerate(values)]


def test_names_of_numbers():
    names = ("sea", "oven")
    assert [class_name(label, names) for label in (1, -1, "sea", True, 7)] == ["oven", None, "sea", True, 7]
    assert class_name([0, 1, -1], names) == ["sea", "oven", None]
    assert class_name(1, None) == 1


def test_digits_are_names_and_not_places():
    assert class_indices(labels_of(3, 1), "label", ("1", "3"), False) == ([1, 0], ("1", "3"))
    assert class_indices(labels_of(1, 0), "label", ("sea", "oven"), False) == ([1, 0], ("sea", "oven"))
    with pytest.raises(ValueError, match=r"row 1, .*: 'c' \(str\) is not one of the 2 classes: a, b"):
        class_indices(labels_of("a", "c"), "label", ("a", "b"), False)


def test_types_that_do_not_go_together():
    for problem, value in (("single_label_classification", 0.5), ("multi_label_classification", "b")):
        with pytest.raises(ValueError, match=f"is no label for {problem}"):
            check_types(labels_of(value), "label", problem)
