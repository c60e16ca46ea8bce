"""The task ``multihop_qa``: answer a question from ten paragraphs, and name the sentences that
support the answer.

HotpotQA in the distractor setting (Yang et al., 2018, arXiv 1809.09600): two of the paragraphs hold
what the answer takes, and the supporting facts are their sentences that say it. The other eight
come from a search for the question. CDLM, section 3.4 and appendix C.3.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from ..data.rows import Place, fingerprint, open_rows, short
from ..evaluation.hotpotqa import Facts, hotpotqa_scores
from ..finetuning.seeds import DataArguments, FinetuningArguments
from ..models.modeling_cdlm import CdlmForMultiHopQuestionAnswering
from ..models.processing_cdlm import CdlmProcessor, warn_of_cuts
from ..pretraining.cdlm import CdlmModelArguments
from ..training.trainer import parse
from .cdlm import Logits, Predicted, train_and_publish

logger = logging.getLogger(__name__)

TYPES = ("span", "yes", "no")
_LONGEST_ANSWER = 30  # tokens
_STARTS = 50  # best starts that are looked at

Fact = tuple[str, int]  # title, and number of the sentence from 0
Paragraphs = Sequence[tuple[str, Sequence[str]]]  # title and sentences of each


class HotpotQuestion(NamedTuple):
    """A question with paragraphs of different titles; `answer` is a span of one, ``"yes"`` or
    ``"no"``.

    Sentences can be blank, and a supporting fact may name a sentence that its paragraph does not
    have.
    """

    id: str
    question: str
    answer: str
    paragraphs: list[tuple[str, list[str]]]
    supporting: list[Fact]


class Answer(NamedTuple):
    """What a model says to a question: a text, and the sentences that it takes to support it, in
    order."""

    text: str
    supporting: list[Fact]


def read_hotpotqa(
    source: str | Path, split: str = "train", dataset_config: str | None = None
) -> list[HotpotQuestion]:
    """Reads HotpotQA in one of three forms, which are told apart by their columns.

    - The official JSON: ``_id``, ``question``, ``answer``, ``supporting_facts`` as pairs of title
      and sentence, ``context`` as pairs of title and sentences.
    - ``hotpotqa/hotpot_qa`` on the Hub: ``id``, and the pairs as a dict of two lists.
    - Rows that keep the paragraphs apart: ``id``, ``question``, ``answer``, ``gold`` and
      ``distractors``, paragraphs with ``title`` and ``sentences``, and ``supporting_sentences``, a
      list of numbers for each gold one. Their order is then made from the question's id and the
      titles (by SHA-256), so that it does not tell which are gold.

    A second paragraph of the same title is left out, since facts name paragraphs by title; a fact
    whose sentence is not there is kept, because the official scores count it. A warning says how
    many there are of each.
    """
    questions: dict[str, HotpotQuestion] = {}
    repeated = beyond = 0
    for place, values in open_rows(source, split, dataset_config).rows:
        key = "_id" if "_id" in values else "id"
        number = place.checked(values.get(key), key)
        if number in questions:
            raise place.error(key, f"the id {number!r} is taken; ids must differ.")
        if "distractors" in values:
            gold, distractors = (
                [(part["title"], part["sentences"]) for part in values[name]]
                for name in ("gold", "distractors")
            )
            context = sorted([*gold, *distractors], key=lambda pair: fingerprint([number, pair[0]]))
            supporting = zip(gold, values["supporting_sentences"], strict=True)
            facts = [
                (title, sentence) for (title, _), sentences in supporting for sentence in sentences
            ]
        else:
            context = _pairs(place, values, "context", "sentences")
            facts = _pairs(place, values, "supporting_facts", "sent_id")
        paragraphs: dict[str, list[str]] = {}
        for title, sentences in context:
            paragraphs.setdefault(title, sentences)
        repeated += len(context) - len(paragraphs)
        if not facts or not {title for title, _ in facts} <= paragraphs.keys():
            problem = (
                f"must name paragraphs of the question, got {short(facts)}; the fullwiki setting"
                " cannot be read."
            )
            raise place.error("supporting_facts", problem)
        beyond += sum(sentence >= len(paragraphs[title]) for title, sentence in facts)
        text, answer = (
            place.checked(place.value(values, name, name), name) for name in ("question", "answer")
        )
        questions[number] = HotpotQuestion(
            number, text, answer, list(paragraphs.items()), sorted(set(facts))
        )
    if repeated or beyond:
        message = (
            "%s: %d paragraphs with an earlier one's title are left out; %d supporting facts name"
            " no sentence."
        )
        logger.warning(message, Path(source).name, repeated, beyond)
    return sorted(
        questions.values(), key=lambda question: sum(map(len, all_texts(question.paragraphs)))
    )


def _pairs(
    place: Place, values: Mapping[str, Any], column: str, second: str
) -> list[tuple[str, Any]]:
    """Titles with what belongs to them: from a list of pairs, or from a dict of two lists as the
    Hub has it."""
    value = place.value(values, column, "the distractor setting")
    try:
        if isinstance(value, dict):
            return list(zip(value["title"], value[second], strict=True))
        return [(title, rest) for title, rest in value]
    except (KeyError, TypeError, ValueError) as error:
        raise place.error(
            column, f"must be pairs of title and {second}, got {short(value)}."
        ) from error


class QuestionDataset(Dataset):
    """Sequences of questions with labels, laid out when they are asked for.

    An answer is looked for in the sentences and titles of the supporting paragraphs: as whole
    words, or else as part of words. A warning counts the answers that are not found there or lie
    past the cut.
    """

    def __init__(self, questions: Sequence[HotpotQuestion], processor: CdlmProcessor) -> None:
        self.questions, self._processor = questions, processor
        lost = absent = 0
        for row in (self[number] for number in range(len(questions))):
            lost += sum(row["lost_tokens"])
            absent += row["type_labels"] == 0 and row["start_positions"] == [-1]
        if lost or absent:
            message = (
                "Paragraphs lose %d tokens; %d of %d answers are not in a supporting paragraph, or"
                " past the cut."
            )
            logger.warning(message, lost, absent, len(questions))

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> dict[str, Any]:
        question = self.questions[index]
        row = self._processor.question(question.question, question.paragraphs)
        return row | _labels(question, row)


def all_texts(paragraphs: Paragraphs) -> list[str]:
    """Titles and sentences in the order in which `token_spans` counts them."""
    return [text for title, sentences in paragraphs for text in (title, *sentences)]


def _labels(question: HotpotQuestion, row: dict[str, Any]) -> dict[str, Any]:
    """What is right in a row of `CdlmProcessor.question`."""
    answer, facts = question.answer, set(question.supporting)
    titles = {title for title, _ in facts}
    kind = TYPES.index(answer) if answer in TYPES[1:] else 0
    every = enumerate(
        (title, text) for title, lines in question.paragraphs for text in (title, *lines)
    )
    texts = [(number, text) for number, (title, text) in every if title in titles and kind == 0]
    left, right = r"(?<![^\W_])" * answer[0].isalnum(), r"(?![^\W_])" * answer[-1].isalnum()
    words, part = f"(?={left}{re.escape(answer)}{right})", f"(?={re.escape(answer)})"
    places = [
        (number, match.start()) for number, text in texts for match in re.finditer(words, text)
    ]
    places = places or [
        (number, match.start()) for number, text in texts for match in re.finditer(part, text)
    ]
    spans, starts, ends = np.array(row["token_spans"]), [], []  # [L, 3]
    for number, at in places:
        stop = at + len(answer)
        inside = np.flatnonzero(
            (spans[:, 0] == number) & (spans[:, 1] < stop) & (spans[:, 2] > at)
        ).tolist()
        if inside and spans[inside[-1], 2] >= stop:  # not past the cut
            starts.append(inside[0])
            ends.append(inside[-1])
    sentences = [
        int((title, place) in facts)
        for title, lines in question.paragraphs
        for place in range(len(lines))
    ]
    labelled = zip(sentences, row["sentence_index"], strict=True)
    return {
        "start_positions": starts or [-1],
        "end_positions": ends or [-1],
        "type_labels": kind,
        "sentence_labels": [label if index >= 0 else -100 for label, index in labelled],
        "paragraph_labels": [int(title in titles) for title, _ in question.paragraphs],
    }


def read_answer(
    row: dict[str, Any], paragraphs: Paragraphs, logits: Sequence[np.ndarray]
) -> Answer:
    """The best answer to a row of `CdlmProcessor.question`.

    The span with the highest sum of start and end scores, of at most 30 tokens within one sentence
    or title, unless yes or no is more probable; and the sentences with a probability above one
    half. Logits are those of start and end ``[L]``, type ``[3]`` and sentences ``[S]``; padding may
    follow.
    """
    start, end, types, sentences = logits[:4]
    names = [(title, place) for title, lines in paragraphs for place in range(len(lines))]
    scored = zip(names, row["sentence_index"], sentences, strict=False)
    supporting = [name for name, index, score in scored if index >= 0 and score > 0]
    if kind := int(np.argmax(types)):
        return Answer(TYPES[kind], supporting)
    spans = np.array(row["token_spans"])  # [L, 3]
    possible = np.array(row["context_mask"], dtype=bool)
    start, end = (np.where(possible, scores[: len(spans)], -np.inf) for scores in (start, end))
    first = np.argsort(-start)[:_STARTS, None]
    last = np.minimum(first + np.arange(_LONGEST_ANSWER), len(spans) - 1)  # [50, 30]
    sums = np.where(spans[last, 0] == spans[first, 0], start[first] + end[last], -np.inf)
    best = np.unravel_index(sums.argmax(), sums.shape)
    text, begin, _ = spans[first[best[0], 0]]
    return Answer(all_texts(paragraphs)[text][begin : spans[last[best], 2]], supporting)


@torch.no_grad()
def answer(model: Any, processor: CdlmProcessor, question: str, paragraphs: Paragraphs) -> Answer:
    """The answer of a `CdlmForMultiHopQuestionAnswering`, in evaluation mode, to one question from
    paragraphs."""
    row = processor.question(question, paragraphs)
    warn_of_cuts([row])
    output = model(**processor.pad([row]).to(model.device))
    logits = [
        output[f"{name}_logits"][0].float().cpu().numpy()
        for name in ("start", "end", "type", "sentence")
    ]
    return read_answer(row, paragraphs, logits)


def f1_scores(
    questions: Sequence[HotpotQuestion], answers: Mapping[str, tuple[str, Facts]]
) -> dict[str, float]:
    """Exact match and F1 of answers, of supporting facts, and of both together."""
    scores = hotpotqa_scores(
        answers, {question.id: (question.answer, question.supporting) for question in questions}
    )
    return {name: value for name, value in scores.items() if name.endswith(("_em", "_f1"))}


_SNIPPET = """\
from transformers import AutoModelForQuestionAnswering

