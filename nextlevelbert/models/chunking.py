"""From text to token ids, from token ids to chunks, and back: pure functions, nothing learned.

A document is tokenised once, as a whole, without special tokens. Its chunks are runs of consecutive
ids that tile it; each reaches the encoder between the tokenizer's own special tokens ([CLS] ...
[SEP] for BERT).

Notation for shapes: T tokens in a document, n chunks in a document.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from transformers import PreTrainedTokenizerBase

try:
    from nextlevelbert.word_lookup import look_up_words
except (
    ImportError
):  # a checkpoint that is opened without the package gets the same ids, more slowly
    look_up_words: Any = None  # type: ignore[no-redef]

ChunkingMode = Literal["fixed", "sentences", "packed_sentences"]
# A sentence splitter: from a text to the sentences in it, as (start, end) or as texts, in order.
Splitter = Callable[[str], Sequence[str] | Sequence[tuple[int, int]]]

# Of 40 novels in chunks of 256 ids, an edit of one sentence changes 0.6 % of the chunks, which are
# 88 % full. With twice as many landmarks they are 84 % full; with half as many an edit reaches 1.5
# times as far.
_LANDMARK_BELOW = 2**64 // 20
_ABBREVIATIONS = frozenset(
    "mr mrs ms messrs dr st prof rev hon capt col gen lt sgt maj jr sr vol vols fig figs vs "
    "jan feb mar apr jun jul aug sept oct nov dec".split()
)
_TERMINATORS = frozenset(".!?…。！？")
_CLOSERS = frozenset("”’)]»）」』")
_QUOTES = frozenset('"')  # not the apostrophe, which is also part of words
# After so many ids without a straight quote none is taken to be open: a missing mark (a speech of
# several paragraphs has more opening than closing ones) would invert every later one. On novels 2 %
# of them are misread.
_LONGEST_QUOTE = 256


@dataclass(frozen=True)
class TokenizedDocument:
    """Token ids of one whole document, without special tokens, and the characters each stands for:
    ``[T]`` int32.
    """

    input_ids: np.ndarray
    char_starts: np.ndarray
    char_ends: np.ndarray

    def __len__(self) -> int:
        return len(self.input_ids)


def iter_texts(documents: str | Iterable[Any]) -> Iterator[str]:
    """The texts of one document or several; a TypeError or ValueError gives the number of what is
    no text.

    A document is a str, (id, text), a dict with a column ``text``, or an object with a `text`;
    several stand in a list, generator, array, pandas Series or `datasets.Dataset`.
    """
    # Going through a dict or a DataFrame would give its keys or the names of its columns.
    if (
        isinstance(documents, (Mapping, Set))
        or getattr(documents, "ndim", 1) != 1
        or not np.iterable(documents)
    ):
        raise TypeError(
            f"Give texts in a list, data set, Series or generator; got {type(documents).__name__}."
        )
    for number, item in enumerate([documents] if isinstance(documents, str) else documents):
        text = item.get("text") if isinstance(item, Mapping) else getattr(item, "text", item)
        if isinstance(text, tuple) and len(text) == 2:  # (id, text)
            text = text[1]
        if not isinstance(text, str):
            raise TypeError(
                f"Document {number} is {type(text).__name__}; give a str, (id, text) or {{'text':"
                " …}."
            )
        try:
            text.isascii() or text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Document {number} holds a lone surrogate at character {error.start}."
            ) from error
        yield text


def tokenize_document(tokenizer: PreTrainedTokenizerBase, text: str) -> TokenizedDocument:
    """Tokenises a whole document with a fast tokenizer: no special tokens, no truncation, no length
    warning.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise TypeError(
            f"{type(tokenizer).__name__} has no offsets; use an encoder with a tokenizer.json."
        )
    if look_up_words is not None and (arrays := look_up_words(tokenizer, text)) is not None:
        return TokenizedDocument(*arrays)
    encoded = tokenizer(
        text,
        add_special_tokens=False,
        truncation=False,
        padding=False,
        return_offsets_mapping=True,
        verbose=False,
    )
    starts, ends = np.asarray(encoded["offset_mapping"], np.int32).reshape(-1, 2).T
    return TokenizedDocument(np.asarray(encoded["input_ids"], np.int32), starts, ends)


