"""Reads labelled documents: rows with named columns become data sets whose classes have names."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, DatasetInfo, Features, List, Value

from ..messages import short
from .files import open_text
from .rows import RowLocation
from .sets import names_of
from .tables import Table

logger = logging.getLogger(__name__)

_NAMED = 20  # classes that an error names
_INTEGER = re.compile("-?[0-9]+")


@dataclass(frozen=True)
class Columns:
    """Names of columns.

    Args:
        text: column of the documents.
        question: column of the questions (default: ``question``, if it exists).
        label: column of the labels.
        id: column of the ids; rows without an id are numbered.
    """

    text: str = "text"
    question: str | None = None
    label: str = "label"
    id: str = "id"


USUAL = Columns()


@dataclass
class _Row:
    """Holds a row of a set, its location, and its label as the source has it."""

    location: RowLocation
    values: dict[str, Any]
    label: Any

    def classes(self) -> list[Any]:
        """Returns the classes of the row."""
        if isinstance(self.label, list):
            return self.label
        return [self.label]


# --- Classes


def load_classes(
    table: Table,
    columns: Columns = USUAL,
    class_names: Sequence[str] | None = None,
    like: Dataset | None = None,
) -> Dataset:
    """Reads documents with classes.

    Labels are strings (classes in alphabetical order), integers from 0 without a gap (named by
    their digits, or by the `ClassLabel` of `datasets`), booleans, or lists of strings or integers
    (several labels). Test sets may come without labels: no column, null, or -1 of named classes.

    Args:
        table: rows with named columns.
        columns: names of the columns to read.
        class_names: the classes in order; labels may be their names or their indices. If a name is
            an integer, integer labels are names; another integer would be ambiguous and is refused.
        like: the training set; this set gets the same classes and kind of labels.

    Returns:
        Columns ``id``, ``text``, perhaps ``question``, and ``label``, a `ClassLabel` or a list of
        one; no ``label`` if no row has a label.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    rows = _read_rows(table, columns)
    _check_no_vector(rows, columns.label)
    names_of_integers = _names_of_integers(table, columns.label, class_names)
    for row in rows:
        row.label = _name_of(row.label, names_of_integers)

    if all(row.label is None for row in rows):
        logger.warning(
            "No row has a label in column %r (columns: %s).", columns.label, ", ".join(table.first)
        )
        return _dataset(table, rows)

    several = isinstance(rows[0].label, list)
    # Later names win: those of the table, of the training set, and the given ones.
    names: Sequence[str] | None = table.class_names.get(columns.label)
    if like is not None and "label" in like.features:
        several = isinstance(like.features["label"], List)
        names = names_of(like)
    if class_names is not None:
        names = class_names

    _check_labels(rows, columns.label, several=several)
    if names is None:
        names = _sorted_names(rows, columns.label)

    index_of = {name: index for index, name in enumerate(names)}
    for row in rows:
        row.values["label"] = _label_index(row, columns.label, index_of)

    feature = ClassLabel(names=list(names))
    if several:
        feature = List(feature)

    return _dataset(table, rows, label_feature=feature)


def _names_of_integers(
    table: Table, column: str, class_names: Sequence[str] | None
) -> Sequence[str] | None:
    """Returns the names whose indices integer labels are; None if integers are classes."""
    if column in table.class_names:
        return table.class_names[column]
    # The names "-1", "0", "1" are the labels -1, 0, 1, not the labels 0, 1, 2.
    if class_names is not None and any(map(_INTEGER.fullmatch, class_names)):
        return None
    return class_names


def _name_of(label: Any, names: Sequence[str] | None) -> Any:
    """Returns the name of the class with this index, None for -1, and any other label unchanged."""
    if isinstance(label, list):
        return [_name_of(item, names) for item in label]
    if names is None or type(label) is not int or label >= len(names):
        return label
    if label < 0:
        return None
    return names[label]


def _check_labels(rows: Sequence[_Row], column: str, *, several: bool) -> None:
    """Checks that all labels are lists or none is, and that all classes have one type."""
    types = set()
    for row in rows:
        if row.label is None:
            raise row.location.error(
                column, "has no label, but other rows have one. Label all rows or none."
            )

        if isinstance(row.label, list) is not several:
            raise row.location.error(
                column,
                f"holds {short(row.label)}, unlike other rows. Give one class in each row, or a"
                " list in each row.",
            )

        for item in row.classes():
            types.add(type(item))
            if isinstance(item, str) and item.startswith("[") and item.endswith("]"):
                raise row.location.error(
                    column, f"holds {short(item)}. A CSV file cannot hold lists; lists need JSON."
                )

            is_class = isinstance(item, str | int) and str(item).strip() != ""
            if not is_class or len(types) > 1:
                raise row.location.error(
                    column,
                    f"holds {short(item)}; classes are names (not blank), or integers throughout.",
                )


def _check_no_vector(rows: Sequence[_Row], column: str) -> None:
    """Checks that labels are not the vectors [1, 0] and [0, 1], which would name both classes."""
    is_pair = all(row.label in ([0, 1], [1, 0]) for row in rows)
    for row in rows:
        if is_pair and row.label == [1, 0]:
            raise row.location.error(
                column,
                f"holds {short(row.label)}. Give a list of classes, not a vector of 0 and 1.",
            )


def _sorted_names(rows: Sequence[_Row], column: str) -> tuple[str, ...]:
    """Returns the names of the classes of a training set, in order."""
    classes = sorted({item for row in rows for item in row.classes()})
    if bool in map(type, classes):
        return ("False", "True")

    is_numbered = int in map(type, classes)
    if not classes or (is_numbered and classes != list(range(len(classes)))):
        raise ValueError(
            f"Column {column!r}: integer classes must be 0, 1, 2, ... without gaps, but these"
            f" are {classes[:10]}. Give their names with --label_names_file."
        )

    return tuple(map(str, classes))


