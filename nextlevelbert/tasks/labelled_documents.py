"""Labelled documents: reading, splitting by document, scoring, and writing predictions."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from ..data.files import open_text
from ..data.splits import sample_share
from ..data.tables import RowLocation, Rows, Table, columns_of, open_rows, short
from ..evaluation.words import split_terms
from ..training.options import option
from ..training.runs import write_whole

logger = logging.getLogger(__name__)

ProblemType = Literal[
    "single_label_classification", "multi_label_classification", "multiple_choice"
]
SINGLE: ProblemType = "single_label_classification"
SEVERAL: ProblemType = "multi_label_classification"
Labels = list[tuple[RowLocation, Any]]  # a label, as the source has it, with its row
# Classes 0 and 1 in the order of MuLD's original code, so that F1 is the score of the hero.
MULD_CLASSES = ("Villain/Antagonist", "Hero")
EURLEX_COLUMNS = {"celex_id", "concepts", "header", "recitals", "main_body"}
BOOK_SUMMARIES = "booksummaries.txt"


@dataclass(frozen=True)
class Example:
    """One prediction to make: about a document alone, with a question, or with choices, too.

    The label is the index of a class or choice, the sorted indices of several classes, or None.
    """

    id: str
    text: str
    question: str | None = None
    choices: tuple[str, ...] = ()
    label: int | tuple[int, ...] | None = None

    @property
    def asked(self) -> list[str]:
        """The texts that the model reads with the document: a question, or one for each choice."""
        if self.choices:
            return [f"{self.question} {choice}" for choice in self.choices]
        if self.question is None:
            return []
        return [self.question]


@dataclass(frozen=True)
class LabelledDocuments:
    """A checked set, in the order of its rows.

    All examples have a label, or none has one. No two examples have the same id.

    Args:
        problem_type: as in transformers, or ``"multiple_choice"``.
        examples: the rows.
        label_names: the classes, in the order of their indices; None for choices.
        source: name of the file or data set, without folders.
        sigmoid: whether a model tells two classes apart by one output.
    """

    problem_type: ProblemType
    examples: list[Example]
    label_names: tuple[str, ...] | None
    source: str
    sigmoid: bool = False

    def documents(self) -> list[str]:
        """Returns the distinct texts, in the order in which they first appear."""
        return list(dict.fromkeys(example.text for example in self.examples))

    def of(self, documents: set[str]) -> LabelledDocuments:
        """Returns the examples of these documents, in their order."""
        examples = [example for example in self.examples if example.text in documents]
        return replace(self, examples=examples)

    @property
    def labelled(self) -> bool:
        """Whether the examples have labels."""
        return self.examples[0].label is not None

    def labels(self) -> np.ndarray:
        """Returns the labels ``[N]``, or ``[N, K]`` zeros and ones if a row may have several."""
        if self.problem_type != SEVERAL:
            return np.array([example.label for example in self.examples])

        labels = np.zeros((len(self.examples), len(self.label_names or ())), int)
        for row, example in zip(labels, self.examples, strict=True):
            row[list(example.label)] = 1  # type: ignore[arg-type]
        return labels

    def targets(self) -> torch.Tensor:
        """Returns the labels for a loss: classes ``[N]``, or floats ``[N, K]`` or ``[N, 1]``.

        Floats are for several labels a row, and (one column) for `sigmoid`.
        """
        labels = torch.from_numpy(self.labels())
        if self.sigmoid:
            labels = labels[:, None]
        if labels.ndim == 2:
            return labels.float()
        return labels

    def logits(self, outputs: np.ndarray) -> np.ndarray:
        """Returns logits ``[N, K]`` of K classes from a model's outputs.

        With `sigmoid`, the one output z stands for the logits 0 and z of two classes.
        """
        if self.sigmoid:
            return np.concatenate([np.zeros_like(outputs), outputs], axis=1)
        return np.asarray(outputs)

    def predicted(self, logits: np.ndarray) -> np.ndarray:
        """Returns the predictions of logits ``[N, K]``.

        These are the best class or choice of each row, ``[N]``. If a row may have several labels,
        they are ``[N, K]`` zeros and ones: all classes with a probability above 0.5.
        """
        if self.problem_type == SEVERAL:
            return (logits > 0).astype(int)
        return logits.argmax(axis=-1)

    def scores(
        self, logits: np.ndarray, rows: slice | np.ndarray = slice(None)
    ) -> dict[str, float]:
        """Scores logits by scikit-learn.

        Args:
            logits: ``[N, K]``, for all examples.
            rows: the examples that count (default: all).

        Returns:
            ``accuracy``: with several labels, the share of rows that have all labels right. Except
            for multiple choice also ``macro_f1`` and ``micro_f1``, and for two classes ``f1`` of
            class 1.
        """
        from sklearn.metrics import accuracy_score, f1_score

        labels = self.labels()[rows]
        predictions = self.predicted(logits)[rows]
        scores = {"accuracy": float(accuracy_score(labels, predictions))}
        if self.problem_type == "multiple_choice":
            return scores

        if self.problem_type == SINGLE and logits.shape[-1] == 2:
            scores["f1"] = float(f1_score(labels, predictions, zero_division=0.0))
        for average in ("macro", "micro"):
            value = f1_score(labels, predictions, average=average, zero_division=0.0)
            scores[f"{average}_f1"] = float(value)
        return scores

    def trivial_logits(self) -> np.ndarray:
        """Returns logits ``[1, K]`` of a baseline that always predicts the most frequent label."""
        labels = self.labels()
        if self.problem_type == SEVERAL:
            return labels.mean(axis=0, keepdims=True) - 0.5
        outputs = len(self.label_names or self.examples[0].choices)
        return np.bincount(labels, minlength=outputs)[None]

    def scores_of_most_frequent_label(self, train: LabelledDocuments) -> dict[str, float]:
        """Scores a baseline that always predicts the most frequent label of the training set."""
        return self.scores(train.trivial_logits().repeat(len(self.examples), axis=0))


# --- Named columns


@dataclass(kw_only=True)
class ColumnArguments:
    """Names of the columns; docs/inputs.md shows a row of each task."""

    _argument_group_name = "columns"

    text_column: str = option("text", "Column of the documents.")
    question_column: str | None = option(
        None, "Column of questions about the documents (default: question, if it exists)."
    )
    label_column: str = option("label", "Column of the labels.")
    id_column: str = option("id", "Column of the ids; rows without an id are numbered.")
    halve_validation: bool = option(
        default=False,
        help="Report on one half of the validation documents and validate on the other, as the"
        " paper does on QuALITY.",
    )


def read_classes(
    table: Table,
    columns: ColumnArguments,
    names: Sequence[str] | None = None,
    problem: ProblemType | None = None,
    by_number: bool = False,
) -> LabelledDocuments:
    """Reads documents with classes.

    Labels are strings (classes in alphabetical order), integers from 0 without a gap (named by
    their digits, or by the `ClassLabel` of `datasets`), booleans, or lists of strings or integers
    (several labels). Test sets may come without labels: no column, null, or -1 of a `ClassLabel`.

    Args:
        table: rows with named columns.
        columns: names of the columns.
        names: the classes in order, such as those of the training set.
        problem: the kind of labels, such as that of the training set.
        by_number: whether integers may stand for `names`.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    column = columns.label_column
    declared = table.class_names.get(column)
    examples, raw_labels = _read_examples(table, columns)
    labels = [(place, class_name(label, declared)) for place, label in raw_labels]

    if problem is None:
        problem = SINGLE
        if any(isinstance(label, list) for _, label in labels):
            problem = SEVERAL

    classes = declared
    if names:
        classes = tuple(names)
    missing = [place for place, label in labels if label is None]
    if len(missing) == len(labels):
        logger.warning(
            "No row has a label in column %r (columns: %s).", column, ", ".join(table.first)
        )
        return LabelledDocuments(problem, examples, classes, source=table.name)
    if missing:
        raise missing[0].error(column, "has no label, but other rows have; label all rows or none.")

    indices, classes = class_indices(
        labels, column, classes, several=problem == SEVERAL, by_number=by_number
    )
    return LabelledDocuments(problem, _with_labels(examples, indices), classes, source=table.name)


