"""Splits texts into words, in any script, for search and for scores that compare words.

Chinese, Japanese, Thai, Lao, Khmer and Burmese have no spaces between words. For scores, each of
their characters counts as a word; for search, a Chinese character and a pair of other characters
do. Text in ASCII is split as `rouge-score`, `bm25s` and scikit-learn split it.
"""

import unicodedata
from typing import Literal

import regex

_SYLLABLES = r"\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_UNSPACED = (
    r"[[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]&&[\p{L}\p{N}]]\p{M}*"
)
_SPACED = r"--\p{Han}--\p{Hiragana}--\p{Katakana}--\p{Thai}--\p{Lao}--\p{Khmer}--\p{Myanmar}"
_CHARACTER = regex.compile(_UNSPACED, regex.V1)
_WORD = regex.compile(rf"{_UNSPACED}|[[\p{{L}}\p{{M}}\p{{N}}]{_SPACED}]+", regex.V1)
_TERM = regex.compile(rf"{_UNSPACED}|[[\w\p{{M}}]{_SPACED}]{{2,}}", regex.V1)
_RUN = regex.compile(rf"[[{_SYLLABLES}]&&[\p{{L}}\p{{M}}\p{{N}}]]+", regex.V1)
_FIRST_CHARACTER = rf"[[\p{{L}}\p{{N}}]{_SPACED}--ー]"
_NEXT_CHARACTER = rf"[[\p{{L}}\p{{M}}\p{{N}}]{_SPACED}--ー]"
_SEARCHED = regex.compile(
    rf"\p{{Han}}|{_RUN.pattern}|{_FIRST_CHARACTER}{_NEXT_CHARACTER}*", regex.V1
)
# Accents, and the vowel points of Hebrew and Arabic, which most texts leave out. The vowels of
# Indian scripts stay.
_ACCENT = regex.compile(
    r"[\u0300-\u036f[\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed&&\p{M}]]", regex.V1
)
# Letters that Unicode does not decompose, in the spelling of those who lack them (as ICU's
# transliteration from Latin to ASCII has it); variants of Arabic letters; the tatweel.
_LETTERS = str.maketrans(
    {
        "æ": "ae",
        "ð": "d",
        "đ": "d",
        "ħ": "h",
        "ı": "i",
        "ł": "l",
        "ŋ": "n",
        "ø": "o",
        "œ": "oe",
        "þ": "th",
        "ŧ": "t",
        "ى": "ي",
        "ی": "ي",
        "ک": "ك",
        "\u0640": None,
    }
)
_INVISIBLE = regex.compile(r"\p{Cf}")  # soft hyphens, joiners, zero-width spaces
# Persian divides words by this, where others write a space or nothing.
_NON_JOINER = regex.compile(r"(?<=\p{Arabic})\u200c(?=\p{Arabic})")
# From an ASCII character to a space, if it is neither a letter nor a digit.
_BETWEEN = {code: " " for code in range(128) if not chr(code).isalnum()}
_OFTEN_NOT_ASCII = "“”‘’—™"
_HYPHENS = "-\u2010\u2011\u05be"
# "sign-off", and a word that is divided at the end of a line; no numbers such as 1914-18.
_COMPOUND = regex.compile(rf"(?<![^\W_])[^\W\d_]++(?:[{_HYPHENS}](?:\n[ \t]*)?[^\W_]++)+", regex.V1)
_BETWEEN_PARTS = regex.compile(rf"[{_HYPHENS}\s]+")
# The longest run of marks in Unicode's stream-safe format (UAX 15). Normalization sorts the marks
# of a run one by one. The last two characters decompose to marks.
_MARKS = regex.compile(r"([\p{M}\uff9e\uff9f]{30})[\p{M}\uff9e\uff9f]+")
_VERSION = regex.compile(r"(?<!\d)\d++(?:\.\d++)+")


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


def search_words(text: str) -> list[str]:
    r"""Returns the words that search compares: in lower case, without accents and vowel points.

    A word is a run of letters and digits. A word with hyphens, which may be divided at the end of a
    line, is also joined, and the numbers of a version also count together. A Chinese character is a
    word; in other scripts without spaces, each pair of neighbours is a word.

    Example:
        >>> search_words("Don't read_Brontë in 2⁴ ﬁles"), search_words("フェリー")
        (['don', 't', 'read', 'bronte', 'in', '24', 'files'], ['フェ', 'ェリ', 'リー'])
        >>> search_words("The e-mail of Łódź on 14.2")
        ['the', 'e', 'mail', 'of', 'lodz', 'on', '14', '2', 'email', '14.2']
    """
    for mark in _OFTEN_NOT_ASCII:
        text = text.replace(mark, " ")

    if text.isascii():
        text = text.lower()
        return text.translate(_BETWEEN).split() + _joined_words(text)

    text = _INVISIBLE.sub("", _NON_JOINER.sub("-", text))
    text = _ACCENT.sub("", _normalize("NFKD", text))
    text = _normalize("NFC", text.casefold().translate(_LETTERS))
    words = list[str]()
    for word in _SEARCHED.findall(text):
        if len(word) > 2 and _RUN.match(word):
            words.extend(word[start : start + 2] for start in range(len(word) - 1))
        else:
            words.append(word)

    return words + _joined_words(text)


def _joined_words(text: str) -> list[str]:
    """Returns the words with hyphens, joined, and the versions of a text."""
    compounds = [_BETWEEN_PARTS.sub("", word) for word in _COMPOUND.findall(text)]
    return compounds + _VERSION.findall(text)


def count_words(text: str) -> int:
    """Counts the parts between spaces; each character of a script without spaces begins a word."""
    return len(_CHARACTER.sub(" x", text).split())


def _normalized(text: str) -> str:
    """Returns text in lower case, in which equal words have equal characters."""
    return _normalize("NFKC", text.replace("\u00ad", "")).lower()


def _normalize(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Normalizes a text without the marks after the thirtieth of a run, in linear time."""
    return unicodedata.normalize(form, _MARKS.sub(r"\1", text))
