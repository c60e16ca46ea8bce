"""A tokenizer's ids by looking words up: a novel has 150,000 words but 10,000 different ones.

BERT's tokenizers treat every word on its own, and a punctuation mark is a word. So each different
word goes through the tokenizer once: ids and characters are exactly those of the tokenizer.

Notation for shapes: S bytes of a text, W words in it, T tokens.
"""

from __future__ import annotations

import itertools
import re
import string
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

if TYPE_CHECKING:
    import pyarrow

# The table starts anew if there are more different words, which only odd texts have.
_MOST_WORDS = 1_000_000
_BLOCK_CHARACTERS = 1_000_000  # looked up at once: a byte takes some 50 bytes of arrays
_WHITE_SPACE = re.compile(r"[ \n]")

# Classes of bytes: part of a word, white space, and ASCII punctuation. Tabs and further white space
# count as parts of words, which the tokenizer takes apart.
_WORD = 0
_SPACE = 1
_MARK = 2
_CLASSES = np.zeros(256, np.uint8)
_CLASSES[[ord(" "), ord("\n")]] = _SPACE
_CLASSES[np.frombuffer(string.punctuation.encode(), np.uint8)] = _MARK
# Dashes, curly quotation marks and the ellipsis have three bytes in UTF-8, the first two the same.
_FIRST = 0xE2
_SECOND = 0x80
_IS_THIRD = np.zeros(256, bool)
_IS_THIRD[[mark.encode()[2] for mark in "–—‘’“”…"]] = True


Tokens = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids, and where each begins and ends
Spans = list[tuple[int, int]]  # first character of each span, and one past its last


class _Section(NamedTuple):
    """A part of a text, which begins and ends between two words.

    Attributes:
        text: the characters of the part.
        row: index of the whole text among the texts.
        start: first character of the part in the whole text.
        spans: characters of the part that the tokenizer reads as one word, see
            `WordLookup._spans_of_added_tokens`.
    """

    text: str
    row: int
    start: int
    spans: Spans


