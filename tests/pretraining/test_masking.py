"""What is masked, what it becomes, and that a key always draws the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextlevelbert.pretraining.masking import draw_replacements, draw_vector_mask


def test_the_paper_s_shares():
    maskable = np.ones(200_000, bool)
    maskable[::10] = False
    mask = draw_vector_mask(maskable, (1, 2, 3))
    assert not (mask.selected & ~maskable).any()
    assert not (mask.masked & mask.replaced | mask.masked & mask.kept | mask.replaced & mask.kept).any()
    selected = mask.selected.sum()
    # Four standard deviations of a binomial: a wrong share of one percent fails.
    assert selected / maskable.sum() == pytest.approx(0.15, abs=0.0034)
    assert mask.masked.sum() / selected == pytest.approx(0.8, abs=0.01)
    assert mask.replaced.sum() / selected == pytest.approx(0.1, abs=0.0075)


def test_all_mask_selects_nothing_else():
    mask = draw_vector_mask(np.ones(1_000, bool), (0,), probability=0.4, mask_share=1.0, random_share=0.0)
    assert mask.masked.sum() == mask.selected.sum() > 300


def test_a_key_draws_the_same_and_another_key_something_else():
    draw = [draw_vector_mask(np.ones(100, bool), key).selected for key in ((7, 0, 3), (7, 0, 3), (7, 1, 3), (7, 0, 4))]
    assert (draw[0] == draw[1]).all()
    assert (draw[0] != draw[2]).any()
    assert (draw[0] != draw[3]).any()


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=5), data=st.data())
def test_replacements_come_from_other_sequences(counts, data):
    counts = np.array(counts)
    row = data.draw(st.integers(0, len(counts) - 1))
    replaced = np.array(sorted(data.draw(st.sets(st.integers(0, counts[row] - 1))) if counts[row] else []), int)
    drawn = draw_replacements(counts, row, replaced, (1, 2))
    start = counts[:row].sum()
    own = (drawn >= start) & (drawn < start + counts[row])
    assert len(drawn) == len(replaced)
    assert ((drawn >= 0) & (drawn < max(counts.sum(), 1))).all()
    assert own.all() if counts.sum() == counts[row] else not own.any()
    if counts.sum() > 1:
        assert (drawn != start + replaced).all()  # never by itself
