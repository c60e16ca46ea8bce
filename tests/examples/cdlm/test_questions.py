"""Multi-hop questions with CDLM: the forms of HotpotQA, labels, answers, and the script from files
to scores."""

import gzip
import json
from pathlib import Path

import evaluate
import numpy as np
import pytest
import torch

from nextlevelbert import CdlmForMultiHopQuestionAnswering, CdlmProcessor

from ...toys.finetuning import predictions
from .scripts import ROOT, TRAINING, questions

# The data.

# A question about the novel Emma, as in the official files, and as on the Hub.
OFFICIAL, OF_THE_HUB = json.loads(Path(__file__).with_name("hotpotqa.json").read_text())


def write(path, rows):
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def test_both_forms_are_read_alike(tmp_path):
    [question] = questions.read_questions(write(tmp_path / "official.json", [OFFICIAL]))

    assert questions.read_questions(write(tmp_path / "hub.json", [OF_THE_HUB])) == [question]
    assert question.as_row() == {
        name: OF_THE_HUB[name] for name in ("id", "answer", "supporting_facts")
    }
    assert question.text == OF_THE_HUB["question"]
    assert dict(question.paragraphs) == dict(OFFICIAL["context"])


def test_oddities_are_kept(tmp_path):
    """A second paragraph of a title is left out; facts may name no sentence."""
    again = [*OFFICIAL["context"], ["Emma (novel)", ["Another text."]]]
    beyond = [["Emma (novel)", 1], ["Jane Austen", 3], ["Moby-Dick", 1]]
    row = {**OFFICIAL, "context": again, "supporting_facts": beyond}

    [question] = questions.read_questions(write(tmp_path / "odd.json", [row]))

    assert dict(question.paragraphs) == dict(OFFICIAL["context"])
    assert question.facts == [("Emma (novel)", 1), ("Jane Austen", 3), ("Moby-Dick", 1)]


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"supporting_facts": [["Persuasion", 0]]}, "row 1.*fullwiki"),
        ({"supporting_facts": [["Jane Austen", "0"]]}, "row 1.*indices"),
        ({"supporting_facts": [7]}, "row 1.*pairs of title and sent_id"),
        ({"_id": "first"}, "first"),
        ({"context": None}, "row 1.*pairs of title and sentences"),
        ({"answer": ""}, "row 1.*answer"),
    ],
)
def test_rows_that_are_refused(tmp_path, changed, word):
    rows = [{**OFFICIAL, "_id": "first"}, {**OFFICIAL, **changed}]
    with pytest.raises(ValueError, match=word):
        questions.read_questions(write(tmp_path / "bad.json", rows))


def official(row):
    """A row of the sample, which keeps the gold paragraphs apart, as in the official files."""
    paragraphs = row["distractors"] + row["gold"]
    context = [[paragraph["title"], paragraph["sentences"]] for paragraph in paragraphs]
    facts = []
    for paragraph, indices in zip(row["gold"], row["supporting_sentences"], strict=True):
        facts += [[paragraph["title"], index] for index in indices]
    fields = {"_id": row["id"], "question": row["question"], "answer": row["answer"]}
    return {**fields, "context": context, "supporting_facts": facts}


@pytest.fixture(scope="module")
def sample(shared, tmp_path_factory):
    path = shared / "data" / "hotpotqa_sample" / "dev_sample100.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = list(map(official, map(json.loads, lines)))
    return questions.read_questions(write(tmp_path_factory.mktemp("sample") / "dev.json", rows))


def test_the_sample(sample):
    """The right answers and facts have perfect scores."""
    rows = [question.as_row() for question in sample]

    scores = evaluate.load(str(questions.METRIC)).compute(predictions=rows, references=rows)

    assert len(sample) == 100
    assert set(scores.values()) == {1.0}


# Labels and answers.

TEXTS = [
    ("The book", ["It is by Ann.", "Ann liked New York."]),
    ("Ann", ["She was born in New York.", "New York is large."]),
    ("Another", ["New York is far away."]),
]
QUESTION = questions.Question(
    "q",
    text="Where was the author born?",
    answer="New York",
    paragraphs=TEXTS,
    facts=[("Ann", 0), ("The book", 0)],
)


def rows_of(question, processor):
    return questions.QuestionDataset([question], processor)


