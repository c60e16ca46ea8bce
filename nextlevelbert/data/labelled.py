"""Reads labelled documents: rows with named columns become data sets whose classes have names."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from datasets import ClassLabel, Dataset, DatasetInfo, Features, List, Value

from .files import open_text
from .splits import hold_out
from .tables import RowLocation, Table, short

logger = logging.getLogger(__name__)

Labels = list[tuple[RowLocation, Any]]  # a label, as the source has it, with its row
_NAMED = 20  # classes that an error names


class Columns(TypedDict, total=False):
    """Names of columns.

    Args:
        text_column: of the documents (default: ``text``).
        question_column: of questions about them (default: ``question``, if it exists).
        label_column: of the labels (default: ``label``).
        id_column: of the ids (default: ``id``); rows without an id are numbered.
    """

    text_column: str
    question_column: str | None
    label_column: str
    id_column: str


class ClassOptions(TypedDict, total=False):
    """The parameters of `load_classes` that loaders of published data sets pass on."""

    columns: Columns | None
    class_names: Sequence[str] | None
    like: Dataset | None


# --- Classes


def load_classes(
    table: Table,
    columns: Columns | None = None,
    class_names: Sequence[str] | None = None,
    like: Dataset | None = None,
) -> Dataset:
    """Reads documents with classes.

    Labels are strings (classes in alphabetical order), integers from 0 without a gap (named by
    their digits, or by the `ClassLabel` of `datasets`), booleans, or lists of strings or integers
    (several labels). Test sets may come without labels: no column, null, or -1 of a `ClassLabel`.

    Args:
        table: rows with named columns.
        columns: their names.
        class_names: the classes in order; labels may be their names or their indices.
        like: the training set, whose classes and kind of labels this set has, too.

    Returns:
        Columns ``id``, ``text``, perhaps ``question``, and ``label``, a `ClassLabel` or a list of
        one; no ``label`` if no row has a label.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    columns = columns or {}
    column = columns.get("label_column", "label")
    declared = table.class_names.get(column)
    rows, raw_labels = _read_rows(table, columns, with_choices=False)
    labels = [(location, class_name(label, declared)) for location, label in raw_labels]

    missing = [location for location, label in labels if label is None]
    if len(missing) == len(labels):
        logger.warning(
            "No row has a label in column %r (columns: %s).", column, ", ".join(table.first)
        )
        return _dataset(table, rows)
    if missing:
        raise missing[0].error(column, "has no label, but other rows have; label all rows or none.")

    if like is not None and "label" in like.features:
        several = not isinstance(like.features["label"], ClassLabel)
        names = names_of(like)
    else:
        several = any(isinstance(label, list) for _, label in labels)
        names = declared
    if class_names:
        names = tuple(class_names)
    indices, names = class_indices(
        labels, column, names, several=several, by_number=class_names is not None
    )
    feature: ClassLabel | List = ClassLabel(names=list(names))
    if several:
        feature = List(feature)
    return _dataset(table, rows, labels=indices, label_feature=feature)


def names_of(dataset: Dataset) -> tuple[str, ...] | None:
    """Returns the names of the classes of a set, in order; None for choices."""
    feature = dataset.features["label"]
    if isinstance(feature, List):
        feature = feature.feature
    names = getattr(feature, "names", None)
    if names is None:
        return None
    return tuple(names)


def class_name(label: object, names: tuple[str, ...] | None) -> object:
    """Returns the name for a number of a `ClassLabel`; other labels are returned as they are.

    Args:
        label: as the source has it; for a list, each item is looked up.
        names: of the `ClassLabel`, whose negative numbers stand for an unknown label (None).
    """
    if isinstance(label, list):
        return [class_name(item, names) for item in label]
    if names is None or type(label) is not int or label >= len(names):
        return label
    if label < 0:
        return None
    return names[label]