def _with_labels(examples: list[Example], labels: list[Any]) -> list[Example]:
    return [replace(example, label=label) for example, label in zip(examples, labels, strict=True)]


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
        For each row an index, or with `several` a sorted tuple; and the names of the classes.
    """
    for place, label in labels:
        if isinstance(label, list) is not several:
            raise place.error(
                column, f"holds {short(label)}; give one class in each row, or a list in each row."
            )
    if not several:
        labels = [(place, [label]) for place, label in labels]

    items = [(place, item) for place, row in labels for item in row]
    label_type = _type_of_classes(items, column)
    if names is None:
        names = _names_of_classes({item for _, item in items}, label_type, column)
    keys: list[Any] = list(range(len(names)))
    if label_type is str:
        keys = list(names)
    elif label_type is int and all(name.isdecimal() for name in names):
        keys = [int(name) for name in names]  # "1", "2", "3" are not the indices 0, 1, 2
    elif label_type is int and not by_number:
        place, item = items[0]
        raise place.error(
            column,
            f"holds the number {item}, but the classes are {', '.join(names[:20])}. Numbers need"
            " their order in a --label_names_file.",
        )

    index_of = {key: index for index, key in enumerate(keys)}
    indices: list[Any] = [_indices_of_row(*row, column, index_of=index_of) for row in labels]
    if not several:
        indices = [index for (index,) in indices]
    return indices, names


def _type_of_classes(items: Labels, column: str) -> type:
    """Returns the one type of all labels."""
    label_type = next((type(item) for _, item in items), str)
    for place, item in items:
        is_class = type(item) is label_type and label_type in (str, int, bool)
        rule = "classes are names (not blank), or integers throughout"
        if isinstance(item, str) and item.startswith("[") and item.endswith("]"):
            rule = "lists need JSON"
        elif is_class and str(item).strip():
            continue
        raise place.error(column, f"holds {short(item)}; {rule}.")
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
    place: RowLocation, row: list[Any], column: str, *, index_of: dict[Any, int]
) -> tuple[int, ...]:
    """Returns the sorted indices of the labels of one row."""
    for item in row:
        if item not in index_of:
            some = ", ".join(map(str, list(index_of)[:20]))
            raise place.error(
                column,
                f"{short(item)} is not one of the {len(index_of)} classes: {some}. Classes that the"
                " training set lacks need a --label_names_file.",
            )
    if len(set(row)) < len(row):
        raise place.error(
            column, f"{short(row)} names a class twice; give classes, not a vector of 0 and 1."
        )
    return tuple(sorted(index_of[item] for item in row))


def read_label_names(path: str) -> tuple[str, ...]:
    """Reads the classes of a JSON file: a list of names, or an object with the names as keys."""
    with open_text(Path(path)) as file:
        names = json.load(file)
        is_collection = isinstance(names, list | dict) and len(names) > 0
        if not is_collection or not all(isinstance(name, str) for name in names):
            raise ValueError("it must hold a JSON list of classes, or an object with them as keys")
    return tuple(names)


def read_choices(table: Table, columns: ColumnArguments) -> LabelledDocuments:
    """Reads questions about documents, all with the same number of choices.

    Args:
        table: rows with named columns, among them ``choices``.
        columns: names of the columns. A label is the index of the right choice, from 0.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    examples, labels = _read_examples(table, columns, with_choices=True)
    count = len(examples[0].choices)
    is_labelled = any(label is not None for _, label in labels)

    for example, (place, label) in zip(examples, labels, strict=True):
        if len(example.choices) != count:
            raise place.error(
                "choices", f"has {len(example.choices)} choices, but the first row {count}."
            )
        if is_labelled and (type(label) is not int or not 0 <= label < count):
            raise place.error(
                columns.label_column, f"must be the number of a choice, from 0; got {short(label)}."
            )

    examples = _with_labels(examples, [label for _, label in labels])
    return LabelledDocuments("multiple_choice", examples, label_names=None, source=table.name)


