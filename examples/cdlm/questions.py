"""``--task multihop_qa``: answers a question from ten paragraphs, and names supporting sentences.

The data is HotpotQA in the distractor setting (see `data.published.hotpotqa`). CDLM, section 3.4
and appendix C.3.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from ..data.published import hotpotqa
from ..data.tables import open_rows
from ..evaluation.hotpotqa import answers_of, hotpotqa_scores
from ..finetuning.arguments import FinetuningArguments
from ..finetuning.seeds import Scores
from ..models.modeling_cdlm import CdlmForMultiHopQuestionAnswering
from ..models.processing_cdlm import CdlmProcessor, warn_of_cuts
from ..pretraining.cdlm import LIMITS, SUMMARY, CdlmModelArguments
from ..training.cards import CardText
from ..training.data import DataArguments
from ..training.options import parse
from .cdlm import MEASURED, TAGS, Predicted, train_and_publish

logger = logging.getLogger(__name__)

TYPES = ("span", "yes", "no")
_LONGEST_ANSWER = 30  # tokens
_STARTS = 50  # the best starts, from which spans are considered

Fact = tuple[str, int]  # title, and index of the sentence
Paragraphs = Sequence[tuple[str, Sequence[str]]]  # title and sentences of each
Question = Mapping[str, Any]  # a row of `hotpotqa.load`

_SNIPPET = """\
from transformers import AutoModelForQuestionAnswering

import nextlevelbert  # registers the architecture
from nextlevelbert.tasks.multihop_qa import answer

model = AutoModelForQuestionAnswering.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
print(answer(model, processor, "Who wrote it?", [("A title", ["A sentence.", "Another one."])]))"""
_CARD = CardText(
    summary=SUMMARY,
    intended_use="It answers a question from several paragraphs and names supporting sentences.",
    measured=MEASURED,
    limits=LIMITS,
    snippet=_SNIPPET,
    pipeline_tag="question-answering",
    tags=(*TAGS, "multi-hop-question-answering"),
)


class SupportedAnswer(NamedTuple):
    """A model's answer to a question, and the sentences that support it, in order."""

    text: str
    supporting: list[Fact]


# --- Paragraphs and labels


def paragraphs_of(question: Question) -> Paragraphs:
    """Returns title and sentences of each paragraph of a question."""
    context = question["context"]
    return list(zip(context["title"], context["sentences"], strict=True))


def facts_of(question: Question) -> set[Fact]:
    """Returns the supporting facts of a question."""
    facts = question["supporting_facts"]
    return set(zip(facts["title"], facts["sent_id"], strict=True))


def all_texts(paragraphs: Paragraphs) -> list[str]:
    """Returns titles and sentences in the order in which `token_spans` counts them."""
    texts = []
    for title, sentences in paragraphs:
        texts += [title, *sentences]
    return texts


def all_facts(paragraphs: Paragraphs) -> list[Fact]:
    """Returns title and index of every sentence, in order."""
    facts = []
    for title, sentences in paragraphs:
        facts += [(title, index) for index in range(len(sentences))]
    return facts


class QuestionDataset(Dataset):
    """Sequences of questions with labels; a row is laid out when it is read.

    An answer is searched in the sentences and titles of the supporting paragraphs, first as whole
    words, then as part of words. A warning counts the answers that are not in them, or are in the
    text that a truncated paragraph loses.

    Args:
        questions: rows of `hotpotqa.load`.
        processor: processor that makes rows of token ids.
    """

    def __init__(self, questions: Sequence[Question], processor: CdlmProcessor) -> None:
        self.questions = questions
        self._processor = processor

        lost_tokens = 0
        absent_answers = 0
        for index in range(len(questions)):
            row = self[index]
            lost_tokens += sum(row["lost_tokens"])
            if row["type_labels"] == 0 and row["start_positions"] == [-1]:
                absent_answers += 1
        if lost_tokens or absent_answers:
            logger.warning(
                "Paragraphs lose %d tokens; %d of %d answers are not in what is left of the"
                " supporting paragraphs.",
                lost_tokens,
                absent_answers,
                len(questions),
            )

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> dict[str, Any]:
        question = self.questions[index]
        row = self._processor.question(question["question"], paragraphs_of(question))
        return row | _labels(question, row)