def class_indices(
    labels: Labels,
    column: str,
    names: tuple[str, ...] | None,
    *,
    several: bool,
    by_number: bool,
) -> tuple[list[Any], tuple[str, ...]]:
    """Looks up the index of each label.

    Args:
        labels: of all rows.
        column: name of their column, for errors.
        names: the classes in order; without them, those of the labels.
        several: whether each label is a list of classes.
        by_number: whether integers may stand for `names`.

    Returns:
        For each row an index, or with `several` a sorted list; and the names of the classes.
    """
    for location, label in labels:
        if isinstance(label, list) is not several:
            raise location.error(
                column, f"holds {short(label)}; give one class in each row, or a list in each row."
            )
    if not several:
        labels = [(location, [label]) for location, label in labels]

    items = [(location, item) for location, row in labels for item in row]
    label_type = _type_of_classes(items, column)
    if names is None:
        names = _names_of_classes({item for _, item in items}, label_type, column)
    keys: Sequence[Any] = range(len(names))
    if label_type is str:
        keys = names
    elif label_type is int and all(name.isdecimal() for name in names):
        keys = [int(name) for name in names]  # "1", "2", "3" are not the indices 0, 1, 2
    elif label_type is int and not by_number:
        location, item = items[0]
        raise location.error(
            column,
            f"holds the number {item}, but the classes are {', '.join(names[:_NAMED])}. Numbers"
            " need their order in a --label_names_file.",
        )

    index_of = {key: index for index, key in enumerate(keys)}
    indices: list[Any] = []
    for location, row in labels:
        found = _indices_of_row(location, row, column, index_of=index_of)
        if several:
            indices.append(found)
        else:
            indices.append(found[0])
    return indices, names


def _type_of_classes(items: Labels, column: str) -> type:
    """Returns the one type of all labels."""
    label_type = next((type(item) for _, item in items), str)
    for location, item in items:
        is_class = type(item) is label_type and label_type in (str, int, bool)
        rule = "classes are names (not blank), or integers throughout"
        if isinstance(item, str) and item.startswith("[") and item.endswith("]"):
            rule = "lists need JSON"
        elif is_class and str(item).strip():
            continue
        raise location.error(column, f"holds {short(item)}; {rule}.")
    return label_type


def _names_of_classes(classes: set[Any], label_type: type, column: str) -> tuple[str, ...]:
    """Returns the names of classes, in order."""
    if label_type is bool:
        return ("False", "True")
    ordered = sorted(classes)
    if not classes or (label_type is int and ordered != list(range(len(classes)))):
        raise ValueError(
            f"Column {column!r}: integer classes must be 0, 1, 2, ... without gaps, but these"
            f" are {ordered[:10]}. Give their names with --label_names_file."
        )
    return tuple(map(str, ordered))


def _indices_of_row(
    location: RowLocation, row: list[Any], column: str, *, index_of: Mapping[Any, int]
) -> list[int]:
    """Returns the sorted indices of the labels of one row."""
    for item in row:
        if item not in index_of:
            some = ", ".join(map(str, list(index_of)[:_NAMED]))
            raise location.error(
                column,
                f"{short(item)} is not one of the {len(index_of)} classes: {some}. Classes that the"
                " training set lacks need a --label_names_file.",
            )
    if len(set(row)) < len(row):
        raise location.error(
            column, f"{short(row)} names a class twice; give classes, not a vector of 0 and 1."
        )
    return sorted(index_of[item] for item in row)


def read_label_names(path: str | Path) -> tuple[str, ...]:
    """Reads the classes of a JSON file: a list of names, or an object with the names as keys."""
    with open_text(Path(path)) as file:
        names = json.load(file)
        is_collection = isinstance(names, list | dict) and len(names) > 0
        if not is_collection or not all(isinstance(name, str) for name in names):
            raise ValueError("it must hold a JSON list of classes, or an object with them as keys")
    return tuple(names)


# --- Choices