def test_answers_are_words_of_supporting_paragraphs(processor):
    row = rows_of(QUESTION, processor)[0]

    texts = []
    for start, end in zip(row["start_positions"], row["end_positions"], strict=True):
        tokens = row["input_ids"][start : end + 1]
        texts.append(processor.tokenizer.decode(tokens))
    assert texts == ["new york"] * 3  # once in "The book", twice in "Ann", not in "Another"
    assert row["sentence_labels"] == [1, 0, 1, 0, 0]
    assert row["paragraph_labels"] == [1, 1, 0]
    assert row["type_labels"] == 0


def test_yes_has_no_span(processor):
    row = rows_of(QUESTION._replace(answer="yes"), processor)[0]

    assert (row["type_labels"], row["start_positions"], row["end_positions"]) == (1, [-1], [-1])


@pytest.mark.parametrize(("answer", "word"), [("art", "art"), ("tar", "starts")])
def test_an_answer_is_a_word_of_its_own_else_a_part_of_one(processor, answer, word):
    party = [("Party", ['It starts with "art".', "A party."])]
    question = QUESTION._replace(answer=answer, paragraphs=party, facts=[("Party", 0)])

    row = rows_of(question, processor)[0]

    assert len(row["start_positions"]) == 1
    assert processor.tokenizer.decode(row["input_ids"][row["start_positions"][0]]) == word


def test_what_is_past_a_cut_has_no_label_and_is_reported(processor, capsys):
    row = rows_of(QUESTION, CdlmProcessor(processor.tokenizer, 48))[0]

    assert len(row["input_ids"]) <= 48
    assert -1 in row["sentence_index"]
    for index, label in zip(row["sentence_index"], row["sentence_labels"], strict=True):
        assert (label == -100) == (index == -1)
    assert "lose" in capsys.readouterr().out


def test_half_an_answer_is_no_answer(processor):
    """Its second word is cut off."""
    paragraphs = [("Ann", ["She was born in New York."])]
    question = QUESTION._replace(paragraphs=paragraphs, facts=[("Ann", 0)])
    whole = rows_of(question, processor)[0]
    length = len(whole["input_ids"])

    row = rows_of(question, CdlmProcessor(processor.tokenizer, length - 2))[0]

    tokens = processor.tokenizer.convert_ids_to_tokens(row["input_ids"])
    assert "new" in tokens
    assert "york" not in tokens
    assert row["start_positions"] == [-1]


def place_of(row, text, start):
    """The token that begins at this character of a text."""
    return [(index, begin) for index, begin, _ in row["token_spans"]].index((text, start))


SPAN = np.array([1.0, 0, 0])
ALL_SENTENCES = np.array([-1.0, 2, -1, 3, -1])
FIRST_TWO = np.array([2.0, 1.0, 0.0])


def test_the_best_span_stays_within_a_sentence(processor):
    """ "Ann liked New York." has the best start, "She was …" after it the best end."""
    row = rows_of(QUESTION, processor)[0]
    length = len(row["input_ids"])
    first = place_of(row, 2, len("Ann liked "))
    start = np.zeros(length)
    start[first] = 5.0
    end = np.zeros(length)
    end[first + 1] = 4.0
    end[place_of(row, 4, 0)] = 9.0
    others = [SPAN, ALL_SENTENCES, FIRST_TWO]

    text, supporting = questions.read_answer(row, TEXTS, [start, end, *others])

    assert (text, supporting) == ("New York", [("The book", 1), ("Ann", 1)])
    in_question = np.where(np.arange(length) == 2, 99.0, start)
    assert questions.read_answer(row, TEXTS, [in_question, end, *others])[0] == "New York"
    no = [start, end, np.array([0, 0, 1.0]), ALL_SENTENCES, FIRST_TWO]
    assert questions.read_answer(row, TEXTS, no)[0] == "no"


@pytest.mark.parametrize(("words", "answered"), [(30, 30), (31, 1)])
def test_an_answer_has_at_most_thirty_tokens(processor, words, answered):
    """As in HotpotQA's baseline: 30 tokens from the best start to the best end, but not 31."""
    sentence = " ".join(["one"] * words)
    paragraphs = [("A", [sentence])]
    row = rows_of(QUESTION._replace(paragraphs=paragraphs, facts=[("A", 0)]), processor)[0]
    first = place_of(row, 1, 0)
    length = len(row["input_ids"])
    start = np.zeros(length)
    start[first] = 5.0
    end = np.zeros(length)
    end[first] = 1.0
    end[first + words - 1] = 5.0

    text, _ = questions.read_answer(row, paragraphs, [start, end, SPAN, np.ones(1), np.ones(1)])

    assert len(text.split()) == answered


