"""Passages: whole sentences, the pages of a PDF, and long passages."""

import numpy as np
import pytest

from nextlevelbert.search.passages import passage_borders, shorten, show_passage

from ..toys.books import write_pdf


def test_a_passage_is_whole_sentences_of_its_chunk():
    """In a very long sentence, it is whole words. White space between sentences belongs to none."""
    text = "One  two.\n\nThree four. Five six. " + "longish " * 200
    spans = np.array([[0, 3], [7, 14], [11, 16], [30, 40], [700, 702], [1630, 1631]])
    passages = passage_borders(text, spans)
    shown = [text[start:end] for start, end in passages]
    assert shown[:3] == ["One  two.", "One  two.\n\nThree four.", "Three four."]
    assert shown[3:] == ["Five six. longish", "longish", "longish"]
    assert passage_borders("\u200b", np.zeros((0, 2), int)).shape == (0, 2)
    assert passage_borders("渡輪。海港。燈塔。", np.array([[3, 6]])).tolist() == [[3, 6]]


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
