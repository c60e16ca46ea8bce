"""Documents in BERTSUM's format: each sentence as [CLS] words [SEP], with types 0 and 1 in turn.

See the paper's section "BERTSUM".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from .text_sentences import text_sentences
from .tokenizing import private_tokenizer

_WORD = re.compile(r"\w+")
_SENTENCES_PER_CALL = 1024  # the tokenizer keeps much more for each token than its id


@dataclass(frozen=True)
class ExtractiveSummary:
    """Holds the chosen sentences in the order of the document; `str()` puts each on a line.

    Attributes:
        sentences: the chosen sentences.
        indices: positions of the sentences in the document, from 0.
        spans: characters of the sentences in the text, or in the list joined by line breaks.
        scores: scores of all sentences of the document, from 0 to 1.
    """

    sentences: list[str]
    indices: list[int]
    spans: list[tuple[int, int]]
    scores: list[float]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def split_document(document: str | Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Splits a document into sentences.

    Returns:
        The text (a list is joined by line breaks), and the span of each sentence: the first
        character, and one past the last.

    Raises:
        ValueError: the document has no words, or a sentence of the list is blank or no text.
    """
    if isinstance(document, str):
        text = document
        spans = text_sentences(text)
    else:
        spans = []
        start = 0
        for index, sentence in enumerate(document):
            if not isinstance(sentence, str) or not sentence.strip():
                raise ValueError(
                    f"Sentence {index} of the document (from 0) is blank or not a str. Leave it"
                    " out."
                )

            end = start + len(sentence)
            spans.append((start, end))
            start = end + 1

        text = "\n".join(document)

    if not spans:
        raise ValueError("The document has no words. Give at least one sentence.")
    return text, spans


def encode_sentences(
    sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> tuple[np.ndarray, np.ndarray]:
    """Encodes a document in BERTSUM's format.

    Words that spell a special token ("[CLS]") are read as words. If a tokenizer cannot do that, a
    word that would start a sentence becomes the unknown word.

    Returns:
        Token ids and token types of the whole document, ``[T]`` int32 each.
    """
    cls_id = tokenizer.cls_token_id
    replaced = {cls_id: tokenizer.unk_token_id}
    encoded = []
    for first in range(0, len(sentences), _SENTENCES_PER_CALL):
        batch = list(sentences[first : first + _SENTENCES_PER_CALL])
        for ids in _ids_without_specials(batch, tokenizer):
            words = [replaced.get(word, word) for word in ids]
            encoded.append(np.array([cls_id, *words, tokenizer.sep_token_id], np.int32))

    lengths = [len(row) for row in encoded]
    types = np.repeat(np.arange(len(encoded)) % 2, lengths)
    return np.concatenate(encoded), types.astype(np.int32)


def _ids_without_specials(
    sentences: list[str], tokenizer: PreTrainedTokenizerBase
) -> list[list[int]]:
    """Returns the ids of each sentence; a word that spells a special token is read as a word."""
    if tokenizer.is_fast:
        private = private_tokenizer(tokenizer, split_special_tokens=True)
        return [document.input_ids.tolist() for document in private(sentences)]
    # A tokenizer written in Python keeps no padding from other calls.
    batch = tokenizer(sentences, add_special_tokens=False, verbose=False, split_special_tokens=True)
    return batch["input_ids"]


def pad_batch(
    documents: Sequence[tuple[np.ndarray, np.ndarray]], pad_token_id: int
) -> dict[str, torch.Tensor]:
    """Makes a batch of encoded documents, padded on the right.

    Returns:
        Ids, mask and types, ``[B, T]`` each, by the names of the model's arguments.
    """
    ids = [torch.as_tensor(row, dtype=torch.long) for row, _ in documents]
    types = [torch.as_tensor(row, dtype=torch.long) for _, row in documents]
    real = [torch.ones_like(row) for row in ids]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_token_id),
        "attention_mask": pad_sequence(real, batch_first=True),
        "token_type_ids": pad_sequence(types, batch_first=True),
    }


def select_sentences(
    scores: np.ndarray, count: int, block_trigrams_in: Sequence[str] | None = None
) -> list[int]:
    """Selects the sentences with the highest scores.

    Args:
        scores: score of each sentence, ``[S]``; of two equal scores, the earlier sentence comes
            first.
        count: number of sentences to select.
        block_trigrams_in: the sentences of the document. If given, a sentence that shares three
            words in a row with a selected sentence is skipped (BERTSUM: Liu and Lapata, 2019, arXiv
            1908.08345, section 4.2). This may leave fewer sentences.

    Returns:
        The indices of the sentences, in order.
    """
    chosen: list[int] = []
    chosen_trigrams: set[tuple[str, ...]] = set()
    for index in np.argsort(-np.asarray(scores), kind="stable").tolist():
        if len(chosen) == count:
            break
        if block_trigrams_in is not None:
            words = _WORD.findall(block_trigrams_in[index].lower())
            trigrams = set(zip(words, words[1:], words[2:], strict=False))
            if trigrams & chosen_trigrams:
                continue
            chosen_trigrams |= trigrams

        chosen.append(index)

    return sorted(chosen)
