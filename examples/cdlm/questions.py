"""Answers questions from ten paragraphs, and names supporting sentences: HotpotQA, Table 5.

"CDLM: Cross-Document Language Modeling" (Caciularu et al., 2021), section 3.4 and appendix C.3;
heads and decoding as in Longformer (Beltagy et al., 2020, appendix D). The data are HotpotQA's in
the distractor setting (Yang et al., 2018): two of a question's ten paragraphs hold what the answer
needs, and the supporting facts are their sentences that state it.

    python examples/cdlm/questions.py --recipe examples/recipes/cdlm_questions.yaml --model MODEL \
        --train_file hotpot_train_v1.1.json --test_file hotpot_dev_distractor_v1.json \
        --output_dir answerer

A file is HotpotQA's own JSON, or has rows as on the Hub.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import evaluate
import numpy as np
from common import ThreeSetsArguments, open_cdlm, parse_arguments
from torch.utils.data import Dataset
from transformers import Trainer, set_seed

from nextlevelbert import CdlmForMultiHopQuestionAnswering, CdlmProcessor
from nextlevelbert.command import run_command
from nextlevelbert.data import RowLocation, open_rows

METRIC = Path(__file__).parents[2] / "metrics" / "hotpotqa_joint"
TYPES = ("span", "yes", "no")
LONGEST_ANSWER = 30  # tokens
STARTS = 50  # the best starts, from which spans are considered
PARAGRAPHS = 2  # that hold the evidence of a question

Fact = tuple[str, int]  # title, and index of the sentence
Paragraphs = Sequence[tuple[str, Sequence[str]]]  # title and sentences of each


# --- Questions


class Question(NamedTuple):
    """A question with its paragraphs; the answer is a span of a paragraph, yes or no."""

    id: str
    text: str
    answer: str
    paragraphs: Paragraphs
    facts: list[Fact]

    def as_row(self) -> dict[str, Any]:
        """Returns the answer and the supporting facts as the metric reads them."""
        return as_row(self.id, self.answer, self.facts)


def as_row(question_id: str, answer: str, facts: Sequence[Fact]) -> dict[str, Any]:
    """Returns an answer and its supporting facts as a row of HotpotQA on the Hub."""
    titles = [title for title, _ in facts]
    indices = [index for _, index in facts]
    support = {"title": titles, "sent_id": indices}
    return {"id": question_id, "answer": answer, "supporting_facts": support}


def read_questions(source: str | Path) -> list[Question]:
    """Reads HotpotQA.

    A second paragraph of the same title is left out, because facts name paragraphs by title. A fact
    whose sentence does not exist is kept, because the official scores count it.

    Args:
        source: the official JSON, with pairs of title and sentences (`context`) and of title and
            index (`supporting_facts`); or a table whose pairs are dicts of two lists, as on the
            Hub.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    questions: dict[str, Question] = {}
    for location, row in open_rows(source).rows:
        id_column = "id"
        if "_id" in row:
            id_column = "_id"
        name = location.text(row, id_column, id_column)
        if name in questions:
            raise location.error(
                id_column, f"id {name!r} is there twice. Give every question its own id."
            )

        paragraphs: dict[str, list[str]] = {}
        for title, sentences in pairs_of(location, row, column="context", second="sentences"):
            paragraphs.setdefault(title, sentences)
        facts = pairs_of(location, row, column="supporting_facts", second="sent_id")
        are_facts = [title in paragraphs and isinstance(sentence, int) for title, sentence in facts]
        if not facts or not all(are_facts):
            raise location.error(
                "supporting_facts",
                "must name paragraphs of the question, and the indices of their sentences, got"
                f" {facts}; the fullwiki setting cannot be read.",
            )
        questions[name] = Question(
            name,
            text=location.text(row, "question", "question"),
            answer=location.text(row, "answer", "answer"),
            paragraphs=list(paragraphs.items()),
            facts=sorted(set(facts)),
        )
    return list(questions.values())


