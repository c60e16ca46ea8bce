"""Multi-hop question answering with CDLM: rows with labels, answers and supporting sentences (section 3.4)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from ...models.processing_cdlm import CdlmProcessor, warn_of_cuts
from .data import HotpotData, HotpotQuestion

logger = logging.getLogger(__name__)

TYPES = ("span", "yes", "no")
_LONGEST_ANSWER = 30  # tokens
_STARTS = 50  # best starts that are looked at


@dataclass(frozen=True)
class Answer:
    """What a model says to a question.

    Attributes:
        text: of the answer.
        supporting: title and number of each sentence that it takes to support the answer, in order.
    """

    text: str
    supporting: list[tuple[str, int]]


class AnswerLogits(NamedTuple):
    """Scores of one question: `start` and `end` ``[L]``, `type` ``[3]``, `sentence` ``[S]``; padding may follow."""

    start: np.ndarray
    end: np.ndarray
    type: np.ndarray
    sentence: np.ndarray


class QuestionDataset(Dataset):
    """Sequences with labels where the answer is known, shortest first, laid out when they are asked for.

    An answer is looked for in the sentences and titles of the supporting paragraphs: as whole words, or else as part
    of words. A warning counts the answers that are not found there or lie past the cut.

    Args:
        data: questions.
        processor: lays them out.

    Attributes:
        questions: in the order of the sequences.
    """

    def __init__(self, data: HotpotData, processor: CdlmProcessor) -> None:
        self._processor = processor
        lengths, lost, cut, absent = [], 0, 0, 0
        for question in tqdm(data.questions, unit="question", desc=data.source, delay=2):
            row = self._row(question)
            lengths.append(len(row["input_ids"]))
            lost += sum(row["lost_tokens"])
            cut += any(row["lost_tokens"])
            absent += row.get("type_labels") == 0 and row["start_positions"] == [-1]
        if lost:
            logger.warning(
                "%s: paragraphs lose %s tokens in %d of %d sequences of at most %d tokens.",
                data.source, f"{lost:,}", cut, len(lengths), processor.max_length,
            )  # fmt: skip
        if absent:
            logger.warning(
                "%s: %d of %d answers are not in a supporting paragraph, or were truncated.",
                data.source,
                absent,
                len(lengths),
            )
        self.questions = [data.questions[number] for number in np.argsort(lengths, kind="stable")]

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """What `CdlmProcessor.question` gives, with labels where the answer is known."""
        return self._row(self.questions[index])

    def _row(self, question: HotpotQuestion) -> dict[str, Any]:
        row = self._processor.question(question.question, question.paragraphs)
        return row if question.answer is None else row | _labels(question, row)


def _all_texts(paragraphs: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Titles and sentences in the order in which `token_spans` counts them."""
    return [text for title, sentences in paragraphs for text in (title, *sentences)]


def _labels(question: HotpotQuestion, row: dict[str, Any]) -> dict[str, Any]:
    answer = question.answer or ""
    kind = TYPES.index(answer) if answer in TYPES[1:] else 0
    titles = {title for title, _ in question.supporting}
    sentences = [
        int((title, place) in question.supporting)
        for title, lines in question.paragraphs
        for place in range(len(lines))
    ]
    paragraphs = [int(title in titles) for title, _ in question.paragraphs]
    supporting = [title in titles for title, lines in question.paragraphs for _ in range(1 + len(lines))]
    places = [
        (number, at)
        for number, (text, wanted) in enumerate(zip(_all_texts(question.paragraphs), supporting, strict=True))
        for at in (_occurrences(text, answer) if wanted and kind == 0 else ())
    ]
    texts = _all_texts(question.paragraphs)
    words = [(number, at) for number, at in places if _is_apart(texts[number], at, at + len(answer))]
    starts, ends = [], []
    for number, at in words or places:
        inside = [
            position
            for position, (of, first, last) in enumerate(row["token_spans"])
            if of == number and first < at + len(answer) and last > at
        ]
        if inside and row["token_spans"][inside[-1]][2] >= at + len(answer):  # not past the cut
            starts.append(inside[0])
            ends.append(inside[-1])
    there = [label if index >= 0 else -100 for label, index in zip(sentences, row["sentence_index"], strict=True)]
    return {
        "start_positions": starts or [-1],
        "end_positions": ends or [-1],
        "type_labels": kind,
        "sentence_labels": there,
        "paragraph_labels": paragraphs,
    }


def _occurrences(text: str, words: str) -> list[int]:
    """Where `words` begin in a text, overlapping ones too."""
    return [at for at in range(len(text) - len(words) + 1) if text.startswith(words, at)]


def _is_apart(text: str, start: int, end: int) -> bool:
    """Whether a span does not begin or end within a word."""
    inside_left = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
    return not inside_left and not (end < len(text) and text[end - 1].isalnum() and text[end].isalnum())


def read_answer(row: dict[str, Any], paragraphs: Sequence[tuple[str, Sequence[str]]], logits: AnswerLogits) -> Answer:
    """The best answer by the scores of a row.

    The span with the highest sum of start and end scores, of at most 30 tokens within one sentence or title, unless
    yes or no is more probable; and the sentences with a probability above one half.

    Args:
        row: of `CdlmProcessor.question`.
        paragraphs: title and sentences of each.
        logits: of that row.
    """
    names = [(title, place) for title, sentences in paragraphs for place in range(len(sentences))]
    supporting = [
        name
        for name, index, score in zip(names, row["sentence_index"], logits.sentence, strict=False)
        if index >= 0 and score > 0
    ]
    kind = int(np.argmax(logits.type))
    if kind:
        return Answer(TYPES[kind], supporting)
    spans = np.array(row["token_spans"])  # [L, 3]
    possible = np.array(row["context_mask"], dtype=bool)
    start = np.where(possible, logits.start[: len(spans)], -np.inf)
    end = np.where(possible, logits.end[: len(spans)], -np.inf)
    best, found = -np.inf, (0, 0)
    for first in np.argsort(-start)[:_STARTS]:
        last = np.arange(first, min(first + _LONGEST_ANSWER, len(spans)))
        sums = np.where(spans[last, 0] == spans[first, 0], start[first] + end[last], -np.inf)
        if sums.max() > best:
            best, found = sums.max(), (first, last[sums.argmax()])
    text = _all_texts(paragraphs)[spans[found[0], 0]]
    return Answer(text[spans[found[0], 1] : spans[found[1], 2]], supporting)


@torch.no_grad()
def answer(
    model: Any, processor: CdlmProcessor, question: str, paragraphs: Sequence[tuple[str, Sequence[str]]]
) -> Answer:
    """Answers one question from paragraphs.

    Args:
        model: a `CdlmForMultiHopQuestionAnswering`, in evaluation mode.
        processor: its processor.
        question: a text.
        paragraphs: title and sentences of each.
    """
    row = processor.question(question, paragraphs)
    warn_of_cuts([row])
    output = model(**processor.pad([row]).to(model.device))
    scores = (output[f"{name}_logits"][0].float().cpu().numpy() for name in AnswerLogits._fields)
    return read_answer(row, paragraphs, AnswerLogits(*scores))
