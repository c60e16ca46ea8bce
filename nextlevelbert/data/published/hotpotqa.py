"""HotpotQA in the distractor setting (Yang et al., 2018, arXiv 1809.09600).

Two of a question's ten paragraphs hold what the answer needs, and the supporting facts are their
sentences that state it. The other eight come from a search for the question.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..tables import RowLocation, open_rows, short

logger = logging.getLogger(__name__)

Pairs = list[tuple[str, Any]]  # titles, and the sentences or the index of a sentence


def load(source: str | Path, split: str = "train", config: str | None = None) -> Dataset:
    """Loads HotpotQA from one of three forms, which are recognized by their columns.

    - The official JSON: ``_id``, ``question``, ``answer``, ``supporting_facts`` as pairs of title
      and sentence, ``context`` as pairs of title and sentences.
    - ``hotpotqa/hotpot_qa`` on the Hub: ``id``, and the pairs as a dict of two lists.
    - Rows that keep the paragraphs apart: ``id``, ``question``, ``answer``, ``gold`` and
      ``distractors``, paragraphs with ``title`` and ``sentences``, and ``supporting_sentences``, a
      list of indices for each gold paragraph. Their order follows from the question's id and the
      titles (by SHA-256), so that it does not reveal the gold paragraphs.

    A second paragraph of the same title is left out, because facts name paragraphs by title. A fact
    whose sentence does not exist is kept, because the official scores count it. A warning reports
    how many there are of each.

    Args:
        source: a file, folder or name on the Hub, as `open_rows` takes it.
        split: of a folder or dataset.
        config: the configuration of a dataset on the Hub.

    Returns:
        A row for each question as on the Hub, those with the shortest paragraphs first: ``id``,
        ``question``, ``answer`` (a span of a paragraph, yes or no), ``context`` (``title`` and
        ``sentences``, which can be blank) and ``supporting_facts`` (``title`` and ``sent_id``).

    Raises:
        ValueError: for a row that cannot be read, naming its column.
    """
    questions = {}
    repeated = 0
    missing = 0
    for location, values in open_rows(source, split, config).rows:
        id_column = "id"
        if "_id" in values:
            id_column = "_id"
        name = location.require_text(values.get(id_column), id_column)
        if name in questions:
            raise location.error(id_column, f"the id {name!r} is taken; ids must differ.")
        context, facts = _read_paragraphs(name, location, values)
        sentences_of: dict[str, list[str]] = {}
        for title, sentences in context:
            sentences_of.setdefault(title, sentences)
        _check_facts(location, facts, titles=sentences_of.keys())
        repeated += len(context) - len(sentences_of)
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
            Path(source).name,
            repeated,
            missing,
        )
    return Dataset.from_list(sorted(questions.values(), key=_characters))


def _read_paragraphs(
    name: str, location: RowLocation, values: Mapping[str, Any]
) -> tuple[Pairs, Pairs]:
    """Returns the paragraphs in an order that does not reveal the gold ones, and the facts."""
    if "distractors" not in values:
        context = _pairs(location, values, column="context", second="sentences")
        return context, _pairs(location, values, column="supporting_facts", second="sent_id")

    facts = []
    for paragraph, indices in zip(values["gold"], values["supporting_sentences"], strict=True):
        facts += [(paragraph["title"], index) for index in indices]
    paragraphs = [*values["gold"], *values["distractors"]]
    context = [(paragraph["title"], paragraph["sentences"]) for paragraph in paragraphs]

    def digest(paragraph: tuple[str, Any]) -> str:
        return hashlib.sha256(json.dumps([name, paragraph[0]]).encode()).hexdigest()

    return sorted(context, key=digest), facts


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


def _check_facts(location: RowLocation, facts: Pairs, titles: Any) -> None:
    named = {title for title, _ in facts}
    if not named or not named <= titles:
        raise location.error(
            "supporting_facts",
            f"must name paragraphs of the question, got {short(facts)}; the fullwiki setting"
            " cannot be read.",
        )


def _characters(question: Mapping[str, Any]) -> int:
    context = question["context"]
    return sum(map(len, chain(context["title"], *context["sentences"])))
