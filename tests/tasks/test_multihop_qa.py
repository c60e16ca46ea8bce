"""Multi-hop questions with CDLM: labels, answers from scores, and the task from sets to card."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pytest
import torch

from nextlevelbert import CdlmForMultiHopQuestionAnswering, CdlmModel, CdlmProcessor
from nextlevelbert.tasks.multihop_qa import answer
from nextlevelbert.tasks.multihop_qa.data import HotpotData, HotpotQuestion, Paragraph, read_hotpotqa
from nextlevelbert.tasks.multihop_qa.questions import AnswerLogits, QuestionDataset, read_answer

from ..finetuning_toys import SCRIPT

pytestmark = pytest.mark.usefixtures("no_pictures")


QUESTION = HotpotQuestion(
    "q",
    "Where was the author born?",
    "New York",
    [
        Paragraph("The book", ["It is by Ann.", "Ann liked New York."]),
        Paragraph("Ann", ["She was born in New York.", "New York is large."]),
        Paragraph("Another", ["New York is far away."]),
    ],
    frozenset({("The book", 0), ("Ann", 0)}),
)


def test_answers_are_found_in_supporting_paragraphs_only(processor):
    [row] = QuestionDataset(HotpotData([QUESTION], "here"), processor)
    places = list(zip(row["start_positions"], row["end_positions"], strict=True))
    texts = [processor.tokenizer.decode(row["input_ids"][start : end + 1]) for start, end in places]
    assert texts == ["new york"] * 3  # once in "The book", twice in "Ann", not in "Another"
    assert row["sentence_labels"] == [1, 0, 1, 0, 0]
    assert row["paragraph_labels"] == [1, 1, 0]
    assert row["type_labels"] == 0
    yes = HotpotQuestion("y", "Is it?", "yes", QUESTION.paragraphs, QUESTION.supporting)
    [row] = QuestionDataset(HotpotData([yes], "here"), processor)
    assert (row["type_labels"], row["start_positions"], row["end_positions"]) == (1, [-1], [-1])


def test_answers_are_words_of_their_own(processor):
    paragraphs = [Paragraph("Party", ["It starts with art.", "A party."])]
    question = HotpotQuestion("q", "What is it?", "art", paragraphs, frozenset({("Party", 0)}))
    row = QuestionDataset(HotpotData([question], "here"), processor)[0]
    assert len(row["start_positions"]) == 1
    assert processor.tokenizer.decode(row["input_ids"][row["start_positions"][0]]) == "art"
    within = HotpotQuestion("q", "What is it?", "tar", paragraphs, frozenset({("Party", 0)}))
    row = QuestionDataset(HotpotData([within], "here"), processor)[0]
    assert processor.tokenizer.decode(row["input_ids"][row["start_positions"][0]]) == "starts"  # better than nothing


def test_what_is_past_a_cut_has_no_label_and_is_reported(encoder, caplog):
    model = CdlmModel.from_encoder(encoder, max_length=64, attention_window=32)
    small = CdlmProcessor.from_model(model, 48)
    [row] = QuestionDataset(HotpotData([QUESTION], "here"), small)
    assert len(row["input_ids"]) <= 48
    assert -1 in row["sentence_index"]
    for index, label in zip(row["sentence_index"], row["sentence_labels"], strict=True):
        assert (label == -100) == (index == -1)
    assert sum(row["lost_tokens"]) > 0
    assert "paragraphs lose" in caplog.text


def test_the_best_span_stays_within_a_sentence(processor):
    [row] = QuestionDataset(HotpotData([QUESTION], "here"), processor)
    length = len(row["input_ids"])
    spans = row["token_spans"]
    # "Ann liked New York." has the best start, "She was …" after it the best end: no span goes across.
    first = next(n for n, (text, start, _) in enumerate(spans) if text == 2 and start == len("Ann liked "))
    across = next(n for n, (text, start, _) in enumerate(spans) if text == 4 and start == 0)
    start, end = np.zeros(length), np.zeros(length)
    start[first], end[across], end[first + 1] = 5.0, 9.0, 4.0
    logits = AnswerLogits(start, end, np.array([1.0, 0, 0]), np.array([-1.0, 2, -1, 3, -1]))
    found = read_answer(row, QUESTION.paragraphs, logits)
    # 9 alone: the one token at `across` (start 0) beats 5 + 4 by nothing; the first found of equals is kept.
    assert found.text == "New York"
    assert found.supporting == [("The book", 1), ("Ann", 1)]
    outside = logits._replace(start=np.where(np.arange(length) == 2, 99.0, start))  # a token of the question
    assert read_answer(row, QUESTION.paragraphs, outside).text == "New York"
    assert read_answer(row, QUESTION.paragraphs, logits._replace(type=np.array([0, 0, 1.0]))).text == "no"


def test_a_model_learns_questions_by_heart(encoder):
    """Trained on one question it gives its answer and its sentences."""
    torch.manual_seed(1)
    model = CdlmForMultiHopQuestionAnswering.from_encoder(encoder, max_length=128, attention_window=32)
    processor = CdlmProcessor.from_model(model)
    batch = processor.pad([*QuestionDataset(HotpotData([QUESTION], "here"), processor)])
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(60):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = answer(model, processor, QUESTION.question, QUESTION.paragraphs)
    assert found.text == "New York"
    assert set(found.supporting) == QUESTION.supporting


def test_questions_end_to_end_on_the_real_sample(run_script, encoder, shared, tmp_path):
    sample = shared / "data" / "hotpotqa_sample" / "dev_sample100.jsonl.gz"
    questions = read_hotpotqa(sample).questions
    lines = gzip.open(sample, "rt", encoding="utf-8").readlines()
    (tmp_path / "some.jsonl").write_text("".join(lines[:8]), encoding="utf-8")
    (tmp_path / "others.jsonl").write_text("".join(lines[8:12]), encoding="utf-8")
    printed = run_script(
        SCRIPT, "--task", "multihop_qa", "--model", encoder, "--train_file", str(tmp_path / "others.jsonl"),
        "--max_length", "1024", "--attention_window", "64", "--num_train_epochs", "1", "--disable_tqdm", "true",
        "--per_device_train_batch_size", "2", "--per_device_eval_batch_size", "2", "--output_dir",
        str(tmp_path / "answerer"), "--validation_file", str(tmp_path / "some.jsonl"),
    )  # fmt: skip
    assert "joint_f1" in printed
    records = {
        row["id"]: row for row in map(json.loads, (tmp_path / "answerer" / "validation_predictions.jsonl").open())
    }
    assert sorted(records) == sorted(question.id for question in questions[:8])
    for question in questions[:8]:
        texts = [text for title, sentences in question.paragraphs for text in (title, *sentences)]
        found = records[question.id]["answer"]
        assert found in ("yes", "no") or any(found in text for text in texts)
    model = CdlmForMultiHopQuestionAnswering.from_pretrained(tmp_path / "answerer").eval()
    again = answer(model, CdlmProcessor.from_pretrained(tmp_path / "answerer"), questions[0].question,
                   questions[0].paragraphs)  # fmt: skip
    assert again.text == records[questions[0].id]["answer"]
    # The code of the card answers a question.
    card = (tmp_path / "answerer" / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(code.replace('"answerer"', repr(str(tmp_path / "answerer"))), {})
    assert str(tmp_path) not in card