@pytest.mark.parametrize(
    ("sentences", "paragraphs", "expected"),
    [
        # Probable sentences of the third paragraph are no evidence: it is not among the best two.
        ("1 -1  1 -1  9", "3 2 1", "Ann 0, The book 0"),
        ("1 -1  1 -1  9", "1 2 3", "Ann 0, Another 0"),
        # A logit of 0.3 is a probability above one half.
        ("0.3 2  -0.3 0.3  0.3", "3 2 1", "Ann 1, The book 0, The book 1"),
        # A paragraph without such a sentence has its best one.
        ("-3 -2  5 4  -1", "3 2 1", "Ann 0, Ann 1, The book 1"),
    ],
)
def test_evidence_comes_from_exactly_two_paragraphs(processor, sentences, paragraphs, expected):
    """The constraint of Beltagy et al. (2020, appendix D). Logits are followed by padding."""
    row = rows_of(QUESTION, processor)[0]
    length = len(row["input_ids"])
    logits = [
        np.zeros(length),
        np.zeros(length),
        np.array([0, 1.0, 0]),
        np.array(f"{sentences} 50".split(), dtype=float),
        np.array(f"{paragraphs} 50".split(), dtype=float),
    ]

    text, supporting = questions.read_answer(row, TEXTS, logits)

    assert text == "yes"
    assert ", ".join(f"{title} {index}" for title, index in sorted(supporting)) == expected


def test_a_lost_sentence_is_no_evidence(processor):
    row = rows_of(QUESTION, CdlmProcessor(processor.tokenizer, 48))[0]
    length = len(row["input_ids"])
    logits = [np.zeros(length), np.zeros(length), np.array([0, 1.0, 0])]
    lost = row["sentence_index"].index(-1)

    _, supporting = questions.read_answer(row, TEXTS, [*logits, np.ones(5), np.ones(3)])

    facts = questions.all_facts(TEXTS)
    assert facts[lost] not in supporting
    assert len(supporting) == sum(index >= 0 for index in row["sentence_index"][:4])


def test_questions_are_learnt_by_heart(encoder, tmp_path):
    """Trained on one question, the model knows its answer and its sentences."""
    row = {"_id": "q", "question": QUESTION.text, "answer": QUESTION.answer}
    row |= {"context": TEXTS, "supporting_facts": QUESTION.facts}
    file = str(write(tmp_path / "one.json", [row]))
    output = tmp_path / "answerer"
    argv = ["--model", encoder, "--train_file", file, "--test_file", file]
    argv += ["--output_dir", str(output), *TRAINING]
    argv += "--max_length 128 --attention_window 32 --learning_rate 5e-3 --max_steps 60".split()

    scores = questions.main(argv)

    assert (scores["joint_em"], scores["joint_f1"]) == (1.0, 1.0)
    [record] = predictions(output / "test_predictions.jsonl")
    assert (record["id"], record["answer"], record["gold"]) == ("q", "New York", "New York")
    # The saved model answers alike.
    model = CdlmForMultiHopQuestionAnswering.from_pretrained(output).eval()
    processor = CdlmProcessor.from_pretrained(output)
    inputs = processor.question(QUESTION.text, TEXTS)
    with torch.no_grad():
        scored = model(**processor.pad([inputs]))
    names = ("start", "end", "type", "sentence", "paragraph")
    logits = [scored[f"{name}_logits"][0].numpy() for name in names]
    assert questions.read_answer(inputs, TEXTS, logits) == ("New York", sorted_facts(TEXTS))


def sorted_facts(paragraphs):
    """The facts of the question, in the order of its paragraphs."""
    return [fact for fact in questions.all_facts(paragraphs) if fact in QUESTION.facts]


class Stopped(Exception):
    """The trainer would be made now."""


def test_the_settings_of_the_paper_arrive(encoder, tmp_path, monkeypatch):
    """Appendix C.3 names the values."""
    made = {}

    def stop(**parts):
        made.update(parts)
        raise Stopped

    monkeypatch.setattr(questions, "Trainer", stop)
    file = str(write(tmp_path / "one.json", [OFFICIAL]))
    recipe = str(ROOT / "examples" / "recipes" / "cdlm_questions.yaml")
    argv = ["--recipe", recipe, "--model", encoder, "--train_file", file, "--test_file", file]
    with pytest.raises(Stopped):
        questions.main([*argv, "--output_dir", str(tmp_path)])

    args = made["args"]
    assert args.per_device_train_batch_size * args.gradient_accumulation_steps == 32
    assert (args.num_train_epochs, args.learning_rate, args.warmup_steps) == (5, 1e-4, 100)
