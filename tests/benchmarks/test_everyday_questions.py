"""The everyday questions: their halves, and that the texts hold the quotations."""

import gzip
import itertools
from collections import Counter

import pytest

from benchmarks.studies.everyday_questions import (
    BOOK_QUESTIONS,
    KINDS,
    NOVELS,
    QUESTIONS,
    Answer,
    Question,
    books_that_are_novels,
    check_quotations,
    load_questions,
    load_story_questions,
    news,
    novels,
    one_line,
    other_books,
    python_manual,
    stories,
)

LID = Question(
    id="help-01",
    kind="help",
    half="choose",
    question="Why does the music stop when I shut my laptop?",
    answers=(Answer(document="lid", quotation="The laptop sleeps if its lid is closed."),),
)


def questions_of(kind: str) -> list[Question]:
    return [question for question in load_questions() if question.kind == kind]


def test_each_kind_has_ten_questions_for_choosing_and_ten_to_report():
    questions = load_questions(QUESTIONS)

    counts = Counter((question.kind, question.half) for question in questions)

    assert counts == dict.fromkeys(itertools.product(KINDS, ("choose", "report")), 10)


@pytest.mark.parametrize("column", ["id", "question"])
def test_ids_and_questions_are_unique(column):
    questions = load_questions()

    values = {getattr(question, column) for question in questions}

    assert len(values) == len(questions) == 174


def test_a_quotation_is_one_line_of_thirty_to_two_hundred_characters():
    for question in load_questions():
        assert question.answers
        for answer in question.answers:
            assert answer.quotation == one_line(answer.quotation)
            assert 30 <= len(answer.quotation) <= 200, question.id


def test_all_questions_about_books_are_to_report():
    counts = Counter((question.kind, question.half) for question in load_questions(BOOK_QUESTIONS))

    assert counts == {("books", "report"): 50}


def test_no_question_repeats_four_words_of_its_quotation():
    for question in load_questions():
        words = question.question.lower().split()
        for answer in question.answers:
            for runs in zip(words, words[1:], words[2:], words[3:], strict=False):
                assert " ".join(runs) not in answer.quotation.lower(), question.id


@pytest.mark.long
def test_the_manual_of_this_python_holds_the_quotations():
    count = check_quotations(questions_of("python-manual"), python_manual())

    assert count > 300


def test_the_news_hold_the_quotations(shared):
    count = check_quotations(questions_of("news"), news(shared))

    assert count == 1856


def test_the_novels_hold_the_quotations(shared):
    count = check_quotations(questions_of("novels"), novels(shared))

    assert count == 22


@pytest.mark.long
def test_the_novels_among_the_books_hold_the_quotations(shared):
    questions = [
        question for question in questions_of("books") if question.answers[0].document in NOVELS
    ]

    count = check_quotations(questions, books_that_are_novels(shared))

    assert len(questions) == 30
    assert count == len(NOVELS) == 13


def test_four_questions_of_each_story_of_squality_are_asked_but_that_for_its_plot(shared):
    questions = load_story_questions(shared)

    asked = Counter[str]()
    for question in questions:
        assert "the plot of the story" not in question.question
        asked[question.answers[0].document] += 1
    assert asked == {name: 4 for name, _ in stories(shared)}
    assert len(asked) == 75


def test_a_quotation_may_run_over_lines():
    documents = [
        ("lid", "Power.\n\nThe laptop sleeps if\n    its lid is closed.\n"),
        ("fan", "Fans."),
    ]

    assert check_quotations([LID], documents) == 2


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], r"lid \(of 0 documents\).*holds it 0 times"),
        ([("lid", "Lids are opened by hand.")], r"help-01: lid.*holds it 0 times"),
        ([("lid", "The laptop sleeps if its lid is closed. " * 2)], "holds it 2 times"),
        (
            [
                ("lid", "The laptop sleeps if its lid is closed."),
                ("all", "The laptop sleeps if its lid is closed."),
            ],
            r"further documents with it: \['all'\]",
        ),
    ],
)
def test_a_quotation_that_is_gone_or_not_unique_is_an_error(documents, message):
    with pytest.raises(ValueError, match=message):
        check_quotations([LID], documents)


def test_other_books_are_printed_unpacked_and_joined(tmp_path):
    program = tmp_path / "usr/bin/bible"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$4"\n', encoding="utf-8")
    program.chmod(0o755)
    root = tmp_path / "usr/share/doc"
    texts = (
        "jargon-text/jargon.txt.gz",
        "nethack-common/Guidebook.txt.gz",
        "debian-history/docs/project-history.en.txt.gz",
        "installation-guide-amd64/en/install.en.txt.gz",
    )
    for name in texts:
        (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(gzip.compress(name.encode()))
    folder = root / "harden-doc/html/en-US"
    folder.mkdir(parents=True)
    (folder / "ch02.html").write_text("<p>Second.</p>", encoding="utf-8")
    (folder / "ch01.html").write_text("<p>First.</p>", encoding="utf-8")

    books = dict(other_books(tmp_path))

    assert books["acts"] == "Acts 1:1-28:31\n"
    assert books["jargon-file"] == texts[0]
    assert books["securing-debian"] == "First.\n\nSecond."