def _read_examples(
    table: Table, columns: ColumnArguments, with_choices: bool = False
) -> tuple[list[Example], Labels]:
    """Reads examples, still without their labels, and the labels as the source has them."""
    question_column = columns.question_column
    if not question_column and (with_choices or "question" in table.first):
        question_column = "question"

    examples: dict[str, Example] = {}
    labels: Labels = []
    for place, values in table.rows:
        text = place.require_text(
            place.column(values, columns.text_column, "--text_column"), columns.text_column
        )
        question = None
        if question_column:
            question = place.require_text(
                place.column(values, question_column, "--question_column"), question_column
            )
        choices: tuple[str, ...] = ()
        if with_choices:
            choices = _choices_of(place, values)

        name = values.get("id")
        if columns.id_column != "id":
            name = place.column(values, columns.id_column, "--id_column")
        if name in (None, ""):
            name = f"row-{len(examples):06d}"
        name = str(name)
        if name in examples:
            earlier = labels[list(examples).index(name)][0]
            raise place.error(
                columns.id_column, f"id {name!r} is taken by {earlier.row}; ids must differ."
            )

        examples[name] = Example(name, text, question, choices=choices)
        labels.append((place, values.get(columns.label_column)))
    return list(examples.values()), labels


def _choices_of(place: RowLocation, values: dict[str, Any]) -> tuple[str, ...]:
    choices = values.get("choices")
    if not isinstance(choices, list) or len(choices) < 2:
        raise place.error(
            "choices", f"must be a list (JSON) of 2 texts or more, got {short(choices)}."
        )
    return tuple(place.require_text(choice, "choices") for choice in choices)


