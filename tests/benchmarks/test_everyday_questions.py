"""The everyday questions: their halves, and that the texts hold the quotations."""

import gzip
import itertools
import json
from collections import Counter

import pytest

from benchmarks.studies.everyday_questions import (
    BOOK_QUESTIONS,
    KINDS,
    NOVEL_QUESTIONS,
    NOVELS,
    QUESTIONS,
    Answer,
    Question,
    books_that_are_novels,
    check_quotations,
    git_manual,
    gnome_help,
    gnucash_manual,
    load_questions,
    news,
    novels,
    one_line,
    other_books,
    python_manual,
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


def test_every_line_is_an_object_with_the_same_keys():
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    lines += NOVEL_QUESTIONS.read_text(encoding="utf-8").splitlines()
    lines += BOOK_QUESTIONS.read_text(encoding="utf-8").splitlines()

    keys = {tuple(json.loads(line)) for line in lines}

    assert keys == {("id", "kind", "half", "question", "answers")}


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


def test_git_manual_pages_are_read_as_they_are(tmp_path):
    folder = tmp_path / "usr/share/doc/git-doc"
    (folder / "howto").mkdir(parents=True)
    (folder / "git-stash.txt").write_text("git-stash(1)\n", encoding="utf-8")
    (folder / "howto/use.txt").write_text("Use it.\n", encoding="utf-8")

    pages = list(git_manual(tmp_path))

    assert pages == [("git-stash", "git-stash(1)\n"), ("howto/use", "Use it.\n")]


def test_gnome_help_is_read_without_its_markup(tmp_path):
    folder = tmp_path / "usr/share/help/C/gnome-help"
    folder.mkdir(parents=True)
    page = """<page xmlns="http://projectmallard.org/1.0/" id="lid">
  <info><title type="sort">1</title><credit><name>A. Writer</name></credit>
    <desc>Laptops sleep.</desc></info>
  <title>Why does my computer turn off?</title>
  <p>Press <gui>Power</gui>
    <!-- a note --> twice.</p>
  <steps><item><p>Close it.</p></item></steps></page>"""
    (folder / "lid.page").write_text(page, encoding="utf-8")

    [(name, text)] = gnome_help(tmp_path)

    assert name == "gnome-help/lid"
    assert text.split("\n\n") == [
        "Laptops sleep.",
        "Why does my computer turn off?",
        "Press Power twice.",
        "Close it.",
    ]


def test_gnucash_manuals_in_other_languages_are_left_out(tmp_path):
    for language in ("en", "de"):
        folder = tmp_path / f"usr/share/doc/gnucash-docs/gnucash-help-{language}"
        folder.mkdir(parents=True)
        (folder / "trans.html").write_text("<p>One <b>entry</b>.</p>", encoding="utf-8")

    pages = list(gnucash_manual(tmp_path))

    assert pages == [("gnucash-help-en/trans", "One entry.")]


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
