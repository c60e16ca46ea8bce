"""Which words stand in which passages, and BM25 from that.

Counts are kept for each record of a shelf, so that a file that is new or changed is counted alone. What depends on
all passages together, as how rare a word is, is computed for the words of a question when it is asked.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

_K1, _B = 1.5, 0.75  # as `bm25s` has them

_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Vowel signs and points of Hebrew, Arabic, Indic scripts, Thai, Lao and Burmese, which `\w` does not know.
_MARKS = "\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e\u0eb1-\u0ecd\u102b-\u103e"
_WORD = re.compile(rf"[{_CHINESE}]|[^\W{_CHINESE}]+(?:[{_MARKS}]+[^\W{_CHINESE}]*)*")
_ACCENTS = re.compile("[\u0300-\u036f]+")


class WordCounts(NamedTuple):
    """How often words occur in the chunks of a record (w different words, N chunks, P pairs of these that occur).

    Attributes:
        words: ``[w]`` int64, `word_hash` of each, rising.
        starts: ``[w + 1]`` int64, the first pair of each word, and P.
        chunks: ``[P]``, the chunk of each pair; those of a word rise.
        counts: ``[P]``, how often the word stands in the chunk. The smallest unsigned integers that hold them.
        lengths: ``[N]`` int32, all words of each chunk.
    """

    words: np.ndarray
    starts: np.ndarray
    chunks: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray


def split_words(text: str) -> list[str]:
    """The words of a text: letters and digits in a row, in lower case and without accents; Chinese characters are
    words of their own. None is left out.

    Example:
        >>> split_words("Émile's 2 白鯨")
        ['emile', 's', '2', '白', '鯨']
    """
    text = text.lower()
    if not text.isascii():
        text = _ACCENTS.sub("", unicodedata.normalize("NFD", text))
    return _WORD.findall(text)


def word_hash(word: str) -> int:
    """CRC-32. Of two words, one pair in four billion is taken for one word."""
    return zlib.crc32(word.encode())


class _Hashes(dict[str, int]):
    """`word_hash` of each word, computed once."""

    def __missing__(self, word: str) -> int:
        self[word] = word_hash(word)
        return self[word]


def count_words(passages: Iterable[str]) -> WordCounts:
    """Counts the words of passages.

    Example:
        >>> found = count_words(["The whale, the ship", "A whale"])
        >>> found.lengths.tolist(), len(found.words), len(found.counts)
        ([4, 2], 4, 5)
    """
    hashes = _Hashes()
    words, counts, pairs, lengths = array("q"), array("i"), array("q"), array("i")
    for passage in passages:
        found = Counter(split_words(passage))
        words.extend(map(hashes.__getitem__, found))
        counts.extend(found.values())
        pairs.append(len(found))
        lengths.append(found.total())
    every = np.array(words, np.int64)
    chunks = np.repeat(np.arange(len(pairs), dtype=np.int32), np.array(pairs, np.int64))  # [P]
    order = np.argsort(every, kind="stable")
    different, starts = np.unique(every[order], return_index=True)
    return WordCounts(
        different,
        np.append(starts, len(every)).astype(np.int64),
        _small(chunks[order]),
        _small(np.array(counts, np.int32)[order]),
        np.array(lengths, np.int32),
    )


def _small(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def bm25(parts: Iterable[WordCounts], question: str) -> np.ndarray:
    """BM25 of every chunk (Robertson and Zaragoza, 2009, section 3.4; k1 1.5, b 0.75).

    A word counts as often as the question has it. Words that stand in half of the chunks or more count for nothing, as
    their weight would not be positive. That takes the place of a list of stop words, which is made for one language.

    Args:
        parts: the records of a shelf; each is looked at once.
        question: with any words.

    Returns:
        ``[N]`` float32 of the chunks of all parts, in order; 0 where none of the words that count stands.

    Example:
        >>> (bm25([count_words(["the ball", "the whale"]), count_words(["the ship"])], "The whale?") > 0).tolist()
        [False, True, False]
    """
    asked = Counter(map(word_hash, split_words(question)))
    found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {word: [] for word in asked}
    sizes, before = [np.zeros(0, np.int32)], 0
    for part in parts:
        for word in asked:
            at = int(np.searchsorted(part.words, word))
            if at < len(part.words) and part.words[at] == word:
                pairs = slice(part.starts[at], part.starts[at + 1])
                # A copy: it outlives the part.
                found[word].append(
                    (part.chunks[pairs].astype(np.int64) + before, part.counts[pairs].astype(np.float64))
                )
        sizes.append(part.lengths)
        before += len(part.lengths)
    lengths = np.concatenate(sizes)
    scores = np.zeros(before)
    if not lengths.any():
        return scores.astype(np.float32)
    share = _K1 * (1 - _B + _B * lengths / lengths.mean())  # [N]
    for word, times in asked.items():
        there = sum(len(chunks) for chunks, _ in found[word])
        rarity = np.log((before - there + 0.5) / (there + 0.5))
        if there > 0 and rarity > 0:
            chunks, counts = (np.concatenate(side) for side in zip(*found[word], strict=True))
            weights = times * rarity * counts / (counts + share[chunks])
            scores += np.bincount(chunks, weights, minlength=before)
    return scores.astype(np.float32)
