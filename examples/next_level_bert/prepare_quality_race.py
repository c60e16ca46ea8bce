"""Writes QuALITY or RACE as rows for `nextlevelbert finetune --task multiple_choice`.

QuALITY (Pang et al., 2022) is read from its official files, in which a line holds an article and
its questions, or from rows with one question each; its ``gold_label`` counts from 1. RACE (Lai et
al., 2017) has a letter as ``answer``. A row that is written has the columns ``id``, ``text``,
``question``, ``choices`` and, if the source has labels, ``label``, the index of the right choice
from 0.

    python examples/next_level_bert/prepare_quality_race.py \\
        QuALITY.v1.0.1.htmlstripped.train train.jsonl
    python examples/next_level_bert/prepare_quality_race.py \\
        QuALITY.v1.0.1.htmlstripped.dev validation.jsonl --halve test.jsonl
    python examples/next_level_bert/prepare_quality_race.py ehovy/race race.jsonl --config high
"""

from __future__ import annotations

import hashlib
import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nextlevelbert.command import run_command
from nextlevelbert.data import RowLocation, open_rows

Row = dict[str, Any]


def question_rows(location: RowLocation, values: Mapping[str, Any]) -> Iterator[Row]:
    """Yields a row for each question of an article."""
    article = location.require_text(values.get("article"), "article")
    questions = values.get("questions", [values])
    is_list = isinstance(questions, list)
    if not is_list or not all(isinstance(question, dict) for question in questions):
        raise location.error("questions", f"must be a list of questions, got {questions!r:.60}.")

    for question in questions:
        choices = question.get("options")
        if not isinstance(choices, list) or len(choices) < 2:
            raise location.error("options", f"must be a list of answers, got {choices!r:.60}.")
        row: Row = {
            "text": article,
            "question": location.require_text(question.get("question"), "question"),
            "choices": [location.require_text(choice, "options") for choice in choices],
        }
        if "question_unique_id" in question:
            row["id"] = question["question_unique_id"]
        label = right_choice(question)
        if label is not None:
            if label not in range(len(choices)):
                raise location.error(
                    "gold_label or answer",
                    f"must be the number of an option from 1, or its letter; got {label!r}.",
                )
            row["label"] = label
        yield row


def right_choice(question: Mapping[str, Any]) -> object:
    """Returns the index of the right choice from 0, or the value that a question has instead."""
    gold = question.get("gold_label")
    if type(gold) is int:
        return gold - 1
    if gold is not None:
        return gold

    answer = question.get("answer")
    if isinstance(answer, str) and len(answer) == 1:
        return ord(answer) - ord("A")
    return answer


def halves_by_article(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Divides the questions by article, in the order of the SHA-256 of the articles.

    The NextLevelBERT paper (section 3.2) halves QuALITY's validation set, because the test labels
    are not public; it does not say how. Here a half depends on the articles alone, not on a seed
    or the order of the rows.

    Raises:
        ValueError: for fewer than two articles.
    """
    articles = {row["text"] for row in rows}
    if len(articles) < 2:
        raise ValueError(f"--halve needs at least two articles, got {len(articles)}.")
    order = sorted(articles, key=lambda text: hashlib.sha256(text.encode()).digest())
    first_half = set(order[: (len(order) + 1) // 2])
    return (
        [row for row in rows if row["text"] in first_half],
        [row for row in rows if row["text"] not in first_half],
    )


def main(argv: list[str] | None = None) -> None:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("source", help="file, or name on the Hub")
    parser.add_argument("output", type=Path, help="JSON lines to write")
    parser.add_argument("--config", help="configuration on the Hub: middle, high or all of RACE")
    parser.add_argument("--split", default="train", help="split on the Hub")
    parser.add_argument("--halve", type=Path, help="JSON lines for half of the articles")
    args = parser.parse_args(argv)

    # 1. Read and check all questions.
    rows: list[Row] = []
    for location, values in open_rows(args.source, args.split, args.config).rows:
        rows += question_rows(location, values)

    # 2. Divide the articles, if asked to.
    files = {args.output: rows}
    if args.halve is not None:
        files = dict(zip([args.output, args.halve], halves_by_article(rows), strict=True))

    # 3. Write a row for each question.
    for file, questions in files.items():
        lines = [json.dumps(row, ensure_ascii=False) for row in questions]
        file.write_text("\n".join([*lines, ""]), encoding="utf-8")
        print(f"{file}: {len(lines)} questions")


if __name__ == "__main__":
    raise SystemExit(run_command(main))
