"""``--task multihop_qa``: answers a question from ten paragraphs, and names supporting sentences.

The data is HotpotQA in the distractor setting (Yang et al., 2018, arXiv 1809.09600): two of the
paragraphs hold what the answer needs, and the supporting facts are their sentences that state it.
The other eight come from a search for the question. CDLM, section 3.4 and appendix C.3.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from ..data.tables import RowLocation, open_rows, short
from ..evaluation.hotpotqa import Facts, hotpotqa_scores
from ..finetuning.arguments import DataArguments, FinetuningArguments
from ..models.modeling_cdlm import CdlmForMultiHopQuestionAnswering
from ..models.processing_cdlm import CdlmProcessor, warn_of_cuts
from ..pretraining.cdlm import CdlmModelArguments
from ..training.options import parse
from ..training.runs import fingerprint
from .cdlm import Logits, Predicted, train_and_publish

logger = logging.getLogger(__name__)

TYPES = ("span", "yes", "no")
_LONGEST_ANSWER = 30  # tokens
_STARTS = 50  # the best starts, from which spans are considered

Fact = tuple[str, int]  # title, and index of the sentence
Paragraphs = Sequence[tuple[str, Sequence[str]]]  # title and sentences of each

_SNIPPET = """\
from transformers import AutoModelForQuestionAnswering

import nextlevelbert  # registers the architecture
from nextlevelbert.tasks.multihop_qa import answer

model = AutoModelForQuestionAnswering.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
print(answer(model, processor, "Who wrote it?", [("A title", ["A sentence.", "Another one."])]))"""


# --- HotpotQA


class HotpotQuestion(NamedTuple):
    """A question with paragraphs of different titles.

    `answer` is a span of a paragraph, ``"yes"`` or ``"no"``. Sentences can be blank, and a
    supporting fact may name a sentence that its paragraph does not have.
    """

    id: str
    question: str
    answer: str
    paragraphs: list[tuple[str, list[str]]]
    supporting: list[Fact]


class Answer(NamedTuple):
    """A model's answer to a question, and the sentences that support it, in order."""

    text: str
    supporting: list[Fact]


def read_hotpotqa(
    source: str | Path, split: str = "train", dataset_config: str | None = None
) -> list[HotpotQuestion]:
    """Reads HotpotQA in one of three forms, which are recognized by their columns.

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
        dataset_config: the configuration of a dataset on the Hub.

    Returns:
        The questions, those with the shortest paragraphs first.

    Raises:
        ValueError: for a row that cannot be read, naming its column.
    """
    questions: dict[str, HotpotQuestion] = {}
    repeated = 0
    beyond = 0
    for place, values in open_rows(source, split, dataset_config).rows:
        id_column = "id"
        if "_id" in values:
            id_column = "_id"
        name = place.require_text(values.get(id_column), id_column)
        if name in questions:
            raise place.error(id_column, f"the id {name!r} is taken; ids must differ.")
        question, context = _read_question(name, place, values)
        questions[name] = question
        repeated += len(context) - len(question.paragraphs)
        beyond += _missing_sentences(question)
    if repeated or beyond:
        logger.warning(
            "%s: %d paragraphs with an earlier one's title are left out; %d supporting facts name"
            " no sentence.",
            Path(source).name,
            repeated,
            beyond,
        )

    def characters(question: HotpotQuestion) -> int:
        return sum(map(len, all_texts(question.paragraphs)))

    return sorted(questions.values(), key=characters)


def _read_question(
    name: str, place: RowLocation, values: Mapping[str, Any]
) -> tuple[HotpotQuestion, list[tuple[str, list[str]]]]:
    """Returns a question, and its paragraphs with those of repeated titles."""
    if "distractors" in values:
        context, facts = _shuffled_paragraphs(name, values)
    else:
        context = _pairs(place, values, column="context", second="sentences")
        facts = _pairs(place, values, column="supporting_facts", second="sent_id")

    paragraphs: dict[str, list[str]] = {}
    for title, sentences in context:
        paragraphs.setdefault(title, sentences)
    titles = {title for title, _ in facts}
    if not titles or not titles <= paragraphs.keys():
        raise place.error(
            "supporting_facts",
            f"must name paragraphs of the question, got {short(facts)}; the fullwiki setting"
            " cannot be read.",
        )

    question = HotpotQuestion(
        name,
        question=place.require_text(place.column(values, "question", "question"), "question"),
        answer=place.require_text(place.column(values, "answer", "answer"), "answer"),
        paragraphs=list(paragraphs.items()),
        supporting=sorted(set(facts)),
    )
    return question, context


def _shuffled_paragraphs(
    name: str, values: Mapping[str, Any]
) -> tuple[list[tuple[str, list[str]]], list[Fact]]:
    """Returns the paragraphs in an order that does not reveal the gold ones, and the facts."""
    facts = []
    for paragraph, indices in zip(values["gold"], values["supporting_sentences"], strict=True):
        facts += [(paragraph["title"], index) for index in indices]
    paragraphs = [*values["gold"], *values["distractors"]]
    context = [(paragraph["title"], paragraph["sentences"]) for paragraph in paragraphs]
    context.sort(key=lambda paragraph: fingerprint([name, paragraph[0]]))
    return context, facts


