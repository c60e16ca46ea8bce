"""From text to token ids, from token ids to chunks, and back: pure functions, nothing learned.

A document is tokenised once, as a whole, without special tokens. Its chunks are runs of consecutive
ids that tile it; each reaches the encoder between the tokenizer's own special tokens ([CLS] ...
[SEP] for BERT).

Notation for shapes: T tokens in a document, n chunks in a document; B documents, J windows of all
documents.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import os
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from tokenizers import Tokenizer

from .sentences import Splitter, sentence_boundaries, sentence_token_ids, splitter_sentences

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

try:
    from nextlevelbert.word_lookup import WordLookup, new_word_lookup
except ImportError:
    # A checkpoint that is opened without the package gets the same ids, more slowly.
    def new_word_lookup(tokenizer: Tokenizer) -> WordLookup | None:
        """Returns None: words cannot be looked up."""
        return None


# Texts that are tokenised together: a tokenizer keeps some 100 bytes for each token until its ids
# are copied.
_CHARACTERS_PER_GROUP = 1_000_000
# A longer text is divided, so that several cores can share it.
_PIECE_CHARACTERS = 50_000
_SPACE_BETWEEN_WORDS = re.compile(r"(?<=[a-z]) (?=[a-z])")
# Characters on both sides of a seam, which are tokenised once more to see that it changes nothing.
_SEAM = 200

ChunkingMode = Literal["fixed", "sentences", "packed_sentences"]

# Of 40 novels in chunks of 256 ids, an edit of one sentence changes 0.6 % of the chunks, which are
# 88 % full. With twice as many landmarks they are 84 % full; with half as many an edit reaches 1.5
# times as far.
_LANDMARK_BELOW = 2**64 // 20
# sentence-transformers has these prompts in every model, empty if the model does not say more.
_USUAL_PROMPTS = {"query": "", "document": ""}
# Names of the prompt of documents; the first that has a text is used.
_PASSAGE_NAMES = ("document", "passage", "corpus")


@dataclass(frozen=True)
class TokenizedDocument:
    """Holds the tokens of one whole document, without special tokens.

    Attributes:
        input_ids: token ids, ``[T]`` int32.
        char_starts: the first character of each token, ``[T]`` int32.
        char_ends: last character of each token, plus one, ``[T]`` int32.
    """

    input_ids: np.ndarray
    char_starts: np.ndarray
    char_ends: np.ndarray

    def __len__(self) -> int:
        return len(self.input_ids)


SplitDocument = tuple[TokenizedDocument, np.ndarray]  # tokens, and boundaries of chunks


def check_collection(documents: Iterable[Any]) -> None:
    """Checks that a collection can be read document by document.

    Raises:
        TypeError: for no collection, and for a dict, set or table, which yields its keys instead.
    """
    has_names = isinstance(documents, (Mapping, Set)) or getattr(documents, "ndim", 1) != 1
    if has_names or not np.iterable(documents):
        raise TypeError(
            f"Give texts in a list, data set, Series or generator; got {type(documents).__name__}."
        )


def iter_texts(documents: str | Iterable[Any]) -> Iterator[str]:
    """Yields the texts of one document or several.

    Args:
        documents: a str, (id, text), a dict with a column ``text``, or an object with a `text`;
            several are in a list, generator, array, pandas Series or `datasets.Dataset`.

    Raises:
        TypeError: something is no text.
        ValueError: a text holds a lone surrogate.
    """
    check_collection(documents)
    if isinstance(documents, str):
        is_short = len(documents) < 256
        if is_short and "." in documents and os.path.isfile(documents):
            warnings.warn(
                f"{documents!r} is the name of a file, and is read as a text. For the text of the"
                f" file, pass read_documents({documents!r}).",
                stacklevel=2,
            )
        documents = [documents]
    elif "text" in (getattr(documents, "features", None) or ()):
        documents = documents.select_columns("text")  # type: ignore[union-attr]  # a data set, of which no picture is opened

    for index, document in enumerate(documents):
        text = getattr(document, "text", document)
        if isinstance(document, Mapping):
            text = document.get("text")
        elif isinstance(text, tuple) and len(text) == 2:  # (id, text)
            text = text[1]
        if not isinstance(text, str):
            raise TypeError(
                f"Document {index} has the type {type(text).__name__}. Give a str, (id, text) or"
                f" {{'text': …}}; decode bytes first."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Document {index} is not valid Unicode: it holds a lone surrogate at character"
                f" {error.start}."
            ) from error
        yield text


class PrivateTokenizer:
    """Tokenises texts by a copy of a tokenizer that nothing else uses.

    A tokenizer keeps the padding and the truncation of its last call, in all threads: a batch of
    questions that one thread pads would pad the documents of another. The copy has neither.

    Args:
        tokenizer: a fast tokenizer.
        split_special_tokens: if true, a word that spells a special token is read as a word.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, split_special_tokens: bool) -> None:
        self.state = _tokenizer_state(tokenizer)
        self._backend: Tokenizer = copy.deepcopy(tokenizer.backend_tokenizer)
        self._backend.no_padding()
        self._backend.no_truncation()
        self._backend.encode_special_tokens = split_special_tokens
        self.look_up_words = None
        if not split_special_tokens:
            self.look_up_words = new_word_lookup(self._backend)
        self._can_divide = True

    def __call__(self, texts: Sequence[str]) -> list[TokenizedDocument]:
        """Tokenises texts of any length, without special tokens, on all processor cores."""
        if self.look_up_words is not None:
            return [TokenizedDocument(*arrays) for arrays in self.look_up_words(texts)]
        documents = []
        for group in groups_by_length(texts):
            documents += self._tokenize_pieces(group)
        return documents

    def _tokenize_pieces(self, texts: Sequence[str]) -> list[TokenizedDocument]:
        """Tokenises long texts in pieces, which the threads of the tokenizer share."""
        borders_of_texts = []
        pieces = []
        seams = []
        for text in texts:
            borders = [0, len(text)]
            if self._can_divide:
                borders = piece_borders(text)
            borders_of_texts.append(borders)
            pieces += [text[start:stop] for start, stop in itertools.pairwise(borders)]
            seams += [text[seam - _SEAM : seam + _SEAM] for seam in borders[1:-1]]

        tokenized = iter(self._encode([*pieces, *seams]))
        pieces_of_texts = []
        for borders in borders_of_texts:
            parts = list(itertools.islice(tokenized, len(borders) - 1))
            pieces_of_texts.append(list(map(_moved, parts, borders)))

        documents = []
        for text, borders, parts in zip(texts, borders_of_texts, pieces_of_texts, strict=True):
            document = _joined(parts)
            around_seams = list(itertools.islice(tokenized, len(borders) - 2))
            if not all(map(partial(_is_same_around, document), borders[1:-1], around_seams)):
                self._can_divide = False  # the tokenizer reads across white space
                [document] = self._encode([text])
            documents.append(document)
        return documents

    def _encode(self, texts: Sequence[str]) -> list[TokenizedDocument]:
        """Tokenises texts by one call of the tokenizer, whose threads share them."""
        documents = []
        for encoding in self._backend.encode_batch(list(texts), add_special_tokens=False):
            characters = itertools.chain.from_iterable(encoding.offsets)
            spans = np.fromiter(characters, np.int32, 2 * len(encoding)).reshape(-1, 2)
            document = TokenizedDocument(
                input_ids=np.asarray(encoding.ids, np.int32),
                char_starts=spans[:, 0],
                char_ends=spans[:, 1],
            )
            documents.append(document)
        return documents


