"""Ends of sentences in token ids, and by a splitter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextlevelbert.models.sentences import closing_quotes, sentence_boundaries, splitter_sentences

END = 1
CLOSE = 2
QUOTE = 3
ABBREVIATION = 4
NUMBER = 5
CLASSES = {
    "end": [END],
    "close": [CLOSE],
    "quote": [QUOTE],
    "abbreviation": [ABBREVIATION],
    "number": [NUMBER],
}


def read_quotes(quotes: list[bool]) -> list[bool]:
    """The rule of `closing_quotes` in words of one step a mark."""
    closing = []
    is_open = False
    last = None
    for position, quote in enumerate(quotes):
        closing.append(False)
        if not quote:
            continue
        if last is None or position - last > 256:
            is_open = False
        if last == position - 1:
            is_open = False
        elif position + 1 < len(quotes) and quotes[position + 1]:
            is_open = True
        closing[position] = is_open
        is_open = not is_open
        last = position
    return closing


@settings(deadline=None)
@given(
    gaps=st.lists(st.sampled_from([1, 1, 2, 3, 9, 255, 256, 257, 300]), max_size=30),
    end=st.integers(1, 3),
)
def test_quotes_take_turns_until_something_is_known(gaps, end):
    quotes = np.zeros(sum(gaps) + end, bool)
    quotes[np.cumsum(gaps, dtype=int)] = True

    assert closing_quotes(quotes).tolist() == read_quotes(quotes.tolist())


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], [0]),
        ([END], [0, 1]),
        ([10, 11], [0, 2]),
        ([10, END, END, CLOSE, 11, END], [0, 4, 6]),
        ([ABBREVIATION, END, 10, END], [0, 4]),
        ([ABBREVIATION, END, END, 10], [0, 3, 4]),  # an abbreviation, then the end of the sentence
        ([NUMBER, END, NUMBER, END, 10], [0, 4, 5]),  # 3.5.
        ([NUMBER, END, 10, END], [0, 2, 4]),
        ([10, CLOSE, END, 11], [0, 3, 4]),
    ],
)
def test_ends(ids, expected):
    assert sentence_boundaries(np.array(ids, np.int32), CLASSES).tolist() == expected


@pytest.mark.parametrize(
    ("sentences", "word"),
    [
        ([], "no sentence"),
        ([(0, 5), (4, 12)], "sentence 1"),
        ([(0, 13)], "and 12"),
        (["One.", "Three."], "sentence 1"),
    ],
)
def test_a_splitter_that_does_not_fit_its_text_is_an_error(sentences, word):
    with pytest.raises(ValueError, match=word):
        splitter_sentences("One. Two six", lambda text: sentences)
