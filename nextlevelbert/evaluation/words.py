"""Splits texts into words, in any script, for scores and baselines that compare words.

Chinese, Japanese, Thai, Lao, Khmer and Burmese have no spaces between words: each of their
characters counts as a word. Text in ASCII is split as `rouge-score`, `bm25s` and scikit-learn split
it.
"""

from __future__ import annotations

import unicodedata

import regex

_UNSPACED = (
    r"[[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]&&[\p{L}\p{N}]]\p{M}*"
)
_SPACED = r"--\p{Han}--\p{Hiragana}--\p{Katakana}--\p{Thai}--\p{Lao}--\p{Khmer}--\p{Myanmar}"
_CHARACTER = regex.compile(_UNSPACED, regex.V1)
_WORD = regex.compile(rf"{_UNSPACED}|[[\p{{L}}\p{{M}}\p{{N}}]{_SPACED}]+", regex.V1)
_TERM = regex.compile(rf"{_UNSPACED}|[[\w\p{{M}}]{_SPACED}]{{2,}}", regex.V1)


def split_words(text: str) -> list[str]:
    """Returns runs of letters and digits in lower case, the words that ROUGE compares.

    Example:
        >>> split_words("The cat's café: 猫が")
        ['the', 'cat', 's', 'café', '猫', 'が']
    """
    return _WORD.findall(_normalized(text))


def split_terms(text: str) -> list[str]:
    """Returns the words that BM25 and TF-IDF count: at least two letters, digits or underscores.

    A character of a script without spaces is a term on its own. Terms are in lower case.
    """
    return _TERM.findall(_normalized(text))


def count_words(text: str) -> int:
    """Counts what spaces separate; each character of a script without spaces begins a word."""
    return len(_CHARACTER.sub(" x", text).split())


def _normalized(text: str) -> str:
    """Text in lower case in which equal words have equal characters, without soft hyphens."""
    return unicodedata.normalize("NFKC", text.replace("\u00ad", "")).lower()
