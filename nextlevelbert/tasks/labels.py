"""Labels as they stand in a source, to class indices."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Literal

from ..data.rows import Place, open_text, short

logger = logging.getLogger(__name__)

ProblemType = Literal["single_label_classification", "multi_label_classification", "multiple_choice"]
Labels = list[tuple[Place, Any]]
# Types of label that go with each problem, of one type throughout; bool is not a kind of int.
LABEL_TYPES: dict[ProblemType, set[type]] = {
    "single_label_classification": {str, int, bool},
    "multi_label_classification": {list},
}


def all_labelled(labels: Labels, column: str, first_row: dict[str, Any]) -> bool:
    """Whether there are labels; some rows with a label and some without are an error."""
    missing = [place for place, label in labels if label is None]
    if len(missing) == len(labels):
        logger.warning("No row has a label in column %r (columns: %s).", column, ", ".join(first_row))
        return False
    if missing:
        raise missing[0].error(column, "has no label, but other rows have; label all rows or none.")
    return True


def class_name(label: Any, names: tuple[str, ...] | None) -> Any:
    """The name for a number of a `ClassLabel`, whose negative numbers mean that the label is not known."""
    if isinstance(label, list):
        return [class_name(item, names) for item in label]
    if names is None or type(label) is not int or label >= len(names):
        return label
    return names[label] if label >= 0 else None


def guess_problem(labels: Labels) -> ProblemType:
    several = any(isinstance(label, list) for _, label in labels)
    return "multi_label_classification" if several else "single_label_classification"


def check_types(labels: Labels, column: str, problem: ProblemType) -> None:
    for place, label in labels:
        if type(label) not in LABEL_TYPES[problem] or type(label) is not type(labels[0][1]):
            known = " or ".join(sorted(kind.__name__ for kind in LABEL_TYPES[problem]))
            raise place.error(column, f"{short(label)} is no label for {problem}: those are {known}, of one type.")


def class_indices(
    labels: Labels, column: str, names: tuple[str, ...] | None, several: bool
) -> tuple[list[Any], tuple[str, ...]]:
    """Class indices of each row (one, or with `several` a sorted tuple), and the names of the classes."""
    rows = [(place, label if several else [label]) for place, label in labels]
    flat = [(place, item) for place, row in rows for item in row]
    kind = type(flat[0][1]) if flat else str
    for place, item in flat:
        if type(item) is not kind or kind not in (str, int, bool) or not str(item).strip():
            raise place.error(column, f"holds {short(item)}; classes are names (not blank), or integers throughout.")
    names = names or _names_of_classes(column, {item for _, item in flat}, kind)
    keys: list[Any] = list(names) if kind is str else list(range(len(names)))
    if kind is int and all(name.isdecimal() for name in names):
        keys = list(map(int, names))  # "1", "2", "3" are not places 0, 1, 2
    elif kind is int:
        logger.warning("Integers in column %r are taken as indices into %s.", column, ", ".join(names))
    numbers = {key: number for number, key in enumerate(keys)}
    indices = []
    for place, row in rows:
        if unknown := [item for item in row if item not in numbers]:
            some = ", ".join(map(str, keys[:20])) + (", ..." if len(names) > 20 else "")
            raise place.error(column, f"{short(unknown[0])} is not one of the {len(names)} classes: {some}.")
        classes = tuple(sorted({numbers[item] for item in row}))
        if len(classes) < len(row):
            raise place.error(column, f"{short(row)} names a class twice; give classes, not a vector of 0 and 1.")
        indices.append(classes if several else classes[0])
    return indices, names


def _names_of_classes(column: str, classes: set[Any], kind: type) -> tuple[str, ...]:
    """Names for the classes there are: strings in order; integers have to be all from 0 on."""
    if kind is bool or (kind is str and classes):
        return ("False", "True") if kind is bool else tuple(sorted(classes))
    if not classes or classes != set(range(len(classes))):
        raise ValueError(
            f"Column {column!r}: integer classes must be 0, 1, 2, ... without gaps, but these are "
            f"{sorted(classes)[:10]}. Give their names with --label_names_file."
        )
    return tuple(str(number) for number in range(len(classes)))


def read_label_names(path: str | None) -> tuple[str, ...] | None:
    """The classes of a JSON file: a list of them, or an object whose keys they are; None for no file."""
    if path is None:
        return None
    with open_text(Path(path)) as file:
        names = json.load(file)
        if not isinstance(names, list | dict) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError("it must hold a JSON list of classes, or an object with them as keys")
    return tuple(names)