# --- Published data sets, recognised by their columns or files


def choice_table(source: str | Path, split: str = "train", config: str | None = None) -> Table:
    """Opens a table of choices, also QuALITY and RACE.

    QuALITY is read from its official files (a line holds an article and its questions), or from
    rows with one question each; its ``gold_label`` counts from 1. RACE has a letter as ``answer``.

    Args:
        source: as in `open_rows`.
        split: of a data set.
        config: of a data set.

    Returns:
        Rows with ``text``, ``question``, ``choices`` and ``label``, from 0.
    """
    table = open_rows(source, split, config)
    columns = table.first.keys()
    has_questions = "questions" in columns or {"question", "options"} <= columns
    if "article" in columns and has_questions:
        return table._replace(rows=_article_rows(table.rows))
    return table


def _article_rows(rows: Rows) -> Rows:
    """Yields a row for each question of QuALITY or RACE."""
    for place, values in rows:
        questions = values.get("questions", [values])
        is_list = isinstance(questions, list)
        if not is_list or not all(isinstance(question, dict) for question in questions):
            raise place.error("questions", f"must be a list of questions, got {short(questions)}.")

        for index, question in enumerate(questions):
            row = {
                "text": values["article"],
                "question": question.get("question"),
                "choices": question.get("options"),
                "id": question.get("question_unique_id"),
                "label": _right_choice(question),
            }
            yield place._replace(row=f"{place.row}, question {index}"), row


