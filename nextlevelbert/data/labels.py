"""Labels as they stand in a source, to class indices or values."""

from __future__ import annotations

import itertools
import json
import logging
import math
from pathlib import Path
from typing import Any, Literal

from .rows import Place, short
from .texts import open_utf8

logger = logging.getLogger(__name__)

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression", "multiple_choice"]

# Types of label that go with each problem, of one type throughout but for regression; bool is not a kind of int.
LABEL_TYPES: dict[ProblemType, set[type]] = {
    "single_label_classification": {str, int, bool},
    "multi_label_classification": {list},
    "regression": {int, float},
}

Labels = list[tuple[Place, Any]]


def all_labelled(labels: Labels, column: str, first_row: dict[str, Any]) -> bool:
    """Whether there are labels; NaN, infinity, or some rows with a label and some without are an error."""
    missing = [place for place, label in labels if label is None]
    if len(missing) == len(labels):
        there = ", ".join(first_row)
        logger.warning("%s: no row has a label in column %r (columns: %s).", missing[0].source, column, there)
        return False
    if missing:
        labelled = next(place for place, label in labels if label is not None)
        raise missing[0].error(column, f"has no label, but {labelled.row} has one; label all rows or none.")
    for place, label in labels:
        if isinstance(label, float) and not math.isfinite(label):
            raise place.error(column, f"is {label}; where the label is not known, leave the row out.")
    return True


def class_name(label: Any, names: tuple[str, ...] | None) -> Any:
    """The name for a number of a `ClassLabel`, whose negative numbers mean that the label is not known."""
    if isinstance(label, list):
        return [class_name(each, names) for each in label]
    if names is None or type(label) is not int or label >= len(names):
        return label
    return names[label] if label >= 0 else None


def guess_problem(labels: Labels) -> ProblemType:
    types = {type(label) for _, label in labels}
    if float in types:
        return "regression"
    return "multi_label_classification" if list in types else "single_label_classification"


def check_types(labels: Labels, column: str, problem: ProblemType) -> None:
    allowed = LABEL_TYPES[problem]
    for place, label in labels:
        mixed = type(label) is not type(labels[0][1]) and problem != "regression"
        if type(label) not in allowed or mixed:
            known = " or ".join(sorted(kind.__name__ for kind in allowed))
            message = f"{short(label)} is no label for {problem}: those are {known}, of one type throughout."
            raise place.error(column, f"{message} Correct the column, or give another problem_type.")


def class_indices(
    labels: Labels, column: str, names: tuple[str, ...] | None, several: bool
) -> tuple[list[Any], tuple[str, ...]]:
    """Class indices of each row (one, or with `several` a sorted tuple), and the names of the classes."""
    rows = [(place, label if several else [label]) for place, label in labels]
    flat = [(place, each) for place, row in rows for each in row]
    kind = type(flat[0][1]) if flat else str
    for place, each in flat:
        if type(each) is not kind or kind not in (str, int, bool) or not str(each).strip():
            raise place.error(column, f"holds {short(each)}; classes are names (not blank), or integers throughout.")
    names = names or _names_of_classes(labels[0][0].source, column, {each for _, each in flat}, kind)
    numbers: dict[Any, int] = {(name if kind is str else number): number for number, name in enumerate(names)}
    if kind is int and all(name.isdecimal() for name in names):
        numbers = {int(name): number for number, name in enumerate(names)}  # "1", "2", "3" are not places 0, 1, 2
    elif kind is int:
        logger.warning(
            "%s: integers in column %r are taken as indices into %s.", labels[0][0].source, column, ", ".join(names)
        )
    known = ", ".join(str(each) for each in itertools.islice(numbers, 20)) + (", ..." if len(names) > 20 else "")
    indices = []
    for place, row in rows:
        for each in row:
            if each not in numbers:
                raise place.error(column, f"{short(each)} is not one of the {len(names)} classes: {known}.")
        found = tuple(sorted({numbers[each] for each in row}))
        if len(found) < len(row):
            raise place.error(column, f"{short(row)} names a class twice; give classes, not a vector of 0 and 1.")
        indices.append(found if several else found[0])
    return indices, names


def _names_of_classes(source: str, column: str, classes: set[Any], kind: type) -> tuple[str, ...]:
    """Names for the classes there are: strings in order; integers have to be all from 0 on."""
    if not classes:
        raise ValueError(f"{source}, column {column!r}: no row has a class; give label_names.")
    if kind is str:
        return tuple(sorted(classes))
    if kind is bool:
        return ("False", "True")
    if classes != set(range(len(classes))):
        found = ", ".join(str(number) for number in sorted(classes)[:10]) + (", ..." if len(classes) > 10 else "")
        raise ValueError(
            f"{source}, column {column!r}: integer classes must be 0, 1, 2, ... without gaps, but these are {found}. "
            "Give label_names if this source lacks some class, or problem_type='regression' if these are values."
        )
    return tuple(str(number) for number in range(len(classes)))


def read_label_names(path: str | None) -> tuple[str, ...] | None:
    """The classes of a JSON file: a list of them, or an object whose keys they are; None for no file.

    Raises:
        FileNotFoundError, ValueError: for a file that is not there, or holds something else.
    """
    if path is None:
        return None
    try:
        with open_utf8(Path(path)) as file:
            names = json.load(file)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path} is no JSON ({error}); give a list of classes, or an object with them as keys."
        ) from error
    if not isinstance(names, (list, dict)) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path} must hold a JSON list of classes, or an object with them as keys.")
    return tuple(names)
