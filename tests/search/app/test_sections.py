"""Parts of documents: between headings, or of equal length."""

import gzip
import json

import numpy as np
import pytest

from nextlevelbert import example_books, read_documents
from nextlevelbert.search.app.sections import sections_of

WORDS = "The captain hunts the whale over the sea. " * 15  # longer than the shortest part


@pytest.mark.parametrize(
    "headings",
    [
        [
            "CHAPTER I",
            "Chapter 2. The Chase",
            "CHAPTER III: AT SEA",
            "Chapter the Fourth of nothing",
        ],
        ["# One", "## Two", "### Three", "#hashtag"],
        ["I.", "II", "XIV.", "I see"],
        ["ARTICLE ONE", "Section 2 - Terms", "Item 3.", "Part of it is lost"],
    ],
)
def test_parts_between_headings(headings):
    """The last line of each list is no heading; a table of contents in front is none, either."""
    text = "\n".join(headings[:3]) + "\n\n"
    for heading in headings:
        text += f"{heading}\n\n{WORDS}\n\n"
    sections = sections_of(text, np.array([[0, len(text)]]))
    ends = [*(section.start for section in sections[1:]), len(text)]
    for section, heading, end in zip(sections, headings[:3], ends, strict=True):
        assert section.heading == heading.strip("# ")
        assert text[section.start :].startswith(heading)
        assert section.end == end


def test_parts_of_equal_length():
    spans = np.array([[10 * index, 10 * index + 10] for index in range(95)])
    text = "x" * 950
    sections = sections_of(text, spans)

    assert len(sections) == 30
    assert sections[0] == ("part 1", 0, 40)
    assert sections[-1] == ("part 30", 920, 950)
    assert len(sections_of(text[:20], spans[:2])) == 2


def spans_of(text):
    """Spans of a thousand characters, in place of chunks."""
    starts = np.arange(0, len(text), 1_000)
    return np.stack([starts, np.minimum(starts + 1_000, len(text))], axis=1)


def eltec(path):
    """The novels of ELTeC, whose editors have marked chapters."""
    with gzip.open(path, "rt") as lines:
        return [row for row in map(json.loads, lines) if row["source"] == "eltec"]


def starts_of_chapters(sections):
    return {section.start for section in sections if section.heading != "before the first heading"}


def test_chapters_of_the_installed_novels():
    """By hand: the beginnings of six novels hold eight headings of chapters. The last one of "Pride
    and Prejudice" has less text than a section, and "Adventure I" is taken by its line "I."."""
    text = ""
    for novel in read_documents(example_books()):
        text += f"{novel.text}\n\n"

    sections = sections_of(text, spans_of(text))

    assert [section.heading for section in sections] == [
        "CHAPTER I",
        "CHAPTER 1",
        "Chapter 1",
        "Chapter 2",
        "CHAPTER I—START IN LIFE",
        "I.",
        "Chapter 1. Mr. Sherlock Holmes",
    ]
    assert text[sections[2].start :].startswith("Chapter 1\n\nIt is a truth universally")


@pytest.mark.parametrize(
    ("part", "novels", "without_headings"),
    [("validation", 9, 2), pytest.param("train", 84, 8, marks=pytest.mark.long)],
)
def test_chapters_are_those_of_the_editors(part, novels, without_headings, shared):
    """In ELTeC's novels, at least 96 % of the chapters are sections, and 99 % of the sections are
    chapters."""
    rows = eltec(shared / "data" / "novels" / f"{part}.jsonl.gz")
    equal = 0
    chapters = 0
    found = 0
    right = 0

    for row in rows:
        sections = sections_of(row["text"], spans_of(row["text"]))
        if sections[0].heading == "part 1":
            equal += 1
            continue
        starts = starts_of_chapters(sections)
        editors = {chapter["start"] for chapter in row["chapters"]}
        chapters += len(editors)
        found += len(starts)
        right += len(starts & editors)

    assert (len(rows), equal) == (novels, without_headings)
    assert right >= 0.96 * chapters
    assert right >= 0.99 * found
