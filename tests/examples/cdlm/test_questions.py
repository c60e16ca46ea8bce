"""Multi-hop questions with CDLM: the forms of HotpotQA, labels, answers, and the task from sets to
card."""

import gzip
import json
import logging
import re
from pathlib import Path

import numpy as np
import pytest

from nextlevelbert import CdlmForMultiHopQuestionAnswering, CdlmProcessor
from nextlevelbert.data.published import hotpotqa
from nextlevelbert.evaluation.hotpotqa import hotpotqa_scores
from nextlevelbert.tasks.multihop_qa import QuestionDataset, answer, facts_of, main, read_answer

# The data.

# A question about the novel Emma, as in the official files, and as on the Hub.
ROW, EXPECTED = json.loads(Path(__file__).with_name("hotpotqa.json").read_text())


def write(path, rows):
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def test_both_forms_are_read_alike(tmp_path):
    """As the official files have it, and as the Hub does."""
    for row in (ROW, EXPECTED):
        assert list(hotpotqa.load(write(tmp_path / "dev.json", [row]))) == [EXPECTED]


def test_oddities_are_counted_and_kept(tmp_path, caplog):
    again = [*ROW["context"], ["Emma (novel)", ["Another text."]]]
    beyond = [["Emma (novel)", 1], ["Jane Austen", 3], ["Moby-Dick", 1]]
    with caplog.at_level(logging.WARNING):
        [question] = hotpotqa.load(
            write(tmp_path / "odd.json", [{**ROW, "context": again, "supporting_facts": beyond}])
        )
    assert question["context"] == EXPECTED["context"]
    assert facts_of(question) == {("Emma (novel)", 1), ("Jane Austen", 3), ("Moby-Dick", 1)}
    assert "1 paragraphs" in caplog.text
    assert "2 supporting facts" in caplog.text


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"supporting_facts": [["Persuasion", 0]]}, "row 1.*fullwiki"),
        ({"supporting_facts": [["Jane Austen", "0"]]}, "row 1.*indices"),
        ({"supporting_facts": [7]}, "row 1.*pairs of title and sent_id"),
        ({"_id": "first"}, "first"),
    ],
)
def test_rows_that_are_refused(tmp_path, changed, word):
    with pytest.raises(ValueError, match=word):
        hotpotqa.load(write(tmp_path / "bad.json", [{**ROW, "_id": "first"}, {**ROW, **changed}]))


def official(row):
    """A row of the sample, which keeps the gold paragraphs apart, as in the official files."""
    paragraphs = row["distractors"] + row["gold"]
    context = [[paragraph["title"], paragraph["sentences"]] for paragraph in paragraphs]
    facts = []
    for paragraph, indices in zip(row["gold"], row["supporting_sentences"], strict=True):
        facts += [[paragraph["title"], index] for index in indices]
    fields = {"_id": row["id"], "question": row["question"], "answer": row["answer"]}
    return {**fields, "context": context, "supporting_facts": facts}


def test_the_sample(shared, tmp_path, caplog):
    path = shared / "data" / "hotpotqa_sample" / "dev_sample100.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = list(map(official, map(json.loads, lines)))
    questions = hotpotqa.load(write(tmp_path / "dev.json", rows))
    assert len(questions) == 100
    assert not caplog.records
    perfect = {one["id"]: (one["answer"], facts_of(one)) for one in questions}
    assert set(hotpotqa_scores(perfect, perfect).values()) == {1.0}


# Labels and answers.

TEXTS = [
    ("The book", ["It is by Ann.", "Ann liked New York."]),
    ("Ann", ["She was born in New York.", "New York is large."]),
    ("Another", ["New York is far away."]),
]
QUESTION = {
    "id": "q",
    "question": "Where was the author born?",
    "answer": "New York",
    "context": {
        "title": ["The book", "Ann", "Another"],
        "sentences": [sentences for _, sentences in TEXTS],
    },
    "supporting_facts": {"title": ["Ann", "The book"], "sent_id": [0, 0]},
}


