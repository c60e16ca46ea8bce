"""Labelled documents: read from named columns or published data sets, split by document, scored, told in words."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.labels import Labels, ProblemType, all_labelled, check_types, class_indices, class_name, guess_problem
from ..data.rows import Place, Rows, Table, draw, open_rows, short
from ..finetuning.seeds import option
from ..training.trainer import write_whole

logger = logging.getLogger(__name__)

MULD_CLASSES = ("Villain/Antagonist", "Hero")  # 0 and 1, as in the original code, so that F1 is the hero's
EURLEX_COLUMNS = {"celex_id", "concepts", "header", "recitals", "main_body"}
BOOK_SUMMARIES = "booksummaries.txt"


@dataclass(frozen=True)
class Example:
    """One thing to predict: a document, alone or with a question, or with a question and choices.

    The label is the index of a class or choice, a value, or the sorted indices of several classes; or None.
    """

    id: str
    text: str
    question: str | None = None
    choices: tuple[str, ...] = ()
    label: int | float | tuple[int, ...] | None = None

    @property
    def asked(self) -> list[str]:
        """What is read beside the document: its question, or the question with each choice."""
        if self.choices:
            return [f"{self.question} {choice}" for choice in self.choices]
        return [] if self.question is None else [self.question]


@dataclass(frozen=True)
class LabelledDocuments:
    """A checked set, in the order of its rows: all examples have a label or none has, and no id comes twice.

    `problem_type` is as in transformers, or ``"multiple_choice"``; `source` says what was read, without folders.
    """

    problem_type: ProblemType
    examples: list[Example]
    label_names: tuple[str, ...] | None
    source: str

    def documents(self) -> list[str]:
        """Each distinct text once, in the order in which they first appear."""
        return list(dict.fromkeys(example.text for example in self.examples))

    def of(self, documents: set[str]) -> LabelledDocuments:
        """The examples of these documents, in their order."""
        return replace(self, examples=[example for example in self.examples if example.text in documents])

    @property
    def labelled(self) -> bool:
        """Whether the examples have labels."""
        return self.examples[0].label is not None

    def labels(self) -> np.ndarray:
        """Labels ``[N]``, or ``[N, K]`` zeros and ones for several labels."""
        if self.problem_type != "multi_label_classification":
            return np.array([example.label for example in self.examples])
        rows = np.zeros((len(self.examples), len(self.label_names or ())), int)
        for number, example in enumerate(self.examples):
            rows[number, list(example.label)] = 1  # type: ignore[arg-type]
        return rows

    def predicted(self, logits: np.ndarray) -> np.ndarray:
        """What logits ``[N, K]`` say: best class or choice ``[N]``, classes above 0.5 ``[N, K]``, values ``[N]``."""
        if self.problem_type == "regression":
            return logits.reshape(len(logits))
        several = self.problem_type == "multi_label_classification"
        return (logits > 0).astype(int) if several else logits.argmax(axis=-1)

    def scores(self, logits: np.ndarray, rows: Any = slice(None)) -> dict[str, float]:
        """Scores of logits ``[N, K]`` on all examples, or on some `rows`, by scikit-learn and SciPy.

        ``accuracy``, ``macro_f1`` and ``micro_f1`` of classes; with two classes also ``f1`` of class 1. With several
        labels a row, accuracy counts rows with all of them right. ``mse``, ``pearson`` and ``spearman`` of values
        (NaN where predictions or labels are all the same). ``accuracy`` of multiple choice.
        """
        from sklearn.metrics import accuracy_score, f1_score

        labels, predictions = self.labels()[rows], self.predicted(logits)[rows]
        if self.problem_type == "regression":
            from scipy.stats import pearsonr, spearmanr

            # Equal predictions differ by rounding, which correlates with anything.
            vary = len(labels) > 2 and np.ptp(labels) > 0 and np.ptp(predictions) > 1e-6 * np.abs(predictions).max()
            kinds = {"pearson": pearsonr, "spearman": spearmanr}
            scores = {name: float(kind(labels, predictions)[0]) if vary else math.nan for name, kind in kinds.items()}
            return {"mse": float(np.mean((labels - predictions) ** 2)), **scores}
        scores = {"accuracy": float(accuracy_score(labels, predictions))}
        if self.problem_type == "multiple_choice":
            return scores
        if self.problem_type == "single_label_classification" and logits.shape[-1] == 2:
            scores["f1"] = float(f1_score(labels, predictions, zero_division=0.0))
        for name in ("macro", "micro"):
            scores[f"{name}_f1"] = float(f1_score(labels, predictions, average=name, zero_division=0.0))
        return scores

    def trivial_logits(self) -> np.ndarray:
        """Logits ``[1, K]`` of a baseline: always the most frequent label, or the mean of the values."""
        labels = self.labels()
        if self.problem_type == "regression":
            return labels.mean(keepdims=True)[None]
        if self.problem_type == "multi_label_classification":
            return labels.mean(axis=0, keepdims=True) - 0.5
        return np.bincount(labels, minlength=len(self.label_names or self.examples[0].choices))[None]


# --- Named columns


@dataclass(kw_only=True)
class ColumnArguments:
    """Names of the columns; docs/inputs.md shows a row of each task."""

    _argument_group_name = "data"

    text_column: str = option("text", "Column of the documents.")
    question_column: str | None = option(
        None, "Column of questions about them; by default question, where there is one."
    )
    label_column: str = option("label", "Column of the labels.")
    id_column: str = option("id", "Column of the rows' ids.")
    halve_validation: bool = option(
        False, "Validate on half of the validation documents and report on the others, as the paper does with QuALITY."
    )


def read_classes(
    table: Table,
    columns: ColumnArguments,
    label_names: Sequence[str] | None = None,
    problem_type: ProblemType | None = None,
) -> LabelledDocuments:
    """Documents with classes or values; a ValueError names source, row and column of what cannot be read.

    Labels may be strings (classes in alphabetical order), integers from 0 without a gap (named by their digits, or by
    the `ClassLabel` of `datasets`), booleans, lists of strings or integers (multi-label), or floats (regression).
    Where there is no label at all (no column, null, or -1 of a `ClassLabel`, as in test splits), every label is None.
    `label_names` are the classes in order, for example those of the training set; `problem_type` tells that integers
    are values.
    """
    own_names, column = table.class_names.get(columns.label_column), columns.label_column
    examples, raw = _read(table, columns, None)
    labels: Labels = [(place, class_name(label, own_names)) for place, label in raw]
    problem = problem_type or guess_problem(labels)
    if problem == "regression" and label_names is not None:
        raise ValueError(f"{table.name}: names of classes were given, but the labels are values. Give only one.")
    names = tuple(label_names or own_names or ()) or None
    values: Sequence[Any] = [None] * len(labels)
    if all_labelled(labels, column, table.first):
        check_types(labels, column, problem)
        if problem == "regression":
            values, names = [float(label) for _, label in labels], None
        else:
            values, names = class_indices(labels, column, names, problem == "multi_label_classification")
    examples = [replace(example, label=value) for example, value in zip(examples, values, strict=True)]
    return LabelledDocuments(problem, examples, names, table.name)


def read_choices(table: Table, columns: ColumnArguments, choices_column: str = "choices") -> LabelledDocuments:
    """Questions about documents, each with as many choices; the label is the number of the right one, from 0."""
    examples, labels = _read(table, columns, choices_column)
    count, labelled = len(examples[0].choices), any(label is not None for _, label in labels)
    for example, (place, label) in zip(examples, labels, strict=True):
        if len(example.choices) != count:
            raise place.error(choices_column, f"has {len(example.choices)} choices, but the first row {count}.")
        if labelled and (type(label) is not int or not 0 <= label < count):
            raise place.error(columns.label_column, f"must be the number of a choice, from 0; got {short(label)}.")
    examples = [replace(example, label=label) for example, (_, label) in zip(examples, labels, strict=True)]
    return LabelledDocuments("multiple_choice", examples, None, table.name)


def _read(table: Table, columns: ColumnArguments, choices_column: str | None) -> tuple[list[Example], Labels]:
    """Examples, still without their labels, and the labels as they stand in the source."""
    asked = columns.question_column or ("question" if choices_column or "question" in table.first else None)
    examples: dict[str, tuple[Example, Place]] = {}
    labels: Labels = []
    for place, values in table.rows:
        text = place.checked(place.value(values, columns.text_column, "--text_column"), columns.text_column)
        question = None if asked is None else place.checked(place.value(values, asked, "--question_column"), asked)
        choices: Any = ()
        if choices_column is not None:
            choices = place.value(values, choices_column, "--candidates_column")
            if not isinstance(choices, list) or len(choices) < 2:
                raise place.error(choices_column, f"must be a list of at least 2 texts, got {short(choices)}.")
            choices = tuple(place.checked(choice, choices_column) for choice in choices)
        name = values.get("id") if columns.id_column == "id" else place.value(values, columns.id_column, "--id_column")
        name = f"row-{len(examples):06d}" if name is None else str(name)
        if name in examples:
            raise place.error(columns.id_column, f"the id {name!r} is taken by {examples[name][1].row}; ids differ.")
        examples[name] = Example(name, text, question, choices), place
        labels.append((place, values.get(columns.label_column)))
    return [example for example, _ in examples.values()], labels


# --- Published data sets, each known by its columns or files


def choice_table(source: str | Path, split: str = "train", config: str | None = None) -> Table:
    """As `open_rows`, with QuALITY and RACE as ``text``, ``question``, ``choices`` and ``label``, from 0.

    QuALITY: the official files (an article a line, its questions within), or a question a row; its ``gold_label``
    counts from 1. RACE: ``answer`` is a letter.
    """
    table = open_rows(source, split, config)
    columns = table.first.keys()
    articles = "article" in columns and ("questions" in columns or {"question", "options"} <= columns)
    return table._replace(rows=_article_rows(table.rows)) if articles else table


def _article_rows(rows: Rows) -> Rows:
    """Questions of QuALITY or RACE."""
    for place, values in rows:
        questions = values.get("questions", [values])
        if not isinstance(questions, list) or not all(isinstance(question, dict) for question in questions):
            raise place.error("questions", f"must be a list of questions, got {short(questions)}.")
        for number, question in enumerate(questions):
            where = place._replace(row=f"{place.row}, question {number}") if "questions" in values else place
            label = question.get("answer", question.get("label"))
            if isinstance(label, str) and len(label) == 1:
                label = ord(label) - ord("A")
            if (gold := question.get("gold_label")) is not None:
                label = gold - 1 if type(gold) is int else gold
            names = {"question": "question", "choices": "options", "id": "question_unique_id"}
            row = {name: question.get(column) for name, column in names.items()}
            yield where, {"text": values["article"], **row, "label": label}


def classification_table(
    source: str | Path, split: str = "train", config: str | None = None, arrangement: str | None = None
) -> Table:
    """As `open_rows`, with MuLD, EURLEX-57K and the CMU Book Summary Corpus as ``text``, ``label`` and ``question``.

    Args:
        source, split, config: as in `open_rows`; also a folder with ``booksummaries.txt``.
        arrangement: ``"inverted"``, EURLEX-57K with the main body first; ``"paired"``, every two rows joined.
    """
    if (path := Path(source) / BOOK_SUMMARIES).is_file():
        table = Table(f"{BOOK_SUMMARIES} ({split})", {"text": "", "label": []}, _book_summary_rows(path, split), {})
    else:
        table = open_rows(source, split, config)
    columns = table.first.keys()
    if columns >= EURLEX_COLUMNS:
        rows = _eurlex_rows(table.rows, inverted=arrangement == "inverted")
        table = table._replace(first={"text": "", "label": []}, rows=rows)
    elif arrangement == "inverted":
        raise ValueError(f"{table.name}: 'inverted' is of EURLEX-57K, which has {', '.join(sorted(EURLEX_COLUMNS))}.")
    elif {"input", "output"} <= columns and "text" not in columns:
        asked = bool(_first_line(str(table.first["input"]))[0])
        first = {"text": "", "label": "", **({"question": ""} if asked else {})}
        table = table._replace(first=first, rows=_muld_rows(table.rows, asked), class_names={"label": MULD_CLASSES})
    return table._replace(rows=_paired_rows(table.rows)) if arrangement == "paired" else table


def _first_line(text: str) -> tuple[str, str]:
    """A first line of at most 200 characters and the rest; nothing and the whole text where there is none."""
    line, end, rest = text.partition("\n")
    return (line.strip(), rest) if end and line.strip() and len(line) <= 200 else ("", text)


def _muld_rows(rows: Rows, with_question: bool) -> Rows:
    """Rows of MuLD's character archetypes, with the question apart from the document.

    The first line of ``input`` is the question and the rest the document; a bare name (no "?", at most 6 words)
    becomes the NextLevelBERT paper's question. This is a rule of ours, as nothing in the data marks that line; the
    authors' code takes it for the name, too, but leaves it in the document. Without such lines there are no questions.
    """
    for place, values in rows:
        line, text = _first_line(place.checked(values.get("input"), "input"))
        if bool(line) != with_question:
            raise place.error("input", "has a short first line, the character's name, or none, unlike the first row.")
        if "?" not in line and len(line.split()) <= 6:
            line = f"Is the character {line} behaving like a hero or a villain?"
        label = values.get("output")
        if isinstance(label, list) and len(label) != 1:
            raise place.error("output", f"must hold one label, got {short(label)}.")
        row = {"text": text, "label": label[0] if isinstance(label, list) else label}
        yield place, row | ({"question": line} if with_question else {})


def _eurlex_rows(rows: Rows, inverted: bool) -> Rows:
    """Laws of EURLEX-57K (Chalkidis et al. 2019), whose label is the list of their EUROVOC concepts.

    Inverted, header and recitals, which say the most, come after the main body (Inverted-EURLEX of Park et al. 2022,
    which the ChunkBERT paper takes over).
    """
    for place, values in rows:
        if missing := EURLEX_COLUMNS - values.keys():
            raise place.error(min(missing), "is missing, which the laws before have.")
        body = values["main_body"] if isinstance(values["main_body"], list) else [values["main_body"]]
        head = [values["header"], values["recitals"]]
        parts = [*body, *head[::-1]] if inverted else [*head, *body]
        text = " ".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
        yield place, {"id": values["celex_id"], "text": text, "label": values["concepts"]}


def _book_summary_rows(path: Path, split: str) -> Rows:
    """The CMU Book Summary Corpus (Bamman and Smith 2013), whose label is the list of genres of a book.

    Seven fields a line, separated by tabs. The corpus has no splits: here the SHA-256 of a book's id puts it into
    ``"train"`` (80 %), ``"validation"`` or ``"test"`` (10 % each). Books without a genre are left out and counted.
    """
    shares = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
    if split not in shares:
        raise ValueError(f"{path.name} is split into {', '.join(shares)} here, got {split!r}.")
    without = 0
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, row in enumerate(file):
            place, fields = Place(path.name, f"line {number + 1}"), row.rstrip("\r\n").split("\t")
            if len(fields) != 7:
                raise place.error("summary", f"is the last of 7 fields separated by tabs; there are {len(fields)}.")
            if int(hashlib.sha256(fields[0].encode()).hexdigest(), 16) % 10 not in shares[split]:
                continue
            if genres := list(json.loads(fields[5] or "{}").values()):
                yield place, {"id": fields[0], "text": fields[6].strip(), "label": genres}
            without += not genres
    logger.info("%s, %s: %d books without a genre are left out.", path.name, split, without)


def _paired_rows(rows: Rows) -> Rows:
    """Every two rows as one: texts joined, with the labels of both (Paired Book Summary of Park et al. 2022).

    A last row without a partner is left out, with a line that says so.
    """
    for place, first in rows:
        _, second = next(rows, (None, None))
        if second is None:
            logger.warning("%s, %s has no partner and is left out.", place.source, place.row)
            return
        both: Any = (first, second)
        if wrong := [row.get("label") for row in both if not isinstance(row.get("label"), list)]:
            raise place.error("label", f"must be a list of classes to be joined, got {short(wrong[0])}.")
        text = "\n".join(place.checked(row.get("text"), "text") for row in both)
        name = "+".join(str(row.get("id", place.row)) for row in both)
        yield place, {"id": name, "text": text, "label": list(dict.fromkeys(both[0]["label"] + both[1]["label"]))}


# --- Splits and predictions


def hold_out_documents(
    data: LabelledDocuments, share: float, seed: int
) -> tuple[LabelledDocuments, LabelledDocuments]:
    """The rest, then about `share` of the documents with all their examples, drawn from `seed`."""
    documents = data.documents()
    held_out = {documents[n] for n in draw(range(len(documents)), share, seed, f"documents of {data.source}")}
    return data.of(set(documents) - held_out), data.of(held_out)


def halve_by_document(data: LabelledDocuments) -> tuple[LabelledDocuments, LabelledDocuments]:
    """Halves the documents in the order of the SHA-256 of their texts; an odd one goes to the first half.

    The NextLevelBERT paper (section 3.2) halves QuALITY's validation set by document, as the test labels are not
    public; it does not say how. Here a half follows from the texts alone, not from a seed or the order of the rows.
    """
    order = sorted(data.documents(), key=lambda text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    if len(order) < 2:
        raise ValueError(f"{data.source} has one document only, which cannot be halved by document.")
    middle = (len(order) + 1) // 2
    return data.of(set(order[:middle])), data.of(set(order[middle:]))


def write_predictions(path: Path, data: LabelledDocuments, logits: np.ndarray) -> None:
    """Writes a JSON object a row: id, prediction, label (as given, if there is one), and a score for each class."""
    scores = torch.as_tensor(logits, dtype=torch.float64).reshape(len(logits), -1)  # [N, K]
    several = data.problem_type == "multi_label_classification"
    if data.problem_type != "regression":
        scores = scores.sigmoid() if several else scores.softmax(-1)

    def spoken(label: Any) -> Any:
        if data.label_names is None:
            return float(label) if data.problem_type == "regression" else int(label)
        return [data.label_names[number] for number in label] if several else data.label_names[int(label)]

    lines = []
    for example, prediction, row in zip(data.examples, data.predicted(logits), scores.tolist(), strict=True):
        record = {"id": example.id, "prediction": spoken(np.flatnonzero(prediction) if several else prediction)}
        if example.label is not None:
            record["label"] = spoken(example.label)
        lines.append(json.dumps({**record, "scores": [round(score, 6) for score in row]}, ensure_ascii=False))
    write_whole(path, "\n".join(lines))
