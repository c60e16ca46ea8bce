"""Labelled documents: read from named columns, split by document, and predictions about them in words."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from ..corpus import pad_vectors
from ..data.labels import Labels, ProblemType, all_labelled, check_types, class_indices, class_name, guess_problem
from ..data.rows import Table, draw, short
from ..evaluation.scores import predicted
from ..finetuning.arguments import option
from ..training.trainer import write_whole

logger = logging.getLogger(__name__)


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

    def content(self) -> Iterator[object]:
        """Everything that a run depends on, for `fingerprint`."""
        yield self.label_names
        for example in self.examples:
            yield [example.id, example.text, example.question, example.choices, example.label]

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

    def target(self, example: Example, sigmoid: bool) -> dict[str, torch.Tensor]:
        """The label as a row of a batch has it; nothing where there is none."""
        label = example.label
        if isinstance(label, tuple):
            return {
                "labels": torch.zeros(len(self.label_names or ())).index_fill(
                    0, torch.tensor(label, dtype=torch.long), 1.0
                )
            }
        return {} if label is None else {"labels": torch.tensor([float(label)] if sigmoid else label)}

    def questions_first(self) -> LabelledDocuments:
        """Each question as the first line of its document, for models that read nothing but documents."""
        if self.examples[0].question is None:
            raise ValueError(f"{self.source} has no questions to put first; name them with --question_column.")
        joined = [replace(row, text=f"{row.question}\n{row.text}", question=None) for row in self.examples]
        return replace(self, examples=joined)

    def of(self, documents: set[str]) -> LabelledDocuments:
        """The examples of these documents, in their order."""
        return replace(self, examples=[example for example in self.examples if example.text in documents])


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

    Args:
        table: of `open_rows` or `classification_table`.
        columns: their names.
        label_names: the classes in order, for example those of the training set.
        problem_type: to be given where integers are values; else it follows from the labels.
    """
    own_names, column = table.class_names.get(columns.label_column), columns.label_column
    examples, raw = _read(table, columns, None)
    labels: Labels = [(place, class_name(label, own_names)) for place, label in raw]
    labelled = all_labelled(labels, column, table.first)
    problem = problem_type or guess_problem(labels)
    if problem == "regression" and label_names is not None:
        raise ValueError(f"{table.name}: names of classes were given, but the labels are values. Give only one.")
    names = tuple(label_names or own_names or ()) or None
    values: Sequence[Any] = [None] * len(labels)
    if labelled:
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
    count, labelled = len(examples[0].choices), all_labelled(labels, columns.label_column, table.first)
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
    examples: list[Example] = []
    labels: Labels = []
    rows_of: dict[str, str] = {}
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
        if name in rows_of:
            raise place.error(columns.id_column, f"the id {name!r} is taken by {rows_of[name]}; ids must differ.")
        rows_of[name] = place.row
        examples.append(Example(name, text, question, choices))
        labels.append((place, values.get(columns.label_column)))
    return examples, labels


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


class VectorRows(Dataset):
    """Examples with the chunk vectors ``[n, D]`` of their documents, and the mean vectors of what is asked about them.

    With `sigmoid`, two classes are told apart by one output; with `first`, only the first chunk of a document is read.
    """

    def __init__(
        self, data: LabelledDocuments, vectors: Mapping[str, torch.Tensor], sigmoid: bool, first: bool = False
    ) -> None:
        self.data, self.vectors, self.sigmoid, self.first = data, vectors, sigmoid, first

    def __len__(self) -> int:
        return len(self.data.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        example = self.data.examples[index]
        row = {"document": example.text, **self.data.target(example, self.sigmoid)}
        if example.asked:  # [D], or [C, D] for choices
            pair = torch.stack([self.vectors[text].float().mean(dim=0) for text in example.asked])
            row["pair_embeds"] = pair if example.choices else pair[0]
        return row

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """N examples over B distinct documents, each of which the model reads once."""
        place = {text: number for number, text in enumerate(dict.fromkeys(row["document"] for row in rows))}
        # A tensor with a row per example comes first: `Trainer` takes its length for the batch size.
        batch = {"document_index": torch.tensor([place[row["document"]] for row in rows])}
        batch |= {key: torch.stack([row[key] for row in rows]) for key in ("labels", "pair_embeds") if key in rows[0]}
        return batch | pad_vectors([self.vectors[text][: 1 if self.first else None].float() for text in place])


class TokenRows(Dataset):
    """Examples with the token ids of their documents, made once and cut to `limit`; a line says how many are longer.

    For a ``"truncated"`` encoder a cut document ends with the tokenizer's last special token.
    """

    def __init__(
        self, data: LabelledDocuments, tokenizer: Any, sigmoid: bool, limit: int | None = None, kind: str = ""
    ) -> None:
        self.data, self.sigmoid, self.pad = data, sigmoid, tokenizer.pad_token_id or 0
        self.ids = tokenizer([example.text for example in data.examples], verbose=False)["input_ids"]
        self.lengths = np.array([len(ids) for ids in self.ids])
        if not all(self.lengths > tokenizer.num_special_tokens_to_add()):
            name = data.examples[int(self.lengths.argmin())].id
            raise ValueError(f"{data.source}: the document of {name!r} contains no token; leave the row out.")
        if limit is not None and (longer := int((self.lengths > limit).sum())):
            logger.warning("%s: the first %d tokens of documents are read; %d are longer.", data.source, limit, longer)
            tail = int(kind == "truncated")
            self.ids = [ids[: limit - tail] + ids[-1:] * tail if len(ids) > limit else ids for ids in self.ids]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "input_ids": torch.tensor(self.ids[index]),
            **self.data.target(self.data.examples[index], self.sigmoid),
        }

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch of N examples, padded on the right: ``input_ids`` and ``attention_mask`` ``[N, T]``."""
        batch = {"labels": torch.stack([row["labels"] for row in rows])} if "labels" in rows[0] else {}
        ids = [row["input_ids"] for row in rows]
        batch["input_ids"] = pad_sequence(ids, batch_first=True, padding_value=self.pad)
        return {**batch, "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)}


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
    for example, found, row in zip(data.examples, predicted(data.problem_type, logits), scores.tolist(), strict=True):
        record = {"id": example.id, "prediction": spoken(np.flatnonzero(found) if several else found)}
        if example.label is not None:
            record["label"] = spoken(example.label)
        lines.append(json.dumps({**record, "scores": [round(score, 6) for score in row]}, ensure_ascii=False))
    write_whole(path, "\n".join(lines))
