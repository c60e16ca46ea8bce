"""Labelled sets: documents that are held out."""

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from nextlevelbert.data.sets import distinct_texts, hold_out_documents


def ids_of(data):
    return data["id"][:]


def data_of(owners):
    """A row for each owner, the number of its document."""
    rows = [{"id": f"e{n}", "text": f"document {owner}"} for n, owner in enumerate(owners)]
    return Dataset.from_list(rows)


OWNERS = st.lists(st.integers(0, 12), min_size=2, max_size=40).filter(
    lambda owners: len(set(owners)) > 1
)


def assert_split(data, parts):
    """Nothing is on both sides or lost, and the rows stay in their order."""
    one, other = parts
    assert sorted(ids_of(one) + ids_of(other)) == sorted(ids_of(data))
    assert not set(distinct_texts(one)) & set(distinct_texts(other))
    for part in parts:
        assert len(part) > 0
        kept = set(ids_of(part))
        assert ids_of(part) == [name for name in ids_of(data) if name in kept]


@settings(max_examples=10, deadline=None)
@given(OWNERS, st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_documents_are_held_out(owners, share, seed):
    data = data_of(owners)
    parts = hold_out_documents(data, share, seed)
    assert_split(data, parts)

    assert abs(len(distinct_texts(parts[1])) - share * len(distinct_texts(data))) <= 1


def test_a_seed_always_holds_out_the_same():
    data = Dataset.from_dict({"text": list("abcdefg")})

    training, validation = hold_out_documents(data, 0.4, 42)

    assert (training["text"][:], validation["text"][:]) == (list("abef"), list("cdg"))


@pytest.mark.parametrize(("share", "total"), [(0, 3), (1, 3), (0.5, 1)])
def test_a_share_that_leaves_one_side_empty_is_refused(share, total):
    data = Dataset.from_dict({"text": list("abc")[:total]})

    with pytest.raises(ValueError, match="Cannot hold out"):
        hold_out_documents(data, share, 0)
