"""One window of a long document: its beginning, a run of tokens drawn at random, or its key sentences by TextRank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...models.chunking import chunk_spans, special_token_ids, tokenize_document
from ...models.sentences import sentence_boundaries, sentence_token_ids


def first_window(ids: Sequence[int], tokenizer: Any, positions: int) -> list[int]:
    """The beginning of a document, as the tokenizer's own truncation gives it: BERT's window.

    Args:
        ids: of the whole document as `tokenizer` gives them, with special tokens.
        tokenizer: tells which special tokens stand at the beginning and at the end.
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

    Sentences are taken in the order of their TextRank (of those alike the earlier one) up to the first that does
    not fit any more, put in the order of the document and tokenised as one text. A document that fits is taken
    whole. If not even the best sentence fits, the window is the beginning of it and nothing else.

    Ranks are those of the library `sumy` over the sentence similarity of Mihalcea and Tarau, "TextRank: Bringing
    Order into Text", EMNLP 2004, section 4.1: words in common, divided by the logarithms of the lengths. A word counts
    as often as it stands there, and not at all on `sumy`'s English list of stop words, as the paper suggests to count
    open-class words only; in other languages few words are on that list. Park et al. rank by PyTextRank, which needs
    a spaCy model, and cut the text of the chosen sentences at its end.

    Time and memory grow with the square of the number of sentences: 1.5 s for 1,000, 14 s for 3,000.

    Args:
        text: the whole document.
        tokenizer: a fast one; sentences end where `sentence_boundaries` finds their end in its ids.
        positions: most ids in the window, special tokens counted.

    Raises:
        ImportError: without sumy, for a document that does not fit.
        ValueError: for positions that leave no room for text.
        TypeError: for a tokenizer without character offsets.
    """
    prefix, suffix, room = _special_tokens(tokenizer, positions)
    document = tokenize_document(tokenizer, text)
    if len(document) <= room:
        return _wrap(prefix, document.input_ids, suffix)
    spans = chunk_spans(document, sentence_boundaries(document.input_ids, _sentence_token_ids(tokenizer)))
    sentences = [text[start:end] for start, end in spans]
    ranks = _sentence_ranks(sentences)
    chosen: list[int] = []
    window = np.zeros(0, np.int32)
    for best in sorted(range(len(sentences)), key=lambda index: -ranks[index]):
        candidate = sorted([*chosen, best])
        ids = tokenize_document(tokenizer, " ".join(sentences[index] for index in candidate)).input_ids
        if len(ids) > room:
            window = window if chosen else ids[:room]
            break
        chosen, window = candidate, ids
    return _wrap(prefix, window, suffix)


class _Words:
    """What `sumy` wants of a tokenizer; its own one downloads data."""

    @staticmethod
    def to_words(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())


def _sentence_ranks(sentences: Sequence[str]) -> list[float]:
    """The TextRank of each sentence; sentences of the same text have the same rank."""
    try:
        from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
        from sumy.summarizers.text_rank import TextRankSummarizer
        from sumy.utils import get_stop_words
    except ImportError as error:
        raise ImportError('TextRank needs sumy: pip install "nextlevelbert[textrank]"') from error

    class TextRank(TextRankSummarizer):
        @staticmethod
        def _rate_sentences_edge(words1: list[str], words2: list[str]) -> float:
            # The paper has no edge from a sentence to itself. With it, one that has nothing in common with any
            # other would keep its own rank and stand above most.
            return 0.0 if words1 is words2 else TextRankSummarizer._rate_sentences_edge(words1, words2)

    summarizer = TextRank()
    # Cut like the text, or "don" and "ll" would count as words.
    summarizer.stop_words = _Words.to_words(" ".join(get_stop_words("english")))
    document = ObjectDocumentModel([Paragraph([Sentence(sentence, _Words) for sentence in sentences])])
    ranks = summarizer.rate_sentences(document)  # by text, so equal sentences share an entry
    return [float(ranks[sentence]) for sentence in document.sentences]


@lru_cache(maxsize=4)
def _sentence_token_ids(tokenizer: Any) -> dict[str, list[int]]:
    """`sentence_token_ids` goes through the whole vocabulary, which takes longer than a document does."""
    return sentence_token_ids(tokenizer)


def _special_tokens(tokenizer: Any, positions: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Special tokens before and after a text, and the room between them."""
    prefix, suffix = special_token_ids(tokenizer)
    room = positions - len(prefix) - len(suffix)
    if room < 1:
        raise ValueError(
            f"A window of {positions} positions leaves no room for text beside {len(prefix) + len(suffix)} special "
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
