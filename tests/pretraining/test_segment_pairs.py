"""Pairs of segments: where they lie, how they are batched, and how many find each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nextlevelbert import DataCollatorForSegmentPairs, SegmentPairDataset
from nextlevelbert.models.configuration_nextlevelbert import CLS, NOT_SPECIAL, PAD, SEP
from nextlevelbert.pretraining.segment_pairs import SegmentPair, pairs_found

from ..vector_toys import close, corpus_of

SHORT = 5  # the document of one chunk


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return corpus_of([16, 21, 28, 34, 40, 1, 46, 52, 59, 66, 72, 80], tmp_path_factory.mktemp("corpus"))


def test_pairs_that_find_each_other_worked_out_by_hand():
    scores = torch.tensor([[3.0, 1.0, -torch.inf], [2.0, 1.5, 4.0], [0.0, 1.0, 5.0]])
    expected = [[2, 1 / 2 + 1 / 3], [1, 2 / 3], [2, 1 / 3 + 1 / 2]]  # row 1 finds 2, column 1 finds 1
    close(pairs_found(scores, torch.arange(3)), torch.tensor(expected) / 2)


def places(corpus, pair):
    """Where both segments start in their document; the vectors of a toy document are all different."""
    vectors = corpus[pair.document].vectors
    return [int((vectors == segment[0]).all(dim=1).nonzero()) for segment in (pair.first, pair.second)]


def test_segments_are_runs_of_the_corpus_that_share_no_chunk(corpus):
    dataset = SegmentPairDataset(corpus, 2, 12)
    seen, orders = set(), set()
    for epoch in range(6):
        dataset.set_epoch(epoch)
        for pair in (dataset[index] for index in range(len(dataset))):
            vectors, (a, b), width = corpus[pair.document].vectors, places(corpus, pair), len(pair.first)
            assert width == len(pair.second) == min(12, len(vectors) // 2)
            assert torch.equal(pair.first, vectors[a : a + width])
            assert torch.equal(pair.second, vectors[b : b + width])
            assert abs(b - a) >= width
            seen.add(pair.document)
            orders.add(a < b)
    assert seen == set(range(12)) - {SHORT}
    assert orders == {True, False}


def test_segments_lie_anywhere_from_the_first_chunk_to_the_last(corpus):
    dataset = SegmentPairDataset(corpus, 2, 6, documents=[0, 1])
    room, starts = len(corpus[0].vectors) - 2 * 6, []
    assert room > 2
    for epoch in range(400):
        dataset.set_epoch(epoch)
        starts.append(sorted(places(corpus, dataset[0])))
    assert {first for first, _ in starts} == set(range(room + 1))
    assert {second for _, second in starts} == set(range(6, room + 6 + 1))


def test_an_epoch_has_about_as_many_chunks_as_the_corpus(corpus):
    lengths = [length for length in np.diff(corpus.document_offsets).tolist() if length >= 4]
    assert len(SegmentPairDataset(corpus, 2, 12)) == sum(max(length // 24, 1) for length in lengths)
    chosen = SegmentPairDataset(corpus, 2, 4, documents=np.array([9, 2]))
    assert {chosen[index].document for index in range(len(chosen))} == {9, 2}


def test_seed_epoch_and_index_decide_and_nothing_else(corpus):
    def starts(seed, epoch):
        dataset = SegmentPairDataset(corpus, 2, 8, seed=seed)
        dataset.set_epoch(epoch)
        return [places(corpus, dataset[index]) for index in reversed(range(len(dataset)))]

    first = starts(1, 0)
    np.random.seed(5)
    torch.manual_seed(5)
    assert starts(1, 0) == first
    assert starts(1, 1) != first
    assert starts(2, 0) != first


def test_a_batch_is_cut_to_one_length(corpus):
    dataset, collator, drawn = SegmentPairDataset(corpus, 2, 40), DataCollatorForSegmentPairs(2, 40), set()
    for epoch in range(25):
        dataset.set_epoch(epoch)
        pairs = [dataset[index] for index in (0, 3, 7)]
        batch = collator(pairs)
        length = batch["special_ids"].shape[2] - 2  # of the longest
        drawn.add(length)
        assert batch.keys() == {"inputs_embeds", "special_ids", "document_ids"}
        assert batch["document_ids"].tolist() == [pair.document for pair in pairs]
        assert batch["inputs_embeds"].shape == (3, 2, length + 2, 8)
        for row, pair in enumerate(pairs):
            for side, vectors in enumerate((pair.first, pair.second)):
                count = min(length, len(vectors))
                embeds, ids = batch["inputs_embeds"][row, side], batch["special_ids"][row, side]
                assert torch.equal(embeds[1 : count + 1], vectors[:count])
                assert (embeds[0] == 0).all()
                assert (embeds[count + 1 :] == 0).all()
                assert ids.tolist() == [CLS, *[NOT_SPECIAL] * count, SEP, *[PAD] * (length - count)]
    assert 2 <= min(drawn) < max(drawn) <= 40
    assert len(drawn) >= 8


def test_short_segments_are_as_frequent_as_long_ones():
    """Log-uniform from 2 to 31: half of all below 8, and a quarter below 4."""
    vectors, lengths = torch.ones(31, 1), []
    for index in range(400):
        batch = DataCollatorForSegmentPairs(2, 31)([SegmentPair(vectors, vectors, 0, (1, 0, index))])
        lengths.append(int((batch["special_ids"][0, 0] == NOT_SPECIAL).sum()))
    assert (min(lengths), max(lengths)) == (2, 31)
    # Four standard deviations of a binomial.
    assert np.mean(np.array(lengths) < 8) == pytest.approx(0.5, abs=0.1)
    assert np.mean(np.array(lengths) < 4) == pytest.approx(0.25, abs=0.087)


def test_documents_too_short_are_counted(corpus, caplog):
    SegmentPairDataset(corpus, 1, 8, documents=[0, 1])
    assert not caplog.text
    even = next(number for number, length in enumerate(np.diff(corpus.document_offsets)) if length % 2 == 0)
    half = len(corpus[even].vectors) // 2  # two segments of half a document are all of it
    just = SegmentPairDataset(corpus, half, half, documents=[even, 11])
    assert {just[index].document for index in range(len(just))} == {even, 11}
    SegmentPairDataset(corpus, 2, 8)
    assert "1 of 12 documents have fewer than 4 chunks" in caplog.text
    for values in ({"min_segment": 0}, {"min_segment": 9, "max_segment": 8}, {"min_segment": 40}):
        with pytest.raises(ValueError, match="min_segment"):
            SegmentPairDataset(corpus, **values)
    with pytest.raises(IndexError, match="not among"):
        just[len(just)]