def _right_choice(question: dict[str, Any]) -> object:
    """Returns the index of the right choice, from 0, or what a question has in its place."""
    gold = question.get("gold_label")
    if type(gold) is int:
        return gold - 1
    if gold is not None:
        return gold

    label = question.get("answer", question.get("label"))
    if isinstance(label, str) and len(label) == 1:
        return ord(label) - ord("A")
    return label


def classification_table(
    source: str | Path,
    split: str = "train",
    config: str | None = None,
    arrangement: str | None = None,
) -> Table:
    """Opens a table of classes, also MuLD, EURLEX-57K and the CMU Book Summary Corpus.

    Args:
        source: as in `open_rows`, or a folder with ``booksummaries.txt``.
        split: of a data set.
        config: of a data set.
        arrangement: ``"inverted"`` for EURLEX-57K with the main body first, ``"paired"`` for the
            Book Summary Corpus with every two books joined.

    Returns:
        Rows with ``text``, ``label`` and perhaps ``question``.

    Raises:
        ValueError: for an arrangement of another data set.
    """
    book_summaries = Path(source) / BOOK_SUMMARIES
    if book_summaries.is_file():
        table = Table(
            name=f"{BOOK_SUMMARIES} ({split})",
            first={},
            rows=_book_summary_rows(book_summaries, split),
            class_names={"label": book_genres(book_summaries)},
        )
        possible = "paired"
    else:
        table = open_rows(source, split, config)
        possible = ""
        if table.first.keys() >= EURLEX_COLUMNS:
            possible = "inverted"

    if arrangement not in (None, possible):
        raise ValueError(
            f"{table.name}: inverted is for EURLEX-57K, paired for the CMU Book Summary Corpus."
        )
    if arrangement == "paired":
        return table._replace(rows=_paired_rows(table.rows))
    if possible == "inverted":
        return table._replace(rows=_eurlex_rows(table.rows, inverted=arrangement == "inverted"))
    if _is_muld(table.first):
        return table._replace(
            first={"question": ""},
            rows=_muld_rows(table.rows),
            class_names={"label": MULD_CLASSES},
        )
    return table


def _is_muld(first: dict[str, Any]) -> bool:
    """Whether the first row is one of MuLD: an input with a short first line, and an output."""
    if "text" in first or "input" not in first or "output" not in first:
        return False
    line, _ = _first_line(str(first["input"]))
    return line != ""


def _first_line(text: str) -> tuple[str, str]:
    """Splits off a first line of at most 200 characters, or nothing."""
    line, end, rest = text.partition("\n")
    is_short_line = end != "" and line.strip() != "" and len(line) <= 200
    if is_short_line:
        return line.strip(), rest
    return "", text


def _muld_rows(rows: Rows) -> Rows:
    """Yields MuLD's character archetypes: question, document and class.

    The first line of ``input`` is the question. A bare name (no "?", at most 6 words) becomes the
    NextLevelBERT paper's question. This is a rule of ours, because nothing marks that line; the
    authors' code uses the line as the name, too, but leaves it in the document.
    """
    for place, values in rows:
        line, text = _first_line(place.require_text(values.get("input"), "input"))
        if not line:
            raise place.error(
                "input", "has no short first line with the character's name, as the first row has."
            )
        if "?" not in line and len(line.split()) <= 6:
            line = f"Is the character {line} behaving like a hero or a villain?"

        label = values.get("output")
        if isinstance(label, list) and len(label) == 1:
            label = label[0]
        yield place, {"text": text, "question": line, "label": label}


def _eurlex_rows(rows: Rows, inverted: bool) -> Rows:
    """Yields laws of EURLEX-57K (Chalkidis et al. 2019) with the list of their EUROVOC concepts.

    Inverted, header and recitals, which say the most, come after the main body (Inverted-EURLEX of
    Park et al. 2022, which the ChunkBERT paper uses).
    """
    for place, values in rows:
        absent = EURLEX_COLUMNS - values.keys()
        if absent:
            raise place.error(min(absent), "is missing, unlike in the first row.")

        body = values["main_body"]
        if not isinstance(body, list):
            body = [body]
        if inverted:
            parts = [*body, values["recitals"], values["header"]]
        else:
            parts = [values["header"], values["recitals"], *body]
        stripped = [part.strip() for part in parts if isinstance(part, str)]
        text = " ".join(filter(None, stripped))
        yield place, {"id": values["celex_id"], "text": text, "label": values["concepts"]}


