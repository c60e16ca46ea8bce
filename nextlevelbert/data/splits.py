"""Holds rows out for validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def hold_out(
    rows: Sequence[Any], share: float, seed: int, key: Any = None
) -> tuple[list[Any], list[Any]]:
    """Divides rows at random into those to train on and those to validate on.

    Args:
        rows: the rows.
        share: the share to validate on, between 0 and 1.
        seed: the seed of the draw.
        key: a function of a row; rows with equal keys stay together.

    Raises:
        ValueError: if the share is not between 0 and 1, or there are fewer than two keys.
    """
    keys: list[Any] = list(range(len(rows)))
    if key is not None:
        keys = [key(row) for row in rows]
    held_out_keys = sample_share(sorted(set(keys)), share, seed=seed, what="rows")
    training = list[Any]()
    validation = list[Any]()
    for row, row_key in zip(rows, keys, strict=True):
        if row_key in held_out_keys:
            validation.append(row)
        else:
            training.append(row)
    return training, validation


def sample_share(items: Sequence[Any], share: float, seed: int, what: str) -> set[Any]:
    """Draws a share of the items at random: at least one, and never all.

    Args:
        items: what to draw from.
        share: the share to draw, between 0 and 1.
        seed: the seed of the draw.
        what: what the items are, for the error.

    Raises:
        ValueError: if the share is not between 0 and 1, or there are fewer than two items.
    """
    if not 0 < share < 1 or len(items) < 2:
        raise ValueError(
            f"Cannot hold out a share of {share} of {len(items)} {what}; give a validation set."
        )
    count = min(max(round(share * len(items)), 1), len(items) - 1)
    order = np.random.default_rng(seed).permutation(len(items))
    return {items[number] for number in order[:count].tolist()}
