"""Masks and replacements: their shares, and what they depend on."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from nextlevelbert import (
    DataCollatorForSegmentPairs,
    DataCollatorForVectorMasking,
    PackedVectorDataset,
    SegmentPairDataset,
)
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP
from nextlevelbert.pretraining.collators import draw_replacements, draw_vector_mask
from nextlevelbert.pretraining.datasets import SegmentPair, VectorSequence

from ..toys.vectors import rows_of


def masks_of(rows) -> torch.Tensor:
    return DataCollatorForVectorMasking()(rows)["mask_positions"]


def test_the_collator_s_batch(corpus):
    dataset = PackedVectorDataset(corpus, 16)
    rows = rows_of(dataset)

    batch = DataCollatorForVectorMasking(probability=0.5, mask_share=0.5, random_share=0.3)(rows)

    before = pad_sequence([row.special_ids for row in rows], batch_first=True, padding_value=PAD)
    real = before == NOT_SPECIAL
    selected = batch["mask_positions"]
    assert batch["labels"].dtype == batch["inputs_embeds"].dtype == torch.float16
    assert torch.equal(batch["labels"][real], corpus.vectors(0, corpus.num_chunks))
    assert not (selected & ~real).any()
    masked = batch["special_ids"] == MASK
    assert not (masked & ~selected).any()
    assert torch.equal(batch["special_ids"][~masked], before[~masked])
    changed = (batch["inputs_embeds"] != batch["labels"]).any(dim=-1)
    assert not (changed & ~(selected & ~masked)).any()
    assert 0 < changed.sum() < (selected & ~masked).sum()  # some replaced, some kept


def test_replacements_are_vectors_of_other_sequences_as_they_were():
    """A vector that was itself replaced is no source: it may come from the sequence that it would
    go to."""
    specials = torch.tensor([CLS] + [NOT_SPECIAL] * 20)
    rows = [
        VectorSequence(torch.full((21, 2), float(row)), specials, (0, 0, row)) for row in range(3)
    ]

    batch = DataCollatorForVectorMasking(probability=1.0, mask_share=0.0, random_share=1.0)(rows)

    for row, vectors in enumerate(batch["inputs_embeds"][:, 1:, 0].tolist()):
        assert row not in vectors


def test_masks_follow_the_epoch_and_nothing_else(corpus):
    dataset = PackedVectorDataset(corpus, 32, seed=9)

    first = masks_of(rows_of(dataset))

    assert not torch.equal(first[0], first[1])
    torch.manual_seed(1)
    np.random.seed(1)
    assert torch.equal(masks_of(rows_of(dataset)), first)
    dataset.set_epoch(1)
    assert not torch.equal(masks_of(rows_of(dataset)), first)
    dataset.set_epoch(0)
    assert torch.equal(masks_of(rows_of(dataset)), first)
    further = PackedVectorDataset(corpus, 32, seed=10)
    assert not torch.equal(masks_of(rows_of(further)), first)


@pytest.mark.parametrize(
    "values", [{"probability": 1.5}, {"mask_share": 0.95}, {"random_share": math.nan}]
)
def test_shares_that_cannot_be(values):
    with pytest.raises(ValueError, match=r"probability|share"):
        DataCollatorForVectorMasking(**values)


def test_the_paper_s_shares():
    maskable = np.ones(200_000, bool)
    maskable[::10] = False

    selected, masked, replaced = draw_vector_mask(maskable, (1, 2, 3))

    assert not (selected & ~maskable).any()
    assert not (masked & replaced | (masked | replaced) & ~selected).any()
    # Four standard deviations of a binomial: a wrong share of one percent fails.
    assert selected.sum() / maskable.sum() == pytest.approx(0.15, abs=0.0034)
    assert masked.sum() / selected.sum() == pytest.approx(0.8, abs=0.01)
    assert replaced.sum() / selected.sum() == pytest.approx(0.1, abs=0.0075)
    selected, masked, _ = draw_vector_mask(
        np.ones(1_000, bool), (0,), probability=0.4, mask_share=1, random_share=0
    )
    assert masked.sum() == selected.sum() > 300


@settings(deadline=None)
@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=5), row=st.integers(0, 4))
def test_replacements_come_from_other_sequences(counts, row):
    row = row % len(counts)
    start = sum(counts[:row])
    own = np.arange(start, start + counts[row])

    drawn = draw_replacements(np.array(counts), row, replaced=own - start, key=(1, 2))

    assert drawn.shape == own.shape
    assert set(drawn.tolist()) <= set(range(sum(counts)))
    is_alone = sum(counts) == counts[row]
    assert (np.isin(drawn, own) == is_alone).all()
    if sum(counts) > 1:
        assert (drawn != own).all()  # never by itself


def test_replacements_do_not_follow_the_masks():
    """If the first chunk is selected, other chunks are replaced by vectors from anywhere."""
    counts = np.array([40, 60])
    drawn = []
    for seed in range(1_000):
        selected, _, _ = draw_vector_mask(np.ones(40, dtype=bool), (seed, 0, 0))
        if selected[0]:
            drawn.append(draw_replacements(counts, 0, np.arange(5, 9), key=(seed, 0, 0)))

    means = np.stack(drawn).mean(axis=0)

    # Five standard errors of the mean of 40 to 99.
    error = np.sqrt((60**2 - 1) / 12 / len(drawn))
    assert (abs(means - 69.5) < 5 * error).all()


def test_a_batch_is_cut_to_one_length(stories):
    dataset = SegmentPairDataset(stories, 2, 40)
    collator = DataCollatorForSegmentPairs(2, 40)

    drawn = set()

    for epoch in range(25):
        dataset.set_epoch(epoch)
        pairs = [dataset[0], dataset[3], dataset[7]]
        batch = collator(pairs)
        length = batch["special_ids"].shape[2] - 2  # of the longest
        drawn.add(length)
        assert batch.keys() == {"inputs_embeds", "special_ids", "document_ids"}
        for row, pair in enumerate(pairs):
            assert batch["document_ids"][row] == pair.document
            for side, vectors in enumerate((pair.first, pair.second)):
                cut = vectors[:length]
                behind = length - len(cut)
                expected = torch.nn.functional.pad(cut, (0, 0, 1, 1 + behind))
                assert torch.equal(batch["inputs_embeds"][row, side], expected)
                ids = [CLS, *[NOT_SPECIAL] * len(cut), SEP, *[PAD] * behind]
                assert batch["special_ids"][row, side].tolist() == ids
    assert 2 <= min(drawn) < max(drawn) <= 40
    assert len(drawn) >= 8


def test_segments_have_every_length_from_the_least_to_the_most():
    """Log-uniformly: of 1,000, ln(4 / 3) / ln(4 / 2) have the length 3."""
    collator = DataCollatorForSegmentPairs(2, 3)
    segment = torch.zeros(9, 1)

    lengths = []
    for index in range(1_000):
        batch = collator([SegmentPair(segment, segment, 0, key=(0, 0, index))])
        lengths.append(batch["special_ids"].shape[2] - 2)

    assert set(lengths) == {2, 3}
    assert lengths.count(3) == pytest.approx(415, abs=4 * 16)


@pytest.mark.parametrize("prepare", [lambda data: data, copy.deepcopy], ids=["itself", "copy"])
def test_workers_that_persist_draw_anew_in_every_epoch(corpus, prepare):
    data = prepare(PackedVectorDataset(corpus, sequence_length=16))

    # One row a batch, so that a worker draws what is drawn here.
    loader = DataLoader(data, collate_fn=masks_of, num_workers=1, persistent_workers=True)

    for epoch in range(2):
        data.set_epoch(epoch)
        for index, masks in enumerate(loader):
            assert torch.equal(masks, masks_of([data[index]]))
