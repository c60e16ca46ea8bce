"""HotpotQA: its three forms read alike, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
from pathlib import Path

import datasets
import pytest

from nextlevelbert.data.rows import fingerprint, hold_out
from nextlevelbert.evaluation.hotpotqa import hotpotqa_scores
from nextlevelbert.tasks.multihop_qa.data import (
    HotpotData,
    HotpotQuestion,
    Paragraph,
    read_hotpotqa,
)

PARAGRAPHS = [
    ["Emma (novel)", ["Emma is a novel.", " It is by Jane Austen."]],
    ["Jane Austen", ["Jane Austen was born in 1775.", "", " She died in 1817."]],
    ["Moby-Dick", ["Moby-Dick is by Herman Melville."]],
]
ROW = {
    "_id": "5a8b",
    "question": "When was the author of Emma born?",
    "answer": "1775",
    "supporting_facts": [["Emma (novel)", 1], ["Jane Austen", 0]],
    "context": PARAGRAPHS,
    "type": "bridge",
    "level": "hard",
}
EXPECTED = HotpotQuestion(
    "5a8b",
    "When was the author of Emma born?",
    "1775",
    [Paragraph(*each) for each in PARAGRAPHS],
    frozenset({("Emma (novel)", 1), ("Jane Austen", 0)}),
    "bridge",
)
GOLD, OTHER = [dict(zip(("title", "sentences"), each, strict=True)) for each in PARAGRAPHS[:2]], PARAGRAPHS[2]
APART = {
    **{name: ROW[name] for name in ("question", "answer")},
    "id": "5a8b",
    "gold": GOLD,
    "supporting_sentences": [[1], [0]],
    "distractors": [{"title": OTHER[0], "sentences": OTHER[1]}],
}


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def on_the_hub(row: dict) -> dict:
    """A row of the official JSON as the Hub has it."""
    titles, sentences = zip(*row["context"], strict=True)
    facts, numbers = zip(*row["supporting_facts"], strict=True) if row["supporting_facts"] else ((), ())
    others = {name: row[name] for name in ("question", "answer", "type", "level")}
    pairs = {"title": list(facts), "sent_id": list(numbers)}
    context = {"title": list(titles), "sentences": list(sentences)}
    return {"id": row["_id"], **others, "supporting_facts": pairs, "context": context}


def test_the_official_form(tmp_path):
    unknown = {name: ROW[name] for name in ("question", "context")} | {"_id": "test"}
    data = read_hotpotqa(write(tmp_path / "dev.json", [ROW, unknown]))
    assert data.source == "dev.json"
    assert data.questions[0] == EXPECTED
    test = data.questions[1]
    assert (test.answer, test.supporting, test.type) == (None, frozenset(), None)
    assert test.paragraphs == EXPECTED.paragraphs


def test_the_form_on_the_hub(tmp_path):
    text, texts = datasets.Value("string"), datasets.Sequence(datasets.Value("string"))
    features = datasets.Features(
        {
            **dict.fromkeys(("id", "question", "answer", "type", "level"), text),
            "supporting_facts": datasets.Sequence({"title": text, "sent_id": datasets.Value("int32")}),
            "context": datasets.Sequence({"title": text, "sentences": texts}),
        }
    )
    unknown = {**ROW, "_id": "test", "answer": None, "supporting_facts": [], "type": None, "level": None}
    table = datasets.Dataset.from_list([on_the_hub(ROW), on_the_hub(unknown)], features=features)
    table.to_parquet(tmp_path / "repo" / "distractor" / "validation-00000-of-00001.parquet")
    card = "configs: [{config_name: distractor, data_files: [{split: validation, path: distractor/validation-*}]}]"
    (tmp_path / "repo" / "README.md").write_text(f"---\n{card}\n---\n")
    hub = read_hotpotqa(tmp_path / "repo", "validation", "distractor")
    file = read_hotpotqa(tmp_path / "repo" / "distractor" / "validation-00000-of-00001.parquet")
    assert hub.source == "repo (distractor, validation)"
    assert hub.questions == file.questions
    assert hub.questions[0] == EXPECTED
    assert (hub.questions[1].answer, hub.questions[1].supporting) == (None, frozenset())


def test_gold_paragraphs_apart_get_an_order_that_does_not_show_them(tmp_path):
    [question] = read_hotpotqa(write(tmp_path / "apart.json", [APART])).questions
    order = sorted(PARAGRAPHS, key=lambda each: hashlib.sha256(json.dumps(["5a8b", each[0]]).encode()).digest())
    assert question.paragraphs == [tuple(each) for each in order]
    assert (question.supporting, question.type) == (EXPECTED.supporting, None)
    turned = {**APART, "gold": GOLD[::-1], "supporting_sentences": [[0], [1]]}
    assert read_hotpotqa(write(tmp_path / "turned.json", [turned])).questions == [question]


def test_the_sample(shared, caplog):
    path = shared / "data" / "hotpotqa_sample" / "dev_sample100.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    data = read_hotpotqa(path)
    assert len(data.questions) == 100
    assert not caplog.records
    places = []
    for row, question in zip(rows, data.questions, strict=True):
        titles = [paragraph.title for paragraph in question.paragraphs]
        assert sorted(titles) == sorted(each["title"] for each in row["gold"] + row["distractors"])
        assert {title for title, _ in question.supporting} == {each["title"] for each in row["gold"]}
        sentences = dict(question.paragraphs)
        told = {sentences[title][number] for title, number in question.supporting}
        pairs = zip(row["gold"], row["supporting_sentences"], strict=True)
        assert told == {each["sentences"][number] for each, numbers in pairs for number in numbers}
        places += [titles.index(each["title"]) for each in row["gold"] if len(titles) == 10]
    # 194 gold paragraphs in ten places: 19.4 expected in each, with a standard deviation of 4.
    assert all(8 <= places.count(place) <= 32 for place in range(10))
    perfect = {each.id: (each.answer, each.supporting) for each in data.questions}
    assert set(hotpotqa_scores(perfect, data.references).values()) == {1.0}


def test_oddities_are_counted_and_kept(tmp_path, caplog):
    again = [*PARAGRAPHS, ["Emma (novel)", ["Another text."]]]
    beyond = [["Emma (novel)", 1], ["Jane Austen", 3], ["Moby-Dick", 1]]
    row = {**ROW, "context": again, "supporting_facts": beyond}
    with caplog.at_level(logging.WARNING):
        [question] = read_hotpotqa(write(tmp_path / "odd.json", [row])).questions
    assert question.paragraphs == EXPECTED.paragraphs
    assert question.supporting == {tuple(fact) for fact in beyond}
    first, second = caplog.messages
    assert "odd.json: 1 paragraphs have the title of an earlier one" in first
    assert "odd.json: 2 supporting facts name a sentence that their paragraph does not have" in second


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ROW, "context": []}, r"row 1 .*'context': contains no paragraph"),
        ({**ROW, "context": None}, "'context': must be pairs of title and sentences.* got None"),
        ({**ROW, "context": [["Emma", "One text."]]}, "'context': sentences must be a list of texts, got 'One text.'"),
        ({**ROW, "context": [["Emma", ["One."], 3]]}, "'context': must be pairs of title and sentences"),
        ({**ROW, "context": {"title": ["Emma"], "sentences": []}}, "or lists title and sentences of one length"),
        ({**ROW, "context": [[" ", ["A sentence."]]]}, "'context': is blank"),
        (
            {**ROW, "supporting_facts": [["Persuasion", 0]]},
            "'supporting_facts': names 'Persuasion' .*fullwiki setting",
        ),
        ({**ROW, "supporting_facts": [["Moby-Dick", "0"]]}, r"a whole number from 0, got '0' \(str\)"),
        ({**ROW, "supporting_facts": [[["Emma"], 0]]}, "names \\['Emma'\\] \\(list\\), which is not a paragraph"),
        ({**ROW, "supporting_facts": [["Moby-Dick", -1]]}, "a whole number from 0, got -1"),
        ({**ROW, "supporting_facts": []}, "has 0 facts, although the answer is '1775'"),
        ({**ROW, "answer": None}, "has 2 facts, although the answer is None"),
        ({**ROW, "answer": " "}, "'answer': is blank"),
        ({**ROW, "question": "\n"}, "'question': is blank"),
        ({**ROW, "_id": 7}, "'_id': must be text, got 7"),
        ({**ROW, "_id": "first"}, "'_id': the id 'first' is taken by row 0"),
    ],
)
def test_what_the_official_form_must_not_hold(tmp_path, row, message):
    with pytest.raises(ValueError, match=message):
        read_hotpotqa(write(tmp_path / "bad.json", [{**ROW, "_id": "first"}, row]))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gold": ["Emma"]}, "'gold': must be a list of paragraphs with title and sentences, got"),
        ({"distractors": None}, "'distractors': must be a list of paragraphs .* got None"),
        ({"supporting_sentences": [1, 0]}, "'supporting_sentences': must be a list of lists of numbers"),
        ({"supporting_sentences": [[1, 0]]}, "'supporting_sentences': has 1 lists for 2 gold paragraphs"),
    ],
)
def test_what_the_form_with_gold_apart_must_not_hold(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        read_hotpotqa(write(tmp_path / "bad.json", [{**APART, **changed}]))


def test_other_columns_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"rows.json is not HotpotQA: it has the columns text, label\. Known are"):
        read_hotpotqa(write(tmp_path / "rows.json", [{"text": "a", "label": 0}]))


def test_hold_out_and_fingerprint(tmp_path):
    data = read_hotpotqa(write(tmp_path / "dev.json", [{**ROW, "_id": str(number)} for number in range(10)]))
    train, held = hold_out(data, "questions", 0.3, seed=1)
    assert (len(train.questions), len(held.questions), held.source) == (7, 3, "dev.json, held out")
    assert sorted(train.questions + held.questions, key=lambda each: int(each.id)) == data.questions
    assert hold_out(data, "questions", 0.3, seed=1) == (train, held)
    assert hold_out(data, "questions", 0.3, seed=2)[1] != held
    assert len({fingerprint(part.content()) for part in (data, train, held)}) == 3
    assert fingerprint(HotpotData(list(data.questions), "elsewhere").content()) == fingerprint(data.content())
    other = {**ROW, "supporting_facts": [["Emma (novel)", 1]]}
    one, changed = (read_hotpotqa(write(tmp_path / "one.json", [row])) for row in (ROW, other))
    assert fingerprint(one.content()) != fingerprint(changed.content())