def _missing_sentences(question: HotpotQuestion) -> int:
    """Counts the supporting facts that name a sentence which their paragraph does not have."""
    sentences_of = dict(question.paragraphs)
    missing = 0
    for title, sentence in question.supporting:
        if sentence >= len(sentences_of[title]):
            missing += 1
    return missing


def _pairs(
    place: RowLocation, values: Mapping[str, Any], column: str, second: str
) -> list[tuple[str, Any]]:
    """Returns pairs from a list of pairs, or from a dict of two lists as on the Hub."""
    value = place.column(values, column, "the distractor setting")
    try:
        if isinstance(value, dict):
            return list(zip(value["title"], value[second], strict=True))
        return [(title, rest) for title, rest in value]
    except (KeyError, TypeError, ValueError) as error:
        raise place.error(
            column, f"must be pairs of title and {second}, got {short(value)}."
        ) from error


# --- Labels and answers


class QuestionDataset(Dataset):
    """Sequences of questions with labels, laid out when a row is asked for.

    An answer is searched in the sentences and titles of the supporting paragraphs, first as whole
    words, then as part of words. A warning counts the answers that are not there, or lie in what a
    paragraph loses.

    Args:
        questions: the questions.
        processor: makes rows of token ids.
    """

    def __init__(self, questions: Sequence[HotpotQuestion], processor: CdlmProcessor) -> None:
        self.questions = questions
        self._processor = processor
        lost = 0
        absent = 0
        for index in range(len(questions)):
            row = self[index]
            lost += sum(row["lost_tokens"])
            if row["type_labels"] == 0 and row["start_positions"] == [-1]:
                absent += 1
        if lost or absent:
            logger.warning(
                "Paragraphs lose %d tokens; %d of %d answers are not in a supporting paragraph, or"
                " past the cut.",
                lost,
                absent,
                len(questions),
            )

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> dict[str, Any]:
        question = self.questions[index]
        row = self._processor.question(question.question, question.paragraphs)
        return row | _labels(question, row)


def all_texts(paragraphs: Paragraphs) -> list[str]:
    """Returns titles and sentences in the order in which `token_spans` counts them."""
    texts = []
    for title, sentences in paragraphs:
        texts += [title, *sentences]
    return texts


def _all_facts(paragraphs: Paragraphs) -> list[Fact]:
    """Returns title and index of every sentence, in order."""
    facts = []
    for title, sentences in paragraphs:
        facts += [(title, index) for index in range(len(sentences))]
    return facts


