"""A tokenizer's ids by looking words up: a novel has 150,000 words but 10,000 different ones.

BERT's tokenizers treat every word on its own, and a punctuation mark is a word. So each different
word goes through the tokenizer once: ids and characters are exactly those of the tokenizer.

Notation for shapes: S bytes of a text, W words in it, T tokens.
"""

import itertools
import re
import string
from threading import Lock

import numpy as np
import pyarrow
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

# With more different words, which only odd texts have, the table starts anew.
_MOST_WORDS = 1_000_000
_BLOCK_CHARACTERS = 2_000_000  # looked up at once: a byte takes some 50 bytes of arrays
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


class WordLookup:
    """Looks up the words that a tokenizer has seen, with their ids.

    Args:
        tokenizer: tokenizer of BERT's kind, which treats every word on its own. It must have
            neither padding nor truncation, and nothing may change it: the table stores its ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._added_tokens = []
        for token in tokenizer.get_added_tokens_decoder().values():
            self._added_tokens.append(token.content)
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._index_of: dict[str, int] = {}
        # [rows + 1]; the tokens of row k are _first_token[k] to _first_token[k + 1].
        self._first_token = np.zeros(1, np.int64)
        # Ids, and the characters of the word from which and to which.
        self._tokens = np.zeros((3, 0), np.int32)

    def __call__(self, text: str) -> Tokens | None:
        """Finds the tokens of a text, without special tokens.

        Args:
            text: text of any length.

        Returns:
            Ids, and the first and one past the last character of each token in the text, ``[T]``
            int32 each; None for a text with an added token such as ``[SEP]``.
        """
        for content in self._added_tokens:
            if content in text:
                return None

        blocks = [np.zeros((3, 0), np.int32)]
        start = 0
        while start < len(text):
            stop = len(text)
            space = _WHITE_SPACE.search(text, min(start + _BLOCK_CHARACTERS, len(text)))
            if space is not None:
                stop = space.start()
            ids, begins, ends = self._tokens_of_block(text[start:stop])
            shift = np.int32(start)
            blocks.append(np.stack([ids, begins + shift, ends + shift]))
            start = stop
        ids, begins, ends = np.concatenate(blocks, axis=1)
        return ids, begins, ends

    def _tokens_of_block(self, text: str) -> Tokens:
        """Finds the tokens of a text of up to a few million characters."""
        # 1. The words of the text, and the row of each in the table.
        raw = np.frombuffer(text.encode(), np.uint8)  # [S]
        is_ascii = len(raw) == len(text)
        classes = _CLASSES[raw]
        is_solid = classes != _SPACE
        is_start = _word_starts(raw, classes, is_ascii=is_ascii)
        first_byte = np.flatnonzero(is_start & is_solid)  # [W]
        words = _distinct_words(raw, first_byte, is_solid=is_solid)
        with self._lock:
            row_of_distinct = self._look_up(words.dictionary.to_pylist())
            first_token = self._first_token
            tokens = self._tokens
        row = row_of_distinct[words.indices.to_numpy()]  # [W]

        # 2. The first character of each word, from its first byte.
        first_character = first_byte
        if not is_ascii:
            is_character = (raw & 0xC0) != 0x80  # the first byte of a character
            first_character = (np.cumsum(is_character) - 1)[first_byte]

        # 3. The tokens of each word, copied from the table and moved to the word's place.
        counts = first_token[row + 1] - first_token[row]  # [W]
        first_of_word = np.cumsum(counts) - counts  # [W], among the tokens of the text
        token_in_word = np.arange(counts.sum()) - np.repeat(first_of_word, counts)  # [T]
        first_in_table = np.repeat(first_token[row], counts)
        token_in_table = first_in_table + token_in_word
        ids, begins, ends = tokens[:, token_in_table]
        shift = np.repeat(first_character.astype(np.int32), counts)
        return ids, begins + shift, ends + shift

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

    Args:
        tokenizer: tokenizer that nothing changes, see `WordLookup`.

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
