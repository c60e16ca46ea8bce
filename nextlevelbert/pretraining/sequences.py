"""Masked vector modelling: from a corpus of vectors to sequences, masked batches and scores.

Notation for shapes: B sequences in a batch, L positions, M selected positions of the batch, D hidden size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from ..corpus import VectorCorpus
from ..models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP


class VectorSequence(NamedTuple):
    """A sequence: vectors ``[L, D]`` float16, special ids ``[L]`` (-1 at chunk vectors), the key of its masks.

    No dict, because `Trainer` removes from dicts what the model's ``forward`` does not name.
    """

    inputs_embeds: torch.Tensor
    special_ids: torch.Tensor
    mask_key: tuple[int, ...]


class VectorSequenceDataset(Dataset, ABC):
    """Sequences of chunk vectors for masked vector modelling, each with the key that its masks are drawn by.

    Args:
        corpus: where the vectors are.
        sequence_length: most positions in a sequence, special vectors counted (512 in NextLevelBERT's paper).
        documents: positions of the documents to use, all by default.
        seed: of the masks drawn over these sequences.

    Raises:
        ValueError: for a sequence length without room for a vector, or documents without chunks.
    """

    def __init__(
        self,
        corpus: VectorCorpus,
        sequence_length: int = 512,
        documents: Sequence[int] | np.ndarray | None = None,
        seed: int = 42,
    ) -> None:
        if sequence_length < 3:
            raise ValueError(f"sequence_length must be at least 3, got {sequence_length}.")
        self.corpus, self.sequence_length, self.seed, self.epoch = corpus, sequence_length, seed, 0
        chosen = np.arange(len(corpus)) if documents is None else np.asarray(documents, np.int64)
        self._first_chunks = corpus.document_offsets[chosen]
        self._lengths = corpus.document_offsets[chosen + 1] - self._first_chunks
        if self._lengths.sum() == 0:
            raise ValueError(f"{corpus!r} has no chunk in the chosen documents; there is nothing to learn from.")

    def set_epoch(self, epoch: int) -> None:
        """Draws other masks; `Trainer` calls this when an epoch begins."""
        self.epoch = epoch

    def _sequence(self, vectors: torch.Tensor, special_ids: torch.Tensor, index: int) -> VectorSequence:
        return VectorSequence(vectors, special_ids, (self.seed, self.epoch, index))

    @abstractmethod
    def __len__(self) -> int:
        """Number of sequences."""

    def _check(self, index: int) -> None:
        if not 0 <= index < len(self):
            raise IndexError(f"Sequence {index} is not among the {len(self)} of this dataset.")

    def _room(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Zeros ``[positions, D]`` and their special ids, [CLS] in front."""
        vectors = torch.zeros(positions, self.corpus.hidden_size, dtype=torch.float16)
        special_ids = torch.full((positions,), NOT_SPECIAL, dtype=torch.long)
        special_ids[0] = CLS
        return vectors, special_ids


class PackedVectorDataset(VectorSequenceDataset):
    """Documents back to back, [SEP] after each, cut into sequences of equal length with [CLS] in front.

    As the authors of NextLevelBERT packed them (paper, section 2.2): a sequence starts anywhere inside a
    document, can hold several, and attention crosses their borders. Nothing is dropped: the last sequence is
    shorter. Arguments as in `VectorSequenceDataset`.
    """

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
        vectors, special_ids = self._room(stop - start + 1)
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
        begin, end = self._first_pieces[document : document + 2].tolist()
        first, length = int(self._first_chunks[document]), int(self._lengths[document])
        start, stop = (length * part // (end - begin) for part in (index - begin, index - begin + 1))
        vectors, special_ids = self._room(stop - start + 1)
        vectors[1:] = self.corpus.vectors(first + start, first + stop)
        return self._sequence(vectors, special_ids, index)


# --- Masks


def draw_vector_mask(
    maskable: np.ndarray,
    key: Sequence[int],
    probability: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Selects each maskable position by itself with `probability` (NextLevelBERT, section 2.2 "Masking").

    Args:
        maskable: ``[L]`` bool, true at chunk vectors; specials are never selected.
        key: seed, epoch and index of the sequence; the same key always draws the same mask.
        probability: 0.15 in the paper; 0.30 and 0.40 in its Table 4.
        mask_share, random_share: of the selected, what becomes [MASK] (1.0 is Table 4's "all [MASK]") or another
            vector; the rest stay unchanged.

    Returns:
        Three boolean arrays ``[L]``: what is selected, and of it what becomes [MASK] and what another vector.
    """
    rng = np.random.default_rng(list(key))
    selected = (rng.random(len(maskable)) < probability) & maskable
    fate = rng.random(len(maskable))
    masked = selected & (fate < mask_share)
    return selected, masked, selected & ~masked & (fate < mask_share + random_share)


def draw_replacements(counts: np.ndarray, sequence: int, replaced: np.ndarray, key: Sequence[int]) -> np.ndarray:
    """Picks another real vector for each replaced one of a sequence, from the other sequences of the batch.

    Args:
        counts: ``[B]`` real vectors of each sequence.
        sequence: the row they are for. A batch of one has no other sequence: it draws from its own others.
        replaced: ``[R]`` which of the sequence's real vectors are replaced, as positions among them.
        key: as for `draw_vector_mask`.

    Returns:
        ``[R]`` positions in the batch's real vectors, counted row by row. A vector that is alone in its
        batch gets itself.
    """
    rng = np.random.default_rng([*key, 1])
    start, size, total = int(counts[:sequence].sum()), int(counts[sequence]), int(counts.sum())
    if total > size:
        drawn = rng.integers(0, total - size, len(replaced))
        return np.where(drawn < start, drawn, drawn + size)
    drawn = rng.integers(0, max(total - 1, 1), len(replaced))
    return np.where((drawn >= replaced) & (total > 1), drawn + 1, drawn)


def pad_sequences(sequences: Sequence[VectorSequence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors ``[B, L, D]`` and special ids ``[B, L]``: zeros and [PAD] after the shorter sequences."""
    vectors = pad_sequence([sequence.inputs_embeds for sequence in sequences], batch_first=True)  # [B, L, D]
    return vectors, pad_sequence([sequence.special_ids for sequence in sequences], True, PAD)


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

    Raises:
        ValueError: for shares that are none.
    """

    probability: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"The masking probability must be above 0 and at most 1, got {self.probability}.")
        shares = (self.mask_share, self.random_share)
        if not (all(share >= 0 for share in shares) and sum(shares) <= 1):  # NaN, too
            raise ValueError(f"mask_share and random_share are from 0 to 1 and at most 1 in total, got {shares}.")

    def __call__(self, sequences: Sequence[VectorSequence]) -> dict[str, torch.Tensor]:
        labels, special_ids = pad_sequences(sequences)
        maskable = (special_ids == NOT_SPECIAL).numpy()  # [B, L]
        counts = maskable.sum(axis=1)
        real_rows, real_columns = np.nonzero(maskable)
        inputs_embeds = labels.clone()
        mask_positions = torch.zeros(special_ids.shape, dtype=torch.bool)
        for row, sequence in enumerate(sequences):
            key = sequence.mask_key
            shares = self.probability, self.mask_share, self.random_share
            selected, masked, replaced = draw_vector_mask(maskable[row], key, *shares)
            mask_positions[row] = torch.from_numpy(selected)
            special_ids[row, torch.from_numpy(masked)] = MASK
            drawn = draw_replacements(counts, row, np.flatnonzero(replaced[maskable[row]]), key)
            inputs_embeds[row, torch.from_numpy(replaced)] = labels[real_rows[drawn], real_columns[drawn]]
        batch = {"inputs_embeds": inputs_embeds, "special_ids": special_ids}
        return {**batch, "labels": labels, "mask_positions": mask_positions}


# --- Scores

SELECTED, COSINE, FOUND, CHANCE = range(4)  # columns of the table that `masked_vector_scores` gives


def masked_vector_scores(
    predictions: torch.Tensor, targets: torch.Tensor, mask_positions: torch.Tensor
) -> torch.Tensor:
    """Sums for each sequence of a batch, so that evaluation keeps four numbers a sequence and no vectors.

    A target is found if no other of the batch's M targets has as high a cosine to the prediction; among k
    that tie for the highest it counts 1 / k, so that a constant prediction scores as chance does.

    Args:
        predictions, targets: ``[M, D]``, in the row-by-row order of `mask_positions`.
        mask_positions: ``[B, L]`` bool.

    Returns:
        ``[B, 4]`` float32: number of selected positions; sums over them of the cosine, of finding the target
        (0 to 1), and of the chance to find it (1 / M).
    """
    sequence = mask_positions.nonzero()[:, 0]
    scores = F.normalize(predictions.float(), dim=-1) @ F.normalize(targets.float(), dim=-1).T  # [M, M]
    cosine = scores.diagonal()
    better = (scores > cosine[:, None]).sum(dim=1)
    tied = (scores == cosine[:, None]).sum(dim=1).clamp(min=1)  # itself too; repeated chunks are told apart by luck
    hits = torch.where(better == 0, 1.0 / tied, 0.0)
    chance = torch.full_like(cosine, 1 / max(len(cosine), 1))
    columns = torch.stack([torch.ones_like(cosine), cosine, hits, chance], dim=1)  # [M, 4]
    return columns.new_zeros(len(mask_positions), 4).index_add(0, sequence, columns)


def summarize(scores: torch.Tensor) -> dict[str, float]:
    """Means over all selected positions: ``masked_cosine``, ``masked_accuracy``, ``chance_accuracy``."""
    total = scores.sum(dim=0).tolist()
    names = {"masked_cosine": COSINE, "masked_accuracy": FOUND, "chance_accuracy": CHANCE}
    return {name: total[column] / max(total[SELECTED], 1.0) for name, column in names.items()}


def context_mean_baseline(
    sequences: Iterable[VectorSequence],
    collate: Callable[[list[VectorSequence]], dict[str, torch.Tensor]],
    batch_size: int,
    prepare: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> dict[str, float]:
    """The same scores for the mean of the sequence's unmasked vectors, which a model that uses their order must beat.

    Args:
        sequences, collate, batch_size: as in the evaluation: masks and the pool to search are those of its batches.
        prepare: what the model does to chunk vectors before it reads and predicts them (whitening).
    """
    remaining, tables = iter(sequences), []
    while rows := list(islice(remaining, batch_size)):
        batch = collate(rows)
        visible = (batch["special_ids"] == NOT_SPECIAL) & ~batch["mask_positions"]  # [B, L]
        labels = batch["labels"].float() if prepare is None else prepare(batch["labels"].float())
        mean = (labels * visible.unsqueeze(-1)).sum(dim=1) / visible.sum(dim=1, keepdim=True).clamp(min=1)  # [B, D]
        sequence = batch["mask_positions"].nonzero()[:, 0]
        tables.append(masked_vector_scores(mean[sequence], labels[batch["mask_positions"]], batch["mask_positions"]))
    return summarize(torch.cat(tables))
