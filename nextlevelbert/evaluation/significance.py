"""Whether one system is better than another on the same items: bootstrap and permutation test (Dror et al., 2018).

Both are SciPy's. Items are what a score is made of: rows where it is a mean, or topics where it needs all mentions of
one, as CoNLL F1 does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import stats

Item = TypeVar("Item")


@dataclass(frozen=True)
class Comparison:
    """One system against another.

    Attributes:
        first, second: their scores over all items.
        interval: of 95 % of the difference (first minus second), by resampling the items 10,000 times.
        bootstrap_p: share of these resamples, both tails together, in which the sign of the difference turns.
        permutation_p: two-sided; how often the difference is as large if the two are exchanged item by item at random.
        items: how many.
    """

    first: float
    second: float
    interval: tuple[float, float]
    bootstrap_p: float
    permutation_p: float
    items: int


def compare(
    first: Sequence[Item],
    second: Sequence[Item],
    score: Callable[[Sequence[Item]], float] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compares two systems on the same items.

    Args:
        first, second: for each item what the system made of it, in the same order: numbers, or what `score` takes.
        score: of a system on some items; their mean by default.
        resamples: of bootstrap and permutation test.
        seed: of both.

    Raises:
        ValueError: for fewer than two items, or other numbers of them.

    Example:
        >>> found = compare([1, 1, 1, 0, 1, 1, 1, 1], [0, 1, 0, 0, 0, 1, 0, 0])
        >>> round(found.first - found.second, 3), round(found.permutation_p, 3)
        (0.625, 0.062)
    """
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(f"Give at least two items, the same for both systems; got {len(first)} and {len(second)}.")
    items = [*first, *second]

    def of_score(some: Sequence[Any]) -> float:
        return float(np.mean(some) if score is None else score(some))

    def difference(one: np.ndarray, other: np.ndarray) -> float:
        return of_score([items[number] for number in one]) - of_score([items[number] for number in other])

    numbers = np.arange(len(first))
    rng = np.random.default_rng(seed)
    drawn = stats.bootstrap(
        (numbers,),
        lambda chosen: difference(chosen, chosen + len(first)),
        vectorized=False,
        n_resamples=resamples,
        method="percentile",
        random_state=rng,
    )
    turned = np.asarray(drawn.bootstrap_distribution)
    permuted = stats.permutation_test(
        (numbers, numbers + len(first)),
        difference,
        permutation_type="samples",
        vectorized=False,
        n_resamples=resamples,
        random_state=rng,
    )
    return Comparison(
        first=of_score(first),
        second=of_score(second),
        interval=(float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)),
        bootstrap_p=min(1.0, 2 * min(float(np.mean(turned <= 0)), float(np.mean(turned >= 0)))),
        permutation_p=float(permuted.pvalue),
        items=len(first),
    )
