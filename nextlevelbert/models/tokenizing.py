"""From texts to token ids: a document is tokenised once, as a whole, without special tokens.

Threads tokenise the next groups of documents while a device computes.
"""

from __future__ import annotations

import copy
import itertools
import os
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

try:
    from nextlevelbert.word_lookup import WordLookup, new_word_lookup
except ImportError:
    # A checkpoint that is opened without the package gets the same ids, more slowly.
    def new_word_lookup(tokenizer: Tokenizer) -> WordLookup | None:
        """Returns None: words cannot be looked up."""
        return None


Item = TypeVar("Item")
Prepared = TypeVar("Prepared")

# Tokenizers and numpy release the interpreter's lock; more threads would wait for it.
_MOST_THREADS = 4
# Texts that are tokenised together: a tokenizer keeps some 100 bytes for each token until its ids
# are copied. Groups of 400,000 were not faster (`benchmarks/speed/feeding.py`).
_CHARACTERS_PER_GROUP = 1_000_000
# The table of words needs pyarrow.compute, which takes longer to import than a question to read.
_FEW_CHARACTERS = 2_000
# A longer text is divided, so that several cores can share it.
_PIECE_CHARACTERS = 50_000
_SPACE_BETWEEN_WORDS = re.compile(r"(?<=[a-z]) (?=[a-z])")
# Characters on both sides of a seam, which are tokenised once more to see that it changes nothing.
_SEAM = 200


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
            several are in a list, generator, array, pandas Series, `datasets.Dataset` or its
            column.

    Raises:
        TypeError: something is no text.
        ValueError: a text holds a lone surrogate.
    """
    check_collection(documents)
    features = getattr(documents, "features", None)  # of a column of a data set: its type
    if isinstance(documents, str):
        is_short = len(documents) < 256
        if is_short and "." in documents and os.path.isfile(documents):
            warnings.warn(
                f"{documents!r} is the name of a file, and is read as a text. For the text of the"
                f" file, pass read_documents({documents!r}).",
                stacklevel=2,
            )

        documents = [documents]
    elif isinstance(features, Mapping) and "text" in features:
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


def groups_by_length(texts: Iterable[str]) -> Iterator[list[str]]:
    """Groups texts in their order.

    The first groups are smaller, so that a device has to wait less for the first. If the texts end
    with an error, the texts before the error still make a group.
    """
    group: list[str] = []
    size = 0
    enough = _CHARACTERS_PER_GROUP // 8
    try:
        for text in texts:
            group.append(text)
            size += len(text)
            if size >= enough:
                yield group
                group = []
                size = 0
                enough = min(2 * enough, _CHARACTERS_PER_GROUP)
    except Exception:
        if group:
            yield group
        raise

    if group:
        yield group


def default_threads() -> int:
    """Returns the number of threads that prepare groups: at most one for every two cores."""
    cores = os.cpu_count() or 1
    return max(1, min(_MOST_THREADS, cores // 2))


def prepare_ahead(
    prepare: Callable[[Item], Prepared], items: Iterable[Item], threads: int
) -> Iterator[Prepared]:
    """Prepares items in threads while the caller works on earlier ones.

    Items are read in the thread of the caller, one more than there are threads ahead of the item
    that the caller works on. If `prepare` or the reading of items fails, the error is raised after
    all earlier items.

    Args:
        prepare: function that prepares an item.
        items: the items.
        threads: number of threads.

    Yields:
        The prepared items, in the order of the items.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="prepare")
    futures = _submitted(pool, prepare, items)
    try:
        waiting = deque(itertools.islice(futures, threads + 1))
        while waiting:
            prepared = waiting.popleft().result()
            waiting.extend(itertools.islice(futures, 1))
            yield prepared
    finally:
        pool.shutdown(cancel_futures=True)


def _submitted(
    pool: ThreadPoolExecutor, prepare: Callable[[Item], Prepared], items: Iterable[Item]
) -> Iterator[Future[Prepared]]:
    """Submits items one by one; an error of reading them becomes the last future."""
    try:
        for item in items:
            yield pool.submit(prepare, item)
    except Exception as error:  # raised when its turn comes
        failed: Future[Prepared] = Future()
        failed.set_exception(error)
        yield failed


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
        if self.look_up_words is not None and sum(map(len, texts)) > _FEW_CHARACTERS:
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


def special_token_ids(
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that a tokenizer puts before and after a single text, by an example.

    Raises:
        ValueError: the tokenizer does not keep a text's ids together, or has no ids for any text.
    """
    example = example_text(tokenizer)
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


def example_text(tokenizer: PreTrainedTokenizerBase) -> str:
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
