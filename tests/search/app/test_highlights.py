"""The words of a question in texts."""

import pytest

from nextlevelbert.search.app.highlights import bold_words, snippet


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
    assert snippet("A whale\n  swims.", {"whale"}) == "A whale swims."


def test_a_snippet_holds_most_of_the_words():
    text = "A ship. " + "Rain fell on. " * 50 + "The whale hit the ship. " + "Wind rose. " * 50

    shown = snippet(text, {"whale", "ship"})

    assert "The whale hit the ship." in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert len(shown) <= 364
    assert snippet(text, {"ship"}).startswith("A ship. Rain")