def load_choices(table: Table, columns: Columns | None = None) -> Dataset:
    """Reads questions about documents, all with the same number of choices.

    Args:
        table: rows with named columns, among them ``choices``.
        columns: their names. A label is the index of the right choice, from 0.

    Returns:
        Columns ``id``, ``text``, ``question``, ``choices`` and ``label``; no ``label`` if no row
        has a label.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    columns = columns or {}
    column = columns.get("label_column", "label")
    rows, labels = _read_rows(table, columns, with_choices=True)
    count = len(rows[0]["choices"])
    is_labelled = any(label is not None for _, label in labels)

    for row, (location, label) in zip(rows, labels, strict=True):
        if len(row["choices"]) != count:
            raise location.error(
                "choices", f"has {len(row['choices'])} choices, but the first row {count}."
            )
        if is_labelled and (type(label) is not int or not 0 <= label < count):
            raise location.error(
                column, f"must be the number of a choice, from 0; got {short(label)}."
            )
    if not is_labelled:
        return _dataset(table, rows)
    indices = [label for _, label in labels]
    return _dataset(table, rows, labels=indices, label_feature=Value("int64"))


# --- Rows of both


def _read_rows(
    table: Table, columns: Columns, *, with_choices: bool
) -> tuple[list[dict[str, Any]], Labels]:
    """Reads rows, still without their labels, and the labels as the source has them."""
    text_column = columns.get("text_column", "text")
    id_column = columns.get("id_column", "id")
    question_column = columns.get("question_column")
    if not question_column and (with_choices or "question" in table.first):
        question_column = "question"

    rows: list[dict[str, Any]] = []
    labels: Labels = []
    locations: dict[str, RowLocation] = {}
    for location, values in table.rows:
        name = _id_of(location, values, id_column, default=f"row-{len(rows):06d}")
        row: dict[str, Any] = {"id": name}
        row["text"] = location.text(values, text_column, "--text_column")
        if question_column:
            row["question"] = location.text(values, question_column, "--question_column")
        if with_choices:
            row["choices"] = _choices_of(location, values)
        if name in locations:
            raise location.error(
                id_column, f"id {name!r} is taken by {locations[name].row}; ids must differ."
            )
        locations[name] = location
        rows.append(row)
        labels.append((location, values.get(columns.get("label_column", "label"))))
    return rows, labels


def _id_of(location: RowLocation, values: Mapping[str, Any], column: str, *, default: str) -> str:
    """Returns the id of a row, which only the usual column may lack."""
    name = values.get("id")
    if column != "id":
        name = location.column(values, column, "--id_column")
    if name in (None, ""):
        name = default
    return str(name)


def _choices_of(location: RowLocation, values: Mapping[str, Any]) -> list[str]:
    choices = values.get("choices")
    if not isinstance(choices, list) or len(choices) < 2:
        raise location.error(
            "choices", f"must be a list (JSON) of 2 texts or more, got {short(choices)}."
        )
    return [location.require_text(choice, "choices") for choice in choices]


def _dataset(
    table: Table,
    rows: list[dict[str, Any]],
    labels: Sequence[Any] | None = None,
    label_feature: Any = None,
) -> Dataset:
    """Returns a data set of checked rows; its `info` has the name of the table."""
    # Texts of a set may have more than the 2 GB that the offsets of "string" can count.
    features = {"id": Value("string"), "text": Value("large_string")}
    if "question" in rows[0]:
        features["question"] = Value("large_string")
    if "choices" in rows[0]:
        features["choices"] = List(Value("large_string"))
    if labels is not None:
        features["label"] = label_feature
        for row, label in zip(rows, labels, strict=True):
            row["label"] = label
    info = DatasetInfo(features=Features(features), dataset_name=table.name)
    return Dataset.from_list(rows, features=info.features, info=info)


def source_of(dataset: Dataset) -> str:
    """Returns the name of the file or data set that a set was read from, without folders."""
    return str(dataset.info.dataset_name)


def distinct_texts(dataset: Dataset) -> list[str]:
    """Returns the distinct documents, in the order in which they first appear."""
    return list(dict.fromkeys(dataset["text"]))


# --- Splits


def hold_out_documents(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Holds out about `share` of the documents with all their rows.

    Args:
        dataset: the set to split.
        share: of the documents.
        seed: of the draw.

    Returns:
        The rest, and the rows of the documents that are held out.
    """
    numbers = {text: number for number, text in enumerate(distinct_texts(dataset))}
    return hold_out(dataset, share, seed=seed, key=lambda row: numbers[row["text"]])


def halve_by_document(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Halves a set by document, in the order of the SHA-256 of the texts.

    An odd document goes to the first half. The NextLevelBERT paper (section 3.2) halves QuALITY's
    validation set by document, because the test labels are not public; it does not say how. Here a
    half depends on the texts alone, not on a seed or the order of the rows.

    Raises:
        ValueError: for a set with one document only.
    """
    order = sorted(distinct_texts(dataset), key=lambda text: hashlib.sha256(text.encode()).digest())
    if len(order) < 2:
        raise ValueError(
            f"{source_of(dataset)} has one document only, which cannot be halved by document."
        )
    first_half = set(order[: (len(order) + 1) // 2])
    first = []
    second = []
    for index, text in enumerate(dataset["text"]):
        if text in first_half:
            first.append(index)
        else:
            second.append(index)
    return dataset.select(first), dataset.select(second)
