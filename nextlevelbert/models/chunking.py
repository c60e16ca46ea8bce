"""From text to token ids, from token ids to chunks, and back: pure functions, nothing learned.

A document is tokenised once, as a whole, without special tokens. A *chunk* is a run of consecutive
token ids; the chunks of a document tile it, so every token is in exactly one chunk, in order. Each
chunk reaches the encoder wrapped in the tokenizer's own special tokens ([CLS] ... [SEP] for BERT).

Notation for shapes: T tokens in a document, n chunks in a document.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerBase

from .sentences import SENTENCE_RULE, cached_sentence_token_ids, sentence_boundaries
from .word_lookup import word_lookup

ChunkingMode = Literal["fixed", "sentences", "packed_sentences"]
# A sentence splitter: from a text to the sentences in it, as (start, end) or as texts, in order.
Splitter = Callable[[str], Sequence[str] | Sequence[tuple[int, int]]]

# Long enough to make a call worthwhile, short enough that the Python lists of one batch stay around 10 MB.
_PIECE_CHARACTERS = 16_384
_PIECES_PER_CALL = 16
# Words are looked up in longer pieces, in which a byte takes some 50 bytes of arrays.
_BLOCK_CHARACTERS = 2_000_000

# Chosen on 40 novels in chunks of 256 ids: an edit of one sentence changes 0.6 % of a novel's chunks, and chunks are
# 88 % full. With twice as many landmarks they are 84 % full; with half as many an edit reaches 1.5 times as far.
_LANDMARK_EVERY = 20
_LANDMARK_BELOW = 2**64 // _LANDMARK_EVERY

_WHITE_SPACE = re.compile(r"[ \n]")
_NOTHING = (np.zeros(0, np.int32),) * 3


@dataclass(frozen=True)
class TokenizedDocument:
    """Token ids of one whole document, without special tokens, and the characters each id stands for.

    Attributes:
        input_ids: ``[T]`` int32.
        char_starts: ``[T]`` int32, first character of each token in the text (Python string offsets).
        char_ends: ``[T]`` int32, one past the last character.
    """

    input_ids: np.ndarray
    char_starts: np.ndarray
    char_ends: np.ndarray

    def __len__(self) -> int:
        return len(self.input_ids)


def check_texts(texts: str | Iterable[str], names: Sequence[str] | None = None) -> list[str]:
    """Returns the texts as a list; raises an error that names what is not text.

    Args:
        texts: a text, or several in a list, a generator, a pandas Series, a NumPy array of one dimension, or the like.
        names: their names in an error; their numbers by default.

    Raises:
        ValueError: for a string that is not valid Unicode (a lone surrogate).
        TypeError: for anything that is not a string or strings in a certain order, such as a set or a table.
    """
    if isinstance(texts, str):
        texts = [texts]
    # Going through a dict or a DataFrame would give its keys or the names of its columns.
    elif not isinstance(texts, Iterable) or isinstance(texts, (Mapping, Set)) or getattr(texts, "ndim", 1) != 1:
        raise TypeError(f"Expected a text, or texts in a list, array, Series or iterator, got {type(texts).__name__}.")
    texts = list(texts)
    for index, text in enumerate(texts):
        name = repr(names[index]) if names else str(index)
        if not isinstance(text, str):
            raise TypeError(f"Every document must be a str, but document {name} is {type(text).__name__}.")
        try:
            text.isascii() or text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Document {name} is not valid Unicode: character {error.start} is a lone surrogate. "
                "Decode the file with errors='replace', or remove the character."
            ) from error
    return texts


def safe_cut(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str] | None:
    """Where a text may be cut, just before the match, without changing an id; None if that is not known.

    The pre-tokenizer of BERT, MPNet and MiniLM removes white space first, so any space will do. A byte-level one
    (RoBERTa, ModernBERT) makes a single space the start of the next word. Others, such as SentencePiece, may look
    across spaces; and an added token may itself contain or consume a space.
    """
    added = tokenizer.added_tokens_decoder.values()
    if any(token.rstrip or any(character.isspace() for character in token.content) for token in added):
        return None
    pre_tokenizer = tokenizer.backend_tokenizer.pre_tokenizer
    if isinstance(pre_tokenizer, pre_tokenizers.BertPreTokenizer):
        return _WHITE_SPACE
    plain_bytes = tokenizer.backend_tokenizer.normalizer is None and isinstance(
        pre_tokenizer, pre_tokenizers.ByteLevel
    )
    if plain_bytes and not pre_tokenizer.add_prefix_space and pre_tokenizer.use_regex:
        return re.compile(r"(?<=[A-Za-z0-9]) (?=[A-Za-z0-9])")
    return None


def _pieces(text: str, size: int, cut: re.Pattern[str] | None) -> Iterator[tuple[int, str]]:
    """Start and text of pieces of at least `size` characters, if there are places to cut."""
    start = 0
    while start < len(text):
        found = cut.search(text, min(start + size, len(text))) if cut else None
        end = found.start() if found else len(text)
        yield start, text[start:end]
        start = end


def tokenize_document(tokenizer: PreTrainedTokenizerBase, text: str) -> TokenizedDocument:
    """Tokenises a whole document: no special tokens, no truncation, no length warning.

    If the tokenizer allows it, its words are looked up (see `word_lookup`), or it gets the text in pieces (see
    `safe_cut`), on all cores and in constant memory; the ids are those of a single call.

    Args:
        tokenizer: a fast Hugging Face tokenizer (it must report character offsets).
        text: the document; an empty or blank text has zero tokens.

    Raises:
        TypeError: for a tokenizer in Python, which has no offsets.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise TypeError(
            f"{type(tokenizer).__name__} is not a fast tokenizer, so it cannot tell which characters a token stands "
            "for. Use an encoder with a tokenizer.json."
        )
    if (lookup := word_lookup(tokenizer, text)) is not None:
        blocks = [(start, lookup(block)) for start, block in _pieces(text, _BLOCK_CHARACTERS, _WHITE_SPACE)]
        parts = [(ids, first + np.int32(start), last + np.int32(start)) for start, (ids, first, last) in blocks]
        return TokenizedDocument(*(np.concatenate(each) for each in zip(*parts or [_NOTHING], strict=True)))
    pieces = list(_pieces(text, _PIECE_CHARACTERS, safe_cut(tokenizer)))
    ids: list[np.ndarray] = []
    spans: list[np.ndarray] = []
    for first in range(0, len(pieces), _PIECES_PER_CALL):
        batch = pieces[first : first + _PIECES_PER_CALL]
        encoded = tokenizer(
            [piece for _, piece in batch],
            add_special_tokens=False,
            truncation=False,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        for (start, _), piece_ids, offsets in zip(batch, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            ids.append(np.asarray(piece_ids, dtype=np.int32))
            spans.append(np.asarray(offsets, dtype=np.int32).reshape(-1, 2) + np.int32(start))
    if not ids:
        ids, spans = [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int32)]
    all_spans = np.concatenate(spans)
    return TokenizedDocument(np.concatenate(ids), all_spans[:, 0].copy(), all_spans[:, 1].copy())


@dataclass(frozen=True)
class ChunkingRule:
    """How a document's token ids are cut into chunks (paper, section 2.2 "Input Encoding").

    It works on ids alone, so text, stored ids and a batch from a stock collator give the same chunks.

    Args:
        chunk_size: most token ids in a chunk, the encoder's special tokens included (256 in the paper).
        mode: ``"fixed"`` cuts every ``chunk_size - specials`` ids. ``"sentences"`` makes one chunk a
            sentence; a longer sentence continues in further chunks. ``"packed_sentences"`` makes chunks of
            whole sentences whose boundaries do not move with edits elsewhere (see `pack_sentences`):
            about 14 % more chunks than ``"fixed"`` on novels, of which an edit changes about 1 %.
        prefix_ids, suffix_ids: the special tokens put around every chunk.
        sentence_token_ids: the ids that matter to the sentence rule, by class (see `sentence_token_ids`).
        max_chunk_size: the encoder's own limit; None if it has none.
        sentence_rule: the version of the sentence rule that `sentence_token_ids` are for, 1 or 2.

    Raises:
        ValueError: for a chunk size that leaves no room for text, or is above the encoder's limit; for a sentence rule
            that this version of the package does not know.

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
    sentence_rule: int = 1

    def __post_init__(self) -> None:
        if self.mode not in get_args(ChunkingMode):
            raise ValueError(f"chunking must be 'fixed', 'sentences' or 'packed_sentences', got {self.mode!r}.")
        specials = len(self.prefix_ids) + len(self.suffix_ids)
        if self.chunk_size < max(specials + 1, 3):
            raise ValueError(
                f"chunk_size counts the {specials} special tokens of every chunk, so {self.chunk_size} leaves no room "
                f"for text; give at least {max(specials + 1, 3)} (the paper uses 16 to 512)."
            )
        if self.max_chunk_size is not None and self.chunk_size > self.max_chunk_size:
            raise ValueError(
                f"chunk_size {self.chunk_size} is above the chunk encoder's limit of {self.max_chunk_size} tokens; "
                f"give at most {self.max_chunk_size}, or use an encoder with more positions."
            )
        if self.sentence_rule not in range(1, SENTENCE_RULE + 1):
            raise ValueError(
                f"sentence_rule must be from 1 to {SENTENCE_RULE}, got {self.sentence_rule!r}; another one needs a "
                "newer version of the package."
            )
        needed = "end" if self.sentence_rule == 1 else "dot"
        if self.mode != "fixed" and not self.sentence_token_ids.get(needed):
            raise ValueError(
                "Sentence chunking needs the tokenizer's sentence-final ids; build the rule with "
                f"ChunkingRule.from_tokenizer(tokenizer, mode={self.mode!r})."
            )

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        chunk_size: int = 256,
        mode: ChunkingMode = "fixed",
        max_chunk_size: int | None = None,
    ) -> ChunkingRule:
        """Takes the special tokens (and, for sentences, what the newest rule needs) from a tokenizer."""
        prefix, suffix = special_token_ids(tokenizer)
        return cls(
            chunk_size=chunk_size,
            mode=mode,
            prefix_ids=prefix,
            suffix_ids=suffix,
            sentence_token_ids={} if mode == "fixed" else copy.deepcopy(cached_sentence_token_ids(tokenizer)),
            max_chunk_size=max_chunk_size,
            sentence_rule=1 if mode == "fixed" else SENTENCE_RULE,
        )

    @property
    def capacity(self) -> int:
        """Token ids of text in a full chunk, without special tokens."""
        return self.chunk_size - len(self.prefix_ids) - len(self.suffix_ids)

    def boundaries(self, input_ids: np.ndarray) -> np.ndarray:
        """Chunk k of a document is ``input_ids[b[k]:b[k + 1]]``.

        Args:
            input_ids: ``[T]`` ids of the whole document, without special tokens.

        Returns:
            ``[n + 1]`` int64, from 0 to T, strictly increasing; ``[0]`` for an empty document.
        """
        total = len(input_ids)
        if total == 0:
            return np.zeros(1, np.int64)
        if self.mode == "fixed":
            return np.append(np.arange(0, total, self.capacity, dtype=np.int64), total)
        return self._of_sentences(
            input_ids, sentence_boundaries(input_ids, self.sentence_token_ids, self.sentence_rule)
        )

    def text_boundaries(self, text: str, document: TokenizedDocument, splitter: Splitter | None = None) -> np.ndarray:
        """`boundaries` of a tokenised text, whose sentences a splitter may find instead of the rule.

        Characters between two sentences go with the one before, those before the first with the first. A token that
        reaches into a sentence belongs to it.

        Args:
            text: the whole document.
            document: the same, tokenised.
            splitter: a function from a text to its sentences, as (start, end) or as texts, in order.

        Raises:
            ValueError: for a splitter where chunks are not made of sentences, or as in `splitter_sentences`.
        """
        if splitter is None:
            return self.boundaries(document.input_ids)
        if self.mode == "fixed":
            raise ValueError(
                "splitter needs a model with chunking='sentences' or 'packed_sentences'; this one has 'fixed'."
            )
        starts = [start for start, _ in splitter_sentences(text, splitter)]
        total = len(document)
        if total == 0:
            return np.zeros(1, np.int64)
        # By the ends of tokens: some tokenizers make the space before a word a part of its token.
        inner = np.searchsorted(document.char_ends, starts[1:], side="right")
        return self._of_sentences(document.input_ids, np.unique(np.concatenate([[0], inner, [total]])))

    def _of_sentences(self, input_ids: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        if self.mode == "sentences":
            return split_sentences(sentences, self.capacity)
        return pack_sentences(input_ids, sentences, self.capacity)

    def strip_special_tokens(self, input_ids: np.ndarray) -> np.ndarray:
        """Removes the special tokens that a stock tokenizer puts around a whole document, if both ends have them."""
        start, end = len(self.prefix_ids), len(input_ids) - len(self.suffix_ids)
        wrapped = (
            end >= start
            and tuple(input_ids[:start].tolist()) == self.prefix_ids
            and tuple(input_ids[end:].tolist()) == self.suffix_ids
        )
        return input_ids[start:end] if wrapped else input_ids


def split_sentences(sentences: np.ndarray, capacity: int) -> np.ndarray:
    """Chunks of one sentence each; a sentence of more than `capacity` ids continues in further chunks.

    Args:
        sentences: the result of `sentence_boundaries`.
        capacity: most ids in a chunk.

    Returns:
        ``[n + 1]`` int64, from 0 to T, strictly increasing.
    """
    starts = [np.arange(start, end, capacity, dtype=np.int64) for start, end in itertools.pairwise(sentences)]
    return np.concatenate([*starts, sentences[-1:]])


def pack_sentences(input_ids: np.ndarray, sentences: np.ndarray, capacity: int) -> np.ndarray:
    """Chunks of several whole sentences, with boundaries that depend on the words near them.

    One sentence in `_LANDMARK_EVERY` is a landmark, chosen by a hash of its ids. A chunk ends with the landmark among
    the sentences that end in the second half of its capacity (of several, the one with the smallest hash; of equal
    ones, the last). Without a landmark there, it ends with the last sentence that fits. A sentence above the capacity
    is cut at it.

    Chunks that always end with the last sentence that fits would be 5 % fewer on novels, but an edit would shift the
    boundary of its chunk, hence of the next, and so on for long. Landmarks bring the boundaries back: two runs over
    the same text from different starts soon end a chunk with the same landmark, and agree from there on. More
    landmarks make that happen sooner, and chunks less full.

    Args:
        input_ids: ``[T]`` ids of the whole document.
        sentences: the result of `sentence_boundaries`.
        capacity: most ids in a chunk.

    Returns:
        ``[n + 1]`` int64, from 0 to T, strictly increasing.
    """
    total, ends = len(input_ids), sentences[1:].tolist()
    hashes = _sentence_hashes(input_ids, sentences)
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


def _sentence_hashes(input_ids: np.ndarray, sentences: np.ndarray) -> list[int]:
    """A number from 0 to 2**64 - 1 for every sentence; not `hash`, which differs between processes."""
    data = input_ids.astype("<i4").tobytes()
    digests = (hashlib.blake2b(data[4 * a : 4 * b], digest_size=8) for a, b in itertools.pairwise(sentences.tolist()))
    return [int.from_bytes(digest.digest(), "big") for digest in digests]


def chunk_spans(document: TokenizedDocument, boundaries: np.ndarray) -> np.ndarray:
    """Characters of each chunk: ``[n, 2]`` int64, from the start of its first token to the end of its last one."""
    starts = document.char_starts[boundaries[:-1]]
    ends = document.char_ends[boundaries[1:] - 1]
    return np.stack([starts, ends], axis=1).astype(np.int64).reshape(-1, 2)


def special_token_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a tokenizer puts before and after a single text, found by an example."""
    inner = tokenizer("a", add_special_tokens=False)["input_ids"]
    outer = tokenizer("a")["input_ids"]
    for start in range(len(outer) - len(inner) + 1):
        if outer[start : start + len(inner)] == inner:
            return tuple(outer[:start]), tuple(outer[start + len(inner) :])
    raise ValueError(f"{type(tokenizer).__name__} does not keep a text's ids together when it adds special tokens.")


def flatten_chunks(
    ids: Sequence[np.ndarray], boundaries: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Puts the chunks of several documents into one run.

    Args:
        ids: token ids of each document.
        boundaries: chunk boundaries of each document, as `ChunkingRule.boundaries` gives them.

    Returns:
        All ids ``[T]``; boundaries of all chunks in them ``[N + 1]``; first chunk of each document ``[B + 1]``.
    """
    starts = np.cumsum([0] + [len(document) for document in ids])
    flat = [cuts[:-1] + start for cuts, start in zip(boundaries, starts, strict=False)]
    offsets = np.cumsum([0] + [len(cuts) - 1 for cuts in boundaries])
    return np.concatenate(ids), np.concatenate([*flat, starts[-1:]]), offsets


def splitter_sentences(text: str, splitter: Splitter) -> list[tuple[int, int]]:
    """The sentences that a splitter finds in a text, as the first character of each and one past its last.

    A blank text has none, and is not given to the splitter.

    Raises:
        ValueError: for sentences that are not in the text, in order, or none in a text that is not blank.
    """
    spans: list[tuple[int, int]] = []
    end = 0
    for sentence in splitter(text) if text.strip() else ():
        if isinstance(sentence, str):
            start = text.find(sentence, end)
            sentence = (start, start + len(sentence))
        if not end <= sentence[0] <= sentence[1] <= len(text):
            raise ValueError(
                f"splitter: sentence {len(spans)} is {sentence}; give the parts of the text in order, as they are, "
                f"or their (start, end), from {end} to {len(text)}."
            )
        end = sentence[1]
        if text[sentence[0] : end].strip():
            spans.append((int(sentence[0]), int(end)))
    if text.strip() and not spans:
        raise ValueError(f"splitter: no sentence in a text of {len(text)} characters; it must give at least one.")
    return spans
