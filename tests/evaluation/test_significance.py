"""Bootstrap and permutation test against values that can be counted, and t-tests of SciPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from nextlevelbert.evaluation.significance import compare


def test_the_permutation_test_counts_all_exchanges_of_few_items():
    first, second = [0.9, 0.8, 0.7, 0.9, 0.6], [0.1, 0.4, 0.6, 0.8, 0.5]
    observed = np.mean(first) - np.mean(second)
    signs = itertools.product([1, -1], repeat=5)
    as_large = [abs(np.mean(np.array(sign) * np.subtract(first, second))) >= observed - 1e-12 for sign in signs]
    found = compare(first, second)
    assert found.permutation_p == pytest.approx(np.mean(as_large))
    assert (found.first, found.second, found.items) == (pytest.approx(0.78), pytest.approx(0.48), 5)


def test_the_interval_is_that_of_a_paired_t_test_on_many_items():
    rng = np.random.default_rng(0)
    second = rng.normal(size=400)
    first = second + rng.normal(0.1, 0.5, size=400)
    found = compare(list(first), list(second), resamples=4_000)
    exact = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert found.interval == pytest.approx((exact.low, exact.high), abs=0.01)
    assert found.permutation_p == pytest.approx(stats.ttest_rel(first, second).pvalue, abs=0.01)
    assert found.bootstrap_p == pytest.approx(found.permutation_p, abs=0.01)


def test_a_score_that_is_no_mean():
    """The largest value of the items that were drawn: exchanging systems exchanges them."""
    found = compare([3, 1, 1, 1], [1, 1, 1, 2], max, resamples=500)
    assert (found.first, found.second) == (3, 2)
    assert found.permutation_p == 1.0


def test_equal_systems_do_not_differ():
    found = compare([1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    assert (found.interval, found.bootstrap_p, found.permutation_p) == ((0.0, 0.0), 1.0, 1.0)


def test_what_cannot_be_compared():
    with pytest.raises(ValueError, match="at least two items, the same for both systems; got 2 and 3"):
        compare([1, 2], [1, 2, 3])
