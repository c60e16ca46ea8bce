"""Texts as HTML: bold words, marked passages, and running heads outside of them."""

import re
from html import unescape

import pytest

from nextlevelbert.search.page.highlights import bold_words, marked_text, running_lines, snippet


@pytest.mark.parametrize(
    ("text", "words", "shown"),
    [
        ("A whale & a <ship>", {"whale", "ship"}, "A <b>whale</b> &amp; a &lt;<b>ship</b>&gt;"),
        ("Whales", {"whale"}, "Whales"),  # words are compared whole
        ("Das Café", {"cafe"}, "Das <b>Café</b>"),
        ("我有一只猫。", {"猫"}, "<b>我有一只猫</b>。"),
        ("nothing", set(), "nothing"),
    ],
)
def test_words_are_bold_as_search_compares_them(text, words, shown):
    assert bold_words(text, words) == shown


def test_a_short_text_is_its_own_snippet():
    assert snippet("\nA whale\n\n  swims.\n", {"whale"}) == "A whale\n  swims."


def test_a_snippet_holds_most_of_the_words():
    text = "A ship. " + "Rain fell on. " * 50 + "The whale hit the ship. " + "Wind rose. " * 50

    shown = snippet(text, {"whale", "ship"})

    assert "The whale hit the ship." in shown
    assert shown.startswith("… ")
    assert shown.index("The whale") <= 100  # the browser leaves out what is below four lines
    assert snippet(text, {"ship"}).startswith("A ship. Rain")


@pytest.mark.parametrize(
    ("before", "first"),
    [
        ("parliamentarians " * 20, "… parliamentarians "),
        ("salt-" * 60, "… whale"),  # without a space
        ("The rain fell on the sea.\n" * 20, "… The rain fell"),
    ],
)
def test_a_snippet_begins_with_a_line_or_a_word(before, first):
    for count in range(20):
        shown = snippet(f"{'x' * count} {before}whale", {"whale"})

        assert shown.startswith(first)


def pages(count: int, *, head: str, foot: str) -> tuple[str, list[int]]:
    """A document with a head and a foot on each page, and where its pages begin."""
    text = ""
    starts = []
    for number in range(count):
        starts.append(len(text))
        body = f"Line {chr(65 + number)} of the page,\nand the next {chr(75 + number)} of it."
        text += f"{head.format(number + 7)}\n{body}\n{foot.format(number + 7)}\n\n"
    return text, starts


@pytest.mark.parametrize(
    ("head", "foot"),
    [
        ("Shared database", "{}"),
        ("Chapter 4: Functions {}", "– {} –"),
        ("{} by", "A manual, 2nd edition"),
    ],
)
def test_running_heads_and_page_numbers_are_found(head, foot):
    text, starts = pages(3, head=head, foot=foot)

    running = running_lines(text, starts)

    expected = []
    for number in (7, 8, 9):
        expected += [head.format(number), foot.format(number)]
    assert [text[start:end] for start, end in running] == expected


def test_a_head_that_changes_has_a_number_that_grows():
    text = "merge 379\nOne of a page.\n\nmerge 380\nTwo of it.\n\n381 message\nThree of it."
    starts = [0, text.index("merge 380"), text.index("381")]

    running = running_lines(text, starts)

    assert [text[slice(*span)] for span in running] == ["merge 379", "merge 380", "381 message"]


def test_a_first_line_that_does_not_recur_is_text():
    assert running_lines("A title\nOne.\n\nBody\nTwo.\n\n\n\nLast\nThree", [0, 14, 25, 27]) == []
    assert running_lines("A text without pages.\n3", []) == []


def test_a_passage_is_marked_without_the_heads_within_it():
    text, starts = pages(3, head="Shared <database>", foot="{}")
    marked = (text.index("Line A"), text.index("next L"))
    running = running_lines(text, starts)

    html = marked_text(text, (0, len(text)), marked=marked, running=running, words={"line"})

    marks = re.findall("(?s)<mark>(.*?)</mark>", html)
    assert marks == [
        "<b>Line</b> A of the page,\nand the next K of it.",
        "<b>Line</b> B of the page,\nand the ",
    ]
    heads = re.findall("<small>(.*?)</small>", html)
    assert heads[:4] == ["Shared &lt;database&gt;", "7", "Shared &lt;database&gt;", "8"]
    assert "Line C" in html  # is not bold outside of the mark


def test_lines_are_joined_for_display_and_characters_keep_their_places():
    lines = ["The lines of a paragraph in a column of a PDF are broken", "there, not here. " * 3]
    text = "\n".join(["In front of it. " * 5, "", *lines])
    marked = (text.index("paragraph"), text.index("not here"))

    html = marked_text(text, (0, len(text)), marked=marked, running=[], words=set())

    [mark] = re.findall("(?s)<mark>(.*)</mark>", html)
    assert mark == "paragraph in a column of a PDF are broken there, "
    assert unescape(re.sub("</?mark>", "", html)).replace("\n", " ") == text.replace("\n", " ")


@pytest.mark.parametrize(
    ("block", "is_code"),
    [
        ("def held(words):\n    return len(words)", True),
        ("import os\nfolders = os.listdir()", True),
        ("$ git init", True),
        ("It has (by chance) one bracket,\nand no other sign of code.", False),
        ("The whale swims.\n    It dives.\nThe ship waits.", False),
    ],
)
def test_code_is_an_element_of_its_own_and_keeps_its_lines(block, is_code):
    text = f"Some words about it.\n\n{block}\n\nMore words."
    marked = (text.index(block) + 2, len(text))

    html = marked_text(text, (0, len(text)), marked=marked, running=[], words=set())

    assert ("<code>" in html) == is_code
    if is_code:
        [code] = re.findall("(?s)<code>(.*)</code>", html)
        assert unescape(re.sub("</?mark>", "", code)) == block
