"""Sets of related documents for a CDLM: sampling and masking (sections 2.2, 2.3)."""

import logging
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch

from ..models.processing_cdlm import DOCUMENT, CdlmProcessor
from .collators import draw_vector_mask
from .datasets import EpochDataset, Key

logger = logging.getLogger(__name__)

LEAST_DOCUMENTS = 3  # in a set, as in the paper (section 2.3)


class TokenSequence(NamedTuple):
    """One sequence of documents.

    Attributes:
        input_ids: token ids, ``[L]``.
        maskable: bool mask ``[L]``, false at separators and special tokens.
        mask_key: seed, epoch and index from which the masks of the sequence are drawn.
    """

    input_ids: np.ndarray
    maskable: np.ndarray
    mask_key: Key


def _longest_stretch(max_length: int, document_share: float) -> int:
    """Returns the largest number of tokens of one document in a sequence."""
    # The small number mends rounding: a third of 30 is 10.
    share = int((max_length - 2) * document_share + 1e-6)
    longest = share - 2  # without the separators
    if max_length < 2 + 4 * LEAST_DOCUMENTS or longest < 1 or document_share > 1:
        raise ValueError(
            f"A sequence of {max_length} tokens has no room for {LEAST_DOCUMENTS} documents of"
            f" which each fills at most {document_share:.2f}; give a larger max_length, or another"
            " share."
        )
    return longest


class ClusterDataset(EpochDataset[TokenSequence]):
    """Draws, in every epoch, documents of each set until a sequence is full.

    A document that is longer than its share of a sequence is represented by a stretch of tokens of
    that length, which is also drawn anew in every epoch; the last document of a sequence ends when
    the sequence is full. Within torch's `Subset`, `random_split` or `ConcatDataset`, a stock
    `Trainer` needs ``callbacks=[SetEpochCallback()]`` of `nextlevelbert.training` for new draws.

    Args:
        sets: texts of each set; sets of fewer than three texts are left out (section 2.3).
        processor: processor that lays out the sequences.
        max_length: most tokens in a sequence (default: the limit of the processor).
        related: if false, draws each document of a sequence from another set (the paper's "Rand
            CDLM").
        seed: seed of the random draws.
        document_share: the largest share of a sequence for one document; a third by default, so
            that three documents fit.

    Raises:
        ValueError: there are too few sets, or three documents do not fit a sequence.
    """

    def __init__(
        self,
        sets: Sequence[Sequence[str]],
        processor: CdlmProcessor,
        max_length: int | None = None,
        related: bool = True,
        seed: int = 42,
        document_share: float = 1 / LEAST_DOCUMENTS,
    ) -> None:
        super().__init__(seed)
        if max_length is None:
            max_length = processor.max_length

        self.max_length = max_length
        self.related = related
        large = [texts for texts in sets if len(texts) >= LEAST_DOCUMENTS]
        least_sets = 1
        if not related:
            least_sets = LEAST_DOCUMENTS
        if len(large) < least_sets:
            raise ValueError(
                f"{len(large)} sets have {LEAST_DOCUMENTS} documents; at least {least_sets} are"
                " needed."
            )

        self._longest = _longest_stretch(max_length, document_share)
        tokenizer = processor.tokenizer
        self._special = tokenizer.convert_tokens_to_ids(
            [tokenizer.cls_token, *DOCUMENT, tokenizer.sep_token]
        )
        self._unmaskable = [*self._special, *tokenizer.all_special_ids]
        self._sets = []
        for texts in large:
            pieces = [processor.tokenize(text) for text in texts]
            self._sets.append([np.array(piece.ids, dtype=np.int32) for piece in pieces])

        lengths = np.array([len(ids) for documents in self._sets for ids in documents])
        logger.info(
            "%d sets with %d tokens (%d smaller ones left out); %d documents are truncated to %d"
            " tokens in a sequence.",
            len(large),
            lengths.sum(),
            len(sets) - len(large),
            (lengths > self._longest).sum(),
            self._longest,
        )

    def __len__(self) -> int:
        return len(self._sets)

    def _row(self, index: int, key: Key) -> TokenSequence:
        rng = np.random.default_rng([*key, 2])
        cls, begin, end, sep = self._special
        ids = [cls]
        room = self.max_length - 2
        for document in self._documents(index, rng):
            if room < 3:  # not even for one token between separators
                break
            latest_start = max(len(document) - self._longest, 0)
            start = int(rng.integers(0, latest_start + 1))
            count = min(self._longest, room - 2)
            stretch = document[start : start + count]
            ids += [begin, *stretch, end]
            room -= len(stretch) + 2

        ids.append(sep)

        input_ids = np.array(ids)
        maskable = ~np.isin(input_ids, self._unmaskable)
        return TokenSequence(input_ids=input_ids, maskable=maskable, mask_key=key)

    def _documents(self, index: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yields documents in the order in which they fill a sequence."""
        documents = self._sets[index]
        if self.related:
            for chosen in rng.permutation(len(documents)):
                yield documents[chosen]
        else:
            # At most as many documents, each of another set.
            for other in rng.permutation(len(self._sets))[: len(documents)]:
                yield self._sets[other][int(rng.integers(len(self._sets[other])))]


class DataCollatorForCrossDocumentMasking:
    """Masks 15 % of the words, 80/10/10, and gives them global attention (CDLM, section 2.2).

    Separators and special tokens are never masked. The masks depend on each sequence's own key
    alone.

    Args:
        processor: processor that pads the batch.
        pattern: tokens with global attention: the tokens to predict (``"masked"``), as many first
            tokens (``"prefix"``), or none (``"none"``).
        mlm_probability: share of the words to predict.

    Returns (on call):
        `input_ids`, `attention_mask`, `global_attention_mask` and `labels` (-100 elsewhere), ``[B,
        L]`` each.
    """

    def __init__(
        self,
        processor: CdlmProcessor,
        pattern: Literal["masked", "prefix", "none"] = "masked",
        mlm_probability: float = 0.15,
    ) -> None:
        self.processor = processor
        self.pattern = pattern
        self.mlm_probability = mlm_probability
        tokenizer = processor.tokenizer
        self._words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)

    def __call__(self, sequences: Sequence[TokenSequence]) -> dict[str, torch.Tensor]:
        """Makes a masked batch."""
        rows = [self._masked_row(sequence) for sequence in sequences]
        return dict(self.processor.pad(rows))

    def _masked_row(self, sequence: TokenSequence) -> dict[str, np.ndarray]:
        ids = np.array(sequence.input_ids)
        selected, masked, replaced = draw_vector_mask(
            sequence.maskable, sequence.mask_key, self.mlm_probability
        )
        labels = np.where(selected, ids, -100)
        ids[masked] = self.processor.tokenizer.mask_token_id
        rng = np.random.default_rng([*sequence.mask_key, 1])
        ids[replaced] = rng.choice(self._words, int(replaced.sum()))

        if self.pattern == "masked":
            global_mask = selected
        elif self.pattern == "prefix":
            count = round(self.mlm_probability * len(ids))
            global_mask = np.arange(len(ids)) < count
        else:
            global_mask = np.zeros_like(selected)

        return {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "global_attention_mask": global_mask,
            "labels": labels,
        }