def groups_by_length(texts: Iterable[str]) -> Iterator[list[str]]:
    """Groups texts in their order.

    If the texts end with an error, the texts before the error still make a group.
    """
    group: list[str] = []
    size = 0
    try:
        for text in texts:
            group.append(text)
            size += len(text)
            if size >= _CHARACTERS_PER_GROUP:
                yield group
                group = []
                size = 0
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


def piece_borders(text: str) -> list[int]:
    """Divides a long text before single spaces between two lower-case letters.

    Returns:
        The first character of each piece, and the length of the text.
    """
    borders = [0]
    while len(text) - borders[-1] >= 2 * _PIECE_CHARACTERS:
        space = _SPACE_BETWEEN_WORDS.search(text, borders[-1] + _PIECE_CHARACTERS)
        if space is None:
            break
        borders.append(space.start())
    return [*borders, len(text)]


def _moved(document: TokenizedDocument, characters: int) -> TokenizedDocument:
    """Moves the characters of tokens."""
    return TokenizedDocument(
        input_ids=document.input_ids,
        char_starts=document.char_starts + np.int32(characters),
        char_ends=document.char_ends + np.int32(characters),
    )


def _joined(pieces: Sequence[TokenizedDocument]) -> TokenizedDocument:
    """Joins the tokens of pieces of one text."""
    if len(pieces) == 1:
        return pieces[0]
    return TokenizedDocument(
        input_ids=np.concatenate([piece.input_ids for piece in pieces]),
        char_starts=np.concatenate([piece.char_starts for piece in pieces]),
        char_ends=np.concatenate([piece.char_ends for piece in pieces]),
    )


