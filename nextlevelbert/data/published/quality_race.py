"""QuALITY (Pang et al., 2022) and RACE (Lai et al., 2017): articles, questions and choices.

QuALITY is read from its official files, in which a line holds an article and its questions, or from
rows with one question each; its ``gold_label`` counts from 1. RACE has a letter as ``answer``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..labelled import USUAL, Columns, load_choices
from ..tables import Rows, Table, open_rows, short


def recognises(first: Mapping[str, Any]) -> bool:
    """Returns whether the first row of a table is one of QuALITY or RACE."""
    if "article" not in first:
        return False
    return "questions" in first or {"question", "options"} <= first.keys()


def load(source: str | Path | Table, split: str = "train", columns: Columns = USUAL) -> Dataset:
    """Reads a split, a row for each question.

    Args:
        source: table to read, as `open_rows` accepts it.
        split: split to read if the source is a data set; a file is read whole.
        columns: names of columns other than ``text``, ``question``, ``label`` and ``id``.

    Returns:
        The columns of `load_choices`.
    """
    table = open_rows(source, split)
    return load_choices(table._replace(rows=_question_rows(table.rows)), columns)


def _question_rows(rows: Rows) -> Rows:
    for location, values in rows:
        questions = values.get("questions", [values])
        is_list = isinstance(questions, list)
        if not is_list or not all(isinstance(question, dict) for question in questions):
            raise location.error(
                "questions", f"must be a list of questions, got {short(questions)}."
            )

        for index, question in enumerate(questions):
            row = {
                "text": values.get("article"),
                "question": question.get("question"),
                "choices": question.get("options"),
                "id": question.get("question_unique_id"),
                "label": _right_choice(question),
            }
            yield location._replace(row=f"{location.row}, question {index}"), row


def _right_choice(question: Mapping[str, Any]) -> object:
    """Returns the index of the right choice, from 0, or the value that a question has instead."""
    gold = question.get("gold_label")
    if type(gold) is int:
        return gold - 1
    if gold is not None:
        return gold

    label = question.get("answer", question.get("label"))
    if isinstance(label, str) and len(label) == 1:
        return ord(label) - ord("A")
    return label
