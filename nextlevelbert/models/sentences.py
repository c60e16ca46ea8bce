"""Finds where sentences end in token ids, or by a splitter that a caller passes.

Token ids are all that a model's `forward` sees. A text shows more sentence ends, see
`text_sentences`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# A sentence splitter: from a text to the sentences in it, as (start, end) or as texts, in order.
Splitter = Callable[[str], Sequence[str] | Sequence[tuple[int, int]]]

# Abbreviations, whose ids are stored in the configurations of models.
_ABBREVIATIONS_OF_IDS = frozenset(
    "mr mrs ms messrs dr st prof rev hon capt col gen lt sgt maj jr sr vol vols fig figs vs "
    "jan feb mar apr jun jul aug sept oct nov dec".split()
)
# The marks of the rule for token ids.
_TERMINATORS = frozenset(".!?…。！？")
_CLOSERS = frozenset("”’)]»）」』")
_QUOTES = frozenset('"')  # not the apostrophe, which is also part of words
_LONGEST_MARK = 12  # characters of a token that can have a role
# After so many ids without a straight quote none is taken to be open: a missing mark (a speech of
# several paragraphs has more opening than closing ones) would invert every later one. On novels 2 %
# of them are misread.
_LONGEST_QUOTE = 256


def sentence_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, list[int]]:
    """Finds the ids that have a role in the rule for token ids.

    Returns:
        Sorted ids by role: ``end``, ``close``, ``quote``, ``abbreviation`` and ``number``.

    Raises:
        ValueError: the vocabulary has no mark that ends a sentence.
    """
    roles = ("end", "close", "quote", "abbreviation", "number")
    ids: dict[str, list[int]] = {role: [] for role in roles}
    for token, index in tokenizer.get_vocab().items():
        if token.startswith("##") or len(token) > _LONGEST_MARK:
            continue
        role = _role_of(tokenizer.convert_tokens_to_string([token]).strip().lower())
        if role is not None:
            ids[role].append(index)

    if not ids["end"]:
        raise ValueError(
            f"The vocabulary of {type(tokenizer).__name__} has no token that ends a sentence. Use"
            " chunking='fixed'."
        )

    return {role: sorted(ids_of_role) for role, ids_of_role in ids.items()}


def _role_of(text: str) -> str | None:
    """Returns the role that a token in small letters has in the rule for token ids."""
    if not text:
        return None

    characters = set(text)
    is_initial = len(text) == 1 and text.isalpha() and text != "i"
    if text[0] in _TERMINATORS and characters <= _TERMINATORS | _CLOSERS | _QUOTES:
        return "end"
    if characters <= _CLOSERS:
        return "close"
    if characters <= _QUOTES:
        return "quote"
    if is_initial or text in _ABBREVIATIONS_OF_IDS:
        return "abbreviation"
    if text.isdecimal():
        return "number"

    return None


def sentence_boundaries(input_ids: np.ndarray, roles: dict[str, list[int]]) -> np.ndarray:
    """Finds the sentences in token ids.

    A sentence ends after . ! ? and the brackets and quotes that close it, except after an initial
    or one of a few abbreviations, and inside a decimal number.

    Args:
        input_ids: token ids ``[T]``.
        roles: ids by role, from `sentence_token_ids`.

    Returns:
        ``[sentences + 1]`` int64, from 0 to T, rising; sentence k is ``input_ids[b[k]:b[k + 1]]``.
    """
    is_end = np.isin(input_ids, roles.get("end", []))  # [T], like the next ones
    is_close = np.isin(input_ids, roles.get("close", []))
    is_quote = np.isin(input_ids, roles.get("quote", []))
    is_abbreviation = np.isin(input_ids, roles.get("abbreviation", []))
    is_number = np.isin(input_ids, roles.get("number", []))

    follows_abbreviation = _shift(is_abbreviation, by=1)
    is_decimal_point = _shift(is_number, by=1) & _shift(is_number, by=-1)
    ends = is_end & ~follows_abbreviation & ~is_decimal_point

    # A run of ends and closers belongs to one sentence, as in `?!` or `.)"`; the sentence ends
    # after the run.
    is_in_run = is_end | is_close | closing_quotes(is_quote)
    borders = np.flatnonzero(np.diff(is_in_run, prepend=False, append=False))
    run_starts = borders[0::2]
    run_stops = borders[1::2]
    ends_before = np.append(0, np.cumsum(ends))
    has_end = ends_before[run_stops] > ends_before[run_starts]
    boundaries = np.concatenate([[0], run_stops[has_end], [len(input_ids)]])
    return np.unique(boundaries).astype(np.int64)


def _shift(flags: np.ndarray, by: int) -> np.ndarray:
    """Moves flags to the right (1) or to the left (-1); the free end is false."""
    shifted = np.zeros_like(flags)
    if by == 1:
        shifted[1:] = flags[:-1]
    else:
        shifted[:-1] = flags[1:]
    return shifted


def closing_quotes(quotes: np.ndarray) -> np.ndarray:
    """Decides which straight quotes close a quotation; the others open one.

    Opening and closing marks take turns. Two things restart the count, so that a missing mark does
    not invert all later marks. Of two marks in a row, the first closes and the second opens (one
    speaker stops, the next begins). The first mark after `_LONGEST_QUOTE` ids without a mark opens.

    Args:
        quotes: bool mask ``[T]``, true at straight quotes.

    Returns:
        A bool mask ``[T]``, true at closing quotes.
    """
    positions = np.flatnonzero(quotes)
    distance = np.diff(positions, prepend=-_LONGEST_QUOTE - 1)  # to the previous mark
    surely_opens = distance == 1  # the second of two marks in a row
    surely_closes = _shift(surely_opens, by=-1) & ~surely_opens  # the first of them
    # Opens, unless it is the first of two marks. The first mark of all counts as far.
    is_far = distance > _LONGEST_QUOTE
    is_certain = surely_closes | surely_opens | is_far

    index = np.arange(len(positions))
    last_certain = np.maximum.accumulate(np.where(is_certain, index, 0))
    is_odd = (index - last_certain) % 2 == 1
    closing = np.zeros(len(quotes), bool)
    # Each step from a certain mark changes the role, so that an odd number of steps inverts it.
    closing[positions] = surely_closes[last_certain] ^ is_odd
    return closing


def splitter_sentences(text: str, splitter: Splitter) -> list[tuple[int, int]]:
    """Finds sentences by a splitter.

    Raises:
        ValueError: the sentences are not in the text or not in order, or there is none in a text
            that is not blank.
    """
    if not text.strip():
        return []

    spans: list[tuple[int, int]] = []
    earlier_end = 0
    for sentence in splitter(text):
        if isinstance(sentence, str):
            if not sentence.strip():
                continue
            start = text.find(sentence, earlier_end)
            end = start + len(sentence)
        else:
            start, end = sentence

        if not earlier_end <= start <= end <= len(text):
            raise ValueError(
                f"The splitter returned {(start, end)} as sentence {len(spans)}. It must return"
                " parts of the text in order, unchanged, or their (start, end), between"
                f" {earlier_end} and {len(text)}."
            )

        earlier_end = end
        if text[start:end].strip():
            spans.append((int(start), int(end)))

    if not spans:
        raise ValueError(
            f"The splitter found no sentence in a text of {len(text)} characters. It must return at"
            " least one."
        )

    return spans