def _is_same_around(document: TokenizedDocument, seam: int, window: TokenizedDocument) -> bool:
    """Returns whether a text that was tokenised in pieces has the same tokens around a seam.

    Args:
        document: tokens of the pieces.
        seam: character at which two pieces meet.
        window: tokens of the `_SEAM` characters on both sides, tokenised together.
    """
    # The tokens at the ends of the window have lost their neighbours.
    around = []
    for tokens in (document, _moved(window, seam - _SEAM)):
        first = np.searchsorted(tokens.char_starts, seam - _SEAM // 2)
        stop = np.searchsorted(tokens.char_starts, seam + _SEAM // 2)
        columns = (tokens.input_ids, tokens.char_starts, tokens.char_ends)
        around.append(np.stack([column[first:stop] for column in columns]))
    from_pieces, from_window = around
    return np.array_equal(from_pieces, from_window)


def _tokenizer_state(tokenizer: PreTrainedTokenizerBase) -> tuple[object, ...]:
    """Returns what decides the ids of a text; it differs after a change such as new tokens."""
    backend = tokenizer.backend_tokenizer
    return (
        repr(backend.normalizer),
        repr(backend.pre_tokenizer),
        backend.get_vocab_size(with_added_tokens=True),
        backend.get_added_tokens_decoder(),
    )


# No value refers to its key, so that a tokenizer is freed with its model.
_private_tokenizers: WeakKeyDictionary[PreTrainedTokenizerBase, dict[bool, PrivateTokenizer]] = (
    WeakKeyDictionary()
)
_lock = Lock()


def private_tokenizer(
    tokenizer: PreTrainedTokenizerBase, split_special_tokens: bool | None = None
) -> PrivateTokenizer:
    """Returns the private copy of a tokenizer; a new one if the tokenizer was changed.

    Args:
        tokenizer: a fast tokenizer.
        split_special_tokens: see `PrivateTokenizer` (default: the tokenizer's own setting).

    Raises:
        TypeError: the tokenizer does not return the characters of tokens.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise TypeError(
            f"{type(tokenizer).__name__} cannot return character offsets. Use an encoder with a"
            " tokenizer.json."
        )
    if split_special_tokens is None:
        split_special_tokens = tokenizer.split_special_tokens
    with _lock:
        copies = _private_tokenizers.setdefault(tokenizer, {})
        private = copies.get(split_special_tokens)
        if private is None or private.state != _tokenizer_state(tokenizer):
            private = PrivateTokenizer(tokenizer, split_special_tokens)
            copies[split_special_tokens] = private
    return private


def tokenize_document(tokenizer: PreTrainedTokenizerBase, text: str) -> TokenizedDocument:
    """Tokenises a whole document: no special tokens, no truncation, no length warning.

    Raises:
        TypeError: the tokenizer does not return the characters of tokens.
    """
    [document] = private_tokenizer(tokenizer)([text])
    return document


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


def special_token_ids(
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that a tokenizer puts before and after a single text, by an example.

    Raises:
        ValueError: the tokenizer does not keep a text's ids together, or has no ids for any text.
    """
    example = _example_text(tokenizer)
    inner = tokenizer(example, add_special_tokens=False)["input_ids"]
    outer = tokenizer(example)["input_ids"]
    for start in reversed(range(len(outer) - len(inner) + 1)):
        end = start + len(inner)
        if outer[start:end] == inner:
            return tuple(outer[:start]), tuple(outer[end:])
    raise ValueError(
        f"{type(tokenizer).__name__} does not keep the ids of a text together when it adds special"
        " tokens."
    )


@dataclass(frozen=True)
class Prompts:
    """Holds the prompts of an encoder: texts that it was trained to read before other texts.

    Attributes:
        texts: text of each prompt, by name.
        default_name: name of the prompt of texts for which no other is chosen; None for no prompt.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    default_name: str | None = None

    def text(self, name: str | None = None, prompt: str | None = None) -> str:
        """Returns the text of a prompt, chosen as in sentence-transformers.

        Args:
            name: name of the prompt (default: `default_name`).
            prompt: the text itself, which is used whatever the name is.

        Raises:
            ValueError: there is no prompt of that name.
        """
        if prompt is not None:
            return prompt
        if name is None:
            name = self.default_name
        if name is None:
            return ""
        texts = {**_USUAL_PROMPTS, **self.texts}
        if name not in texts:
            raise ValueError(f"There is no prompt {name!r}. The names are {', '.join(texts)}.")
        return texts[name]

    @property
    def query(self) -> str:
        """Returns the prompt of questions, ``"query"``; empty without one.

        As in sentence-transformers, the default prompt is not for questions.
        """
        return self.texts.get("query", "")

    @property
    def passage(self) -> str:
        """Returns the prompt of documents: ``"document"``, ``"passage"``, … or the default one."""
        for name in _PASSAGE_NAMES:
            if self.texts.get(name):
                return self.texts[name]
        return self.text()


def check_prompt(prompt: str) -> None:
    """Checks that a prompt does not run into the text behind it.

    Raises:
        ValueError: the prompt ends in a word.
    """
    if prompt[-1:].isalnum():
        raise ValueError(
            f"The prompt {prompt!r} would run into the first word of a text. End it with a space."
        )


def with_prompt(
    rule: ChunkingRule,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    include_prompt: bool = True,
) -> ChunkingRule:
    """Returns the rule for chunks that begin with a prompt.

    Args:
        rule: the rule, whose own prompt is replaced.
        tokenizer: tokenizer of the chunk encoder.
        prompt: text of the prompt; without text, chunks have no prompt.
        include_prompt: if false, pooling leaves out the prompt and all tokens before it, as
            sentence-transformers' `Pooling` does.

    Raises:
        ValueError: the prompt ends in a word, or fills a chunk.
    """
    if prompt == "":
        return replace(rule, prompt="", prompt_ids=(), unpooled=0)
    check_prompt(prompt)
    # Some tokenizers make the space behind a prompt a part of the next token: the ids of the prompt
    # end before the space.
    example = _example_text(tokenizer)
    if not prompt[-1:].isspace():
        example = f" {example}"
    tokens = tokenize_document(tokenizer, f"{prompt}{example}")
    prompt_ids = tokens.input_ids[tokens.char_ends <= len(prompt.rstrip(" "))].tolist()
    unpooled = 0
    if not include_prompt:
        # sentence-transformers counts the tokens of the prompt alone, but for the last special one.
        alone = len(tokenize_document(tokenizer, prompt))
        unpooled = len(rule.prefix_ids) + alone + max(len(rule.suffix_ids) - 1, 0)
    return replace(rule, prompt=prompt, prompt_ids=tuple(prompt_ids), unpooled=unpooled)


def tokenize_documents(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], rule: ChunkingRule
) -> list[TokenizedDocument]:
    """Tokenises whole documents together, as they are tokenised behind the prompt of a rule.

    One call for many documents is faster than a call for each: the tokenizer's threads share them.
    The first token of a text can depend on the prompt, because some tokenizers make the space
    before a word a part of the word's token.

    Args:
        tokenizer: a fast tokenizer, of which a private copy is used.
        texts: texts of any length.
        rule: the rule, with a prompt or without.

    Returns:
        The tokens of each document, without the prompt's.

    Raises:
        TypeError: the tokenizer does not return the characters of tokens.
    """
    tokenize = private_tokenizer(tokenizer)
    if not rule.prompt_ids:
        return tokenize(texts)
    documents = []
    for text, behind_prompt in zip(
        texts, tokenize([f"{rule.prompt}{text}" for text in texts]), strict=True
    ):
        document = _without_prompt(behind_prompt, rule)
        if document is None:
            [document] = tokenize([text])
        documents.append(document)
    return documents


def tokenize_and_split(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    rule: ChunkingRule,
    splitter: Splitter | None,
) -> list[SplitDocument]:
    """Tokenises documents, and splits each into chunks.

    Args:
        tokenizer: a fast tokenizer.
        texts: the documents.
        rule: chunking rule.
        splitter: function that finds sentences in place of the rule.
    """
    documents = tokenize_documents(tokenizer, texts, rule)
    boundaries = []
    for text, document in zip(texts, documents, strict=True):
        boundaries.append(rule.text_boundaries(text, document, splitter))
    return list(zip(documents, boundaries, strict=True))


def _without_prompt(tokens: TokenizedDocument, rule: ChunkingRule) -> TokenizedDocument | None:
    """Removes the tokens of a prompt; returns None if the prompt and the text share a token."""
    count = len(rule.prompt_ids)
    if tuple(tokens.input_ids[:count].tolist()) != rule.prompt_ids:
        return None  # the prompt's last mark and the text's first word are one token
    size = len(rule.prompt)
    if tokens.char_ends[-1] <= size:
        count = len(tokens)  # only the space behind the prompt is left
    return TokenizedDocument(
        input_ids=tokens.input_ids[count:],
        char_starts=np.maximum(tokens.char_starts[count:] - size, 0),
        char_ends=np.maximum(tokens.char_ends[count:] - size, 0),
    )


def split_prompt(
    input_ids: np.ndarray, rules: Sequence[ChunkingRule]
) -> tuple[ChunkingRule, np.ndarray]:
    """Finds the prompt that the ids of a document begin with.

    Args:
        input_ids: token ids ``[T]``, without special tokens.
        rules: a rule for each prompt, and the rule for ids without a prompt at the end.

    Returns:
        The rule of the document's prompt, and the ids without the prompt.
    """
    for rule in rules[:-1]:
        count = len(rule.prompt_ids)
        if count > 0 and tuple(input_ids[:count].tolist()) == rule.prompt_ids:
            return rule, input_ids[count:]
    return rules[-1], input_ids


def _example_text(tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns a text with ids that are not special: "a", or a token of the vocabulary.

    A tokenizer for another script may drop "a", or replace it by a special token.
    """
    special = set(tokenizer.all_special_ids)
    for token in _tokens_to_try(tokenizer):
        text = tokenizer.convert_tokens_to_string([token])
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if ids and special.isdisjoint(ids):
            return text
    raise ValueError(f"{type(tokenizer).__name__} has no token that is not special.")


def _tokens_to_try(tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    yield "a"
    yield from tokenizer.get_vocab()  # thousands, of which most tokenizers need none