import nextlevelbert  # registers the architecture
from nextlevelbert.tasks.multihop_qa import answer

model = AutoModelForQuestionAnswering.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
print(answer(model, processor, "Who wrote it?", [("A title", ["A sentence.", "Another one."])]))"""


def main(words: list[str]) -> None:
    """Multi-hop question answering with CDLM."""
    classes = (CdlmModelArguments, FinetuningArguments, DataArguments)
    model_args, args, data_args = parse(classes, words, "", main.__doc__ or "", "multihop_qa-")
    config = data_args.dataset_config_name
    sets = data_args.read_sets(
        lambda name, source, split: read_hotpotqa(source, split, config), args.seed
    )

    def predict(
        name: str, rows: QuestionDataset, logits: Logits, chosen: dict[str, float]
    ) -> Predicted:
        answers, records = {}, []
        for number, question in enumerate(rows.questions):
            text, facts = read_answer(
                rows[number], question.paragraphs, [scores[number] for scores in logits]
            )
            answers[question.id] = text, facts
            records.append(
                {"id": question.id, "answer": text, "supporting": facts, "gold": question.answer}
            )
        return f1_scores(rows.questions, answers), records

    def first(questions: Sequence[HotpotQuestion]) -> dict[str, float]:
        answers = {
            one.id: (one.paragraphs[0][0], [(title, 0) for title, _ in one.paragraphs])
            for one in questions
        }
        return f1_scores(questions, answers)

    tags = ["multi-hop-question-answering"]
    card = {
        "snippet": _SNIPPET,
        "pipeline_tag": "question-answering",
        "tags": tags,
        "scores": "joint_f1",
    }
    train_and_publish(
        CdlmForMultiHopQuestionAnswering,
        model_args,
        args,
        sets,
        lambda name, processor: QuestionDataset(sets[name], processor),
        predict,
        ("first title, all first sentences", first),
        card,
        {"task": "multihop_qa"},
    )
