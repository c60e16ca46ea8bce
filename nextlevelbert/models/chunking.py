"""From token ids to chunks and windows: pure functions, nothing learned.

Chunks are runs of consecutive ids that tile a document; each reaches the encoder between the
tokenizer's own special tokens ([CLS] ... [SEP] for BERT).

Notation for shapes: T tokens in a document, n chunks in a document; B documents, J windows of all
documents.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import warnings
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from .sentences import Splitter, sentence_boundaries, sentence_token_ids, splitter_sentences
from .tokenizing import TokenizedDocument, special_token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ChunkingMode = Literal["fixed", "sentences", "packed_sentences"]

# In 40 novels in chunks of 256 ids, an edit of one sentence changes 0.6 % of the chunks, which are
# 88 % full. With twice as many landmarks they are 84 % full; with half as many an edit reaches 1.5
# times as far.
_LANDMARK_BELOW = 2**64 // 20


@dataclass(frozen=True)
class ChunkingRule:
    """Splits a document's token ids into chunks (paper, section 2.2 "Input Encoding").

    The rule works on ids alone, so text, stored ids and a batch from a stock collator give the same
    chunks.

    Args:
        chunk_size: most token ids in a chunk, the encoder's special tokens included (16 to 512 in
            the paper).
        mode: ``"fixed"`` splits every ``chunk_size - specials`` ids. ``"sentences"`` makes one
            chunk a sentence; a longer one continues in further chunks. ``"packed_sentences"`` makes
            chunks of whole sentences whose boundaries do not move with edits elsewhere
            (`pack_sentences`): 14 % more chunks on novels.
        prefix_ids: the special tokens put before every chunk.
        suffix_ids: the special tokens put after every chunk.
        prompt: text of the prompt at the beginning of every chunk, see `with_prompt`.
        prompt_ids: ids of the prompt, between `prefix_ids` and the ids of the chunk.
        unpooled: number of tokens at the beginning of a chunk that the encoder's pooling leaves
            out.
        sentence_token_ids: the ids that matter to the sentence rule, by role (see
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
    prompt: str = ""
    prompt_ids: tuple[int, ...] = ()
    unpooled: int = 0

    def __post_init__(self) -> None:
        least = max(len(self.head_ids) + len(self.suffix_ids) + 1, 3)
        most = self.max_chunk_size or self.chunk_size
        if not least <= self.chunk_size <= most:
            raise ValueError(
                f"chunk_size is {self.chunk_size}; give {least} (special tokens and the prompt"
                f" included) to {self.max_chunk_size or 'any number'}, the chunk encoder's limit."
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
        """Makes a rule with the special tokens of a tokenizer, and the ids that end sentences.

        A warning says so if chunks become smaller, because the tokenizer has a length limit: the
        `max_seq_length` of a sentence encoder, which would ignore the rest of each chunk.
        """
        roles = {}
        if mode != "fixed":
            roles = sentence_token_ids(tokenizer)

        prefix_ids, suffix_ids = special_token_ids(tokenizer)
        rule = cls(
            chunk_size=chunk_size,
            mode=mode,
            prefix_ids=prefix_ids,
            suffix_ids=suffix_ids,
            sentence_token_ids=roles,
            max_chunk_size=max_chunk_size,
        )
        limit = tokenizer.model_max_length
        if chunk_size <= limit:
            return rule

        warnings.warn(
            f"chunk_size is {chunk_size}, but the encoder was made for texts of {limit} tokens (its"
            f" max_seq_length). Chunks get at most {limit} tokens.",
            stacklevel=2,
        )
        return replace(rule, chunk_size=limit)

    @property
    def head_ids(self) -> tuple[int, ...]:
        """Returns the ids at the beginning of every chunk: special tokens and the prompt."""
        return self.prefix_ids + self.prompt_ids

    @property
    def capacity(self) -> int:
        """Counts the token ids of text in a full chunk, without special tokens and prompt."""
        return self.chunk_size - len(self.head_ids) - len(self.suffix_ids)

    def boundaries(self, input_ids: np.ndarray) -> np.ndarray:
        """Splits token ids into chunks.

        Args:
            input_ids: token ids ``[T]``.

        Returns:
            ``[n + 1]`` int64, from 0 to T, rising; chunk k is ``input_ids[b[k]:b[k + 1]]``.
        """
        if self.mode == "fixed":
            starts = np.arange(0, len(input_ids), self.capacity, dtype=np.int64)
            return np.append(starts, len(input_ids))
        sentences = sentence_boundaries(input_ids, self.sentence_token_ids)
        return self._chunks_of_sentences(input_ids, sentences)

    def text_boundaries(
        self, text: str, document: TokenizedDocument, splitter: Splitter | None = None
    ) -> np.ndarray:
        """Splits a tokenised text into chunks, whose sentences a splitter may find.

        Characters between two sentences belong to the first of them, and characters before the
        first sentence of the text belong to that sentence. A token that reaches into a sentence
        belongs to that sentence.

        Args:
            text: the document.
            document: tokens of the text.
            splitter: function that finds sentences instead of the rule.

        Returns:
            Boundaries of the chunks, in the form that `boundaries` returns.

        Raises:
            ValueError: there is a splitter, but the rule has no sentences.
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
        sentences = np.unique(np.concatenate([[0], inner, [len(document)]]))
        return self._chunks_of_sentences(document.input_ids, sentences)

    def _chunks_of_sentences(self, input_ids: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        if self.mode == "packed_sentences":
            return pack_sentences(input_ids, sentences, self.capacity)

        # A sentence of more ids than a chunk holds continues in further chunks.
        starts = []
        for start, end in itertools.pairwise(sentences):
            starts.append(np.arange(start, end, self.capacity, dtype=np.int64))
        return np.concatenate([*starts, sentences[-1:]])

    def strip_special_tokens(self, input_ids: np.ndarray) -> np.ndarray:
        """Removes the special tokens around a whole document, if both ends have them."""
        start = len(self.prefix_ids)
        end = len(input_ids) - len(self.suffix_ids)
        inner = input_ids[start:end]
        if np.array_equal(np.concatenate([self.prefix_ids, inner, self.suffix_ids]), input_ids):
            return inner
        return input_ids


def pack_sentences(input_ids: np.ndarray, sentences: np.ndarray, capacity: int) -> np.ndarray:
    """Makes chunks of several whole sentences, with boundaries that depend on the words near them.

    One sentence in 20 is a landmark, chosen by a hash of its ids. Landmarks are looked for among
    the sentences that end in the second half of a chunk's capacity. The chunk ends after the
    landmark with the smallest hash (of equal ones, the last) or, if there is none, after the last
    sentence that fits. A sentence above the capacity is split there.

    If chunks always ended with the last sentence that fits, they would be 5 % fewer on novels, but
    an edit would shift all boundaries after it. Two runs over one text from different starts soon
    end a chunk with the same landmark.

    Args:
        input_ids: token ids ``[T]``.
        sentences: boundaries of sentences, from 0 to T.
        capacity: most ids in a chunk.

    Returns:
        Boundaries of chunks, ``[n + 1]`` int64.
    """
    total = len(input_ids)
    ends = sentences[1:].tolist()
    hashes = _sentence_hashes(input_ids, sentences)

    boundaries = [0]
    while boundaries[-1] < total:
        start = boundaries[-1]
        first = bisect_left(ends, start + (capacity + 1) // 2)
        stop = bisect_right(ends, start + capacity)  # sentences before this one fit
        landmarks = [
            (hashes[index], -index)
            for index in range(first, stop)
            if hashes[index] < _LANDMARK_BELOW
        ]

        if total - start <= capacity:
            boundaries.append(total)
        elif landmarks:
            _, negative_index = min(landmarks)
            boundaries.append(ends[-negative_index])
        elif stop > 0 and ends[stop - 1] > start:
            boundaries.append(ends[stop - 1])
        else:
            boundaries.append(start + capacity)

    return np.asarray(boundaries, dtype=np.int64)


def _sentence_hashes(input_ids: np.ndarray, sentences: np.ndarray) -> list[int]:
    """Hashes the ids of each sentence, the same in every process (`hash` differs)."""
    data = input_ids.astype("<i4").tobytes()
    hashes = []
    for start, end in itertools.pairwise(sentences.tolist()):
        digest = hashlib.blake2b(data[4 * start : 4 * end], digest_size=8).digest()
        hashes.append(int.from_bytes(digest, "big"))
    return hashes


def chunk_spans(document: TokenizedDocument, boundaries: np.ndarray) -> np.ndarray:
    """Returns the characters of each chunk: from its first token's start to its last token's end.

    Args:
        document: the tokens.
        boundaries: boundaries of the document's chunks, ``[n + 1]``.

    Returns:
        First character of each chunk and one past the last, ``[n, 2]`` int64.
    """
    starts = document.char_starts[boundaries[:-1]]
    ends = document.char_ends[boundaries[1:] - 1]
    return np.stack([starts, ends], axis=1).astype(np.int64)


def count_windows(chunks: int, size: int, overlap: int) -> int:
    """Returns the number of windows over a document.

    Args:
        chunks: number of chunks in the document.
        size: number of chunks in a window.
        overlap: chunks that neighbouring windows share.

    Example:
        >>> [count_windows(chunks, size=8, overlap=2) for chunks in (0, 8, 9, 14, 15)]
        [0, 1, 2, 2, 3]
    """
    if chunks == 0:
        return 0
    step = size - overlap
    beyond_first = max(chunks - size, 0)
    return 1 + math.ceil(beyond_first / step)


def lay_windows(
    counts: np.ndarray, size: int, overlap: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lays windows over documents, of which each has at least one.

    Windows start every `size` - `overlap` chunks. The last window of a document is moved back, so
    that it is full.

    Args:
        counts: number of chunks in each document, ``[B]``.
        size: most chunks of a window.
        overlap: chunks that neighbouring windows share.

    Returns:
        The document of each window, its first chunk, and the number of its chunks, ``[J]`` each.

    Example:
        >>> windows = lay_windows(np.array([5, 2]), size=3, overlap=1)
        >>> [values.tolist() for values in windows]
        [[0, 0, 1], [0, 2, 0], [3, 3, 2]]
    """
    step = size - overlap
    last_starts = np.maximum(counts - size, 0)  # [B]
    steps = np.ceil(last_starts / step).astype(np.int64)  # [B]
    windows = 1 + steps
    earlier_windows = np.cumsum(windows) - windows

    documents = np.repeat(
        np.arange(len(counts)),
        windows,
    )
    number = np.arange(len(documents))
    number -= earlier_windows[documents]  # of a window in its document
    starts = np.minimum(
        number * step,
        last_starts[documents],
    )
    lengths = counts[documents]
    lengths = np.minimum(lengths, size)
    return documents, starts, lengths
