"""From documents to packed sequences and pairs of segments."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nextlevelbert import (
    DataCollatorForSegmentPairs,
    DocumentVectorDataset,
    PackedVectorDataset,
    SegmentPairDataset,
)
from nextlevelbert.models.configuration_nextlevelbert import CLS, NOT_SPECIAL, SEP
from nextlevelbert.pretraining.datasets import SegmentPair

from ..toys.vectors import rows_of


def joined(rows) -> tuple[torch.Tensor, torch.Tensor]:
    """Special ids and vectors of all rows, without what stands first in each."""
    special_ids = torch.cat([row.special_ids[1:] for row in rows])
    return special_ids, torch.cat([row.inputs_embeds[1:] for row in rows])


@settings(deadline=None, max_examples=30)
@given(length=st.integers(3, 80))
def test_packing_keeps_every_chunk_and_closes_every_document(corpus, length):
    rows = rows_of(PackedVectorDataset(corpus, length))

    assert {len(row.special_ids) for row in rows[:-1]} <= {length}
    for row in rows:
        assert row.special_ids[0] == CLS
    specials, vectors = joined(rows)
    ends = specials == SEP
    assert torch.equal(~ends, specials == NOT_SPECIAL)
    assert torch.equal(vectors[~ends], corpus.vectors(0, corpus.num_chunks))
    assert (vectors[ends] == 0).all()
    # Each [SEP] directly after its document.
    chunks_before = ends.nonzero().flatten() - torch.arange(len(corpus))
    assert chunks_before.tolist() == corpus.document_offsets[1:].tolist()


def test_a_choice_of_documents(corpus):
    dataset = PackedVectorDataset(corpus, 16, documents=[1, 3])
    specials, vectors = joined(rows_of(dataset))
    chosen = torch.cat([corpus[1].plain, corpus[3].plain])

    assert torch.equal(vectors[specials == NOT_SPECIAL], chosen)
    with pytest.raises(IndexError, match="is not among"):
        dataset[len(dataset)]
    with pytest.raises(ValueError, match="sequence_length"):
        PackedVectorDataset(corpus, 2)


@settings(deadline=None, max_examples=30)
@given(length=st.integers(3, 40))
def test_a_document_is_cut_into_the_fewest_pieces_of_nearly_equal_length(corpus, length):
    rows = iter(rows_of(DocumentVectorDataset(corpus, length)))

    for document in corpus:
        vectors = []
        for _ in range(-(-len(document.plain) // (length - 1))):
            row = next(rows)
            vectors.append(row.inputs_embeds[1:])
            assert row.special_ids.tolist() == [CLS, *[NOT_SPECIAL] * len(vectors[-1])]
        assert torch.equal(torch.cat(vectors), document.plain)
        sizes = list(map(len, vectors))
        assert max(sizes) - min(sizes) <= 1
    assert list(rows) == []


def places(stories, pair):
    """Where both segments start in their document; the vectors of a toy document are all
    different."""
    vectors = stories[pair.document].plain
    return [
        int((vectors == segment[0]).all(dim=1).nonzero()) for segment in (pair.first, pair.second)
    ]


def test_segments_are_runs_of_the_stories_that_share_no_chunk(stories):
    dataset = SegmentPairDataset(stories, 2, 12)
    seen = set()
    orders = set()
    for epoch in range(6):
        dataset.set_epoch(epoch)
        for pair in rows_of(dataset):
            vectors = stories[pair.document].plain
            a, b = places(stories, pair)
            width = len(pair.first)
            assert width == len(pair.second) == min(12, len(vectors) // 2)
            assert torch.equal(pair.first, vectors[a : a + width])
            assert torch.equal(pair.second, vectors[b : b + width])
            assert abs(b - a) >= width
            seen.add(pair.document)
            orders.add(a < b)

    assert seen == set(range(12)) - {5}  # which has one chunk
    assert orders == {True, False}


def test_segments_lie_anywhere_from_the_first_chunk_to_the_last(stories):
    dataset = SegmentPairDataset(stories, 2, 6, documents=[0, 1])
    room = len(stories[0].plain) - 2 * 6
    firsts = set()

    seconds = set()

    assert room > 2
    for epoch in range(400):
        dataset.set_epoch(epoch)
        first, second = sorted(places(stories, dataset[0]))
        firsts.add(first)
        seconds.add(second)
    assert firsts == set(range(room + 1))
    assert seconds == set(range(6, room + 6 + 1))


def test_an_epoch_has_about_as_many_chunks_as_the_corpus(stories):
    lengths = np.diff(stories.document_offsets)

    pairs = np.maximum(lengths[lengths >= 4] // 24, 1)

    assert len(SegmentPairDataset(stories, 2, 12)) == pairs.sum()


def test_short_segments_are_as_frequent_as_long_ones():
    """Log-uniform from 2 to 31: half of all below 8, and a quarter below 4."""
    vectors = torch.ones(31, 1)
    lengths = []

    for index in range(400):
        pair = SegmentPair(vectors, vectors, document=0, key=(1, 0, index))
        batch = DataCollatorForSegmentPairs(2, 31)([pair])
        lengths.append(int((batch["special_ids"][0, 0] == NOT_SPECIAL).sum()))

    assert (min(lengths), max(lengths)) == (2, 31)
    # Four standard deviations of a binomial.
    assert np.mean(np.array(lengths) < 8) == pytest.approx(0.5, abs=0.1)
    assert np.mean(np.array(lengths) < 4) == pytest.approx(0.25, abs=0.087)


def test_documents_too_short_are_counted(stories, caplog):
    SegmentPairDataset(stories, 1, 8, documents=[0, 1])

    assert not caplog.text
    just = SegmentPairDataset(
        stories, 8, 8, documents=[0, 11]
    )  # two segments of 8 are all of the first
    assert {just[index].document for index in range(len(just))} == {0, 11}
    SegmentPairDataset(stories, 2, 8)
    assert "1 of 12 documents have fewer than 4 chunks" in caplog.text
    for values in ({"min_segment": 0}, {"min_segment": 9, "max_segment": 8}, {"min_segment": 40}):
        with pytest.raises(ValueError, match="min_segment"):
            SegmentPairDataset(stories, **values)
