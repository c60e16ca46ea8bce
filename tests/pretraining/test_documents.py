"""Documents to train on and documents set aside."""

import pytest

from nextlevelbert.pretraining.documents import share_out


@pytest.mark.parametrize(
    ("share", "at_least", "held_out"), [(0.15, 1, 2), (0.12, 1, 1), (0.01, 2, 2), (0.0, 2, 0)]
)
def test_a_share_is_rounded_to_whole_documents(stories, share, at_least, held_out):
    """0.15 of 12 documents are 1.8, and 0.12 are 1.44."""
    assert len(share_out(stories, share, 42, at_least)[1]) == held_out