def _label_index(row: _Row, column: str, index_of: Mapping[str, int]) -> int | list[int]:
    """Returns the index of the class of a row, or the sorted indices of several."""
    items = row.classes()
    for item in items:
        if str(item) not in index_of:
            raise row.location.error(
                column,
                f"{short(item)} is not one of the {len(index_of)} classes:"
                f" {', '.join(list(index_of)[:_NAMED])}. Classes that the training set lacks, and"
                " numbers of named classes, need a --label_names_file; if a name there is an"
                " integer, no number is an index.",
            )

    if len(set(items)) < len(items):
        raise row.location.error(
            column,
            f"{short(items)} names a class twice. Give a list of classes, not a vector of 0 and 1.",
        )

    indices = sorted(index_of[str(item)] for item in items)
    if isinstance(row.label, list):
        return indices

    return indices[0]


def read_label_names(path: str | Path) -> tuple[str, ...]:
    """Reads the classes of a JSON file, in order.

    It holds a list of names, an object with the names as keys, or the `label2id` or `id2label` of a
    configuration of transformers, whose numbers are the order.
    """
    with open_text(Path(path)) as file:
        names = json.load(file)
        is_collection = isinstance(names, list | dict) and len(names) > 0
        if not is_collection or not all(isinstance(name, str) for name in names):
            raise ValueError("it must hold a JSON list of classes, or an object with them as keys")
        if isinstance(names, dict):
            names = _names_in_order(names)
    return tuple(names)


def _names_in_order(names: Mapping[str, Any]) -> list[str]:
    """Returns the keys of an object; those of a `label2id` by their numbers.

    Raises:
        ValueError: for numbers that are not 0, 1, 2, ... without gaps.
    """
    label2id: Mapping[Any, Any] = names
    if all(map(_INTEGER.fullmatch, names)) and all(isinstance(x, str) for x in names.values()):
        label2id = {name: int(number) for number, name in names.items()}
    numbers = list(label2id.values())
    if not all(type(number) is int for number in numbers):
        return list(names)
    if sorted(numbers) != list(range(len(names))):
        raise ValueError("the numbers of its classes must be 0, 1, 2, ... without gaps")
    return sorted(label2id, key=label2id.__getitem__)


# --- Choices


def load_choices(table: Table, columns: Columns = USUAL) -> Dataset:
    """Reads questions about documents, all with the same number of choices.

    Args:
        table: rows with named columns, among them ``choices``.
        columns: names of the columns to read. A label is the index of the right choice, from 0.

    Returns:
        Columns ``id``, ``text``, ``question``, ``choices`` and ``label``; no ``label`` if no row
        has a label.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    rows = _read_rows(table, columns, with_choices=True)
    count = len(rows[0].values["choices"])
    is_labelled = any(row.label is not None for row in rows)
    for row in rows:
        own_count = len(row.values["choices"])
        if own_count != count:
            raise row.location.error(
                "choices",
                f"has {own_count} choices, but the first row has {count}. Give all rows the same"
                " number.",
            )

        if not is_labelled:
            continue
        if type(row.label) is not int or not 0 <= row.label < count:
            raise row.location.error(
                columns.label, f"must be the number of a choice, from 0; got {short(row.label)}."
            )

        row.values["label"] = row.label

    return _dataset(table, rows, label_feature=Value("int64"))


# --- Rows of both


def _read_rows(table: Table, columns: Columns, with_choices: bool = False) -> list[_Row]:
    """Reads and checks all values of rows except the labels."""
    question_column = columns.question
    if not question_column and (with_choices or "question" in table.first):
        question_column = "question"

    rows: dict[str, _Row] = {}
    for location, values in table.rows:
        name = values.get("id")
        if columns.id != "id":
            name = location.column(values, columns.id, "--id_column")
        if name in (None, ""):
            name = f"row-{len(rows):06d}"
        name = str(name)
        if name in rows:
            earlier = rows[name].location.row
            raise location.error(
                columns.id, f"id {name!r} is also the id of {earlier}. Give every row its own id."
            )

        own_values: dict[str, Any] = {"id": name}
        own_values["text"] = location.text(values, columns.text, "--text_column")
        if question_column:
            own_values["question"] = location.text(values, question_column, "--question_column")
        if with_choices:
            own_values["choices"] = _choices_of(location, values)
        rows[name] = _Row(location, own_values, label=values.get(columns.label))

    return list(rows.values())


def _choices_of(location: RowLocation, values: Mapping[str, Any]) -> list[str]:
    choices = values.get("choices")
    if not isinstance(choices, list) or len(choices) < 2:
        raise location.error(
            "choices", f"must be a list (JSON) of 2 texts or more, got {short(choices)}."
        )
    return [location.require_text(choice, "choices") for choice in choices]


def _dataset(table: Table, rows: Sequence[_Row], label_feature: Any = None) -> Dataset:
    """Returns a data set of checked rows; its `info` has the name of the table."""
    # Texts of a set may have more than the 2 GB that the offsets of "string" can count.
    all_features = {
        "id": Value("string"),
        "text": Value("large_string"),
        "question": Value("large_string"),
        "choices": List(Value("large_string")),
        "label": label_feature,
    }
    features = Features({name: all_features[name] for name in rows[0].values})
    info = DatasetInfo(features=features, dataset_name=table.name)
    return Dataset.from_list([row.values for row in rows], features=features, info=info)
