"""Masked vector modelling: from encoded documents to sequences, masked batches and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import torch
from torch.utils.data import Dataset

from ..corpus import VectorCorpus
from ..evaluation.masked_vectors import context_mean_baseline, masked_vector_scores, summarize
from ..models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP
from .masking import draw_replacements, draw_vector_mask

if TYPE_CHECKING:  # importing it brings peft
    from transformers import EvalPrediction


def chosen_documents(corpus: VectorCorpus, documents: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """Positions of documents in a corpus, all of them by default.

    Raises:
        ValueError: for anything that is no position.
    """
    chosen = np.arange(len(corpus)) if documents is None else np.asarray(documents)
    if chosen.dtype.kind not in "iu" or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(corpus)):
        raise ValueError(f"documents must be numbers from 0 to {len(corpus) - 1}, got {chosen!r}.")
    return chosen


class VectorSequence(TypedDict):
    """One sequence: ``inputs_embeds [L, D]`` float16, ``special_ids [L]`` (-1 at chunk vectors), key of its masks."""

    inputs_embeds: torch.Tensor
    special_ids: torch.Tensor
    mask_key: tuple[int, ...]


class VectorSequenceDataset(Dataset):
    """Sequences of chunk vectors for masked vector modelling, each with the key that its masks are drawn by.

    Args:
        corpus: where the vectors are.
        sequence_length: most positions in a sequence, special vectors counted (512 in NextLevelBERT's paper).
        documents: positions of the documents to use, all by default.
        seed: of the masks drawn over these sequences.

    Attributes:
        epoch: set it at the start of an epoch (`SetEpochCallback` does) to draw new masks.
    """

    least_positions = 2

    def __init__(
        self,
        corpus: VectorCorpus,
        sequence_length: int = 512,
        documents: Sequence[int] | np.ndarray | None = None,
        seed: int = 42,
    ) -> None:
        if sequence_length < self.least_positions:
            raise ValueError(
                f"sequence_length counts special vectors, too; got {sequence_length}, give at least "
                f"{self.least_positions}."
            )
        self.corpus, self.sequence_length, self.seed, self.epoch = corpus, sequence_length, seed, 0
        chosen = chosen_documents(corpus, documents)
        self._first_chunks = corpus.document_offsets[chosen]
        self._lengths = corpus.document_offsets[chosen + 1] - self._first_chunks
        if self._lengths.sum() == 0:
            raise ValueError(f"{corpus!r} has no chunk in the chosen documents; there is nothing to learn from.")

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> VectorSequence:
        raise NotImplementedError

    def _check(self, index: int) -> None:
        if not 0 <= index < len(self):
            raise IndexError(f"Sequence {index} is not among the {len(self)} of this dataset.")

    def _sequence(self, vectors: torch.Tensor, special_ids: torch.Tensor, index: int) -> VectorSequence:
        return {"inputs_embeds": vectors, "special_ids": special_ids, "mask_key": (self.seed, self.epoch, index)}


class PackedVectorDataset(VectorSequenceDataset):
    """Documents back to back, [SEP] after each, cut into sequences of equal length with [CLS] in front.

    As the authors of NextLevelBERT packed them (paper, section 2.2): a sequence starts anywhere inside a
    document, can hold several, and attention crosses their borders. Nothing is dropped: the last sequence is
    shorter. Arguments as in `VectorSequenceDataset`.
    """

    least_positions = 3

    @cached_property
    def _stream(self) -> np.ndarray:
        """Place of each document; +1 for its [SEP]."""
        return np.append(0, np.cumsum(self._lengths + 1))

    def __len__(self) -> int:
        return -(-int(self._stream[-1]) // (self.sequence_length - 1))

    def __getitem__(self, index: int) -> VectorSequence:
        self._check(index)
        start = index * (self.sequence_length - 1)
        stop = min(start + self.sequence_length - 1, int(self._stream[-1]))
        vectors = torch.zeros(stop - start + 1, self.corpus.hidden_size, dtype=torch.float16)
        special_ids = torch.full((len(vectors),), NOT_SPECIAL, dtype=torch.long)
        special_ids[0] = CLS
        document = int(np.searchsorted(self._stream, start, side="right")) - 1
        while start < stop:
            begin, end = int(self._stream[document]), int(self._stream[document + 1])
            place = start - index * (self.sequence_length - 1) + 1
            chunks = min(stop, end - 1) - start
            if chunks > 0:
                first = int(self._first_chunks[document]) + start - begin
                vectors[place : place + chunks] = self.corpus.vectors(first, first + chunks)
            if stop >= end:
                special_ids[place + max(chunks, 0)] = SEP
            start, document = min(stop, end), document + 1
        return self._sequence(vectors, special_ids, index)


class DocumentVectorDataset(VectorSequenceDataset):
    """[CLS] and the vectors of one document a sequence, as HATE reads them ("HATE Model Architecture").

    A document that is longer than a sequence is cut into the fewest pieces of nearly equal length; one without a
    chunk is left out. Arguments as in `VectorSequenceDataset`.
    """

    @cached_property
    def _first_pieces(self) -> np.ndarray:
        """Number of each document's first piece."""
        return np.append(0, np.cumsum(-(-self._lengths // (self.sequence_length - 1))))

    def __len__(self) -> int:
        return int(self._first_pieces[-1])

    def __getitem__(self, index: int) -> VectorSequence:
        self._check(index)
        document = int(np.searchsorted(self._first_pieces, index, side="right")) - 1
        begin, end = int(self._first_pieces[document]), int(self._first_pieces[document + 1])
        start, stop = (
            int(self._lengths[document]) * part // (end - begin) for part in (index - begin, index - begin + 1)
        )
        first = int(self._first_chunks[document])
        vectors = torch.zeros(stop - start + 1, self.corpus.hidden_size, dtype=torch.float16)
        vectors[1:] = self.corpus.vectors(first + start, first + stop)
        special_ids = torch.full((len(vectors),), NOT_SPECIAL, dtype=torch.long)
        special_ids[0] = CLS
        return self._sequence(vectors, special_ids, index)


def pad_sequences(sequences: Sequence[VectorSequence]) -> dict[str, torch.Tensor]:
    """``inputs_embeds [B, L, D]`` and ``special_ids [B, L]``: zeros and [PAD] after the shorter sequences."""
    width = max(len(sequence["special_ids"]) for sequence in sequences)
    first = sequences[0]["inputs_embeds"]
    vectors = torch.zeros(len(sequences), width, first.shape[-1], dtype=first.dtype)  # [B, L, D]
    special_ids = torch.full((len(sequences), width), PAD, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        vectors[row, : len(sequence["special_ids"])] = sequence["inputs_embeds"]
        special_ids[row, : len(sequence["special_ids"])] = sequence["special_ids"]
    return {"inputs_embeds": vectors, "special_ids": special_ids}


@dataclass
class DataCollatorForVectorMasking:
    """Pads sequences and masks 15 % of their chunk vectors, 80/10/10 (paper, section 2.2 "Masking").

    The masks depend on each sequence's own key (seed, epoch, index) alone, never on a global state, so
    a resumed run sees what a straight one saw.

    Args:
        probability: share of the chunk vectors to select.
        mask_share, random_share: of the selected; see `draw_vector_mask`.

    Returns (on call):
        ``inputs_embeds [B, L, D]`` with replacements put in, ``special_ids [B, L]`` with [MASK]s put in,
        ``labels [B, L, D]`` the vectors as they were, ``mask_positions [B, L]`` bool, where to predict.
    """

    probability: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"The masking probability must be above 0 and at most 1, got {self.probability}.")
        shares = (self.mask_share, self.random_share)
        if not (all(share >= 0 for share in shares) and sum(shares) <= 1):  # NaN, too
            raise ValueError(
                "mask_share and random_share must not be negative, and must not exceed 1 in total, got "
                f"{self.mask_share} and {self.random_share}."
            )

    def described(self, loss: str) -> str:
        """The objective in words."""
        return f"{loss} over {self.probability:.0%} of the vectors"

    def __call__(self, sequences: Sequence[VectorSequence]) -> dict[str, torch.Tensor]:
        padded = pad_sequences(sequences)
        labels, special_ids = padded["inputs_embeds"], padded["special_ids"]
        maskable = (special_ids == NOT_SPECIAL).numpy()  # [B, L]
        counts = maskable.sum(axis=1)
        real_rows, real_columns = np.nonzero(maskable)
        inputs_embeds = labels.clone()
        mask_positions = torch.zeros(special_ids.shape, dtype=torch.bool)
        for row, sequence in enumerate(sequences):
            key = sequence["mask_key"]
            mask = draw_vector_mask(maskable[row], key, self.probability, self.mask_share, self.random_share)
            mask_positions[row] = torch.from_numpy(mask.selected)
            special_ids[row, torch.from_numpy(mask.masked)] = MASK
            drawn = draw_replacements(counts, row, np.flatnonzero(mask.replaced[maskable[row]]), key)
            inputs_embeds[row, torch.from_numpy(mask.replaced)] = labels[real_rows[drawn], real_columns[drawn]]
        return {
            "inputs_embeds": inputs_embeds,
            "special_ids": special_ids,
            "labels": labels,
            "mask_positions": mask_positions,
        }


class MaskedVectors:
    """The objective of predicting masked chunk vectors, as `vectors.run` uses it.

    Args:
        collator: masks the sequences.
        sequences: how documents become sequences.
        sequence_length: positions in a sequence.
    """

    held_out_at_least = 1
    label_names = ("mask_positions",)  # only these are gathered in evaluation: vectors would fill the memory

    def __init__(
        self, collator: DataCollatorForVectorMasking, sequences: type[VectorSequenceDataset], sequence_length: int
    ) -> None:
        self.collator, self._sequences, self._sequence_length = collator, sequences, sequence_length

    def check(self, window: int, positions: int) -> None:
        """Refuses what the model cannot read at once: `window` chunks, `positions` with special vectors.

        Raises:
            ValueError: for a sequence length above `positions`.
        """
        if self._sequence_length > positions:
            raise ValueError(
                f"--sequence_length {self._sequence_length} is above the {positions} positions that the model reads "
                f"at once; give at most {positions}."
            )

    def dataset(self, corpus: VectorCorpus, documents: np.ndarray | None, seed: int) -> VectorSequenceDataset:
        return self._sequences(corpus, self._sequence_length, documents, seed=seed)

    def baseline(
        self, dataset: VectorSequenceDataset, batch_size: int, prepare: Callable[[torch.Tensor], torch.Tensor]
    ) -> dict[str, float]:
        """Scores of always predicting the mean of the unmasked vectors, see `context_mean_baseline`."""
        return context_mean_baseline((dataset[i] for i in range(len(dataset))), self.collator, batch_size, prepare)

    @staticmethod
    def scores_of_batch(outputs: tuple[torch.Tensor, ...], mask_positions: torch.Tensor) -> torch.Tensor:
        """``[B, 4]``, see `masked_vector_scores`; made before anything is gathered."""
        predictions, targets = outputs[:2]
        return masked_vector_scores(predictions, targets, mask_positions)

    @staticmethod
    def metrics(prediction: EvalPrediction) -> dict[str, float]:
        """Scores of the whole evaluation set."""
        return summarize(torch.as_tensor(prediction.predictions))

    def facts(self, loss: str, items: int) -> dict[str, object]:
        """What a card says of the objective: `loss` over `items` sequences in an epoch."""
        return {
            "objective": self.collator.described(loss),
            "sequences": f"{items} of at most {self._sequence_length} positions",
        }