def test_answers_are_words_of_supporting_paragraphs(processor):
    row = QuestionDataset([QUESTION], processor)[0]
    places = list(zip(row["start_positions"], row["end_positions"], strict=True))
    texts = [processor.tokenizer.decode(row["input_ids"][start : end + 1]) for start, end in places]
    assert texts == ["new york"] * 3  # once in "The book", twice in "Ann", not in "Another"
    assert row["sentence_labels"] == [1, 0, 1, 0, 0]
    assert row["paragraph_labels"] == [1, 1, 0]
    assert row["type_labels"] == 0
    row = QuestionDataset([{**QUESTION, "answer": "yes"}], processor)[0]
    assert (row["type_labels"], row["start_positions"], row["end_positions"]) == (1, [-1], [-1])
    party = {"title": ["Party"], "sentences": [['It starts with "art".', "A party."]]}
    facts = {"title": ["Party"], "sent_id": [0]}
    for text, word in (("art", "art"), ("tar", "starts")):  # a word of its own, else a part of one
        question = {**QUESTION, "answer": text, "context": party, "supporting_facts": facts}
        row = QuestionDataset([question], processor)[0]
        assert len(row["start_positions"]) == 1
        assert processor.tokenizer.decode(row["input_ids"][row["start_positions"][0]]) == word


def test_what_is_past_a_cut_has_no_label_and_is_reported(processor, caplog):
    row = QuestionDataset([QUESTION], CdlmProcessor(processor.tokenizer, 48))[0]
    assert len(row["input_ids"]) <= 48
    assert -1 in row["sentence_index"]
    for index, label in zip(row["sentence_index"], row["sentence_labels"], strict=True):
        assert (label == -100) == (index == -1)
    assert "lose" in caplog.text


def test_the_best_span_stays_within_a_sentence(processor):
    row = QuestionDataset([QUESTION], processor)[0]
    length = len(row["input_ids"])
    # "Ann liked New York." has the best start, "She was …" after it the best end: no span goes
    # across.
    starts_of_tokens = [(text, start) for text, start, _ in row["token_spans"]]
    first = starts_of_tokens.index((2, len("Ann liked ")))
    across = starts_of_tokens.index((4, 0))
    start = np.zeros(length)
    start[first] = 5.0
    end = np.zeros(length)
    end[across] = 9.0
    end[first + 1] = 4.0
    logits = [start, end, np.array([1.0, 0, 0]), np.array([-1.0, 2, -1, 3, -1])]
    assert read_answer(row, TEXTS, logits) == (
        "New York",
        [("The book", 1), ("Ann", 1)],
    )
    in_question = np.where(np.arange(length) == 2, 99.0, start)
    outside = [in_question, *logits[1:]]
    assert read_answer(row, TEXTS, outside).text == "New York"
    no = [*logits[:2], np.array([0, 0, 1.0]), logits[3]]
    assert read_answer(row, TEXTS, no).text == "no"


def test_questions_are_learnt_by_heart_and_published(encoder, tmp_path):
    """Trained on one question, it gives its answer and its sentences."""
    output = tmp_path / "answerer"
    row = {**QUESTION, "_id": "q", "context": TEXTS}
    words = ["--model", encoder, "--output_dir", str(output)]
    words += ["--train_file", str(write(tmp_path / "one.json", [row]))]
    words += ["--validation_file", str(write(tmp_path / "others.json", [{**row, "_id": "other"}]))]
    words += "--max_length 128 --attention_window 32 --max_steps 60 --learning_rate 5e-3".split()
    words += "--eval_strategy steps --eval_steps 60 --save_strategy steps --save_steps 60".split()
    words += "--lr_scheduler_type constant --warmup_steps 0 --disable_tqdm true".split()
    main(words)
    [record] = map(json.loads, (output / "validation_predictions.jsonl").open())
    assert record["answer"] == "New York"
    model = CdlmForMultiHopQuestionAnswering.from_pretrained(output).eval()
    said = answer(model, CdlmProcessor.from_pretrained(output), QUESTION["question"], TEXTS)
    assert (said.text, set(said.supporting)) == ("New York", facts_of(QUESTION))
    card = (output / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(code.replace('"answerer"', repr(str(output))), {})
    assert str(tmp_path) not in card