@dataclass(frozen=True)
class ChunkingRule:
    """How a document's token ids are cut into chunks (paper, section 2.2 "Input Encoding").

    It works on ids alone, so text, stored ids and a batch from a stock collator give the same
    chunks.

    Args:
        chunk_size: most token ids in a chunk, the encoder's special tokens included (16 to 512 in
            the paper).
        mode: ``"fixed"`` cuts every ``chunk_size - specials`` ids. ``"sentences"`` makes one chunk
            a sentence; a longer one continues in further chunks. ``"packed_sentences"`` makes
            chunks of whole sentences whose boundaries do not move with edits elsewhere
            (`pack_sentences`): 14 % more chunks on novels.
        prefix_ids, suffix_ids: the special tokens put around every chunk.
        sentence_token_ids: the ids that matter to the sentence rule, by class (see
            `sentence_token_ids`).
        max_chunk_size: the encoder's own limit; None if it has none.

    Example:
        >>> rule = ChunkingRule(chunk_size=5, prefix_ids=(101,), suffix_ids=(102,))
        >>> rule.boundaries(np.arange(7)).tolist()   # three ids a chunk
        [0, 3, 6, 7]
    """

    chunk_size: int = 256
    mode: ChunkingMode = "fixed"
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    sentence_token_ids: dict[str, list[int]] = field(default_factory=dict)
    max_chunk_size: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(ChunkingMode):
            raise ValueError(
                f"chunking must be one of {get_args(ChunkingMode)}, got {self.mode!r}."
            )
        least = max(len(self.prefix_ids) + len(self.suffix_ids) + 1, 3)
        if not least <= self.chunk_size <= (self.max_chunk_size or self.chunk_size):
            raise ValueError(
                f"chunk_size is {self.chunk_size}; give {least} (special tokens included) to "
                f"{self.max_chunk_size or 'any number'}, the chunk encoder's limit."
            )
        if self.mode != "fixed" and not self.sentence_token_ids.get("end"):
            raise ValueError(
                f"Build the rule with ChunkingRule.from_tokenizer(tokenizer, mode={self.mode!r})."
            )

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        chunk_size: int = 256,
        mode: ChunkingMode = "fixed",
        max_chunk_size: int | None = None,
    ) -> ChunkingRule:
        """Takes the special tokens (and, for sentences, the ids that end them) from a tokenizer."""
        ids = {} if mode == "fixed" else sentence_token_ids(tokenizer)
        return cls(chunk_size, mode, *special_token_ids(tokenizer), ids, max_chunk_size)

    @property
    def capacity(self) -> int:
        """Token ids of text in a full chunk, without special tokens."""
        return self.chunk_size - len(self.prefix_ids) - len(self.suffix_ids)

    def boundaries(self, input_ids: np.ndarray) -> np.ndarray:
        """Chunk k of ids ``[T]`` is ``input_ids[b[k]:b[k + 1]]``: ``[n + 1]`` int64, from 0 to T,
        rising.
        """
        if self.mode == "fixed":
            return np.append(
                np.arange(0, len(input_ids), self.capacity, dtype=np.int64), len(input_ids)
            )
        return self._of_sentences(
            input_ids, sentence_boundaries(input_ids, self.sentence_token_ids)
        )

    def text_boundaries(
        self, text: str, document: TokenizedDocument, splitter: Splitter | None = None
    ) -> np.ndarray:
        """`boundaries` of a tokenised text, whose sentences a splitter may find instead of the
        rule.

        Characters between two sentences go with the one before, those before the first with the
        first. A token that reaches into a sentence belongs to it.
        """
        if splitter is None:
            return self.boundaries(document.input_ids)
        if self.mode == "fixed":
            raise ValueError(
                "splitter needs chunking='sentences' or 'packed_sentences'; this model has 'fixed'."
            )
        starts = [start for start, _ in splitter_sentences(text, splitter)]
        # By the ends of tokens: some tokenizers make the space before a word a part of its token.
        inner = np.searchsorted(document.char_ends, starts[1:], side="right")
        return self._of_sentences(
            document.input_ids, np.unique(np.concatenate([[0], inner, [len(document)]]))
        )

    def _of_sentences(self, input_ids: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        if self.mode == "packed_sentences":
            return pack_sentences(input_ids, sentences, self.capacity)
        # A sentence of more ids than a chunk holds continues in further chunks.
        pairs = itertools.pairwise(sentences)
        starts = [np.arange(start, end, self.capacity, dtype=np.int64) for start, end in pairs]
        return np.concatenate([*starts, sentences[-1:]])

    def strip_special_tokens(self, input_ids: np.ndarray) -> np.ndarray:
        """Removes the special tokens that a stock tokenizer puts around a whole document, if both
        ends have them.
        """
        start = len(self.prefix_ids)
        end = len(input_ids) - len(self.suffix_ids)
        around = (*input_ids[:start].tolist(), *input_ids[end:].tolist())
        return (
            input_ids[start:end]
            if end >= start and around == (*self.prefix_ids, *self.suffix_ids)
            else input_ids
        )


def pack_sentences(input_ids: np.ndarray, sentences: np.ndarray, capacity: int) -> np.ndarray:
    """Chunks of several whole sentences, with boundaries that depend on the words near them.

    One sentence in 20 is a landmark, chosen by a hash of its ids. A chunk ends with the landmark
    among the sentences that end in the second half of its capacity (of several, the one with the
    smallest hash; of equal ones, the last), else with the last sentence that fits. A sentence above
    the capacity is cut at it.

    If chunks always ended with the last sentence that fits, they would be 5 % fewer on novels, but
    an edit would shift all boundaries after it. Two runs over one text from different starts soon
    end a chunk with the same landmark.
    """
    total = len(input_ids)
    ends = sentences[1:].tolist()
    data = input_ids.astype("<i4").tobytes()
    digests = (
        hashlib.blake2b(data[4 * a : 4 * b], digest_size=8)
        for a, b in itertools.pairwise(sentences.tolist())
    )
    hashes = [
        int.from_bytes(digest.digest(), "big") for digest in digests
    ]  # `hash` differs between processes
    boundaries = [0]
    while (start := boundaries[-1]) < total:
        first = bisect_left(ends, start + (capacity + 1) // 2)
        stop = bisect_right(ends, start + capacity)  # sentences before this one fit
        landmarks = [(hashes[k], -k) for k in range(first, stop) if hashes[k] < _LANDMARK_BELOW]
        if total - start <= capacity:
            boundaries.append(total)
        elif landmarks:
            boundaries.append(ends[-min(landmarks)[1]])
        elif stop > 0 and ends[stop - 1] > start:
            boundaries.append(ends[stop - 1])
        else:
            boundaries.append(start + capacity)
    return np.asarray(boundaries, dtype=np.int64)


def chunk_spans(document: TokenizedDocument, boundaries: np.ndarray) -> np.ndarray:
    """Characters of each chunk: ``[n, 2]`` int64, from the start of its first token to the end of
    its last one.
    """
    starts = document.char_starts[boundaries[:-1]]
    ends = document.char_ends[boundaries[1:] - 1]
    return np.stack([starts, ends], axis=1).astype(np.int64).reshape(-1, 2)


def special_token_ids(
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a tokenizer puts before and after a single text, found by an example."""
    inner = tokenizer("a", add_special_tokens=False)["input_ids"]
    outer = tokenizer("a")["input_ids"]
    for start in range(len(outer) - len(inner) + 1):
        if outer[start : start + len(inner)] == inner:
            return tuple(outer[:start]), tuple(outer[start + len(inner) :])
    raise ValueError(
        f"{type(tokenizer).__name__} does not keep a text's ids together when it adds special"
        " tokens."
    )


def flatten_chunks(
    ids: Sequence[np.ndarray], boundaries: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All ids ``[T]`` of documents, the boundaries of chunks in them ``[N + 1]``, each first chunk
    ``[B + 1]``.
    """
    starts = np.cumsum([0] + [len(document) for document in ids])
    flat = [cuts[:-1] + start for cuts, start in zip(boundaries, starts, strict=False)]
    offsets = np.cumsum([0] + [len(cuts) - 1 for cuts in boundaries])
    return np.concatenate(ids), np.concatenate([*flat, starts[-1:]]), offsets


def sentence_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, list[int]]:
    """Vocabulary ids by their role in the sentence rule; a ValueError for a vocabulary without
    marks that end one.
    """
    classes: dict[str, list[int]] = {
        "end": [],
        "close": [],
        "quote": [],
        "abbreviation": [],
        "number": [],
    }
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
            f"The vocabulary of {type(tokenizer).__name__} ends no sentence; use chunking='fixed'."
        )
    return {name: sorted(ids) for name, ids in classes.items()}


def sentence_boundaries(input_ids: np.ndarray, classes: dict[str, list[int]]) -> np.ndarray:
    """Sentence k of ids ``[T]`` is ``input_ids[b[k]:b[k + 1]]``: ``[sentences + 1]`` int64, from 0
    to T, rising.

    It is decided from ids alone, which is all that a model's `forward` sees. A sentence ends after
    . ! ? and the brackets and quotes that close it, except after an initial or a known abbreviation
    and inside a decimal number.
    """
    names = ("end", "close", "quote", "abbreviation", "number")
    kinds = {name: np.isin(input_ids, classes.get(name, [])) for name in names}  # each [T]
    after = {name: np.append(False, kinds[name])[:-1] for name in ("abbreviation", "number")}
    in_number = after["number"] & np.append(kinds["number"], False)[1:]
    ends = kinds["end"] & ~after["abbreviation"] & ~in_number
    # A run of ends and closers belongs to one sentence, as in `?!` or `.)"`; the sentence ends
    # after the run.
    joined = kinds["end"] | kinds["close"] | closing_quotes(kinds["quote"])
    run_starts, run_stops = (
        np.flatnonzero(np.diff(joined, prepend=False, append=False)).reshape(-1, 2).T
    )
    ends_before = np.append(0, np.cumsum(ends))
    stops = run_stops[ends_before[run_stops] > ends_before[run_starts]]
    return np.unique(np.concatenate([[0], stops, [len(input_ids)]])).astype(np.int64)


def closing_quotes(quotes: np.ndarray) -> np.ndarray:
    """Which straight quotes ``[T]`` close a quotation; the others open one.

    Opening and closing ones take turns. Two things restart the count, so that a missing mark does
    not invert all later
    ones: of two marks in a row the first closes and the second opens (one speaker stops, the next
    begins), and the first mark after `_LONGEST_QUOTE` ids without any opens.
    """
    closing = np.zeros(len(quotes), bool)
    positions = np.flatnonzero(quotes)
    distance = np.diff(positions, prepend=-_LONGEST_QUOTE - 1)  # to the previous mark
    second = distance == 1
    first = np.append(second[1:], False) & ~second
    known = first | second | (distance > _LONGEST_QUOTE)
    index = np.arange(len(positions))
    anchor = np.maximum.accumulate(
        np.where(known, index, 0)
    )  # the last known mark; the very first one is known
    closing[positions] = first[anchor] ^ ((index - anchor) % 2 == 1)
    return closing


def splitter_sentences(text: str, splitter: Splitter) -> list[tuple[int, int]]:
    """The sentences that a splitter finds in a text, as the first character of each and one past
    its last.

    A ValueError for sentences that are not in the text, in order, or none in a text that is not
    blank.
    """
    spans: list[tuple[int, int]] = []
    end = 0
    sentences: Iterable[str | tuple[int, int]] = ()
    if text.strip():  # a blank text is not given to the splitter
        sentences = splitter(text)
    for item in sentences:
        if isinstance(item, str):
            if not item.strip():
                continue
            start = text.find(item, end)
            sentence = (start, start + len(item))
        else:
            sentence = item
        if not end <= sentence[0] <= sentence[1] <= len(text):
            raise ValueError(
                f"splitter: sentence {len(spans)} is {sentence}; give the parts of the text in"
                f" order, as they are, or their (start, end), from {end} to {len(text)}."
            )
        end = sentence[1]
        if text[sentence[0] : end].strip():
            spans.append((int(sentence[0]), int(end)))
    if text.strip() and not spans:
        raise ValueError(
            f"splitter: no sentence in a text of {len(text)} characters; it must give at least one."
        )
    return spans
