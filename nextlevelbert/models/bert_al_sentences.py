"""Documents in BERTSUM's format (paper, section "BERTSUM"): sentences [CLS] words [SEP], types 0
and 1 in turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from .sentences import text_sentences

_WORD = re.compile(r"\w+")
_BLOCKED_WORDS = 3  # in a row
_SENTENCES_PER_CALL = 1024  # the tokenizer keeps much more for each token than its id


@dataclass(frozen=True)
class ExtractiveSummary:
    """The chosen sentences in the order of the document, a line each in `str()`; their numbers from
    0; their spans in the text (or in the sentences joined by line breaks); and scores from 0 to 1
    of all sentences of the document.
    """

    sentences: list[str]
    indices: list[int]
    spans: list[tuple[int, int]]
    scores: list[float]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def split_document(document: str | Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """A document's text, and the first character of each sentence and one past its last.

    Sentences are joined by line breaks; a text is cut by `text_sentences`. A ValueError tells of a
    document without words, and of sentences that are blank or no text (numbered).
    """
    if isinstance(document, str):
        spans = text_sentences(document)
        if not spans:
            raise ValueError(
                f"The document has no words ({len(document)} characters); give at least one"
                " sentence."
            )
        return document, spans
    sentences = list(document or ())
    wrong = [
        number
        for number, text in enumerate(sentences)
        if not isinstance(text, str) or not text.strip()
    ]
    if wrong or not sentences:
        raise ValueError(
            f"The document has no sentences, or some that are blank or no text ({wrong})."
        )
    ends = [end - 1 for end in accumulate(len(sentence) + 1 for sentence in sentences)]
    return "\n".join(sentences), [
        (end - len(sentence), end) for end, sentence in zip(ends, sentences, strict=True)
    ]


def encode_sentences(
    sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and token types ``[T]`` of a whole document in BERTSUM's format, int32.

    Words that spell a special token ("[CLS]") are read as words; where a tokenizer cannot do that,
    one that would start a sentence becomes the unknown word.
    """
    plain: dict[str, Any] = {
        "add_special_tokens": False,
        "verbose": False,
        "split_special_tokens": True,
    }
    ids: list[np.ndarray] = []
    for first in range(0, len(sentences), _SENTENCES_PER_CALL):
        for words in tokenizer(list(sentences[first : first + _SENTENCES_PER_CALL]), **plain)[
            "input_ids"
        ]:
            known = [
                tokenizer.unk_token_id if word == tokenizer.cls_token_id else word for word in words
            ]
            ids.append(np.array([tokenizer.cls_token_id, *known, tokenizer.sep_token_id], np.int32))
    types = np.repeat(np.arange(len(ids)) % 2, [len(sentence) for sentence in ids])
    return np.concatenate(ids), types.astype(np.int32)


def pad_batch(
    documents: Sequence[tuple[np.ndarray, np.ndarray]], pad_token_id: int
) -> dict[str, torch.Tensor]:
    """A batch of documents as `encode_sentences` gives them, padded on the right: ids, mask and
    types ``[B, T]``."""
    ids, types = (
        [torch.as_tensor(row, dtype=torch.long) for row in rows]
        for rows in zip(*documents, strict=True)
    )
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_token_id),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        "token_type_ids": pad_sequence(types, batch_first=True),
    }


def select_sentences(
    scores: np.ndarray, count: int, block_trigrams_in: Sequence[str] | None = None
) -> list[int]:
    """The numbers of the `count` sentences with the highest scores ``[S]`` (of equal ones the
    earlier), in order.

    With sentences in `block_trigrams_in`, one that shares three words in a row with a chosen one is
    skipped (BERTSUM: Liu and Lapata, 2019, arXiv 1908.08345, section 4.2), which may leave fewer.
    """
    chosen: list[int] = []
    said: set[tuple[str, ...]] = set()
    for number in np.argsort(-np.asarray(scores), kind="stable").tolist():
        if len(chosen) == count:
            break
        if block_trigrams_in is not None:
            words = _WORD.findall(block_trigrams_in[number].lower())
            trigrams = set(zip(*(words[shift:] for shift in range(_BLOCKED_WORDS)), strict=False))
            if trigrams & said:
                continue
            said |= trigrams
        chosen.append(number)
    return sorted(chosen)
