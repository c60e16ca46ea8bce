"""Training on vectors: batches of masked sequences, and of pairs of segments.

Notation for shapes: B sequences in a batch, L positions, D hidden size, N pairs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from ..models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP
from .datasets import SegmentPair, VectorSequence


def draw_vector_mask(
    maskable: np.ndarray,
    key: Sequence[int],
    probability: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Selects maskable positions, each independently with `probability`.

    NextLevelBERT, section 2.2 "Masking".

    Args:
        maskable: bool mask ``[L]``, true at chunk vectors; special vectors are never selected.
        key: seed, epoch and index of the sequence; the same key always draws the same mask.
        probability: share of positions to select; 0.15 in the paper, 0.30 and 0.40 in its Table 4.
        mask_share: share of the selected positions that become [MASK] (1.0 is Table 4's "all
            [MASK]").
        random_share: share of the selected positions that get another vector; the rest stay
            unchanged.

    Returns:
        Three boolean arrays ``[L]``: the selected positions, those of them that become [MASK], and
        those that get another vector.
    """
    rng = np.random.default_rng(list(key))
    selected = maskable & (rng.random(len(maskable)) < probability)
    fate = rng.random(len(maskable))  # decides between [MASK], another vector, and no change
    masked = selected & (fate < mask_share)
    replaced = selected & ~masked & (fate < mask_share + random_share)
    return selected, masked, replaced


def draw_replacements(
    counts: np.ndarray, sequence: int, replaced: np.ndarray, key: Sequence[int]
) -> np.ndarray:
    """Picks another chunk vector for each replaced vector of a sequence.

    The new vector comes from the other sequences of the batch. A batch of one sequence draws from
    the sequence's other vectors; a vector that is alone in its batch is replaced by itself.

    Args:
        counts: number of chunk vectors in each sequence, ``[B]``.
        sequence: index of the sequence in the batch.
        replaced: positions of the replaced vectors among the sequence's chunk vectors, ``[R]``.
        key: seed, epoch and index of the sequence, see `draw_vector_mask`.

    Returns:
        Positions among the batch's chunk vectors, counted row by row, ``[R]``.
    """
    rng = np.random.default_rng([*key, 1])
    start = int(counts[:sequence].sum())
    size = int(counts[sequence])
    total = int(counts.sum())
    if total > size:
        drawn = rng.integers(0, total - size, len(replaced))
        return np.where(drawn < start, drawn, drawn + size)  # skips the sequence's own vectors
    if total == 1:
        return np.zeros(len(replaced), np.int64)

    drawn = rng.integers(0, max(total - 1, 1), len(replaced))
    return np.where(drawn < replaced, drawn, drawn + 1)  # skips the replaced vector itself


def pad_sequences(sequences: Sequence[VectorSequence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pads sequences to the longest one.

    Returns:
        Vectors ``[B, L, D]`` with zeros, and special ids ``[B, L]`` with [PAD], after the shorter
        sequences.
    """
    vectors = pad_sequence([sequence.inputs_embeds for sequence in sequences], batch_first=True)
    special_ids = pad_sequence(
        [sequence.special_ids for sequence in sequences], batch_first=True, padding_value=PAD
    )
    return vectors, special_ids


@dataclass
class DataCollatorForVectorMasking:
    """Pads sequences and masks 15 % of their chunk vectors, 80/10/10.

    Paper, section 2.2 "Masking". The masks depend on each sequence's own key (seed, epoch, index)
    alone, so a resumed run draws the same masks as an uninterrupted run.

    Args:
        probability: share of the chunk vectors to predict.
        mask_share: share of the vectors to predict that become [MASK].
        random_share: share of the vectors to predict that become another vector.

    Returns (on call):
        ``inputs_embeds [B, L, D]`` with replacements put in, ``special_ids [B, L]`` with [MASK]s
        put in, ``labels [B, L, D]`` the original vectors, ``mask_positions [B, L]`` bool, true at
        the positions to predict.

    Raises:
        ValueError: for shares out of range.
    """

    probability: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(
                f"The masking probability must be above 0 and at most 1, got {self.probability}."
            )

        shares = (self.mask_share, self.random_share)
        are_shares = min(shares) >= 0 and sum(shares) <= 1  # false for NaN, too
        if not are_shares:
            raise ValueError(
                f"mask_share and random_share are from 0 to 1 and at most 1 in total, got {shares}."
            )

    def __call__(self, sequences: Sequence[VectorSequence]) -> dict[str, torch.Tensor]:
        labels, special_ids = pad_sequences(sequences)
        maskable = (special_ids == NOT_SPECIAL).numpy()  # [B, L]
        counts = maskable.sum(axis=1)
        chunk_rows, chunk_columns = np.nonzero(maskable)  # of the chunk vectors in the batch

        inputs_embeds = labels.clone()
        mask_positions = torch.zeros(special_ids.shape, dtype=torch.bool)
        for row, sequence in enumerate(sequences):
            key = sequence.mask_key
            selected, masked, replaced = draw_vector_mask(
                maskable[row],
                key,
                probability=self.probability,
                mask_share=self.mask_share,
                random_share=self.random_share,
            )
            mask_positions[row] = torch.from_numpy(selected)
            special_ids[row, torch.from_numpy(masked)] = MASK

            replaced_in_sequence = np.flatnonzero(replaced[maskable[row]])
            drawn_in_batch = draw_replacements(counts, row, replaced_in_sequence, key=key)
            others = labels[chunk_rows[drawn_in_batch], chunk_columns[drawn_in_batch]]
            inputs_embeds[row, torch.from_numpy(replaced)] = others

        return {
            "inputs_embeds": inputs_embeds,
            "special_ids": special_ids,
            "labels": labels,
            "mask_positions": mask_positions,
        }


@dataclass
class DataCollatorForSegmentPairs:
    """Truncates the segments of a batch to one length.

    The length is drawn log-uniformly, so that short segments are as frequent as long ones.

    Returns (on call), for N pairs:
        ``inputs_embeds [N, 2, L, D]``, ``special_ids [N, 2, L]``, ``document_ids [N]``.
    """

    min_segment: int = 4
    max_segment: int = 48

    def __call__(self, pairs: Sequence[SegmentPair]) -> dict[str, torch.Tensor]:
        rng = np.random.default_rng((*pairs[0].key, 1))
        drawn = rng.uniform(math.log(self.min_segment), math.log(self.max_segment + 1))
        length = min(int(math.exp(drawn)), self.max_segment)
        sequences = []
        for pair in pairs:
            for segment in (pair.first, pair.second):
                vectors = F.pad(segment[:length], (0, 0, 1, 1))  # room for [CLS] and [SEP]
                special_ids = torch.full((len(vectors),), NOT_SPECIAL)
                special_ids[0] = CLS
                special_ids[-1] = SEP
                sequences.append(VectorSequence(vectors, special_ids, pair.key))

        vectors, special_ids = pad_sequences(sequences)
        return {
            "inputs_embeds": vectors.unflatten(0, (-1, 2)),
            "special_ids": special_ids.unflatten(0, (-1, 2)),
            "document_ids": torch.tensor([pair.document for pair in pairs]),
        }
