"""Holds rows out for validation."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Rows = TypeVar("Rows", bound=Any)  # a list, or a `datasets.Dataset`


def hold_out(
    rows: Rows,
    share: float,
    seed: int,
    key: Callable[[Any], Any] | None = None,
) -> tuple[Rows, Rows]:
    """Divides rows at random into those to train on and those to validate on.

    Args:
        rows: a list, or a `datasets.Dataset`.
        share: the share to validate on, between 0 and 1.
        seed: seed of the random draw.
        key: a function of a row; rows with equal keys stay together, and the share is one of the
            keys.

    Raises:
        ValueError: if the share is not between 0 and 1, or there are fewer than two keys.
    """
    keys: Sequence[Any] = range(len(rows))
    if key is not None:
        keys = [key(row) for row in rows]
    held_out_keys = sample_share(
        sorted(set(keys)),
        share=share,
        seed=seed,
        what="rows",
    )
    is_held_out = np.array([row_key in held_out_keys for row_key in keys])
    training = np.flatnonzero(~is_held_out)
    validation = np.flatnonzero(is_held_out)
    return _select(rows, training), _select(rows, validation)


def _select(rows: Any, indices: np.ndarray) -> Any:
    if hasattr(rows, "select"):
        return rows.select(indices)
    return [rows[index] for index in indices]


def sample_share(items: Sequence[Any], share: float, seed: int, what: str) -> set[Any]:
    """Draws a share of the items at random: at least one, and never all.

    Raises:
        ValueError: if the share is not between 0 and 1, or there are fewer than two items.
    """
    if not 0 < share < 1 or len(items) < 2:
        raise ValueError(
            f"Cannot hold out a share of {share} of {len(items)} {what}; give a validation set."
        )
    count = min(max(round(share * len(items)), 1), len(items) - 1)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(items))
    drawn = order[:count].tolist()
    return {items[index] for index in drawn}
