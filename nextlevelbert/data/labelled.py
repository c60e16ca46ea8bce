"""Reads labelled documents: rows with named columns become data sets whose classes have names."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from datasets import ClassLabel, Dataset, DatasetInfo, Features, List, Value

from .files import open_text
from .splits import hold_out
from .tables import RowLocation, Table, short

logger = logging.getLogger(__name__)

Labels = list[tuple[RowLocation, Any]]  # a label, as the source has it, with its row
_NAMED = 20  # classes that an error names


@dataclass(frozen=True)
class Columns:
    """Names of columns.

    Args:
        text: of the documents.
        question: of questions about them (default: ``question``, if it exists).
        label: of the labels.
        id: of the ids; rows without an id are numbered.
    """

    text: str = "text"
    question: str | None = None
    label: str = "label"
    id: str = "id"


USUAL = Columns()


class ClassOptions(TypedDict, total=False):
    """Types the parameters of `load_classes` that loaders of published data sets pass on."""

    columns: Columns
    class_names: Sequence[str] | None
    like: Dataset | None


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
    declared = table.class_names.get(columns.label)
    rows, labels = _read_rows(table, columns)
    labels = [(location, _declared_name(label, declared)) for location, label in labels]
    missing = [location for location, label in labels if label is None]
    if len(missing) == len(labels):
        logger.warning(
            "No row has a label in column %r (columns: %s).", columns.label, ", ".join(table.first)
        )
        return _dataset(table, rows)
    if missing:
        raise missing[0].error(
            columns.label, "has no label, but other rows have; label all rows or none."
        )

    names = declared
    several = any(isinstance(label, list) for _, label in labels)
    if like is not None and "label" in like.features:
        names = names_of(like)
        several = isinstance(like.features["label"], List)
    items = _single_labels(labels, columns.label, several=several)
    if class_names is not None:
        names = tuple(class_names)
    if names is None:
        names = _sorted_names(items, columns.label)
    index_of = {name: index for index, name in enumerate(names)}
    is_numbered = any(type(item) is int for _, item in items)
    if class_names is not None and is_numbered and not "".join(names).isdecimal():
        # Numbers are indices, unless the names are numbers: "1", "2", "3" are not 0, 1, 2.
        index_of |= {str(index): index for index in range(len(names))}

    for row, (location, label) in zip(rows, labels, strict=True):
        row["label"] = _indices(location, label, columns.label, index_of=index_of)
        if not several:
            [row["label"]] = row["label"]
    feature = ClassLabel(names=list(names))
    if several:
        feature = List(feature)
    return _dataset(table, rows, label_feature=feature)


def names_of(dataset: Dataset) -> tuple[str, ...] | None:
    """Returns the names of the classes of a set, in order; None for choices."""
    feature = dataset.features["label"]
    if isinstance(feature, List):
        feature = feature.feature
    if isinstance(feature, ClassLabel):
        return tuple(feature.names)
    return None


def _declared_name(label: Any, names: tuple[str, ...] | None) -> Any:
    """Returns the name for a number of a `ClassLabel`; other labels are returned as they are.

    Negative numbers of a `ClassLabel` stand for an unknown label, None.
    """
    if isinstance(label, list):
        return [_declared_name(item, names) for item in label]
    if names is None or type(label) is not int or label >= len(names):
        return label
    if label < 0:
        return None
    return names[label]


def _single_labels(labels: Labels, column: str, *, several: bool) -> Labels:
    """Returns each item of the labels; all are lists or none is, and all items have one type."""
    items = []
    for location, label in labels:
        if isinstance(label, list) is not several:
            raise location.error(
                column, f"holds {short(label)}; give one class in each row, or a list in each row."
            )
        if several:
            items += [(location, item) for item in label]
        else:
            items.append((location, label))

    for location, item in items:
        rule = "classes are names (not blank), or integers throughout"
        if isinstance(item, str) and item.startswith("[") and item.endswith("]"):
            rule = "lists need JSON"
        elif type(item) is type(items[0][1]) and isinstance(item, str | int) and str(item).strip():
            continue
        raise location.error(column, f"holds {short(item)}; {rule}.")
    return items


def _sorted_names(items: Labels, column: str) -> tuple[str, ...]:
    """Returns the names of the classes of a training set, in order."""
    classes = sorted({item for _, item in items})
    if classes and isinstance(classes[0], bool):
        return ("False", "True")
    is_numbered = bool(classes) and isinstance(classes[0], int)
    if not classes or (is_numbered and classes != list(range(len(classes)))):
        raise ValueError(
            f"Column {column!r}: integer classes must be 0, 1, 2, ... without gaps, but these"
            f" are {classes[:10]}. Give their names with --label_names_file."
        )
    return tuple(map(str, classes))


def _indices(
    location: RowLocation, label: Any, column: str, *, index_of: Mapping[str, int]
) -> list[int]:
    """Returns the sorted indices of the labels of one row."""
    items = label
    if not isinstance(label, list):
        items = [label]
    for item in items:
        if str(item) not in index_of:
            names = list(index_of)[: max(index_of.values()) + 1]
            raise location.error(
                column,
                f"{short(item)} is not one of the {len(names)} classes:"
                f" {', '.join(names[:_NAMED])}. Classes that the"
                " training set lacks, and numbers of named classes, need a --label_names_file.",
            )
    if len(set(items)) < len(items):
        raise location.error(
            column, f"{short(items)} names a class twice; give classes, not a vector of 0 and 1."
        )
    return sorted(index_of[str(item)] for item in items)


def read_label_names(path: str | Path) -> tuple[str, ...]:
    """Reads the classes of a JSON file: a list of names, or an object with the names as keys."""
    with open_text(Path(path)) as file:
        names = json.load(file)
        is_collection = isinstance(names, list | dict) and len(names) > 0
        if not is_collection or not all(isinstance(name, str) for name in names):
            raise ValueError("it must hold a JSON list of classes, or an object with them as keys")
    return tuple(names)


# --- Choices


def load_choices(table: Table, columns: Columns = USUAL) -> Dataset:
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
    rows, labels = _read_rows(table, columns, with_choices=True)
    count = len(rows[0]["choices"])
    is_labelled = any(label is not None for _, label in labels)
    for row, (location, label) in zip(rows, labels, strict=True):
        if len(row["choices"]) != count:
            raise location.error(
                "choices", f"has {len(row['choices'])} choices, but the first row {count}."
            )
        if not is_labelled:
            continue
        if type(label) is not int or not 0 <= label < count:
            raise location.error(
                columns.label, f"must be the number of a choice, from 0; got {short(label)}."
            )
        row["label"] = label
    return _dataset(table, rows, label_feature=Value("int64"))


# --- Rows of both


def _read_rows(
    table: Table, columns: Columns, with_choices: bool = False
) -> tuple[list[dict[str, Any]], Labels]:
    """Reads rows, still without their labels, and the labels as the source has them."""
    question_column = columns.question
    if not question_column and (with_choices or "question" in table.first):
        question_column = "question"

    rows: dict[str, dict[str, Any]] = {}
    labels: Labels = []
    for location, values in table.rows:
        name = values.get("id")
        if columns.id != "id":
            name = location.column(values, columns.id, "--id_column")
        if name in (None, ""):
            name = f"row-{len(rows):06d}"
        name = str(name)
        if name in rows:
            earlier, _ = labels[list(rows).index(name)]
            raise location.error(
                columns.id, f"id {name!r} is taken by {earlier.row}; ids must differ."
            )

        row: dict[str, Any] = {"id": name}
        row["text"] = location.text(values, columns.text, "--text_column")
        if question_column:
            row["question"] = location.text(values, question_column, "--question_column")
        if with_choices:
            row["choices"] = _choices_of(location, values)
        rows[name] = row
        labels.append((location, values.get(columns.label)))
    return list(rows.values()), labels


def _choices_of(location: RowLocation, values: Mapping[str, Any]) -> list[str]:
    choices = values.get("choices")
    if not isinstance(choices, list) or len(choices) < 2:
        raise location.error(
            "choices", f"must be a list (JSON) of 2 texts or more, got {short(choices)}."
        )
    return [location.require_text(choice, "choices") for choice in choices]


def _dataset(table: Table, rows: list[dict[str, Any]], label_feature: Any = None) -> Dataset:
    """Returns a data set of checked rows; its `info` has the name of the table."""
    # Texts of a set may have more than the 2 GB that the offsets of "string" can count.
    all_features = {
        "id": Value("string"),
        "text": Value("large_string"),
        "question": Value("large_string"),
        "choices": List(Value("large_string")),
        "label": label_feature,
    }
    features = Features({name: all_features[name] for name in rows[0]})
    info = DatasetInfo(features=features, dataset_name=table.name)
    return Dataset.from_list(rows, features=features, info=info)


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
    is_first = np.array([text in first_half for text in dataset["text"]])
    return dataset.select(np.flatnonzero(is_first)), dataset.select(np.flatnonzero(~is_first))
