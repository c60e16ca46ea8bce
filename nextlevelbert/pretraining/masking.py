"""Draws masks; pure functions of a key, so that a resumed run repeats an uninterrupted one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class VectorMask:
    """What happens to the positions of one sequence: three disjoint boolean arrays ``[L]``.

    Attributes:
        masked: becomes the [MASK] vector.
        replaced: becomes another chunk vector.
        kept: stays as it is, but has to be predicted.
    """

    masked: np.ndarray
    replaced: np.ndarray
    kept: np.ndarray

    @property
    def selected(self) -> np.ndarray:
        return self.masked | self.replaced | self.kept


def draw_vector_mask(
    maskable: np.ndarray,
    key: Sequence[int],
    probability: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
) -> VectorMask:
    """Selects each maskable position by itself with `probability` (NextLevelBERT, section 2.2 "Masking").

    Args:
        maskable: ``[L]`` bool, true at chunk vectors; specials are never selected.
        key: seed, epoch and index of the sequence; the same key always draws the same mask.
        probability: 0.15 in the paper; 0.30 and 0.40 in its Table 4.
        mask_share: share of the selected that become [MASK]; 1.0 is Table 4's "all [MASK]".
        random_share: share that become another vector; the rest stay unchanged.
    """
    rng = np.random.default_rng(list(key))
    selected = (rng.random(len(maskable)) < probability) & maskable
    fate = rng.random(len(maskable))
    masked = selected & (fate < mask_share)
    replaced = selected & ~masked & (fate < mask_share + random_share)
    return VectorMask(masked=masked, replaced=replaced, kept=selected & ~masked & ~replaced)


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
    start, own, total = int(counts[:sequence].sum()), int(counts[sequence]), int(counts.sum())
    if total > own:
        drawn = rng.integers(0, total - own, len(replaced))
        return np.where(drawn < start, drawn, drawn + own)
    drawn = rng.integers(0, max(total - 1, 1), len(replaced))
    return np.where((drawn >= replaced) & (total > 1), drawn + 1, drawn)
