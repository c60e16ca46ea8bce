"""Supervised tasks over long documents, read from named columns: classification, regression, multiple choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...data.labels import (
    LABEL_TYPES,
    Labels,
    ProblemType,
    all_labelled,
    check_types,
    class_indices,
    class_name,
    guess_problem,
)
from ...data.rows import Place, open_rows, short
from .schemas import MULD_CLASSES, Arrangement, first_line, muld_rows, open_layout, quality_questions

_OPTIONAL_IDS = ("id", "question_unique_id")  # examples without them are numbered


@dataclass(frozen=True)
class Example:
    """One thing to predict.

    Attributes:
        id: from the id column, else ``"row-000012"``, the number of the example, from 0.
        document: index into `TaskData.documents`.
        question: classification: a text that goes with the document; multiple choice: the question.
        candidates: multiple choice: the answers to choose from.
        label: index of the class or of the right candidate, value (regression), or sorted indices of the
            classes (multi-label); None where unlabelled.
    """

    id: str
    document: int
    question: str | None = None
    candidates: tuple[str, ...] | None = None
    label: int | float | tuple[int, ...] | None = None


@dataclass(frozen=True)
class TaskData:
    """A checked data set: all examples have a label or none has, and no id comes twice.

    Attributes:
        problem_type: as in transformers, or ``"multiple_choice"``.
        documents: each distinct text once, in the order in which they first appear.
        examples: in the order of the rows.
        label_names: classification: names by class index; None for regression and multiple choice.
        source: what it was read from (without folders), for messages and model cards.
        sigmoid: two classes are told apart by one output, the log-odds of the second, and not by one for each.
    """

    problem_type: ProblemType
    documents: list[str]
    examples: list[Example]
    label_names: tuple[str, ...] | None
    source: str
    sigmoid: bool = False

    def content(self) -> Iterator[object]:
        """Everything that a run depends on, for `fingerprint`."""
        yield self.label_names
        yield from self.documents
        for each in self.examples:
            yield [each.id, each.document, each.question, each.candidates, each.label]

    @property
    def labelled(self) -> bool:
        """Whether the examples have labels."""
        return self.examples[0].label is not None

    @property
    def outputs(self) -> int:
        """K, outputs of a model: one for each class; 1 for values, for candidates and with `sigmoid`."""
        return 1 if self.sigmoid else len(self.label_names or ("value",))

    @property
    def head_type(self) -> ProblemType:
        """The kind of problem as a model has to be told: one output with a sigmoid is a single label of several."""
        return "multi_label_classification" if self.sigmoid else self.problem_type

    def labels(self) -> np.ndarray:
        """Labels ``[N]``, or ``[N, K]`` zeros and ones for several labels."""
        if self.problem_type != "multi_label_classification":
            return np.array([example.label for example in self.examples])
        rows = np.zeros((len(self.examples), self.outputs), int)
        for row, example in zip(rows, self.examples, strict=True):
            assert isinstance(example.label, tuple)  # of several labels
            row[list(example.label)] = 1
        return rows


@dataclass(frozen=True)
class Columns:
    """Names of the columns. Only where all are left as they are, QuALITY and MuLD are recognised."""

    text: str = "text"
    question: str | None = None
    label: str = "label"
    candidates: str | None = None
    id: str = "id"


_DEFAULT_COLUMNS = Columns()


def read_classification(
    source: str | Path,
    columns: Columns = _DEFAULT_COLUMNS,
    *,
    split: str = "train",
    dataset_config: str | None = None,
    label_names: Sequence[str] | None = None,
    problem_type: ProblemType | None = None,
    arrangement: Arrangement | None = None,
) -> TaskData:
    """Reads documents with classes or values, and checks every row.

    Labels may be strings (classes in alphabetical order), integers from 0 without a gap (named by their
    digits, or by the `ClassLabel` of `datasets`), booleans, lists of strings or integers (multi-label), or
    floats (regression). Where there is no label at all (no column, null, or -1 of a `ClassLabel`, as in
    test splits), every label is None.

    MuLD's Character Archetype Classification is known by its columns (`muld_rows`), so are others (`open_layout`).

    Args:
        source: a .jsonl, .json or .parquet file (also .gz), any other file whose first line is a JSON object,
            or the name of a dataset on the Hub, or a folder laid out like one.
        columns: names of the columns.
        split, dataset_config: of a dataset; a file is read whole.
        label_names: the classes in order, for example those of the training set.
        problem_type: guessed if None, without labels ``"single_label_classification"``. To be given where
            integers are values.
        arrangement: ``"inverted"``, EURLEX-57K with the main body first; ``"paired"``, every two rows joined.

    Raises:
        FileNotFoundError: for a file that is not there.
        ValueError: for what cannot be read or checked; names source, row and column.
    """
    if problem_type is not None and problem_type not in LABEL_TYPES:
        raise ValueError(
            f"problem_type must be one of {', '.join(LABEL_TYPES)}, got {problem_type!r}; "
            "multiple choice is read by read_multiple_choice."
        )
    if label_names is not None and (not label_names or len(set(label_names)) < len(label_names)):
        raise ValueError(f"label_names must be distinct names of classes, got {list(label_names)}.")
    table = open_layout(source, split, dataset_config, arrangement, columns.text, columns.label)
    name, first, rows, class_names = table
    if columns == Columns() and "text" not in first and {"input", "output"} <= first.keys():
        columns = Columns("input", "question" if first_line(str(first["input"])) else None, "output")
        rows = muld_rows(rows, with_question=columns.question is not None)
        label_names = label_names or MULD_CLASSES
    found = _Examples(columns)
    for place, values in rows:
        found.add(place, values)
    own_names = class_names.get(columns.label)
    labels = [(place, class_name(label, own_names)) for place, label in found.labels]
    labelled = all_labelled(labels, columns.label, first)
    problem = problem_type or guess_problem(labels)
    if problem == "regression" and label_names is not None:
        raise ValueError(f"{name}: label_names were given, but the labels are values (regression). Give only one.")
    names = tuple(label_names or own_names or ()) or None
    values_of: list[Any] = [None] * len(labels)
    if labelled:
        check_types(labels, columns.label, problem)
        if problem == "regression":
            values_of, names = [float(label) for _, label in labels], None
        else:
            values_of, names = class_indices(labels, columns.label, names, problem == "multi_label_classification")
    return found.finish(problem, values_of, names, name)


def read_multiple_choice(
    source: str | Path,
    columns: Columns = _DEFAULT_COLUMNS,
    *,
    split: str = "train",
    dataset_config: str | None = None,
) -> TaskData:
    """Reads questions about documents, each with the same number of candidate answers, and checks every row.

    QuALITY is recognised: the official files (an article a line, its questions within) and tables of one
    question a row (``article``, ``question``, ``options``, and ``gold_label`` or ``question_unique_id``);
    their gold labels count from 1. Otherwise `columns` has to name text, question, candidates (a list of
    texts) and label, the index of the right candidate from 0. Without labels, every label is None.

    Args:
        source, columns, split, dataset_config: as in `read_classification`.

    Raises:
        FileNotFoundError: for a file that is not there.
        ValueError: for what cannot be read or checked; names source, row and column.
    """
    name, first, rows, _ = open_rows(source, split, dataset_config)
    nested = columns == Columns() and {"article", "questions"} <= first.keys()
    flat = columns == Columns() and {"article", "question", "options"} <= first.keys()
    lowest = 0
    if nested or (flat and {"gold_label", "question_unique_id"} & first.keys()):
        rows = quality_questions(rows) if nested else rows
        columns, lowest = Columns("article", "question", "gold_label", "options", "question_unique_id"), 1
    if columns.question is None or columns.candidates is None:
        raise ValueError(
            f"{name}: name the columns of question and candidates with --question_column and --candidates_column; the "
            f"columns are {', '.join(first)}."
        )
    found, count = _Examples(columns), 0
    for place, values in rows:
        candidates = place.value(values, columns.candidates, "--candidates_column")
        if not isinstance(candidates, list) or len(candidates) < 2:
            raise place.error(columns.candidates, f"must be a list of at least 2 texts, got {short(candidates)}.")
        count = count or len(candidates)
        if len(candidates) != count:
            raise place.error(columns.candidates, f"has {len(candidates)} candidates, but the first row {count}.")
        found.add(place, values, tuple(place.checked(text, columns.candidates) for text in candidates))
    labels: list[Any] = [None] * len(found.labels)
    if all_labelled(found.labels, columns.label, first):
        for place, label in found.labels:
            if type(label) is not int or not lowest <= label < lowest + count:
                wanted = f"an integer from {lowest} to {lowest + count - 1}"
                raise place.error(columns.label, f"must be {wanted}, one of the candidates, got {short(label)}.")
        labels = [label - lowest for _, label in found.labels]
    return found.finish("multiple_choice", labels, None, name)


class _Examples:
    """Gathers examples, whose labels are still as in the source, and the documents they share."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.documents: dict[str, int] = {}
        self.examples: list[Example] = []
        self.labels: Labels = []
        self.places: dict[str, Place] = {}

    def add(self, place: Place, values: dict[str, Any], candidates: tuple[str, ...] | None = None) -> None:
        columns, question = self.columns, None
        text = place.checked(place.value(values, columns.text, "--text_column"), columns.text)
        if columns.question is not None:
            question = place.value(values, columns.question, "--question_column")
            place.checked(question, columns.question)
        optional = columns.id in _OPTIONAL_IDS
        name = values.get(columns.id) if optional else place.value(values, columns.id, "--id_column")
        name = f"row-{len(self.examples):06d}" if name is None else str(name)
        if name in self.places:
            raise place.error(columns.id, f"the id {name!r} is taken by {self.places[name].row}; ids must differ.")
        self.places[name] = place
        document = self.documents.setdefault(text, len(self.documents))
        self.examples.append(Example(name, document, question, candidates))
        self.labels.append((place, values.get(columns.label)))

    def finish(self, problem: ProblemType, labels: list[Any], names: tuple[str, ...] | None, source: str) -> TaskData:
        examples = [replace(example, label=label) for example, label in zip(self.examples, labels, strict=True)]
        return TaskData(problem, list(self.documents), examples, names, source)
