"""Labelled documents: read from named columns or published data sets, split by document, scored,
told in words."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..data.rows import Place, Rows, Table, columns_of, draw, open_rows, open_text, short
from ..evaluation.words import split_terms
from ..finetuning.seeds import option
from ..training.trainer import write_whole

logger = logging.getLogger(__name__)

ProblemType = Literal[
    "single_label_classification", "multi_label_classification", "multiple_choice"
]
SINGLE: ProblemType = "single_label_classification"
SEVERAL: ProblemType = "multi_label_classification"
Labels = list[tuple[Place, Any]]  # as they stand in a source
MULD_CLASSES = (
    "Villain/Antagonist",
    "Hero",
)  # 0 and 1, as in the original code, so that F1 is the hero's
EURLEX_COLUMNS = {"celex_id", "concepts", "header", "recitals", "main_body"}
BOOK_SUMMARIES = "booksummaries.txt"


@dataclass(frozen=True)
class Example:
    """One thing to predict: a document, alone or with a question, or with a question and choices.

    The label is the index of a class or choice, or the sorted indices of several classes; or None.
    """

    id: str
    text: str
    question: str | None = None
    choices: tuple[str, ...] = ()
    label: int | tuple[int, ...] | None = None

    @property
    def asked(self) -> list[str]:
        """What is read beside the document: its question, or the question with each choice."""
        if self.choices:
            return [f"{self.question} {choice}" for choice in self.choices]
        return [] if self.question is None else [self.question]


@dataclass(frozen=True)
class LabelledDocuments:
    """A checked set, in the order of its rows: all examples have a label or none has, and no id
    comes twice.

    `problem_type` is as in transformers, or ``"multiple_choice"``; `source` says what was read,
    without folders. With `sigmoid`, a model tells two classes apart by one output.
    """

    problem_type: ProblemType
    examples: list[Example]
    label_names: tuple[str, ...] | None
    source: str
    sigmoid: bool = False

    def documents(self) -> list[str]:
        """Each distinct text once, in the order in which they first appear."""
        return list(dict.fromkeys(example.text for example in self.examples))

    def of(self, documents: set[str]) -> LabelledDocuments:
        """The examples of these documents, in their order."""
        return replace(
            self, examples=[example for example in self.examples if example.text in documents]
        )

    @property
    def labelled(self) -> bool:
        """Whether the examples have labels."""
        return self.examples[0].label is not None

    def labels(self) -> np.ndarray:
        """Labels ``[N]``, or ``[N, K]`` zeros and ones for several labels."""
        if self.problem_type != SEVERAL:
            return np.array([example.label for example in self.examples])
        rows = np.zeros((len(self.examples), len(self.label_names or ())), int)
        for number, example in enumerate(self.examples):
            rows[number, list(example.label)] = 1  # type: ignore[arg-type]
        return rows

    def targets(self) -> torch.Tensor:
        """The labels as losses want them: class numbers ``[N]``, or floats ``[N, K]``, with
        `sigmoid` ``[N, 1]``."""
        labels = torch.from_numpy(self.labels())
        labels = labels[:, None] if self.sigmoid else labels
        return labels.float() if labels.ndim == 2 else labels

    def logits(self, outputs: Any) -> np.ndarray:
        """Logits ``[N, K]`` of K classes from a model's outputs; one output z of two classes is 0
        and z."""
        return (
            np.concatenate([np.zeros_like(outputs), outputs], axis=1)
            if self.sigmoid
            else np.asarray(outputs)
        )

    def predicted(self, logits: np.ndarray) -> np.ndarray:
        """What logits ``[N, K]`` say: best class or choice ``[N]``, or all classes above 0.5 ``[N,
        K]``."""
        return (logits > 0).astype(int) if self.problem_type == SEVERAL else logits.argmax(axis=-1)

    def scores(self, logits: np.ndarray, rows: Any = slice(None)) -> dict[str, float]:
        """Scores of logits ``[N, K]`` on all examples, or on some `rows`, by scikit-learn.

        ``accuracy`` (with several labels a row: of rows with all of them right), and but for
        multiple choice ``macro_f1`` and ``micro_f1``; with two classes also ``f1`` of class 1.
        """
        from sklearn.metrics import accuracy_score, f1_score

        labels, predictions = self.labels()[rows], self.predicted(logits)[rows]
        scores = {"accuracy": float(accuracy_score(labels, predictions))}
        if self.problem_type == "multiple_choice":
            return scores
        if self.problem_type == SINGLE and logits.shape[-1] == 2:
            scores["f1"] = float(f1_score(labels, predictions, zero_division=0.0))
        for name in ("macro", "micro"):
            scores[f"{name}_f1"] = float(
                f1_score(labels, predictions, average=name, zero_division=0.0)
            )
        return scores

    def trivial_logits(self) -> np.ndarray:
        """Logits ``[1, K]`` of a baseline: always the most frequent label."""
        labels = self.labels()
        if self.problem_type == SEVERAL:
            return labels.mean(axis=0, keepdims=True) - 0.5
        return np.bincount(labels, minlength=len(self.label_names or self.examples[0].choices))[
            None
        ]


# --- Named columns


@dataclass(kw_only=True)
class ColumnArguments:
    """Names of the columns; docs/inputs.md shows a row of each task."""

    _argument_group_name = "data"

    text_column: str = option("text", "Column of the documents.")
    question_column: str | None = option(
        None, "Column of questions about them; by default question, if there is one."
    )
    label_column: str = option("label", "Column of the labels.")
    id_column: str = option("id", "Column of the rows' ids.")
    halve_validation: bool = option(
        False, "Report on half of the validation documents, as the paper does on QuALITY."
    )


def read_classes(
    table: Table,
    columns: ColumnArguments,
    names: Sequence[str] | None = None,
    problem: ProblemType | None = None,
    by_number: bool = False,
) -> LabelledDocuments:
    """Documents with classes; a ValueError names source, row and column of what cannot be read.

    Labels may be strings (classes in alphabetical order), integers from 0 without a gap (named by
    their digits, or by the `ClassLabel` of `datasets`), booleans, or lists of strings or integers
    (several labels). Without any (no column, null, or -1 of a `ClassLabel`, as in test splits),
    every label is None. `names` are the classes in order, and `problem` the kind of labels, for
    example of the training set; `by_number` if integers may stand for names.
    """
    known, column = table.class_names.get(columns.label_column), columns.label_column
    examples, raw = _read(table, columns)
    labels: Labels = [(place, class_name(label, known)) for place, label in raw]
    problem = problem or (
        SEVERAL if any(isinstance(label, list) for _, label in labels) else SINGLE
    )
    classes = tuple(names or known or ()) or None
    missing = [place for place, label in labels if label is None]
    if len(missing) == len(labels):
        logger.warning(
            "No row has a label in column %r (columns: %s).", column, ", ".join(table.first)
        )
        return LabelledDocuments(problem, examples, classes, table.name)
    if missing:
        raise missing[0].error(column, "has no label, but other rows have; label all rows or none.")
    values, classes = class_indices(labels, column, classes, problem == SEVERAL, by_number)
    examples = [
        replace(example, label=value) for example, value in zip(examples, values, strict=True)
    ]
    return LabelledDocuments(problem, examples, classes, table.name)


def class_name(label: Any, names: tuple[str, ...] | None) -> Any:
    """The name for a number of a `ClassLabel`, whose negative numbers mean that the label is not
    known."""
    if isinstance(label, list):
        return [class_name(item, names) for item in label]
    if names is None or type(label) is not int or label >= len(names):
        return label
    return names[label] if label >= 0 else None


def class_indices(
    labels: Labels, column: str, names: Any, several: bool, by_number: bool
) -> tuple[list[Any], Any]:
    """Class indices of each row (one, or with `several` a sorted tuple), and the names of the
    classes."""
    for place, label in labels:
        if isinstance(label, list) is not several:
            raise place.error(
                column,
                f"holds {short(label)}; other rows have {'a list' if several else 'one class'}.",
            )
    rows = [(place, label if several else [label]) for place, label in labels]
    flat = [(place, item) for place, row in rows for item in row]
    kind = type(flat[0][1]) if flat else str
    for place, item in flat:
        like_list = isinstance(item, str) and item[:1] + item[-1:] == "[]"
        if (
            type(item) is not kind
            or kind not in (str, int, bool)
            or not str(item).strip()
            or like_list
        ):
            rule = (
                "lists need JSON"
                if like_list
                else "classes are names (not blank), or integers throughout"
            )
            raise place.error(column, f"holds {short(item)}; {rule}.")
    if names is None:
        classes = [False, True] if kind is bool else sorted({item for _, item in flat})
        if not classes or (kind is int and classes != list(range(len(classes)))):
            raise ValueError(
                f"Column {column!r}: integer classes must be 0, 1, 2, ... without gaps, but these"
                f" are {classes[:10]}. Give their names with --label_names_file."
            )
        names = tuple(map(str, classes))
    keys: list[Any] = list(names) if kind is str else list(range(len(names)))
    if kind is int and all(name.isdecimal() for name in names):
        keys = list(map(int, names))  # "1", "2", "3" are not places 0, 1, 2
    elif kind is int and not by_number:
        rule = (
            f"the classes are {', '.join(names[:20])}. Numbers need their order in a"
            " --label_names_file."
        )
        raise flat[0][0].error(column, f"holds the number {flat[0][1]}, but {rule}")
    numbers = {key: number for number, key in enumerate(keys)}
    indices = []
    for place, row in rows:
        if unknown := [item for item in row if item not in numbers]:
            some = ", ".join(map(str, keys[:20]))
            raise place.error(
                column, f"{short(unknown[0])} is not one of the {len(names)} classes: {some}."
            )
        chosen = tuple(sorted({numbers[item] for item in row}))
        if len(chosen) < len(row):
            raise place.error(
                column, f"{short(row)} names a class twice; give classes, not a vector of 0 and 1."
            )
        indices.append(chosen if several else chosen[0])
    return indices, names


def read_label_names(path: str) -> tuple[str, ...]:
    """The classes of a JSON file: a list of them, or an object whose keys they are."""
    with open_text(Path(path)) as file:
        names = json.load(file)
        if (
            not isinstance(names, list | dict)
            or not names
            or not all(isinstance(name, str) for name in names)
        ):
            raise ValueError("it must hold a JSON list of classes, or an object with them as keys")
    return tuple(names)


def read_choices(table: Table, columns: ColumnArguments) -> LabelledDocuments:
    """Questions about documents, each with as many choices; the label is the number of the right
    one, from 0."""
    examples, labels = _read(table, columns, choices=True)
    count, labelled = len(examples[0].choices), any(label is not None for _, label in labels)
    for example, (place, label) in zip(examples, labels, strict=True):
        if len(example.choices) != count:
            raise place.error(
                "choices", f"has {len(example.choices)} choices, but the first row {count}."
            )
        if labelled and (type(label) is not int or not 0 <= label < count):
            raise place.error(
                columns.label_column, f"must be the number of a choice, from 0; got {short(label)}."
            )
    examples = [
        replace(example, label=label) for example, (_, label) in zip(examples, labels, strict=True)
    ]
    return LabelledDocuments("multiple_choice", examples, None, table.name)


def _read(
    table: Table, columns: ColumnArguments, choices: bool = False
) -> tuple[list[Example], Labels]:
    """Examples, still without their labels, and the labels as they stand in the source."""
    asked = columns.question_column or (
        "question" if choices or "question" in table.first else None
    )
    examples: dict[str, tuple[Example, Place]] = {}
    labels: Labels = []
    for place, values in table.rows:
        text = place.checked(
            place.value(values, columns.text_column, "--text_column"), columns.text_column
        )
        question = (
            None
            if asked is None
            else place.checked(place.value(values, asked, "--question_column"), asked)
        )
        candidates: Any = values.get("choices") if choices else ()
        if choices and (not isinstance(candidates, list) or len(candidates) < 2):
            raise place.error(
                "choices", f"must be a list (JSON) of 2 texts or more, got {short(candidates)}."
            )
        candidates = tuple(place.checked(choice, "choices") for choice in candidates)
        name = (
            values.get("id")
            if columns.id_column == "id"
            else place.value(values, columns.id_column, "--id_column")
        )
        name = f"row-{len(examples):06d}" if name in (None, "") else str(name)
        if name in examples:
            raise place.error(
                columns.id_column,
                f"id {name!r} is taken by {examples[name][1].row}; ids must differ.",
            )
        examples[name] = Example(name, text, question, candidates), place
        labels.append((place, values.get(columns.label_column)))
    return [example for example, _ in examples.values()], labels


# --- Published data sets, each known by its columns or files


def choice_table(source: str | Path, split: str = "train", config: str | None = None) -> Table:
    """As `open_rows`, with QuALITY and RACE as ``text``, ``question``, ``choices`` and ``label``,
    from 0.

    QuALITY: the official files (an article a line, its questions within), or a question a row; its
    ``gold_label`` counts from 1. RACE: ``answer`` is a letter.
    """
    table = open_rows(source, split, config)
    columns = table.first.keys()
    articles = "article" in columns and (
        "questions" in columns or {"question", "options"} <= columns
    )
    return table._replace(rows=_article_rows(table.rows)) if articles else table


def _article_rows(rows: Rows) -> Rows:
    """Questions of QuALITY or RACE."""
    for place, values in rows:
        questions = values.get("questions", [values])
        if not isinstance(questions, list) or not all(
            isinstance(question, dict) for question in questions
        ):
            raise place.error("questions", f"must be a list of questions, got {short(questions)}.")
        for number, question in enumerate(questions):
            where = place._replace(row=f"{place.row}, question {number}")
            label = question.get("answer", question.get("label"))
            if isinstance(label, str) and len(label) == 1:
                label = ord(label) - ord("A")
            if (gold := question.get("gold_label")) is not None:
                label = gold - 1 if type(gold) is int else gold
            names = {"question": "question", "choices": "options", "id": "question_unique_id"}
            row = {name: question.get(column) for name, column in names.items()}
            yield where, {"text": values["article"], **row, "label": label}


def classification_table(
    source: str | Path,
    split: str = "train",
    config: str | None = None,
    arrangement: str | None = None,
) -> Table:
    """As `open_rows`, with MuLD, EURLEX-57K and the CMU Book Summary Corpus as ``text``, ``label``
    and ``question``.

    The last is a folder with ``booksummaries.txt``. `arrangement` is ``"inverted"``, EURLEX-57K
    with the main body first, or ``"paired"``, every two books joined.
    """
    if (path := Path(source) / BOOK_SUMMARIES).is_file():
        table, known = (
            Table(f"{BOOK_SUMMARIES} ({split})", {}, _book_summary_rows(path, split), {}),
            "paired",
        )
    else:
        table = open_rows(source, split, config)
        known = "inverted" if table.first.keys() >= EURLEX_COLUMNS else ""
    if arrangement not in (None, known):
        raise ValueError(
            f"{table.name}: inverted is for EURLEX-57K, paired for the CMU Book Summary Corpus."
        )
    if known == "inverted":
        return table._replace(rows=_eurlex_rows(table.rows, inverted=arrangement == "inverted"))
    if {"input", "output"} <= table.first.keys() - {"text"} and _first_line(
        str(table.first["input"])
    )[0]:
        return table._replace(
            first={"question": ""}, rows=_muld_rows(table.rows), class_names={"label": MULD_CLASSES}
        )
    return table._replace(rows=_paired_rows(table.rows)) if arrangement == "paired" else table


def _first_line(text: str) -> tuple[str, str]:
    """A first line of at most 200 characters, or nothing, and the rest."""
    line, end, rest = text.partition("\n")
    return (line.strip(), rest) if end and line.strip() and len(line) <= 200 else ("", text)


def _muld_rows(rows: Rows) -> Rows:
    """MuLD's character archetypes: the first line of ``input`` is the question, and the rest the
    document.

    A bare name (no "?", at most 6 words) becomes the NextLevelBERT paper's question. This is a rule
    of ours, as nothing marks that line; the authors' code takes it for the name, too, but leaves it
    in the document.
    """
    for place, values in rows:
        line, text = _first_line(place.checked(values.get("input"), "input"))
        if not line:
            raise place.error(
                "input", "has no short first line with the character's name, as the first row has."
            )
        if "?" not in line and len(line.split()) <= 6:
            line = f"Is the character {line} behaving like a hero or a villain?"
        label = values.get("output")
        label = label[0] if isinstance(label, list) and len(label) == 1 else label
        yield place, {"text": text, "question": line, "label": label}


def _eurlex_rows(rows: Rows, inverted: bool) -> Rows:
    """Laws of EURLEX-57K (Chalkidis et al. 2019), whose label is the list of their EUROVOC
    concepts.

    Inverted, header and recitals, which say the most, come after the main body (Inverted-EURLEX of
    Park et al. 2022, which the ChunkBERT paper takes over).
    """
    for place, values in rows:
        if absent := EURLEX_COLUMNS - values.keys():
            raise place.error(min(absent), "is missing, unlike in the first row.")
        body = (
            values["main_body"] if isinstance(values["main_body"], list) else [values["main_body"]]
        )
        head = [values["header"], values["recitals"]]
        parts = [*body, *head[::-1]] if inverted else [*head, *body]
        text = " ".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
        yield place, {"id": values["celex_id"], "text": text, "label": values["concepts"]}


def _book_summary_rows(path: Path, split: str) -> Rows:
    """The CMU Book Summary Corpus (Bamman and Smith 2013), whose label is the list of genres of a
    book.

    Seven fields a line, separated by tabs. The corpus has no splits: here the SHA-256 of a book's
    id puts it into ``"train"`` (80 %), ``"validation"`` or ``"test"`` (10 % each). Books without a
    genre are left out and counted.
    """
    shares = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
    if split not in shares:
        raise ValueError(
            f"{path.name} is split into {', '.join(shares)} here; give one, got {split!r}."
        )
    without = 0
    for number, fields in enumerate(columns_of(path, "\t", 7), start=1):
        if int(hashlib.sha256(fields[0].encode()).hexdigest(), 16) % 10 not in shares[split]:
            continue
        if genres := list(json.loads(fields[5] or "{}").values()):
            place = Place(path.name, f"line {number}")
            yield place, {"id": fields[0], "text": fields[6].strip(), "label": genres}
        without += not genres
    logger.info("%s, %s: %d books without a genre are left out.", path.name, split, without)


def _paired_rows(rows: Rows) -> Rows:
    """Every two books as one: texts joined, with the genres of both (Paired Book Summary of Park et
    al. 2022)."""
    for place, one in rows:
        _, other = next(rows, (None, None))
        if other is None:
            logger.warning("%s, %s has no partner and is left out.", place.source, place.row)
            return
        names = {"id": f"{one['id']}+{other['id']}", "text": f"{one['text']}\n{other['text']}"}
        yield place, {**names, "label": list(dict.fromkeys(one["label"] + other["label"]))}


# --- Splits and predictions


def hold_out_documents(data: LabelledDocuments, share: float, seed: int) -> tuple[Any, Any]:
    """The rest, then about `share` of the documents with all their examples, drawn from `seed`."""
    documents = data.documents()
    held_out = {
        documents[n]
        for n in draw(range(len(documents)), share, seed, f"documents of {data.source}")
    }
    return data.of(set(documents) - held_out), data.of(held_out)


def halve_by_document(data: LabelledDocuments) -> tuple[Any, Any]:
    """Halves the documents in the order of the SHA-256 of their texts; an odd one goes to the first
    half.

    The NextLevelBERT paper (section 3.2) halves QuALITY's validation set by document, as the test
    labels are not public; it does not say how. Here a half follows from the texts alone, not from a
    seed or the order of the rows.
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
    """Writes a JSON object a row: id, prediction, label (as given, if there is one), and a score
    for each class."""
    several, scores = data.problem_type == SEVERAL, torch.as_tensor(logits, dtype=torch.float64)
    scores = scores.sigmoid() if several else scores.softmax(-1)  # [N, K]

    def spoken(label: Any) -> Any:
        if data.label_names is None:
            return int(label)
        return (
            [data.label_names[number] for number in label]
            if several
            else data.label_names[int(label)]
        )

    lines = []
    for example, prediction, row in zip(
        data.examples, data.predicted(logits), scores.tolist(), strict=True
    ):
        record = {
            "id": example.id,
            "prediction": spoken(np.flatnonzero(prediction) if several else prediction),
        }
        if example.label is not None:
            record["label"] = spoken(example.label)
        lines.append(
            json.dumps({**record, "scores": [round(score, 6) for score in row]}, ensure_ascii=False)
        )
    write_whole(path, "\n".join(lines))


