"""Rows held out: the same ones by the same seed, and neither side empty."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextlevelbert.data.splits import hold_out, sample_share


def test_a_seed_always_holds_out_the_same():
    assert hold_out(range(7), 0.4, 42) == ([0, 1, 4, 5], [2, 3, 6])


@settings(deadline=None)
@given(st.integers(2, 60), st.floats(0.001, 0.999), st.integers(0, 2**32))
def test_neither_side_is_ever_empty(total, share, seed):
    held = sample_share(range(total), share, seed, "rows")

    assert 1 <= len(held) < total
    assert abs(len(held) - share * total) <= 1
    for share, total in ((0, 3), (1, 3), (0.5, 1)):
        with pytest.raises(ValueError, match="Cannot hold out"):
            sample_share(range(total), share, seed, "rows")
