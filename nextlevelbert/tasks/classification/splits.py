"""Splits of a task by document, and other forms of a whole task: questions within documents, one output."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from ...data.rows import draw
from .data import TaskData


def hold_out_documents(data: TaskData, share: float, seed: int) -> tuple[TaskData, TaskData]:
    """Splits by document, drawn from `seed`: the rest, then about `share` of the documents with their examples.

    No document is on both sides, and each side has at least one.

    Raises:
        ValueError: for a share outside 0 to 1 (exclusive), or fewer than two documents.
    """
    drawn = draw(range(len(data.documents)), share, seed, f"documents of {data.source}")
    held_out, rest = _by_document(data, drawn)
    return rest, held_out


def halve_by_document(data: TaskData) -> tuple[TaskData, TaskData]:
    """Halves the documents in the order of the SHA-256 of their texts; an odd one goes to the first half.

    The NextLevelBERT paper (section 3.2) halves QuALITY's validation set at the document level, to validate and
    to test, because the test labels are not public; it does not say how. Here a document's half follows from
    the texts alone, not from a seed or the order of the rows.

    Raises:
        ValueError: for fewer than two documents.
    """
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in data.documents]
    order = sorted(range(len(digests)), key=digests.__getitem__)
    return _by_document(data, set(order[: (len(order) + 1) // 2]))


def _by_document(data: TaskData, first: set[int]) -> tuple[TaskData, TaskData]:
    if len(data.documents) < 2:
        raise ValueError(f"{data.source} has {len(data.documents)} document; a split by document needs at least two.")
    return _of_documents(data, first), _of_documents(data, set(range(len(data.documents))) - first)


def _of_documents(data: TaskData, kept: set[int]) -> TaskData:
    """The examples of some documents, in their order, with these documents alone."""
    numbers: dict[int, int] = {}
    examples = [
        replace(example, document=numbers.setdefault(example.document, len(numbers)))
        for example in data.examples
        if example.document in kept
    ]
    return replace(data, documents=[data.documents[number] for number in numbers], examples=examples)


def questions_first(data: TaskData) -> TaskData:
    """The task with each question as the first line of its document, for models that read nothing but documents.

    Raises:
        ValueError: for a task without questions.
    """
    documents: dict[str, int] = {}
    examples = []
    for example in data.examples:
        if example.question is None:
            raise ValueError(f"{data.source} has no questions to put first; name their column with --question_column.")
        text = f"{example.question}\n{data.documents[example.document]}"
        number = documents.setdefault(text, len(documents))
        examples.append(replace(example, question=None, document=number))
    return replace(data, documents=[*documents], examples=examples)


def with_one_output(data: TaskData) -> TaskData:
    """The task with one output for its two classes; see `TaskData.sigmoid`.

    Raises:
        ValueError: for anything but a single label of two classes.
    """
    if data.problem_type != "single_label_classification" or len(data.label_names or ()) != 2:
        found = f"{len(data.label_names)} classes" if data.label_names else "values"
        kind = data.problem_type.replace("_", " ")
        raise ValueError(f"--sigmoid tells two classes apart, but {data.source} has {found} ({kind}); leave it out.")
    return replace(data, sigmoid=True)
