"""BERTSUM's way from a document to scored sentences and back to a summary (paper of BERT-AL, section "BERTSUM").

Every sentence is [CLS] words [SEP], with token types 0 and 1 in turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from .chunking import Splitter, check_texts, chunk_spans, splitter_sentences, tokenize_document
from .sentences import SENTENCE_RULE, cached_sentence_token_ids, sentence_boundaries, text_sentences

_WORD = re.compile(r"\w+")
_BLOCKED_WORDS = 3  # in a row
_SENTENCES_PER_CALL = 1024  # the tokenizer keeps much more for each token than its id


@dataclass(frozen=True)
class ExtractiveSummary:
    """An extractive summary of a document; `str()` gives it as text.

    Attributes:
        sentences: the chosen ones, in the order of the document.
        indices: their numbers in the document, from 0.
        spans: first character of each and one past the last, in the text. If sentences were given, the text is these
            joined by line breaks.
        scores: from 0 to 1, of every sentence of the document.
    """

    sentences: list[str]
    indices: list[int]
    spans: list[tuple[int, int]]
    scores: list[float]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def split_document(
    document: str | Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    rule: int = SENTENCE_RULE,
    splitter: Splitter | None = None,
) -> tuple[str, list[tuple[int, int]]]:
    """A document's text, and the first character of each sentence and one past its last.

    Args:
        document: a text; or its sentences, which are kept as they are and joined by line breaks.
        tokenizer: a fast one; rule 1 works on its ids.
        rule: 2 cuts a text by `sentences.text_sentences`, 1 by the first rule for ids and at blank lines.
        splitter: a function that finds the sentences of a text instead.

    Raises:
        ValueError: for a document without words, a blank sentence (numbered), or a splitter as in
            `splitter_sentences`.
        TypeError: for anything that is not text.
    """
    if not isinstance(document, str):
        if not (sentences := check_texts(document)):
            raise ValueError("The document has no sentences; leave it out.")
        if blank := [number for number, sentence in enumerate(sentences) if not sentence.strip()]:
            raise ValueError(f"Sentences {blank} of the document are blank; leave them out.")
        ends = np.cumsum([len(sentence) + 1 for sentence in sentences]) - 1
        return "\n".join(sentences), [
            (int(end) - len(sentence), int(end)) for end, sentence in zip(ends, sentences, strict=True)
        ]
    [text] = check_texts(document)
    if splitter is not None:
        spans = _without_gaps(text, splitter_sentences(text, splitter))
    else:
        spans = text_sentences(text) if rule != 1 else _first_rule_spans(text, tokenizer)
    if not spans:
        raise ValueError(f"The document has no words ({len(text)} characters); give one with at least one sentence.")
    return text, spans


def _without_gaps(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sentences without white space around them; what lies between two belongs to the one before."""
    borders = [0, *(start for start, _ in spans[1:]), len(text)]
    found = []
    for start, end in pairwise(borders):
        if words := text[start:end].strip():
            first = start + len(text[start:end]) - len(text[start:end].lstrip())
            found.append((first, first + len(words)))
    return found


def _first_rule_spans(text: str, tokenizer: PreTrainedTokenizerBase) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    classes = cached_sentence_token_ids(tokenizer, 1)
    for start, paragraph in _paragraphs(text):
        tokens = tokenize_document(tokenizer, paragraph)
        borders = sentence_boundaries(tokens.input_ids, classes, 1)
        for first, end in (chunk_spans(tokens, borders) + start).tolist():
            sentence = text[first:end]
            first, end = first + len(sentence) - len(sentence.lstrip()), end - len(sentence) + len(sentence.rstrip())
            if first >= end:  # some tokenizers make tokens of white space
                continue
            # The dot of a name such as "example.com" does not end a sentence.
            if spans and spans[-1][1] == first and text[first - 1] == "." and text[first].isalnum():
                first = spans.pop()[0]
            spans.append((first, end))
    return spans


def _paragraphs(text: str) -> Iterable[tuple[int, str]]:
    """Start and text of each paragraph; blank lines separate them."""
    start = 0
    for border in [*re.finditer(r"\n\s*\n", text), None]:
        end = border.start() if border else len(text)
        if text[start:end].strip():
            yield start, text[start:end]
        start = border.end() if border else end


def encode_sentences(sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and token types ``[T]`` of a whole document in BERTSUM's format, int32.

    Words that spell a special token ("[CLS]") are read as words; where a tokenizer cannot do that, one that would
    start a sentence becomes the unknown word.

    Args:
        sentences: those of the document, in order.
        tokenizer: that of the encoder.
    """
    ids: list[np.ndarray] = []
    for first in range(0, len(sentences), _SENTENCES_PER_CALL):
        encoded = tokenizer(
            list(sentences[first : first + _SENTENCES_PER_CALL]),
            add_special_tokens=False,
            split_special_tokens=True,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        for words in encoded:
            plain = [tokenizer.unk_token_id if word == tokenizer.cls_token_id else word for word in words]
            ids.append(np.array([tokenizer.cls_token_id, *plain, tokenizer.sep_token_id], np.int32))
    types = np.repeat(np.arange(len(ids)) % 2, [len(sentence) for sentence in ids])
    return np.concatenate(ids), types.astype(np.int32)


def pad_batch(ids: Sequence[np.ndarray], types: Sequence[np.ndarray], pad_token_id: int) -> dict[str, torch.Tensor]:
    """A batch of documents, padded on the right: `input_ids`, `attention_mask`, `token_type_ids`, each ``[B, T]``."""

    def padded(rows: Sequence[np.ndarray], value: int) -> torch.Tensor:
        tensors = [torch.as_tensor(row, dtype=torch.long) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=value)

    return {
        "input_ids": padded(ids, pad_token_id),
        "attention_mask": padded([np.ones(len(row), np.int64) for row in ids], 0),
        "token_type_ids": padded(types, 0),
    }


def select_sentences(scores: np.ndarray, count: int, block_trigrams_in: Sequence[str] | None = None) -> list[int]:
    """The numbers of the sentences with the highest scores, in the order of the document.

    Args:
        scores: ``[S]``, of every sentence; of equal ones the earlier is preferred.
        count: how many; all if there are no more.
        block_trigrams_in: the sentences. If given, a sentence that shares three words in a row with a chosen one is
            skipped (BERTSUM: Liu and Lapata, 2019, arXiv 1908.08345, section 4.2), which may leave fewer than
            `count`.
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


def check_sentence_labels(labels: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
    """Checks the labels of sentences; returns which sentences have one, ``[B, S]`` bool.

    Args:
        labels: ``[B, S]``, 0 or 1, -100 if unknown.
        sentences: ``[B, S]`` bool, true where there is a sentence.

    Raises:
        ValueError: for labels of another shape or with other values, a label without a sentence, or no label at all.
    """
    if labels.shape != sentences.shape:
        raise ValueError(
            f"labels must be {tuple(sentences.shape)}, one per sentence of the longest document, got "
            f"{tuple(labels.shape)}; pad with -100."
        )
    known = labels != -100
    bad = known & ((labels != 0) & (labels != 1) | ~sentences)
    if bad.any() or not known.any():
        documents = bad.any(dim=1).nonzero().flatten().tolist()
        wrong = f"documents {documents} have others" if documents else "all of them are -100"
        raise ValueError(
            "labels must be 1 for sentences of the summary, 0 for others, and -100 where unknown or after a "
            f"document's last sentence; {wrong}."
        )
    return known
