"""A tokenizer's ids by looking words up: a novel has 150,000 words but 10,000 different ones.

BERT's tokenizers treat every word by itself, and a mark of punctuation is a word of its own. So
each different word goes through the tokenizer once: ids and the characters they stand for are
exactly the tokenizer's.

Notation for shapes: S bytes of a text, W words in it, T tokens.
"""

from __future__ import annotations

import re
import string
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import PreTrainedTokenizerBase

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
_CLASSES[[ord(mark) for mark in string.punctuation]] = _MARK
# Dashes, curly quotation marks and the ellipsis: three bytes in UTF-8, the first two of which are
# the same.
_FIRST = 0xE2
_SECOND = 0x80
_IS_THIRD = np.zeros(256, bool)
_IS_THIRD[[mark.encode()[2] for mark in "–—‘’“”…"]] = True


class WordLookup:
    """The words that a tokenizer has seen, with their ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}
        self._first = np.zeros(
            1, np.int64
        )  # [words + 1]; the tokens of word k are first[k] to first[k + 1]
        self._tokens = np.zeros(
            (3, 0), np.int32
        )  # ids, and the characters of the word from which and to which

    def __call__(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids of a text without special tokens, and where each begins and ends in it, in
        characters: ``[T]`` int32.
        """
        raw = np.frombuffer(text.encode(), np.uint8)  # [S]
        kinds = _CLASSES[raw]
        starts = np.empty(len(raw), bool)
        starts[:1] = True
        starts[1:] = (kinds[1:] != kinds[:-1]) | (kinds[1:] == _MARK)
        if len(raw) > len(text):
            lead = np.flatnonzero(
                (raw[:-2] == _FIRST) & (raw[1:-1] == _SECOND) & _IS_THIRD[raw[2:]]
            )
            starts[lead] = True
            starts[lead[lead + 3 < len(raw)] + 3] = True
        first = np.flatnonzero(starts & (kinds != _SPACE))  # [W]
        solid = kinds != _SPACE
        compact = np.ascontiguousarray(raw[solid])
        inside = (
            np.cumsum(solid, dtype=np.int32)[first] - 1
        )  # of each word's first byte among those that are no space
        words = pyarrow.StringArray.from_buffers(
            len(first),
            pyarrow.py_buffer(np.append(inside, np.int32(len(compact)))),
            pyarrow.py_buffer(compact),
        ).dictionary_encode()
        with self._lock:
            numbers = self._look_up(words.dictionary.to_pylist())[words.indices.to_numpy()]  # [W]
            table = self._first
            tokens = self._tokens
        if len(raw) > len(text):  # the place of a byte is not that of its character
            first = (np.cumsum((raw & 0xC0) != 0x80) - 1)[first]
        counts = table[numbers + 1] - table[numbers]
        ends = np.cumsum(counts)
        places = np.repeat(table[numbers] - ends + counts, counts) + np.arange(
            ends[-1] if len(ends) else 0
        )  # [T]
        ids, starting, ending = tokens[:, places]
        base = np.repeat(first.astype(np.int32), counts)
        return ids, starting + base, ending + base

    def _look_up(self, words: list[str]) -> np.ndarray:
        """The numbers of words; those that are new are tokenised."""
        if len(self._numbers) > _MOST_WORDS:
            self._forget()
        new = [word for word in words if word not in self._numbers]
        if new:
            encoded = self._tokenizer(
                new,
                add_special_tokens=False,
                truncation=False,
                padding=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                return_offsets_mapping=True,
                verbose=False,
            )
            counts = [len(ids) for ids in encoded["input_ids"]]
            flat = [number for ids in encoded["input_ids"] for number in ids]
            spans = np.asarray(
                [span for word in encoded["offset_mapping"] for span in word], np.int32
            ).reshape(-1, 2)
            added = np.stack([np.asarray(flat, np.int32), spans[:, 0], spans[:, 1]])
            self._tokens = np.concatenate([self._tokens, added], axis=1)
            self._first = np.append(self._first, self._first[-1] + np.cumsum(counts))
            self._numbers.update(
                zip(new, range(len(self._numbers), len(self._numbers) + len(new)), strict=True)
            )
        return np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))


_tables: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[object, WordLookup]] = WeakKeyDictionary()


def look_up_words(
    tokenizer: PreTrainedTokenizerBase, text: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """What `WordLookup` gives for a text of any length; None where words cannot be looked up.

    That is so for tokenizers of another kind than BERT's, and for texts with an added token such as
    ``[SEP]``.
    """
    backend = tokenizer.backend_tokenizer
    bert = isinstance(backend.normalizer, BertNormalizer) and isinstance(
        backend.pre_tokenizer, BertPreTokenizer
    )
    added = tokenizer.added_tokens_decoder.values()
    if not bert or any(token.normalized or token.content in text for token in added):
        return None
    state = (repr(backend.normalizer), backend.get_vocab_size(with_added_tokens=True))
    if (table := _tables.get(tokenizer)) is None or table[0] != state:
        table = _tables[tokenizer] = (state, WordLookup(tokenizer))
    parts = [np.zeros((3, 0), np.int32)]
    start = 0
    while start < len(text):
        end = _WHITE_SPACE.search(text, min(start + _BLOCK_CHARACTERS, len(text)))
        block = text[start : end.start() if end else len(text)]
        ids, *places = table[1](block)
        parts.append(np.stack([ids, *(place + np.int32(start) for place in places)]))
        start += len(block)
    ids, first, last = np.concatenate(parts, axis=1)
    return ids, first, last