def _labels(question: Question, row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the labels of a row of `CdlmProcessor.question`."""
    paragraphs = paragraphs_of(question)
    facts = facts_of(question)
    titles = {title for title, _ in facts}

    answer = question["answer"]
    answer_type = 0
    spans = []
    if answer in TYPES[1:]:
        answer_type = TYPES.index(answer)
    else:
        spans = _answer_spans(answer, paragraphs, titles=titles, token_spans=row["token_spans"])
    if not spans:
        spans = [(-1, -1)]

    sentence_labels = []
    for fact, position in zip(all_facts(paragraphs), row["sentence_index"], strict=True):
        if position >= 0:
            sentence_labels.append(int(fact in facts))
        else:
            sentence_labels.append(-100)
    return {
        "start_positions": [first for first, _ in spans],
        "end_positions": [last for _, last in spans],
        "type_labels": answer_type,
        "sentence_labels": sentence_labels,
        "paragraph_labels": [int(title in titles) for title, _ in paragraphs],
    }


def _answer_spans(
    answer: str,
    paragraphs: Paragraphs,
    titles: set[str],
    token_spans: Sequence[tuple[int, int, int]],
) -> list[tuple[int, int]]:
    """Returns the first and last token of each occurrence of the answer."""
    texts, starts, ends = np.array(token_spans).T
    spans = []
    for text, start in _answer_positions(answer, paragraphs, titles):
        end = start + len(answer)
        overlaps = (texts == text) & (starts < end) & (ends > start)
        tokens = np.flatnonzero(overlaps).tolist()
        if tokens and ends[tokens[-1]] >= end:  # otherwise the answer is truncated
            spans.append((tokens[0], tokens[-1]))
    return spans


def _answer_positions(
    answer: str, paragraphs: Paragraphs, titles: set[str]
) -> list[tuple[int, int]]:
    """Finds the answer in the paragraphs of these titles.

    Returns:
        The index of the text, as in `all_texts`, and the first character of each occurrence of the
        answer as whole words; if there is none, of each occurrence.
    """
    anywhere = re.escape(answer)
    as_words = anywhere
    if answer[0].isalnum():
        as_words = rf"(?<![^\W_]){as_words}"
    if answer[-1].isalnum():
        as_words = rf"{as_words}(?![^\W_])"

    for pattern in (as_words, anywhere):
        positions = []
        index = 0
        for title, sentences in paragraphs:
            for text in (title, *sentences):
                if title in titles:
                    # Occurrences may overlap, so the pattern looks ahead.
                    matches = re.finditer(f"(?={pattern})", text)
                    positions += [(index, match.start()) for match in matches]
                index += 1
        if positions:
            return positions
    return []


# --- Answers


def read_answer(
    row: Mapping[str, Any], paragraphs: Paragraphs, logits: Sequence[np.ndarray]
) -> SupportedAnswer:
    """Returns the best answer to a row of `CdlmProcessor.question`.

    The text is the span with the highest sum of start and end scores, of at most 30 tokens within
    one sentence or title, unless yes or no is more probable. A sentence supports the answer if its
    probability is above one half.

    Args:
        row: row of the question.
        paragraphs: title and sentences of each paragraph.
        logits: logits of start and end ``[L]``, type ``[3]`` and sentences ``[S]``; padding may
            follow.
    """
    start, end, types, sentences = logits[:4]
    supporting = []
    facts = all_facts(paragraphs)
    for fact, position, score in zip(facts, row["sentence_index"], sentences, strict=False):
        if position >= 0 and score > 0:
            supporting.append(fact)

    answer_type = int(np.argmax(types))
    if answer_type > 0:
        return SupportedAnswer(TYPES[answer_type], supporting)

    texts, begins, ends = np.array(row["token_spans"]).T
    in_context = np.array(row["context_mask"], dtype=bool)
    start_scores = np.where(in_context, start[: len(texts)], -np.inf)
    end_scores = np.where(in_context, end[: len(texts)], -np.inf)
    first, last = _best_span(start_scores, end_scores, texts)
    text = all_texts(paragraphs)[texts[first]][begins[first] : ends[last]]
    return SupportedAnswer(text, supporting)


def _best_span(start: np.ndarray, end: np.ndarray, texts: np.ndarray) -> tuple[int, int]:
    """Returns the first and last token of the span within one text with the highest score.

    Args:
        start: scores of every token as the first of a span, ``[L]``.
        end: scores of every token as the last of a span, ``[L]``.
        texts: index of the text of every token, ``[L]``.
    """
    first = np.argsort(-start)[:_STARTS, None]  # [50, 1]
    last = np.minimum(first + np.arange(_LONGEST_ANSWER), len(texts) - 1)  # [50, 30]
    sums = np.where(texts[first] == texts[last], start[first] + end[last], -np.inf)
    row, column = np.unravel_index(sums.argmax(), sums.shape)
    return first[row, 0], last[row, column]


@torch.no_grad()
def answer(
    model: CdlmForMultiHopQuestionAnswering,
    processor: CdlmProcessor,
    question: str,
    paragraphs: Paragraphs,
) -> SupportedAnswer:
    """Answers one question from paragraphs.

    Args:
        model: model in evaluation mode.
        processor: processor of the model.
        question: the question.
        paragraphs: title and sentences of each paragraph.
    """
    row = processor.question(question, paragraphs)
    warn_of_cuts([row])
    output = model(**processor.pad([row]).to(model.device))
    names = ("start_logits", "end_logits", "type_logits", "sentence_logits")
    logits = [output[name][0].float().cpu().numpy() for name in names]
    return read_answer(row, paragraphs, logits)


def answer_scores(questions: Iterable[Question], answers: Mapping[str, SupportedAnswer]) -> Scores:
    """Computes exact match and F1 of answers, of supporting facts, and of both together.

    Args:
        questions: rows of `hotpotqa.load`.
        answers: question id → the answer and its supporting facts.
    """
    scores = hotpotqa_scores(answers, answers_of(questions))
    return {name: value for name, value in scores.items() if name.endswith(("_em", "_f1"))}


# --- The task


def _first_title(questions: Sequence[Question]) -> Scores:
    """Scores the first title as answer, and the first sentences of all paragraphs as facts."""
    answers = {}
    for question in questions:
        titles = question["context"]["title"]
        answers[question["id"]] = SupportedAnswer(titles[0], [(title, 0) for title in titles])
    return answer_scores(questions, answers)


def _predict(
    name: str, rows: QuestionDataset, logits: tuple[np.ndarray, ...], chosen: Scores
) -> Predicted:
    """Returns the scores of a set, and the answer to each of its questions."""
    answers = {}
    records = []
    for index, question in enumerate(rows.questions):
        row_logits = [scores[index] for scores in logits]
        predicted = read_answer(rows[index], paragraphs_of(question), row_logits)
        answers[question["id"]] = predicted
        record = {
            "id": question["id"],
            "answer": predicted.text,
            "supporting": predicted.supporting,
            "gold": question["answer"],
        }
        records.append(record)
    return answer_scores(rows.questions, answers), records


def main(argv: list[str]) -> None:
    """Answers questions from ten paragraphs, and names supporting sentences, with CDLM."""
    model_args, args, data_args = parse(
        (CdlmModelArguments, FinetuningArguments, DataArguments),
        argv,
        about=main.__doc__,
        recipes="multihop_qa-",
    )

    def read(source: str, split: str, config: str | None) -> Sequence[Question]:
        return hotpotqa.load(open_rows(source, split, config))

    sets = data_args.read_sets(read, seed=args.seed)
    train_and_publish(
        CdlmForMultiHopQuestionAnswering,
        sets,
        sequences=lambda name, processor: QuestionDataset(sets[name], processor),
        predict=_predict,
        baseline=("first title, all first sentences", _first_title),
        card=_CARD,
        metric="joint_f1",
        settings={"task": "multihop_qa"},
        model_args=model_args,
        args=args,
        data_args=data_args,
    )
