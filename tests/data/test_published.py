"""Published data sets: their files are made here; a malformed row is named by file and line."""

from __future__ import annotations

import json

import pytest

from nextlevelbert.data.published import (
    book_summaries,
    booksum,
    cnn_dailymail,
    ecbplus,
    eurlex,
    hotpotqa,
    msmarco,
    muld,
    multi_news,
    quality_race,
    zhou_pairs,
)

CHAPTER = {
    "bid": 1,
    "summary_id": "s1",
    "chapter": "It was a dark night.",
    "summary_text": "Night.",
}
ARTICLE = {"id": "a1", "article": "It rained. Yes.", "highlights": "Rain .\nYes ."}


def lines(*rows):
    return "\n".join(map(json.dumps, rows))


def test_a_chapter_of_booksum_is_the_query_for_its_summary(tmp_path):
    (tmp_path / "booksum.jsonl").write_text(lines(CHAPTER))
    pairs = booksum.load(tmp_path / "booksum.jsonl")
    assert list(pairs) == [{"query": "It was a dark night.", "document": "Night."}]


def test_articles_of_cnn_dailymail_have_their_highlights_as_lines(tmp_path):
    unnamed = {"article": "Sun.", "highlights": "Sun ."}
    (tmp_path / "news.jsonl").write_text(lines(ARTICLE, unnamed))
    assert list(cnn_dailymail.load(tmp_path / "news.jsonl")) == [
        {"id": "a1", "text": "It rained. Yes.", "summary": "Rain .\nYes ."},
        {"id": "1", "text": "Sun.", "summary": "Sun ."},
    ]


def test_sets_of_multi_news_have_a_line_each(tmp_path):
    (tmp_path / "train.src").write_text("One. NEWLINE_CHAR Two. ||||| Three.\nFour.\n")
    texts = multi_news.load(tmp_path / "train.src")["document"]
    assert list(texts) == ["One. \n Two. ||||| Three.\n", "Four.\n"]


LAW = {"celex_id": "1", "concepts": ["7"], "header": "A", "recitals": "B", "main_body": ["C"]}
FILM = {"input": "Ripley\nINT. SHIP", "output": ["Hero"]}
QUESTION = {"article": "A story.", "question": "Who?", "options": ["Ann", "Bob"], "gold_label": 1}
HOP = {
    "_id": "q1",
    "question": "Who?",
    "answer": "Ann",
    "supporting_facts": [["Ann", 0]],
    "context": [["Ann", ["Ann came."]]],
}
NEWS = {
    "doc_id": "1_1ecb",
    "topic": 1,
    "subtopic": "1_ecb",
    "text": "It fell.",
    "sentences": [[0, 8]],
    "sentence_ids": [0],
    "validated_sentences": [0],
    "mentions": [],
}


@pytest.mark.parametrize(
    ("load", "good", "bad"),
    [
        (booksum.load, CHAPTER, {**CHAPTER, "chapter": None}),
        (cnn_dailymail.load, ARTICLE, {**ARTICLE, "highlights": " "}),
        (ecbplus.load, NEWS, {**NEWS, "doc_id": "1_2ecb", "mentions": [{"start": 0, "end": 2}]}),
        (eurlex.load, LAW, {"celex_id": "2"}),
        (hotpotqa.load, HOP, {**HOP, "_id": "q2", "context": None}),
        (muld.load, FILM, {"output": ["Hero"]}),
        (quality_race.load, QUESTION, {"question": "Who?", "options": ["Ann", "Bob"]}),
    ],
)
def test_a_malformed_row_is_named_by_file_and_line(load, good, bad, tmp_path):
    (tmp_path / "rows.jsonl").write_text(lines(good, bad))
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2.*, column '"):
        load(tmp_path / "rows.jsonl")


def test_a_malformed_pair_of_zhou_et_al_is_named(tmp_path):
    (tmp_path / "train.csv").write_text('1,a,b\n0,"c\nd",e\n1,"f"g,h\n')
    with pytest.raises(ValueError, match=r"train\.csv, line 4: "):
        zhou_pairs.load(tmp_path / "train.csv")
    (tmp_path / "train.csv").write_text("1,a,b\n0,c\n")
    with pytest.raises(ValueError, match=r"train\.csv, line 2, column 'text2'"):
        zhou_pairs.load(tmp_path / "train.csv")


def test_a_malformed_book_is_named(tmp_path):
    book = "1\t/m/1\tTitle\tAuthor\t1999\t{}\tA plot."
    (tmp_path / "booksummaries.txt").write_text(f"{book}\n\n{book.replace('{}', '{')}\n")
    with pytest.raises(
        ValueError, match=r"booksummaries\.txt, line 3, column 'genres': is not JSON"
    ):
        book_summaries.load(tmp_path)


def test_a_malformed_grade_of_ms_marco_is_named(tmp_path):
    (tmp_path / "msmarco-docdev-qrels.tsv").write_text("q1 0 d1 1\nq1 0 d2 high\n")
    with pytest.raises(ValueError, match=r"qrels\.tsv, line 2, column 'grade'.*'high'"):
        msmarco.load(tmp_path, "docdev")
