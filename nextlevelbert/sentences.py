"""Where sentences end, told from token ids alone.

A rule on ids, because a model's `forward` sees nothing else: so text, stored ids and a batch from a
stock collator all give the same sentences, and nothing has to be downloaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ABBREVIATIONS = frozenset(
    "mr mrs ms messrs dr st prof rev hon capt col gen lt sgt maj jr sr vol vols fig figs vs "
    "jan feb mar apr jun jul aug sept oct nov dec".split()
)
_TERMINATORS = frozenset(".!?…。！？")
_CLOSERS = frozenset("”’)]»）」』")
_QUOTES = frozenset('"')  # not the apostrophe, which is also part of words


def sentence_token_ids(tokenizer: Any) -> dict[str, list[int]]:
    """Vocabulary ids by what they mean to the sentence rule: end, close, quote, abbreviation, number."""
    classes: dict[str, list[int]] = {"end": [], "close": [], "quote": [], "abbreviation": [], "number": []}
    for token, index in tokenizer.get_vocab().items():
        if token.startswith("##") or len(token) > 12:
            continue
        text = tokenizer.convert_tokens_to_string([token]).strip().lower()
        characters = set(text)
        if not text:
            continue
        if text[0] in _TERMINATORS and characters <= _TERMINATORS | _CLOSERS | _QUOTES:
            classes["end"].append(index)
        elif characters <= _CLOSERS:
            classes["close"].append(index)
        elif characters <= _QUOTES:
            classes["quote"].append(index)
        elif text in _ABBREVIATIONS or (len(text) == 1 and text.isalpha() and text != "i"):
            classes["abbreviation"].append(index)
        elif text.isdecimal():
            classes["number"].append(index)
    if not classes["end"]:
        raise ValueError(
            f"The vocabulary of {type(tokenizer).__name__} has no sentence-final punctuation; use chunking='fixed'."
        )
    return {name: sorted(ids) for name, ids in classes.items()}


def sentence_boundaries(input_ids: np.ndarray, classes: dict[str, list[int]]) -> np.ndarray:
    """Sentence k is ``input_ids[b[k]:b[k + 1]]``: a rule on ids, because a model's forward sees nothing else.

    A sentence ends after . ! ? and the brackets and quotes that close it, except after an initial or a
    known abbreviation and inside a decimal number. A straight quote closes if one is open in the sentence.
    """
    names = ("end", "close", "quote", "abbreviation", "number")
    kinds = {name: np.isin(input_ids, classes.get(name, [])) for name in names}
    total = len(input_ids)
    boundaries = [0]
    after = -1  # where the sentence that has just ended may still go on: with its closing quotes and brackets
    quotes_open = 0
    for position in np.flatnonzero(kinds["end"] | kinds["close"] | kinds["quote"]):
        if kinds["quote"][position] and after != position:
            quotes_open ^= 1
        if after == position:  # right behind a sentence end: it may still belong to that sentence
            closes = kinds["end"][position] or kinds["close"][position] or quotes_open
            if closes:
                quotes_open = 0 if kinds["quote"][position] else quotes_open
                after = boundaries[-1] = int(position) + 1
                continue
            quotes_open = 1
        if kinds["end"][position]:
            inside = position > 0 and (
                kinds["abbreviation"][position - 1]
                or (kinds["number"][position - 1] and position + 1 < total and kinds["number"][position + 1])
            )
            if not inside:
                after = int(position) + 1
                boundaries.append(after)
    if boundaries[-1] != total:
        boundaries.append(total)
    return np.unique(np.asarray(boundaries, dtype=np.int64))