def pairs_of(
    location: RowLocation, row: Mapping[str, Any], column: str, second: str
) -> list[tuple[str, Any]]:
    """Returns pairs from a list of pairs, or from a dict of two lists as on the Hub."""
    value = location.column(row, column, "the distractor setting")
    try:
        if isinstance(value, dict):
            return list(zip(value["title"], value[second], strict=True))
        return [(title, rest) for title, rest in value]
    except (KeyError, TypeError, ValueError) as error:
        raise location.error(
            column, f"must be pairs of title and {second}, got {value!r}."
        ) from error


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


# --- Rows with labels


class QuestionDataset(Dataset):
    """Sequences of questions with labels; a row is laid out when it is read."""

    def __init__(self, questions: Sequence[Question], processor: CdlmProcessor) -> None:
        self.questions = questions
        self.processor = processor

        lost_tokens = 0
        absent_answers = 0
        for index in range(len(questions)):
            row = self[index]
            lost_tokens += sum(row["lost_tokens"])
            absent_answers += row["type_labels"] == 0 and row["start_positions"] == [-1]
        print(
            f"{len(questions)} questions: paragraphs lose {lost_tokens} tokens, and"
            f" {absent_answers} answers are not in the supporting paragraphs."
        )

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> dict[str, Any]:
        question = self.questions[index]
        row = self.processor.question(question.text, question.paragraphs)
        return row | labels_of(question, row)


