"""HotpotQA in the distractor setting (Yang et al., 2018, arXiv 1809.09600).

Two of a question's ten paragraphs hold what the answer needs, and the supporting facts are their
sentences that state it. The other eight come from a search for the question.
"""

import logging
from collections.abc import Mapping, Set
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..tables import RowLocation, Table, open_rows, short

logger = logging.getLogger(__name__)

Pairs = list[tuple[str, Any]]  # titles, and the sentences or the index of a sentence


def load(source: str | Path | Table, split: str = "train") -> Dataset:
    """Loads HotpotQA from the official JSON or from its rows on the Hub.

    The official JSON has ``_id``, ``question``, ``answer``, ``supporting_facts`` as pairs of title
    and sentence, and ``context`` as pairs of title and sentences. ``hotpotqa/hotpot_qa`` on the Hub
    has ``id``, and the pairs as a dict of two lists.

    A second paragraph of the same title is left out, because facts name paragraphs by title. A fact
    whose sentence does not exist is kept, because the official scores count it. A warning reports
    how many there are of each.

    Args:
        source: table to read, as `open_rows` accepts it.
        split: split to read if the source is a data set; a file is read whole.

    Returns:
        A row for each question as on the Hub, those with the shortest paragraphs first: ``id``,
        ``question``, ``answer`` (a span of a paragraph, yes or no), ``context`` (``title`` and
        ``sentences``, which can be blank) and ``supporting_facts`` (``title`` and ``sent_id``).

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    table = open_rows(source, split)
    questions = {}
    repeated = 0
    missing = 0
    for location, values in table.rows:
        id_column = "id"
        if "_id" in values:
            id_column = "_id"
        name = location.require_text(values.get(id_column), id_column)
        if name in questions:
            raise location.error(
                id_column, f"id {name!r} is there twice. Give every question its own id."
            )

        sentences_of: dict[str, list[str]] = {}
        paragraphs = _pairs(location, values, column="context", second="sentences")
        for title, sentences in paragraphs:
            sentences_of.setdefault(title, sentences)
        repeated += len(paragraphs) - len(sentences_of)

        facts = _pairs(location, values, column="supporting_facts", second="sent_id")
        _check_facts(location, facts, titles=sentences_of.keys())
        facts = sorted(set(facts))
        missing += sum(sentence >= len(sentences_of[title]) for title, sentence in facts)
        questions[name] = {
            "id": name,
            "question": location.text(values, "question", "question"),
            "answer": location.text(values, "answer", "answer"),
            "context": {"title": [*sentences_of], "sentences": [*sentences_of.values()]},
            "supporting_facts": {
                "title": [title for title, _ in facts],
                "sent_id": [sentence for _, sentence in facts],
            },
        }
    if repeated or missing:
        logger.warning(
            "%s: %d paragraphs with an earlier one's title are left out; %d supporting facts name"
            " no sentence.",
            table.name,
            repeated,
            missing,
        )
    return Dataset.from_list(sorted(questions.values(), key=_characters))


def _pairs(location: RowLocation, values: Mapping[str, Any], column: str, second: str) -> Pairs:
    """Returns pairs from a list of pairs, or from a dict of two lists as on the Hub."""
    value = location.column(values, column, "the distractor setting")
    try:
        if isinstance(value, dict):
            return list(zip(value["title"], value[second], strict=True))
        return [(title, rest) for title, rest in value]
    except (KeyError, TypeError, ValueError) as error:
        raise location.error(
            column, f"must be pairs of title and {second}, got {short(value)}."
        ) from error


def _check_facts(location: RowLocation, facts: Pairs, titles: Set[str]) -> None:
    named = {title for title, _ in facts}
    are_indices = all(isinstance(sentence, int) for _, sentence in facts)
    if not named or not named <= titles or not are_indices:
        raise location.error(
            "supporting_facts",
            "must name paragraphs of the question, and the indices of their sentences, got"
            f" {short(facts)}; the fullwiki setting cannot be read.",
        )


def _characters(question: Mapping[str, Any]) -> int:
    context = question["context"]
    return sum(map(len, chain(context["title"], *context["sentences"])))