def tfidf(sets: Mapping[str, LabelledDocuments]) -> dict[str, np.ndarray]:
    """Word counts and logistic regression, by scikit-learn: the baseline that needs no encoder.

    Sublinear TF-IDF over words and pairs of words in at least two training documents, a question
    before its document; the regularisation is chosen by cross-validation. For each set but
    ``"train"`` log-probabilities ``[N, K]``; with several labels, which have a classifier for each
    class, log-odds.
    """
    from scipy.special import logit
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    train = sets["train"]
    several, labels = train.problem_type == SEVERAL, train.labels()  # [N] or [N, K]
    columns = [column for column in labels.T if len(set(column)) == 2] if several else [labels]
    folds = min([5, *(int(np.unique(column, return_counts=True)[1].min()) for column in columns)])
    if folds < 2:
        raise ValueError("--model tfidf needs at least two training examples of every class.")
    classifier: Any = LogisticRegressionCV(
        Cs=[0.1, 1.0, 10.0, 100.0, 1000.0],
        cv=folds,
        max_iter=1000,
        scoring="neg_log_loss",
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    words = TfidfVectorizer(
        tokenizer=split_terms,
        token_pattern=None,
        sublinear_tf=True,
        ngram_range=(1, 2),
        min_df=2,
    )
    pipeline = make_pipeline(words, OneVsRestClassifier(classifier) if several else classifier)
    texts = {
        name: [f"{row.question or ''} {row.text}" for row in data.examples]
        for name, data in sets.items()
    }
    pipeline.fit(texts.pop("train"), labels)
    if several:
        return {name: logit(pipeline.predict_proba(rows)) for name, rows in texts.items()}
    scores = {
        name: np.full((len(rows), len(train.label_names or ())), -np.inf)
        for name, rows in texts.items()
    }
    for name, rows in texts.items():
        scores[name][:, np.unique(labels)] = pipeline.predict_log_proba(rows)
    return scores