def _book_summary_fields(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Yields the seven fields of each book (separated by tabs) and its genres."""
    for fields in columns_of(path, delimiter="\t", count=7):
        genres: dict[str, str] = {}
        if fields[5]:
            genres = json.loads(fields[5])
        yield fields, list(genres.values())


def book_genres(path: Path) -> tuple[str, ...]:
    """Returns all genres of the CMU Book Summary Corpus, which are the classes of each split."""
    names: set[str] = set()
    for _, genres in _book_summary_fields(path):
        names.update(genres)
    return tuple(sorted(names))


def _book_summary_rows(path: Path, split: str) -> Rows:
    """Yields the CMU Book Summary Corpus (Bamman and Smith 2013) with the genres of each book.

    The corpus has no splits: here the SHA-256 of a book's id puts the book into ``"train"`` (80 %),
    ``"validation"`` or ``"test"`` (10 % each). Books without a genre are left out and counted.
    """
    shares = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
    if split not in shares:
        raise ValueError(
            f"{path.name} is split into {', '.join(shares)} here; give one, got {split!r}."
        )

    left_out = 0
    for line, (fields, genres) in enumerate(_book_summary_fields(path), start=1):
        digest = int(hashlib.sha256(fields[0].encode()).hexdigest(), 16)
        if digest % 10 not in shares[split]:
            continue
        if genres:
            row = {"id": fields[0], "text": fields[6].strip(), "label": genres}
            yield RowLocation(path.name, f"line {line}"), row
        else:
            left_out += 1
    logger.info("%s, %s: %d books without a genre are left out.", path.name, split, left_out)


def _paired_rows(rows: Rows) -> Rows:
    """Yields every two books as one, with the genres of both (Paired Book Summary, Park 2022)."""
    for place, one in rows:
        _, other = next(rows, (None, None))
        if other is None:
            logger.warning("%s, %s has no partner and is left out.", place.source, place.row)
            return
        row = {
            "id": f"{one['id']}+{other['id']}",
            "text": f"{one['text']}\n{other['text']}",
            "label": list(dict.fromkeys(one["label"] + other["label"])),
        }
        yield place, row


# --- Splits and predictions


def hold_out_documents(
    data: LabelledDocuments, share: float, seed: int
) -> tuple[LabelledDocuments, LabelledDocuments]:
    """Holds out about `share` of the documents with all their examples.

    Args:
        data: the set to split.
        share: of the documents.
        seed: of the draw.

    Returns:
        The rest, and the examples of the documents that are held out.
    """
    documents = data.documents()
    what = f"documents of {data.source}"
    drawn = sample_share(range(len(documents)), share=share, seed=seed, what=what)
    held_out = {documents[index] for index in drawn}
    return data.of(set(documents) - held_out), data.of(held_out)


def halve_by_document(data: LabelledDocuments) -> tuple[LabelledDocuments, LabelledDocuments]:
    """Halves a set by document, in the order of the SHA-256 of the texts.

    An odd document goes to the first half. The NextLevelBERT paper (section 3.2) halves QuALITY's
    validation set by document, because the test labels are not public; it does not say how. Here a
    half depends on the texts alone, not on a seed or the order of the rows.

    Raises:
        ValueError: for a set with one document only.
    """
    order = sorted(
        data.documents(),
        key=lambda text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(),
    )
    if len(order) < 2:
        raise ValueError(
            f"{data.source} has one document only, which cannot be halved by document."
        )
    middle = (len(order) + 1) // 2
    return data.of(set(order[:middle])), data.of(set(order[middle:]))


def write_predictions(path: Path, data: LabelledDocuments, logits: np.ndarray) -> None:
    """Writes predictions as JSON lines: id, prediction, label (if there is one), and scores.

    Args:
        path: the file.
        data: the set.
        logits: ``[N, K]``; the scores are their probabilities.
    """
    values = torch.as_tensor(logits, dtype=torch.float64)
    if data.problem_type == SEVERAL:
        probabilities = values.sigmoid()
    else:
        probabilities = values.softmax(-1)

    lines = []
    rows = zip(data.examples, data.predicted(logits), probabilities.tolist(), strict=True)
    for example, prediction, scores in rows:
        label = prediction
        if data.problem_type == SEVERAL:
            label = np.flatnonzero(prediction)
        record = {"id": example.id, "prediction": _label_text(data, label)}
        if example.label is not None:
            record["label"] = _label_text(data, example.label)
        record["scores"] = [round(score, 6) for score in scores]
        lines.append(json.dumps(record, ensure_ascii=False))
    write_whole(path, "\n".join(lines))


def _label_text(data: LabelledDocuments, label: ArrayLike) -> int | str | list[str]:
    """Returns the names of the classes of a label, or the index of a choice."""
    indices = np.atleast_1d(label).tolist()
    if data.label_names is None:
        return indices[0]
    if data.problem_type == SEVERAL:
        return [data.label_names[index] for index in indices]
    return data.label_names[indices[0]]


# --- The baseline that needs no encoder


def tfidf(sets: Mapping[str, LabelledDocuments]) -> dict[str, np.ndarray]:
    """Scores documents by word counts and logistic regression, with scikit-learn.

    The features are sublinear TF-IDF over words and pairs of words in at least two training
    documents, a question before its document; the regularisation is chosen by cross-validation.

    Args:
        sets: by name, one of them ``"train"``.

    Returns:
        For each other set log-probabilities ``[N, K]``; with several labels, which have a
        classifier for each class, log-odds.

    Raises:
        ValueError: for a class with fewer than two training examples.
    """
    from scipy.special import logit
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    train = sets["train"]
    several = train.problem_type == SEVERAL
    labels = train.labels()  # [N] or [N, K]
    classifier: Any = LogisticRegressionCV(
        Cs=[0.1, 1.0, 10.0, 100.0, 1000.0],
        cv=_folds(labels),
        max_iter=1000,
        scoring="neg_log_loss",
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    if several:
        classifier = OneVsRestClassifier(classifier)
    words = TfidfVectorizer(
        tokenizer=split_terms,
        token_pattern=None,
        sublinear_tf=True,
        ngram_range=(1, 2),
        min_df=2,
    )
    pipeline = make_pipeline(words, classifier)
    pipeline.fit(_texts_of(train), labels)

    scores = {}
    for name, data in sets.items():
        if name == "train":
            continue
        texts = _texts_of(data)
        if several:
            scores[name] = logit(pipeline.predict_proba(texts))
        else:
            scores[name] = np.full((len(texts), len(train.label_names or ())), -np.inf)
            scores[name][:, np.unique(labels)] = pipeline.predict_log_proba(texts)
    return scores


def _texts_of(data: LabelledDocuments) -> list[str]:
    return [f"{row.question or ''} {row.text}" for row in data.examples]


def _folds(labels: np.ndarray) -> int:
    """Returns the number of folds of cross-validation: at most five, and each has all classes."""
    if labels.ndim == 2:
        columns = [column for column in labels.T if len(set(column)) == 2]
    else:
        columns = [labels]
    rarest = [int(np.unique(column, return_counts=True)[1].min()) for column in columns]
    folds = min([5, *rarest])
    if folds < 2:
        raise ValueError("--model tfidf needs at least two training examples of every class.")
    return folds
