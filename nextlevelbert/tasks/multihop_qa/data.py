"""HotpotQA in the distractor setting (Yang et al., 2018, arXiv 1809.09600): questions over ten paragraphs each.

Two of the paragraphs hold what the answer takes, and the supporting facts are their sentences that say it. The other
eight come from a search for the question.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...data.rows import Place, Rows, fingerprint, open_rows, short

logger = logging.getLogger(__name__)

_SAMPLE_COLUMNS = {"gold", "supporting_sentences", "distractors"}


class Paragraph(NamedTuple):
    """A paragraph of Wikipedia: its title, unique within a question, and its sentences as they stand in the data."""

    title: str
    sentences: list[str]


@dataclass(frozen=True)
class HotpotQuestion:
    """A question with the paragraphs to answer it from.

    Attributes:
        id: as in the data, by which predictions are scored.
        question: its text.
        answer: a span of some paragraph, ``"yes"`` or ``"no"``; None where it is not known (the test set).
        paragraphs: in the order of the data. Sentences can be blank, so that their numbers are those of the data.
        supporting: title and number of the sentence, from 0, of each supporting fact; none without an answer. A fact
            may name a sentence that its paragraph does not have.
        type: ``"bridge"`` or ``"comparison"``; None where it is not known.
    """

    id: str
    question: str
    answer: str | None
    paragraphs: list[Paragraph]
    supporting: frozenset[tuple[str, int]]
    type: str | None = None


@dataclass(frozen=True)
class HotpotData:
    """A set of questions.

    Attributes:
        questions: in the order of the rows; no id comes twice.
        source: what it was read from (without folders).
    """

    questions: list[HotpotQuestion]
    source: str

    def content(self) -> Iterator[object]:
        """Everything that a run depends on, for `fingerprint`."""
        for each in self.questions:
            yield [each.id, each.question, each.answer, each.paragraphs, sorted(each.supporting), each.type]

    @property
    def references(self) -> dict[str, tuple[str | None, frozenset[tuple[str, int]]]]:
        """The answer and the supporting facts of each question, by id, as `hotpotqa_scores` takes them."""
        return {question.id: (question.answer, question.supporting) for question in self.questions}


def read_hotpotqa(source: str | Path, split: str = "train", dataset_config: str | None = None) -> HotpotData:
    """Reads HotpotQA in one of three forms, which are told apart by their columns.

    - The official JSON: ``_id``, ``question``, ``answer``, ``supporting_facts`` as pairs of title and sentence,
      ``context`` as pairs of title and sentences, ``type``.
    - ``hotpotqa/hotpot_qa`` on the Hub: ``id``, and the pairs as a dict of two lists.
    - Rows that keep the paragraphs apart: ``id``, ``question``, ``answer``, ``gold`` and ``distractors``, paragraphs
      with ``title`` and ``sentences``, and ``supporting_sentences``, a list of numbers for each gold one. Here the
      paragraphs get an order that depends on the question's id and their titles alone (by SHA-256), so that it does
      not tell which are gold.

    Questions may lack an answer, and then have no supporting facts either. A second paragraph of the same title is
    left out, since facts name paragraphs by title; a fact whose sentence is not there is kept, because the official
    scores count it. A warning says how many there are of each.

    Args:
        source: a .json, .jsonl or .parquet (also .gz), or a dataset on the Hub.
        split, dataset_config: of a dataset on the Hub; the configuration of this setting is ``distractor``.

    Raises:
        FileNotFoundError: for a file that is not there.
        ValueError: naming row and column, for a question without paragraphs, a fact of a paragraph that is not
            there, facts without an answer or the reverse, blank or repeated ids, and blank questions.
    """
    name, first, rows, _ = open_rows(source, split, dataset_config)
    if _SAMPLE_COLUMNS <= first.keys():
        rows = _with_context(rows)
    elif not {"question", "context"} <= first.keys():
        raise ValueError(
            f"{name} is not HotpotQA: it has the columns {', '.join(first)}. Known are question and context, or "
            f"question, {', '.join(sorted(_SAMPLE_COLUMNS))}."
        )
    questions: list[HotpotQuestion] = []
    places: dict[str, Place] = {}
    repeated = 0
    for place, values in rows:
        column = "_id" if "_id" in values else "id"
        number = place.checked(values.get(column), column)
        if number in places:
            raise place.error(column, f"the id {number!r} is taken by {places[number].row}; ids must differ.")
        places[number] = place
        paragraphs, again = _paragraphs(place, values.get("context"))
        repeated += again
        text = place.checked(values.get("question"), "question")
        answer, kind = (_optional(place, values, column) for column in ("answer", "type"))
        supporting = _supporting(place, values.get("supporting_facts"), {each.title for each in paragraphs})
        if (answer is None) != (not supporting):
            raise place.error(
                "supporting_facts",
                f"has {len(supporting)} facts, although the answer is {short(answer)}; give both, or neither.",
            )
        questions.append(HotpotQuestion(number, text, answer, paragraphs, supporting, kind))
    if repeated:
        logger.warning(
            "%s: %d paragraphs have the title of an earlier one of the same question and are left out.", name, repeated
        )
    if missing := sum(_missing_sentences(question) for question in questions):
        message = "%s: %d supporting facts name a sentence that their paragraph does not have; no model can find them."
        logger.warning(message, name, missing)
    return HotpotData(questions, name)


def _optional(place: Place, values: dict[str, Any], column: str) -> str | None:
    return None if values.get(column) is None else place.checked(values[column], column)


def _missing_sentences(question: HotpotQuestion) -> int:
    lengths = {paragraph.title: len(paragraph.sentences) for paragraph in question.paragraphs}
    return sum(sentence >= lengths[title] for title, sentence in question.supporting)


def _paragraphs(place: Place, context: object) -> tuple[list[Paragraph], int]:
    """The paragraphs of a question, and how many were left out because their title had been there."""
    found: dict[str, Paragraph] = {}
    pairs = _pairs(place, "context", context, "sentences")
    if not pairs:
        raise place.error("context", "contains no paragraph; leave the question out.")
    for title, sentences in pairs:
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            raise place.error("context", f"sentences must be a list of texts, got {short(sentences)}.")
        paragraph = Paragraph(place.checked(title, "context"), sentences)
        found.setdefault(paragraph.title, paragraph)
    return list(found.values()), len(pairs) - len(found)


def _supporting(place: Place, facts: object, titles: set[str]) -> frozenset[tuple[str, int]]:
    column = "supporting_facts"
    found: set[tuple[str, int]] = set()
    for title, sentence in [] if facts is None else _pairs(place, column, facts, "sent_id"):
        if not isinstance(title, str) or title not in titles:
            raise place.error(
                column,
                f"names {short(title)}, which is not a paragraph of the question. In the distractor setting all are "
                "there; the fullwiki setting, where some are not, cannot be read.",
            )
        if not isinstance(sentence, int) or isinstance(sentence, bool) or sentence < 0:
            raise place.error(
                column, f"the number of a sentence must be a whole number from 0, got {short(sentence)}."
            )
        found.add((title, sentence))
    return frozenset(found)


def _pairs(place: Place, column: str, value: object, second: str) -> list[tuple[object, object]]:
    """Titles with what belongs to them: from a list of pairs, or from a dict of two lists as the Hub has it."""
    if isinstance(value, dict):
        titles, others = value.get("title"), value.get(second)
        if isinstance(titles, list) and isinstance(others, list) and len(titles) == len(others):
            return list(zip(titles, others, strict=True))
    elif isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return [(title, rest) for title, rest in value]
    raise place.error(
        column,
        f"must be pairs of title and {second}, or lists title and {second} of one length, got {short(value)}.",
    )


def _with_context(rows: Rows) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Rows that keep gold paragraphs and distractors apart, in the form of the official ones."""
    for place, values in rows:
        gold, others = (_titled(place, values, column) for column in ("gold", "distractors"))
        numbers = values.get("supporting_sentences")
        if not isinstance(numbers, list) or not all(isinstance(each, list) for each in numbers):
            raise place.error("supporting_sentences", f"must be a list of lists of numbers, got {short(numbers)}.")
        if len(numbers) != len(gold):
            raise place.error(
                "supporting_sentences", f"has {len(numbers)} lists for {len(gold)} gold paragraphs; give one each."
            )
        facts = [[title, sentence] for (title, _), each in zip(gold, numbers, strict=True) for sentence in each]
        context = sorted([*gold, *others], key=lambda pair: fingerprint([values.get("id"), pair[0]]))
        yield place, {**values, "context": context, "supporting_facts": facts}


def _titled(place: Place, values: dict[str, Any], column: str) -> list[list[Any]]:
    paragraphs = values.get(column)
    if isinstance(paragraphs, list) and all(
        isinstance(each, dict) and {"title", "sentences"} <= each.keys() for each in paragraphs
    ):
        return [[each["title"], each["sentences"]] for each in paragraphs]
    raise place.error(column, f"must be a list of paragraphs with title and sentences, got {short(paragraphs)}.")