class WordLookup:
    """Looks up the words that a tokenizer has seen, with their ids.

    Args:
        tokenizer: tokenizer of BERT's kind, which treats every word on its own. It must have
            neither padding nor truncation, and nothing may change it: the table stores its ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # True for an added token to which its neighbours matter.
        self._added_tokens: dict[str, bool] = {}
        for token in tokenizer.get_added_tokens_decoder().values():
            needs_neighbours = token.single_word or token.lstrip or token.rstrip
            self._added_tokens[token.content] = needs_neighbours
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._index_of: dict[str, int] = {}
        # [rows + 1]; the tokens of row k are _first_token[k] to _first_token[k + 1].
        self._first_token = np.zeros(1, np.int64)
        # Ids, and the characters of the word from which and to which.
        self._tokens = np.zeros((3, 0), np.int32)

    def __call__(self, texts: Sequence[str]) -> list[Tokens]:
        """Finds the tokens of texts, without special tokens.

        Returns:
            Ids, and the first and one past the last character of each token, ``[T]`` int32 each,
            for each text.
        """
        parts_of_texts: list[list[np.ndarray]] = [[] for _ in texts]
        for block in _blocks(self._sections(texts)):
            for section, tokens in zip(block, self._tokens_of_block(block), strict=True):
                parts_of_texts[section.row].append(tokens)

        documents = []
        for parts in parts_of_texts:
            ids, begins, ends = parts[0]
            if len(parts) > 1:
                ids, begins, ends = np.concatenate(parts, axis=1)
            documents.append((ids, begins, ends))

        return documents

    def _sections(self, texts: Sequence[str]) -> Iterator[_Section]:
        """Divides long texts at white space outside of the spans of added tokens."""
        for row, text in enumerate(texts):
            spans = self._spans_of_added_tokens(text)
            ends_of_spans = [end for _, end in spans]
            start = 0
            first_span = 0
            for stop in _ends_of_sections(text, spans):
                last_span = bisect_right(ends_of_spans, stop)
                inside = [(a - start, b - start) for a, b in spans[first_span:last_span]]
                yield _Section(text[start:stop], row=row, start=start, spans=inside)
                start = stop
                first_span = last_span

    def _spans_of_added_tokens(self, text: str) -> Spans:
        """Returns the spans of added tokens such as ``[SEP]``, in which words have no borders.

        If the neighbours of a token matter, because it takes the white space around it or must not
        touch a word, the span reaches over the neighbouring words.
        """
        contents = [content for content in self._added_tokens if content in text]
        if not contents:
            return []

        contents.sort(key=len, reverse=True)  # of two that begin together, the longer one is read
        spans: Spans = []
        for match in re.finditer("|".join(map(re.escape, contents)), text):
            begin, end = match.span()
            end_before = 0
            if spans:
                end_before = spans[-1][1]
            if self._added_tokens[match.group()]:
                begin, end = _with_neighbours(text, begin=begin, end=end, first=end_before)
            if spans and begin <= end_before:
                begin, _ = spans.pop()
                end = max(end, end_before)
            spans.append((begin, end))

        return spans

    def _tokens_of_block(self, block: Sequence[_Section]) -> list[np.ndarray]:
        """Finds the tokens of the sections of a block, ``[3, T]`` each."""
        # 1. The words of all sections, and the row of each in the table.
        lengths = [len(section.text) + 1 for section in block]
        first_of_section = np.cumsum([0, *lengths])  # [sections + 1], characters of the block
        words, first_character = _words_of(block, first_of_section)
        with self._lock:
            row_of_distinct = self._look_up(words.dictionary.to_pylist())
            first_token = self._first_token
            table = self._tokens

        distinct = np.from_dlpack(words.indices)  # pyarrow's own way imports pandas
        row = row_of_distinct[distinct]  # [W]

        # 2. The first character of each word in its text.
        word_borders = np.searchsorted(first_character, first_of_section)
        starts = [section.start for section in block]
        shifts = np.repeat(starts - first_of_section[:-1], np.diff(word_borders))
        first_character = (first_character + shifts).astype(np.int32)

        # 3. The tokens of each word, copied from the table and moved to the word's place.
        counts = first_token[row + 1] - first_token[row]  # [W]
        borders = np.append(0, np.cumsum(counts))  # [W + 1], among the tokens of the block
        token_in_word = np.arange(borders[-1]) - np.repeat(borders[:-1], counts)  # [T]
        token_in_table = np.repeat(first_token[row], counts) + token_in_word
        tokens = table[:, token_in_table]
        word_start = np.repeat(first_character, counts)
        tokens[1:] += word_start
        token_borders = itertools.pairwise(borders[word_borders].tolist())
        return [tokens[:, first:stop] for first, stop in token_borders]

    def _look_up(self, words: list[str]) -> np.ndarray:
        """Returns the row of each word in the table; new words are tokenised."""
        if len(self._index_of) > _MOST_WORDS:
            self._forget()
        new = [word for word in words if word not in self._index_of]
        if new:
            self._add(new)
        rows = map(self._index_of.__getitem__, words)
        return np.fromiter(rows, np.int64, len(words))

    def _add(self, words: list[str]) -> None:
        """Tokenises new words."""
        encodings = self._tokenizer.encode_batch(words, add_special_tokens=False)
        counts = [len(encoding) for encoding in encodings]
        ids_of_words = [encoding.ids for encoding in encodings]
        ids = np.fromiter(itertools.chain.from_iterable(ids_of_words), np.int32)
        spans_of_words = [encoding.offsets for encoding in encodings]
        spans = list(itertools.chain.from_iterable(spans_of_words))
        begins, ends = np.asarray(spans, np.int32).reshape(-1, 2).T
        added = np.stack([ids, begins, ends])
        self._tokens = np.concatenate([self._tokens, added], axis=1)
        next_tokens = self._first_token[-1] + np.cumsum(counts)
        self._first_token = np.append(self._first_token, next_tokens)
        for word in words:
            self._index_of[word] = len(self._index_of)


def _ends_of_sections(text: str, spans: Spans) -> Iterator[int]:
    """Yields one past the last character of each section of a text; a text has at least one."""
    first_characters = [first for first, _ in spans]
    stop = 0
    while True:
        space = _WHITE_SPACE.search(text, min(stop + _BLOCK_CHARACTERS, len(text)))
        stop = len(text)
        if space is not None:
            stop = space.start()
            before = bisect_right(first_characters, stop) - 1
            if before >= 0:
                stop = max(stop, spans[before][1])

        yield stop
        if stop == len(text):
            return


def _blocks(sections: Iterable[_Section]) -> Iterator[list[_Section]]:
    """Yields sections that are looked up together."""
    block: list[_Section] = []
    size = 0
    for section in sections:
        block.append(section)
        size += len(section.text)
        if size >= _BLOCK_CHARACTERS:
            yield block
            block = []
            size = 0

    if block:
        yield block


def _with_neighbours(text: str, begin: int, end: int, first: int) -> tuple[int, int]:
    """Widens a span over white space and over the whole words on both sides.

    Args:
        text: the text.
        begin: first character of the span.
        end: one past the last character of the span.
        first: character from which on the span may begin.
    """
    while begin > first and text[begin - 1].isspace():
        begin -= 1

    while begin > first and text[begin - 1] not in " \n":
        begin -= 1

    while end < len(text) and text[end].isspace():
        end += 1

    space = _WHITE_SPACE.search(text, end)
    if space is None:
        return begin, len(text)

    return begin, space.start()


def _words_of(
    block: Sequence[_Section], first_of_section: np.ndarray
) -> tuple[pyarrow.DictionaryArray, np.ndarray]:
    """Finds the words of a block.

    Args:
        block: sections, which stand behind each other with a line break between them.
        first_of_section: first character of each section in the block, and its end.

    Returns:
        The words as a dictionary of different words, with an index for each word, and the first
        character of each word in the block, ``[W]``.
    """
    text = "\n".join(section.text for section in block)
    raw = np.frombuffer(text.encode(), np.uint8)  # [S]
    is_ascii = len(raw) == len(text)
    is_first_byte = (raw & 0xC0) != 0x80  # of a character

    classes = _CLASSES[raw]
    is_solid = classes != _SPACE
    is_start = _word_starts(raw, classes, is_ascii=is_ascii)
    counts = [len(section.spans) for section in block]
    if sum(counts) > 0:
        spans = np.array([span for section in block for span in section.spans])  # [spans, 2]
        spans += np.repeat(first_of_section[:-1], counts)[:, None]
        byte_of_character = np.append(np.flatnonzero(is_first_byte), len(raw))
        for begin, end in byte_of_character[spans].tolist():
            is_solid[begin:end] = True
            is_start[begin:end] = False
            is_start[begin] = True
            is_start[end : end + 1] = True

    first_byte = np.flatnonzero(is_start & is_solid)  # [W]
    words = _distinct_words(raw, first_byte, is_solid=is_solid)
    if is_ascii:
        return words, first_byte

    return words, np.cumsum(is_first_byte, dtype=np.int32)[first_byte] - 1


def _word_starts(raw: np.ndarray, classes: np.ndarray, is_ascii: bool) -> np.ndarray:
    """Returns a mask ``[S]`` of the bytes at which words, marks and runs of white space start."""
    is_start = np.empty(len(raw), bool)
    is_start[:1] = True
    is_start[1:] = (classes[1:] != classes[:-1]) | (classes[1:] == _MARK)
    if not is_ascii:
        is_lead = (raw[:-2] == _FIRST) & (raw[1:-1] == _SECOND) & _IS_THIRD[raw[2:]]
        lead = np.flatnonzero(is_lead)
        behind = lead + 3
        is_start[lead] = True
        is_start[behind[behind < len(raw)]] = True

    return is_start


def _distinct_words(
    raw: np.ndarray, first_byte: np.ndarray, is_solid: np.ndarray
) -> pyarrow.DictionaryArray:
    """Returns the words as a dictionary of different words, with an index for each word.

    Args:
        raw: bytes of the text, ``[S]``.
        first_byte: index of the first byte of each word, ``[W]``.
        is_solid: bool mask ``[S]``, false at white space.
    """
    import pyarrow  # as long to import as numpy

    solid = np.ascontiguousarray(raw[is_solid])
    # Where each word starts among the bytes that are no white space.
    inside = np.cumsum(is_solid, dtype=np.int32)[first_byte] - 1
    offsets = np.append(inside, np.int32(len(solid)))
    words = pyarrow.StringArray.from_buffers(
        len(first_byte), pyarrow.py_buffer(offsets), pyarrow.py_buffer(solid)
    )
    return words.dictionary_encode()


def new_word_lookup(tokenizer: Tokenizer) -> WordLookup | None:
    """Makes an empty table of words.

    Returns:
        The table; None for a tokenizer of another kind than BERT's.
    """
    has_words = isinstance(tokenizer.normalizer, BertNormalizer) and isinstance(
        tokenizer.pre_tokenizer, BertPreTokenizer
    )
    added_tokens = tokenizer.get_added_tokens_decoder().values()
    if not has_words or any(token.normalized for token in added_tokens):
        return None
    return WordLookup(tokenizer)
