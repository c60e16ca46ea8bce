"""Pairs of segments: where they lie, how they are batched, and how many find each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nextlevelbert import DataCollatorForSegmentPairs, DataCollatorForVectorMasking, SegmentPairDataset
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP
from nextlevelbert.pretraining.segment_pairs import pairs_found

from ..segment_toys import SHORT, close, corpus_of_books


@pytest.fixture(scope="module")
def corpus(toy_encoder_path, tmp_path_factory):
    return corpus_of_books(toy_encoder_path, tmp_path_factory.mktemp("corpus"))


def test_pairs_that_find_each_other_worked_out_by_hand():
    scores = torch.tensor([[3.0, 1.0, -torch.inf], [2.0, 1.5, 4.0], [0.0, 1.0, 5.0]])
    expected = [[2, 1 / 2 + 1 / 3], [1, 2 / 3], [2, 1 / 3 + 1 / 2]]  # row 1 finds 2, column 1 finds 1
    close(pairs_found(scores, torch.arange(3)), torch.tensor(expected) / 2)
    whole = torch.tensor(expected).mean(dim=0, keepdim=True) / 2
    close(pairs_found(scores, torch.arange(3), pairs_per_item=3), whole)  # a row an item


@pytest.mark.parametrize("positives", ["document", "neighbours"])
def test_segments_are_the_corpus_at_their_starts_and_share_no_chunk(corpus, positives):
    dataset = SegmentPairDataset(corpus, 2, 12, positives, pairs_per_document=3)
    seen, orders = set(), set()
    for dataset.epoch in range(6):
        for item in (dataset[index] for index in range(len(dataset))):
            vectors = corpus[item["document"]].vectors
            seen.add(item["document"])
            assert len(item["first"]) == len(item["second"]) == len(item["starts"]) == 3
            for first, second, (a, b) in zip(item["first"], item["second"], item["starts"].tolist(), strict=True):
                width = len(first)
                assert width == len(second) == min(12, len(vectors) // 2)
                assert 0 <= min(a, b)
                assert torch.equal(first, vectors[a : a + width])  # a slice past the end would be shorter
                assert torch.equal(second, vectors[b : b + width])
                assert b - a == width if positives == "neighbours" else abs(b - a) >= width
                orders.add(a < b)
    assert seen == set(range(12)) - {SHORT}
    assert orders == ({True} if positives == "neighbours" else {True, False})


@pytest.mark.parametrize("positives", ["document", "neighbours"])
def test_segments_lie_anywhere_from_the_first_chunk_to_the_last(corpus, positives):
    dataset = SegmentPairDataset(corpus, 2, 6, positives, pairs_per_document=400, documents=[0, 1])
    room = len(corpus[0].vectors) - 2 * 6
    assert room > 2
    starts = np.sort(dataset[0]["starts"])
    assert set(starts[:, 0]) == set(range(room + 1))
    assert set(starts[:, 1]) == set(range(6, room + 6 + 1))


def test_an_epoch_has_about_as_many_chunks_as_the_corpus(corpus):
    lengths = [length for length in np.diff(corpus.document_offsets).tolist() if length >= 4]
    assert len(SegmentPairDataset(corpus, 2, 12)) == sum(max(length // 24, 1) for length in lengths)
    assert len(SegmentPairDataset(corpus, 2, 4, pairs_per_document=2)) == sum(max(n // 16, 1) for n in lengths)
    chosen = SegmentPairDataset(corpus, 2, 4, documents=np.array([9, 2]))
    assert {chosen[index]["document"] for index in range(len(chosen))} == {9, 2}


@pytest.mark.parametrize("positives", ["document", "neighbours"])
def test_seed_epoch_and_index_decide_and_nothing_else(corpus, positives):
    def starts(seed, epoch):
        dataset = SegmentPairDataset(corpus, 2, 8, positives, seed=seed)
        dataset.epoch = epoch
        return [dataset[index]["starts"].tolist() for index in reversed(range(len(dataset)))]

    first = starts(1, 0)
    np.random.seed(5)
    torch.manual_seed(5)
    assert starts(1, 0) == first
    assert starts(1, 1) != first
    assert starts(2, 0) != first


@pytest.mark.parametrize("positives", ["document", "neighbours"])
def test_a_batch_is_cut_to_one_length_and_neighbours_still_touch(corpus, positives):
    dataset = SegmentPairDataset(corpus, 2, 40, positives, pairs_per_document=2)
    collator, drawn = DataCollatorForSegmentPairs(2, 40, positives), set()
    for dataset.epoch in range(25):
        items = [dataset[index] for index in (0, 3, 7)]
        batch = collator(items)
        length = batch["special_ids"].shape[2] - 2  # of the longest
        drawn.add(length)
        assert batch["document_ids"].tolist() == [item["document"] for item in items for _ in range(2)]
        assert batch["inputs_embeds"].shape == (6, 2, length + 2, 32)
        assert batch.keys() - {"spans"} == {"inputs_embeds", "special_ids", "document_ids"}
        assert ("spans" in batch) == (positives == "neighbours")  # without, no segment of the same document counts
        for row, (item, pair) in enumerate((item, pair) for item in items for pair in range(2)):
            for side, name in enumerate(("first", "second")):
                whole, start = item[name][pair], int(item["starts"][pair, side])
                count = min(length, len(whole))
                if positives == "neighbours" and side == 0:
                    start += len(whole) - count
                found, ids = batch["inputs_embeds"][row, side], batch["special_ids"][row, side]
                assert torch.equal(found[1 : count + 1], corpus[item["document"]].vectors[start : start + count])
                assert (found[0] == 0).all()
                assert (found[count + 1 :] == 0).all()
                assert ids.tolist() == [CLS, *[NOT_SPECIAL] * count, SEP, *[PAD] * (length - count)]
                if "spans" in batch:
                    assert batch["spans"][row, side].tolist() == [start, start + count]
        if "spans" in batch:
            assert torch.equal(batch["spans"][:, 0, 1], batch["spans"][:, 1, 0])
    assert 2 <= min(drawn) < max(drawn) <= 40
    assert len(drawn) >= 8


def test_short_segments_are_as_frequent_as_long_ones():
    """Log-uniform from 2 to 31: half of all below 8, and a quarter below 4."""
    vectors = [torch.ones(31, 1)]
    lengths = []
    for index in range(400):
        item = {"first": vectors, "second": vectors, "starts": np.array([[0, 31]]), "document": 0}
        batch = DataCollatorForSegmentPairs(2, 31)([{**item, "mask_key": (1, 0, index)}])
        lengths.append(int((batch["special_ids"][0, 0] == NOT_SPECIAL).sum()))
    assert (min(lengths), max(lengths)) == (2, 31)
    # Four standard deviations of a binomial.
    assert np.mean(np.array(lengths) < 8) == pytest.approx(0.5, abs=0.1)
    assert np.mean(np.array(lengths) < 4) == pytest.approx(0.25, abs=0.087)


def test_masks_over_segments(corpus):
    dataset = SegmentPairDataset(corpus, 8, 40, "neighbours", pairs_per_document=2, seed=3)
    items = [dataset[index] for index in range(5)]
    plain = DataCollatorForSegmentPairs(8, 40, "neighbours")(items)
    masking = DataCollatorForVectorMasking(0.4, mask_share=0.5, random_share=0.3)
    batch = DataCollatorForSegmentPairs(8, 40, "neighbours", masking)(items)
    assert batch.keys() == {*plain, "labels", "mask_positions"}
    assert batch["mask_positions"].shape == batch["special_ids"].shape == (10, 2, plain["special_ids"].shape[2])
    assert torch.equal(batch["labels"], plain["inputs_embeds"])
    assert torch.equal(batch["spans"], plain["spans"])
    selected, masked = batch["mask_positions"], batch["special_ids"] == MASK
    assert not (selected & (plain["special_ids"] != NOT_SPECIAL)).any()
    assert not (masked & ~selected).any()
    assert torch.equal(batch["special_ids"][~masked], plain["special_ids"][~masked])
    changed = (batch["inputs_embeds"] != batch["labels"]).any(dim=-1)
    assert changed.any()
    assert not (changed & ~(selected & ~masked)).any()
    assert len(selected.flatten(0, 1).unique(dim=0)) == 20  # each segment has a mask of its own


def test_documents_too_short_are_counted(corpus, caplog):
    SegmentPairDataset(corpus, 1, 8, documents=[0, 1])
    assert not caplog.text
    dataset = SegmentPairDataset(corpus, 2, 8)
    for index in (-1, len(dataset)):
        with pytest.raises(IndexError, match=f"Item {index} is not among the {len(dataset)}"):
            dataset[index]
    even = next(number for number, length in enumerate(np.diff(corpus.document_offsets)) if length % 2 == 0)
    half = len(corpus[even].vectors) // 2  # two segments of half a document are all of it
    just = SegmentPairDataset(corpus, half, half, documents=[even, 11])
    assert {just[index]["document"] for index in range(len(just))} == {even, 11}
    assert "1 of 12 documents have fewer than 4 chunks, two of the shortest segments, and are left out" in caplog.text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_segment": 0}, "got 0 and 48"),
        ({"min_segment": 9, "max_segment": 8}, "got 9 and 8"),
        ({"pairs_per_document": 0}, "at least 1, got 0"),
        ({"positives": "chapter"}, "'document' or 'neighbours', got 'chapter'"),
        ({"min_segment": 40}, "0 of the 12 chosen documents have 80 chunks or more"),
        ({"documents": [3, -2]}, "documents must be numbers from 0 to 11"),
        ({"documents": [0, 12]}, "documents must be numbers from 0 to 11"),
        ({"documents": []}, "documents must be numbers from 0 to 11"),
        ({"documents": [3, SHORT]}, "1 of the 2 chosen documents have 8 chunks or more"),
    ],
)
def test_segments_that_cannot_be(corpus, values, message):
    with pytest.raises(ValueError, match=message):
        SegmentPairDataset(corpus, **values)


def test_segments_of_any_length_are_as_long_as_documents_allow(corpus):
    longest = SegmentPairDataset(corpus, 2, 2**63)
    item = longest[0]
    length = corpus.document_offsets[item["document"] + 1] - corpus.document_offsets[item["document"]]
    assert len(item["first"][0]) == len(item["second"][0]) == length // 2


@pytest.mark.parametrize("values", [(0, 8), (9, 8), (-1, 3), (4, 8, "others")])
def test_a_collator_that_could_draw_no_length(values):
    with pytest.raises(ValueError, match=r"1 <= min_segment <= max_segment|positives are"):
        DataCollatorForSegmentPairs(*values)