def labels_of(question: Question, row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the labels of a row of `CdlmProcessor.question`."""
    titles = {title for title, _ in question.facts}
    answer_type = 0
    spans = []
    if question.answer in TYPES[1:]:
        answer_type = TYPES.index(question.answer)
    else:
        spans = answer_spans(question, titles=titles, token_spans=row["token_spans"])
    if not spans:
        spans = [(-1, -1)]

    sentence_labels = []
    facts = all_facts(question.paragraphs)
    for fact, position in zip(facts, row["sentence_index"], strict=True):
        if position >= 0:
            sentence_labels.append(int(fact in question.facts))
        else:
            sentence_labels.append(-100)
    return {
        "start_positions": [first for first, _ in spans],
        "end_positions": [last for _, last in spans],
        "type_labels": answer_type,
        "sentence_labels": sentence_labels,
        "paragraph_labels": [int(title in titles) for title, _ in question.paragraphs],
    }


def answer_spans(
    question: Question, titles: set[str], token_spans: Sequence[tuple[int, int, int]]
) -> list[tuple[int, int]]:
    """Returns the first and last token of each occurrence of the answer in these paragraphs."""
    texts, starts, ends = np.array(token_spans).T
    spans = []
    for text, start in answer_positions(question.answer, question.paragraphs, titles):
        end = start + len(question.answer)
        overlaps = (texts == text) & (starts < end) & (ends > start)
        tokens = np.flatnonzero(overlaps).tolist()
        if tokens and ends[tokens[-1]] >= end:  # otherwise the answer is truncated
            spans.append((tokens[0], tokens[-1]))
    return spans


def answer_positions(
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
) -> tuple[str, list[Fact]]:
    """Decodes the best answer to a row of `CdlmProcessor.question`, and its supporting sentences.

    The text is the span with the highest sum of start and end scores, of at most 30 tokens within
    one sentence or title, unless yes or no is more probable.

    Args:
        row: row of the question.
        paragraphs: title and sentences of each paragraph.
        logits: logits of start and end ``[L]``, type ``[3]``, sentences ``[S]`` and paragraphs
            ``[T]``; padding may follow.
    """
    start, end, types, sentence_logits, paragraph_logits = logits[:5]
    supporting = evidence(
        paragraphs,
        sentence_index=row["sentence_index"],
        sentence_logits=sentence_logits,
        paragraph_logits=paragraph_logits[: len(paragraphs)],
    )
    answer_type = int(np.argmax(types))
    if answer_type > 0:
        return TYPES[answer_type], supporting

    texts, begins, ends = np.array(row["token_spans"]).T
    in_context = np.array(row["context_mask"], dtype=bool)
    start_scores = np.where(in_context, start[: len(texts)], -np.inf)
    end_scores = np.where(in_context, end[: len(texts)], -np.inf)
    first, last = best_span(start_scores, end_scores, texts)
    return all_texts(paragraphs)[texts[first]][begins[first] : ends[last]], supporting


def evidence(
    paragraphs: Paragraphs,
    sentence_index: Sequence[int],
    sentence_logits: np.ndarray,
    paragraph_logits: np.ndarray,
) -> list[Fact]:
    """Chooses the supporting sentences from exactly two paragraphs, those with the highest logits.

    A sentence of these paragraphs supports the answer if its probability is above one half. If a
    paragraph has no such sentence, its most probable one does.
    """
    facts = all_facts(paragraphs)
    triples = zip(facts, sentence_index, sentence_logits, strict=False)
    logit_of = {fact: logit for fact, position, logit in triples if position >= 0}

    supporting = []
    for paragraph in sorted(np.argsort(-paragraph_logits, kind="stable")[:PARAGRAPHS]):
        title, _ = paragraphs[paragraph]
        of_paragraph = [fact for fact in logit_of if fact[0] == title]
        above_half = [fact for fact in of_paragraph if logit_of[fact] > 0]
        if of_paragraph and not above_half:
            above_half = [max(of_paragraph, key=logit_of.__getitem__)]
        supporting += above_half
    return supporting


def best_span(start: np.ndarray, end: np.ndarray, texts: np.ndarray) -> tuple[int, int]:
    """Returns the first and last token of the span within one text with the highest score.

    Args:
        start: scores of every token as the first of a span, ``[L]``.
        end: scores of every token as the last of a span, ``[L]``.
        texts: index of the text of every token, ``[L]``.
    """
    first = np.argsort(-start)[:STARTS, None]  # [50, 1]
    last = np.minimum(first + np.arange(LONGEST_ANSWER), len(texts) - 1)  # [50, 30]
    sums = np.where(texts[first] == texts[last], start[first] + end[last], -np.inf)
    row, column = np.unravel_index(sums.argmax(), sums.shape)
    return first[row, 0], last[row, column]


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Trains and evaluates; returns the scores of the test questions."""
    options, args = parse_arguments(ThreeSetsArguments, argv)
    set_seed(args.seed)

    # 1. The model, and a sequence for each question.
    model, processor = open_cdlm(CdlmForMultiHopQuestionAnswering, options)
    rows = {}
    for name in ("train", "validation", "test"):
        path = getattr(options, f"{name}_file")
        if path is not None:
            rows[name] = QuestionDataset(read_questions(path), processor)

    # 2. Training: the sum of the losses of spans, types, sentences and paragraphs.
    trainer = Trainer(
        model=model,
        args=args,
        data_collator=lambda batch: dict(processor.pad(batch)),
        train_dataset=rows["train"],
        eval_dataset=rows.get("validation"),
        processing_class=processor,
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model()

    # 3. Answers and evidence of the test questions.
    logits = trainer.predict(rows["test"]).predictions
    predictions = []
    references = []
    for index, question in enumerate(rows["test"].questions):
        row_logits = [values[index] for values in logits]
        answer, facts = read_answer(rows["test"][index], question.paragraphs, row_logits)
        predictions.append(as_row(question.id, answer, facts))
        references.append(question.as_row())
    with (Path(args.output_dir) / "test_predictions.jsonl").open("w", encoding="utf-8") as file:
        for predicted, reference in zip(predictions, references, strict=True):
            file.write(json.dumps({**predicted, "gold": reference["answer"]}) + "\n")

    # 4. Exact match and F1 of answers, of supporting facts, and of both together.
    metric = evaluate.load(str(METRIC))
    scores = metric.compute(predictions=predictions, references=references)
    trainer.log_metrics("test", scores)
    trainer.save_metrics("test", scores)
    if args.push_to_hub:
        trainer.push_to_hub()
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(main))
