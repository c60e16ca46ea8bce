"""Spans of chunks: merged and widened, by hand."""

import numpy as np
import pytest

from nextlevelbert import merge_spans, whole_sentences

TEXT = "One. Two.\n\nThree. Four."


@pytest.mark.parametrize(
    ("spans", "merged"),
    [
        ([(0, 4), (5, 9)], [(0, 9)]),  # a space between
        ([(5, 9), (11, 17)], [(5, 17)]),  # a blank line between
        ([(0, 4), (11, 17)], [(0, 4), (11, 17)]),  # a sentence between
        ([(11, 17), (0, 4), (5, 9)], [(0, 17)]),  # in any order
        ([(0, 7), (2, 4), (5, 9)], [(0, 9)]),  # overlapping, one within another
        ([(0, 2), (2, 4)], [(0, 4)]),  # adjacent
        ([(3, 3)], [(3, 3)]),
        ([], []),
    ],
)
def test_neighbours_are_merged(spans, merged):
    result = merge_spans(TEXT, spans)

    assert result.tolist() == [list(span) for span in merged]
    assert result.shape == (len(merged), 2)
    assert result.dtype == np.int64


def test_spans_of_an_embedding_are_merged_and_stay_as_they_were():
    spans = np.array([[11, 17], [0, 4], [5, 9]])

    assert merge_spans(TEXT, spans).tolist() == [[0, 17]]
    assert spans.tolist() == [[11, 17], [0, 4], [5, 9]]


def test_spans_are_widened_to_whole_sentences():
    """In a very long sentence, to whole words. White space between sentences belongs to none."""
    text = "One  two.\n\nThree four. Five six. " + "longish " * 200
    spans = [(0, 3), (7, 14), (11, 16), (30, 40), (700, 702), (1630, 1631)]

    widened = whole_sentences(text, spans)

    shown = [text[start:end] for start, end in widened]
    assert shown[:3] == ["One  two.", "One  two.\n\nThree four.", "Three four."]
    assert shown[3:] == ["Five six. longish", "longish", "longish"]


@pytest.mark.parametrize(
    ("text", "spans", "widened"),
    [
        ("\u200b", [], []),  # no sentence
        ("渡輪。海港。燈塔。", [(3, 6)], [[3, 6]]),
        ("渡輪。海港。燈塔。", [(4, 5), (1, 2)], [[3, 6], [0, 3]]),  # in the order of the spans
        ("One two. Three.", [(3, 7)], [[0, 8]]),  # a tokenizer that counts the space before a word
    ],
)
def test_widened_spans_in_any_script(text, spans, widened):
    result = whole_sentences(text, spans)

    assert result.tolist() == widened
    assert result.shape == (len(widened), 2)
