"""One window of a long document: its beginning, a run of tokens drawn at random, or its key sentences by TextRank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from ...models.chunking import (
    chunk_spans,
    sentence_boundaries,
    sentence_token_ids,
    special_token_ids,
    tokenize_document,
)

_DAMPING = 0.85
# What scikit-learn's list lacks: forms of "do", and the pieces of contractions ("don't" is "don" and "t" here).
_PIECES = "s t d m ll ve don didn doesn isn aren wasn weren hasn haven hadn couldn wouldn shouldn ain"
_STOP_WORDS = ENGLISH_STOP_WORDS | {"did", "does", "doing", *_PIECES.split()}


def first_window(ids: Sequence[int], tokenizer: Any, positions: int) -> list[int]:
    """The beginning of a document, as the tokenizer's own truncation gives it: BERT's window.

    Args:
        ids: of the whole document as `tokenizer` gives them, with special tokens.
        tokenizer: its special tokens are kept at the beginning and the end.
        positions: most ids in the window, special tokens counted.

    Raises:
        ValueError: for ids without the special tokens, or positions that leave no room for text.
    """
    prefix, suffix, room = _special_tokens(tokenizer, positions)
    return _wrap(prefix, _inner(ids, prefix, suffix)[:room], suffix)


def random_window(ids: Sequence[int], tokenizer: Any, positions: int, rng: np.random.Generator) -> list[int]:
    """A random run of a document's tokens within its special tokens: the second window of BERT+Random.

    Every start at which the window is full is equally likely; a document that fits is taken whole. Consecutive
    tokens are how the ChunkBERT paper puts it ("random 512 tokens"); the code of Park et al. draws sentences.

    Args:
        ids, tokenizer, positions: as in `first_window`.
        rng: what the start is drawn from.

    Raises:
        ValueError: as in `first_window`.
    """
    prefix, suffix, room = _special_tokens(tokenizer, positions)
    inner = _inner(ids, prefix, suffix)
    start = int(rng.integers(max(len(inner) - room, 0) + 1))
    return _wrap(prefix, inner[start : start + room], suffix)


def textrank_window(text: str, tokenizer: Any, positions: int) -> list[int]:
    """The key sentences of a document within special tokens: the second window of BERT+TextRank.

    Sentences are taken from the highest TextRank down (the earlier of two equal ones first) until one does not fit,
    then put in the order of the document and tokenised as one text. A document that fits is taken whole. If not even
    the best sentence fits, the window is the beginning of that sentence.

    Ranks follow Mihalcea and Tarau, "TextRank: Bringing Order into Text", EMNLP 2004: PageRank with damping 0.85 over
    the sentence similarity of section 4.1, the number of words in common divided by the sum of the logarithms of the
    lengths. A word counts as often as it occurs. English stop words (scikit-learn's list) do not count, since the
    paper suggests open-class words only; few words of other languages are on that list. Park et al. rank by
    PyTextRank, which needs a spaCy model, and cut the text of the chosen sentences at its end.

    Args:
        text: the whole document.
        tokenizer: a fast one; sentences end where `sentence_boundaries` finds their end in its ids.
        positions: most ids in the window, special tokens counted.

    Raises:
        ValueError: for positions that leave no room for text.
        TypeError: for a tokenizer without character offsets.
    """
    prefix, suffix, room = _special_tokens(tokenizer, positions)
    document = tokenize_document(tokenizer, text)
    if len(document) <= room:
        return _wrap(prefix, document.input_ids, suffix)
    spans = chunk_spans(document, sentence_boundaries(document.input_ids, sentence_token_ids(tokenizer)))
    sentences = [text[start:end] for start, end in spans]
    chosen: list[int] = []
    window = np.zeros(0, np.int32)
    for best in _best_first(_sentence_ranks(sentences)):
        candidate = sorted([*chosen, best])
        ids = tokenize_document(tokenizer, " ".join(sentences[index] for index in candidate)).input_ids
        if len(ids) > room:
            window = window if chosen else ids[:room]
            break
        chosen, window = candidate, ids
    return _wrap(prefix, window, suffix)


def _sentence_ranks(sentences: Sequence[str]) -> np.ndarray:
    """The TextRank of each sentence, ``[S]``, up to a common factor; at least 1."""
    rows: list[int] = []
    columns: list[int] = []
    vocabulary: dict[str, int] = {}
    for row, sentence in enumerate(sentences):
        words = [word for word in re.findall(r"\w+", sentence.lower()) if word not in _STOP_WORDS]
        rows += [row] * len(words)
        columns += [vocabulary.setdefault(word, len(vocabulary)) for word in words]
    counts = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(sentences), max(len(vocabulary), 1)))
    common = coo_array(counts @ counts.T)  # [S, S], entries where sentences share a word
    one, other = common.coords
    pair = one != other  # the paper has no edge from a sentence to itself
    one, other, shared = one[pair], other[pair], common.data[pair]
    lengths = np.log(np.maximum(counts.sum(axis=1), 1))
    norm = lengths[one] + lengths[other]
    weight = shared / np.where(norm > 0, norm, 1)  # zero where both are the same single word
    total = np.bincount(one, weight, minlength=len(sentences))
    step = csr_array((_DAMPING * weight / total[one], (other, one)), shape=common.shape)
    ranks = np.ones(len(sentences))
    for _ in range(200):  # 0.85 ** 200 < 1e-14
        ranks = 1 + step @ ranks
    return ranks


def _best_first(ranks: np.ndarray) -> list[int]:
    """Places from the highest rank down; of equal ranks the earlier first, on every machine.

    Ranks that are equal in exact arithmetic differ by rounding, which depends on the processor.
    """
    order = np.argsort(-ranks, kind="stable")
    level = np.concatenate([[0], np.cumsum(np.diff(ranks[order]) < -1e-9)])
    return order[np.lexsort((order, level))].tolist()


def _special_tokens(tokenizer: Any, positions: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Special tokens before and after a text, and the room between them."""
    prefix, suffix = special_token_ids(tokenizer)
    room = positions - len(prefix) - len(suffix)
    if room < 1:
        raise ValueError(
            f"A window of {positions} positions leaves no room for text next to {len(prefix) + len(suffix)} special "
            f"tokens; give at least {len(prefix) + len(suffix) + 1}."
        )
    return prefix, suffix, room


def _inner(ids: Sequence[int], prefix: tuple[int, ...], suffix: tuple[int, ...]) -> Sequence[int]:
    """Ids of a document without its special tokens, which must be there."""
    start, end = len(prefix), len(ids) - len(suffix)
    if end < start or tuple(map(int, ids[:start])) != prefix or tuple(map(int, ids[end:])) != suffix:
        raise ValueError(
            f"ids must begin with the tokenizer's special tokens {list(prefix)} and end with {list(suffix)}, got "
            f"{len(ids)} ids that do not. Give tokenizer(text)['input_ids'] of one whole document."
        )
    return ids[start:end]


def _wrap(prefix: tuple[int, ...], inner: Sequence[int] | np.ndarray, suffix: tuple[int, ...]) -> list[int]:
    return [*prefix, *map(int, inner), *suffix]
