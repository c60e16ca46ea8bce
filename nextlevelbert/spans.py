"""Spans of characters in a text: neighbouring ones merged, and widened to whole sentences."""

import re
from collections.abc import Sequence

import numpy as np

from .models.text_sentences import text_sentences

Spans = np.ndarray | Sequence[Sequence[int]]
# Characters. In a longer sentence, such as a table without a full stop, whole words are enough.
_LONGEST_SENTENCE = 1_000
_WORD = re.compile(r"\S{1,100}")


def merge_spans(text: str, spans: Spans) -> np.ndarray:
    """Merges spans that overlap, or between which the text has only white space.

    Several chunks that a search returned of one document become fewer and longer passages, none of
    which repeats text of another. If passages shall be whole sentences, call `whole_sentences`
    first.

    Args:
        text: the document.
        spans: first character and last character plus one of each span, in any order, ``[n, 2]``.

    Returns:
        The merged spans in the order of the text, ``[m, 2]`` int64.

    Example:
        >>> text = "One. Two. Three. Four."
        >>> merge_spans(text, [(17, 22), (5, 9), (0, 4)]).tolist()
        [[0, 9], [17, 22]]
    """
    starts = []
    ends: list[int] = []
    in_order = sorted(np.asarray(spans).reshape(-1, 2).tolist())
    for start, end in in_order:
        is_apart = True
        if ends:
            between = text[ends[-1] : start]
            is_apart = between.strip() != ""
        if is_apart:
            starts.append(start)
            ends.append(end)
        else:
            ends[-1] = max(ends[-1], end)

    return np.array([starts, ends], np.int64).T


def whole_sentences(text: str, spans: Spans) -> np.ndarray:
    """Widens spans to whole sentences; `nextlevelbert search` shows chunks in this form.

    Sentences are those of `text_sentences`. In a sentence of more than 1,000 characters, a span is
    widened to whole words.

    Args:
        text: the document.
        spans: first character and last character plus one of each span, ``[n, 2]``.

    Returns:
        The widened spans in the same order, ``[n, 2]``.

    Example:
        >>> text = "One and two. Three and four. Five."
        >>> whole_sentences(text, [(17, 22)]).tolist()
        [[13, 28]]
    """
    spans = np.asarray(spans).reshape(-1, 2)
    units = _sentences_or_words(text)
    if not units:
        return spans

    unit_starts, unit_ends = np.array(units).T
    span_starts, span_ends = spans.T
    first = np.searchsorted(unit_ends, span_starts, side="right")
    first = first.clip(max=len(units) - 1)
    last = np.searchsorted(unit_starts, span_ends) - 1
    last = last.clip(min=0)
    # Some tokenizers count the space before a word.
    starts = np.minimum(unit_starts[first], span_starts)
    ends = np.maximum(unit_ends[last], span_ends)
    return np.stack([starts, ends], axis=1)


def _sentences_or_words(text: str) -> list[tuple[int, int]]:
    """Returns the spans of a text's sentences, or of the words of a very long sentence."""
    units = []
    for start, end in text_sentences(text):
        if end - start <= _LONGEST_SENTENCE:
            units.append((start, end))
        else:
            units.extend(word.span() for word in _WORD.finditer(text, start, end))
    return units