def _labels(question: HotpotQuestion, row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the labels of a row of `CdlmProcessor.question`."""
    facts = set(question.supporting)
    titles = {title for title, _ in facts}
    kind = 0
    starts: list[int] = []
    ends: list[int] = []
    if question.answer in TYPES[1:]:
        kind = TYPES.index(question.answer)
    else:
        spans = np.array(row["token_spans"])  # [L, 3]
        for text, start in _answer_positions(question, titles):
            end = start + len(question.answer)
            overlaps = (spans[:, 0] == text) & (spans[:, 1] < end) & (spans[:, 2] > start)
            inside = np.flatnonzero(overlaps).tolist()
            if inside and spans[inside[-1], 2] >= end:  # else its end is past the cut
                starts.append(inside[0])
                ends.append(inside[-1])

    sentence_labels = []
    for fact, position in zip(_all_facts(question.paragraphs), row["sentence_index"], strict=True):
        if position >= 0:
            sentence_labels.append(int(fact in facts))
        else:
            sentence_labels.append(-100)
    return {
        "start_positions": starts or [-1],
        "end_positions": ends or [-1],
        "type_labels": kind,
        "sentence_labels": sentence_labels,
        "paragraph_labels": [int(title in titles) for title, _ in question.paragraphs],
    }


def _answer_positions(question: HotpotQuestion, titles: set[str]) -> list[tuple[int, int]]:
    """Finds the answer in the paragraphs of these titles.

    Returns:
        Index of the text, as in `all_texts`, and first character of each place where the answer is
        made of whole words; if there is none, of each place.
    """
    answer = question.answer
    before = ""
    after = ""
    if answer[0].isalnum():
        before = r"(?<![^\W_])"
    if answer[-1].isalnum():
        after = r"(?![^\W_])"

    texts = []
    index = 0
    for title, sentences in question.paragraphs:
        for text in (title, *sentences):
            if title in titles:
                texts.append((index, text))
            index += 1

    # Places may overlap, so the patterns look ahead.
    for pattern in (f"(?={before}{re.escape(answer)}{after})", f"(?={re.escape(answer)})"):
        positions = []
        for index, text in texts:
            positions += [(index, match.start()) for match in re.finditer(pattern, text)]
        if positions:
            return positions
    return []


def read_answer(
    row: Mapping[str, Any], paragraphs: Paragraphs, logits: Sequence[np.ndarray]
) -> Answer:
    """Returns the best answer to a row of `CdlmProcessor.question`.

    The text is the span with the highest sum of start and end scores, of at most 30 tokens within
    one sentence or title, unless yes or no is more probable. Sentences support it if their
    probability is above one half.

    Args:
        row: of the question.
        paragraphs: title and sentences of each.
        logits: of start and end ``[L]``, type ``[3]`` and sentences ``[S]``; padding may follow.
    """
    start, end, types, sentences = logits[:4]
    supporting = []
    facts = _all_facts(paragraphs)
    for fact, position, score in zip(facts, row["sentence_index"], sentences, strict=False):
        if position >= 0 and score > 0:
            supporting.append(fact)
    kind = int(np.argmax(types))
    if kind > 0:
        return Answer(TYPES[kind], supporting)

    spans = np.array(row["token_spans"])  # [L, 3]
    in_context = np.array(row["context_mask"], dtype=bool)
    start = np.where(in_context, start[: len(spans)], -np.inf)
    end = np.where(in_context, end[: len(spans)], -np.inf)

    first = np.argsort(-start)[:_STARTS, None]
    last = np.minimum(first + np.arange(_LONGEST_ANSWER), len(spans) - 1)  # [50, 30]
    in_one_text = spans[last, 0] == spans[first, 0]
    sums = np.where(in_one_text, start[first] + end[last], -np.inf)
    row_of_best, column_of_best = np.unravel_index(sums.argmax(), sums.shape)
    text, begin, _ = spans[first[row_of_best, 0]]
    _, _, stop = spans[last[row_of_best, column_of_best]]
    return Answer(all_texts(paragraphs)[text][begin:stop], supporting)


@torch.no_grad()
def answer(
    model: CdlmForMultiHopQuestionAnswering,
    processor: CdlmProcessor,
    question: str,
    paragraphs: Paragraphs,
) -> Answer:
    """Answers one question from paragraphs.

    Args:
        model: in evaluation mode.
        processor: of the model.
        question: the question.
        paragraphs: title and sentences of each.
    """
    row = processor.question(question, paragraphs)
    warn_of_cuts([row])
    output = model(**processor.pad([row]).to(model.device))
    names = ("start_logits", "end_logits", "type_logits", "sentence_logits")
    logits = [output[name][0].float().cpu().numpy() for name in names]
    return read_answer(row, paragraphs, logits)


def f1_scores(
    questions: Iterable[HotpotQuestion], answers: Mapping[str, tuple[str, Facts]]
) -> dict[str, float]:
    """Computes exact match and F1 of answers, of supporting facts, and of both together.

    Args:
        questions: the questions.
        answers: question id → the answer and its supporting facts.
    """
    right = {question.id: (question.answer, question.supporting) for question in questions}
    scores = hotpotqa_scores(answers, right)
    return {name: value for name, value in scores.items() if name.endswith(("_em", "_f1"))}


# --- The task


def _first_title(questions: Sequence[HotpotQuestion]) -> dict[str, float]:
    """Scores the first title as answer, and the first sentences of all paragraphs as facts."""
    answers = {}
    for question in questions:
        first_sentences = [(title, 0) for title, _ in question.paragraphs]
        answers[question.id] = (question.paragraphs[0][0], first_sentences)
    return f1_scores(questions, answers)


def _predict(
    name: str, rows: QuestionDataset, logits: Logits, chosen: dict[str, float]
) -> Predicted:
    """Returns the scores of a set, and the answer to each of its questions."""
    answers = {}
    records = []
    for index, question in enumerate(rows.questions):
        row_logits = [scores[index] for scores in logits]
        predicted = read_answer(rows[index], question.paragraphs, row_logits)
        answers[question.id] = predicted
        record = {
            "id": question.id,
            "answer": predicted.text,
            "supporting": predicted.supporting,
            "gold": question.answer,
        }
        records.append(record)
    return f1_scores(rows.questions, answers), records


def main(argv: list[str]) -> None:
    """Multi-hop question answering with CDLM."""
    model_args, args, data_args = parse(
        (CdlmModelArguments, FinetuningArguments, DataArguments),
        argv,
        about=main.__doc__ or "",
        recipes="multihop_qa-",
    )
    sets = data_args.read_sets(
        lambda name, source, split: read_hotpotqa(
            source, split=split, dataset_config=data_args.dataset_config_name
        ),
        seed=args.seed,
    )
    card = {
        "snippet": _SNIPPET,
        "pipeline_tag": "question-answering",
        "tags": ["multi-hop-question-answering"],
        "scores": "joint_f1",
    }
    train_and_publish(
        CdlmForMultiHopQuestionAnswering,
        model_args,
        args,
        sets=sets,
        sequences=lambda name, processor: QuestionDataset(sets[name], processor),
        predict=_predict,
        baseline=("first title, all first sentences", _first_title),
        card=card,
        settings={"task": "multihop_qa"},
    )
