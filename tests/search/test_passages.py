"""Passages: the pages of a PDF, long passages, and lines."""

import pytest

from nextlevelbert.search.passages import NO_SPACE, join_lines, shorten, show_passage

from ..toys.books import write_pdf


def test_a_passage_of_a_pdf_has_its_pages(command, tmp_path):
    sentences = ["The preface of the almanac is short.", "The table of the moonrise stands here."]
    write_pdf(tmp_path / "a.pdf", sentences)
    answer = command("search", tmp_path / "a.pdf", "moonrise", "--json", "--passages", 99).json
    for passage in answer["passages"]:
        pages = [page for page in (1, 2) if sentences[page - 1][:20] in passage["text"]]
        assert passage["pages"] == [pages[0], pages[-1]]
        assert passage["page"] in pages

    assert answer["documents"][0]["metadata"] == {}
    assert ", page 2, at " in command("search", tmp_path / "a.pdf", "moonrise").out


def test_a_passage_on_two_pages_names_both_and_the_page_that_holds_most():
    text = "One. This sentence begins on a page and ends on another one. Three."
    passage = show_passage(text, 5, end=60, page_starts=[0, 12, len(text) - 2])

    assert passage.text == "This sentence begins on a page and ends on another one."
    assert (passage.pages, passage.page) == ((1, 2), 2)
    assert passage.characters == "characters 5 to 60"
    assert passage.position == "pages 1 to 2, at 7%"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A sentence of words. " * 300, "A sentence of words. " * 95),
        ("G" * 5_000, "G" * 2_000),
    ],
)
def test_a_long_passage_is_cut_with_a_mark(text, shown):
    left_out = len(text) - len(shown.strip())

    assert shorten(text) == f"{shown.strip()} [… {left_out:,} more characters]"


PARAGRAPH = [
    "The lines of this paragraph were broken by a printer, and are",
    "joined again, because each of them had no room for the first",
    "word of the next one.",
]
CODE = ["$ pip install a-package-with-a-long-name-that-fills-the-line", "    x = first(1)", "y = 2"]
OPTIONS = [
    "--documents, --passages: how many of them are shown, by default five",
    "-o: names the file to write, which is a table, or else a NumPy file",
]


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (PARAGRAPH, [" ".join(PARAGRAPH)]),
        (["CHAPTER ONE", *PARAGRAPH], ["CHAPTER ONE", " ".join(PARAGRAPH)]),
        ([*PARAGRAPH, "", *PARAGRAPH], [" ".join(PARAGRAPH), "", " ".join(PARAGRAPH)]),
        ([*PARAGRAPH[:2], *CODE], [" ".join(PARAGRAPH[:2]), *CODE]),
        (OPTIONS, OPTIONS),
        (["Roses are red,", "violets are blue"], ["Roses are red,", "violets are blue"]),
        (
            ["This paragraph has a word that was divided at the end of its exam-", "ple line."],
            [
                f"This paragraph has a word that was divided at the end of its exam-{NO_SPACE}ple line."
            ],
        ),
    ],
)
def test_lines_of_paragraphs_are_joined_and_those_of_code_stay(lines, shown):
    text = "\n".join(lines)

    joined = join_lines(text)

    assert joined == "\n".join(shown)
    assert len(joined) == len(text)


def test_search_prints_lines_of_code_one_by_one(command, tmp_path):
    text = "Install the package, and start the command with the name of your folder:"
    (tmp_path / "a.md").write_text(f"{text}\n\n    $ pip install it\n    $ run it --now\n")

    printed = command("search", tmp_path / "a.md", "install the package").out

    assert f"    {text}\n        $ pip install it\n        $ run it --now\n" in printed
