"""From documents to sequences, masked batches, pairs of segments and scores."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import EvalPrediction

from nextlevelbert import (
    DataCollatorForSegmentPairs,
    DataCollatorForVectorMasking,
    DocumentVectorDataset,
    MaskedVectorMetrics,
    PackedVectorDataset,
    SegmentPairDataset,
)
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP
from nextlevelbert.models.modeling_nextlevelbert import masked_vector_loss
from nextlevelbert.pretraining.collators import draw_replacements, draw_vector_mask
from nextlevelbert.pretraining.datasets import SegmentPair, VectorSequence
from nextlevelbert.pretraining.scores import (
    context_mean_baseline,
    masked_vector_scores,
    pairs_found,
)

from ..toys.vectors import close, corpus_of


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return corpus_of([90, 1, 4, 36], tmp_path_factory.mktemp("corpus"))


def rows_of(dataset) -> list:
    return [dataset[index] for index in range(len(dataset))]


def joined(rows) -> tuple[torch.Tensor, torch.Tensor]:
    """Special ids and vectors of all rows, without what stands first in each."""
    special_ids = torch.cat([row.special_ids[1:] for row in rows])
    return special_ids, torch.cat([row.inputs_embeds[1:] for row in rows])


def masks_of(rows) -> torch.Tensor:
    return DataCollatorForVectorMasking()(rows)["mask_positions"]


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
    chosen = torch.cat([corpus[1].vectors, corpus[3].vectors])

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
        for _ in range(-(-len(document.vectors) // (length - 1))):
            row = next(rows)
            vectors.append(row.inputs_embeds[1:])
            assert row.special_ids.tolist() == [CLS, *[NOT_SPECIAL] * len(vectors[-1])]
        assert torch.equal(torch.cat(vectors), document.vectors)
        sizes = list(map(len, vectors))
        assert max(sizes) - min(sizes) <= 1
    assert list(rows) == []


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


# --- Draws


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


# --- Pairs of segments


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    return corpus_of(
        [16, 21, 28, 34, 40, 1, 46, 52, 59, 66, 72, 80], tmp_path_factory.mktemp("stories")
    )


def places(stories, pair):
    """Where both segments start in their document; the vectors of a toy document are all
    different."""
    vectors = stories[pair.document].vectors
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
            vectors = stories[pair.document].vectors
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
    room = len(stories[0].vectors) - 2 * 6
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


@pytest.mark.parametrize("prepare", [lambda data: data, copy.deepcopy], ids=["itself", "copy"])
def test_workers_that_persist_draw_anew_in_every_epoch(corpus, prepare):
    data = prepare(PackedVectorDataset(corpus, sequence_length=16))

    # One row a batch, so that a worker draws what is drawn here.
    loader = DataLoader(data, collate_fn=masks_of, num_workers=1, persistent_workers=True)

    for epoch in range(2):
        data.set_epoch(epoch)
        for index, masks in enumerate(loader):
            assert torch.equal(masks, masks_of([data[index]]))


# --- Scores


def test_pairs_that_find_each_other_worked_out_by_hand():
    scores = torch.tensor([[3.0, 1.0, -torch.inf], [2.0, 1.5, 4.0], [0.0, 1.0, 5.0]])
    # Row 1 finds 2, and column 1 finds 1.
    expected = [[2, 1 / 2 + 1 / 3], [1, 2 / 3], [2, 1 / 3 + 1 / 2]]

    close(pairs_found(scores, torch.arange(3)), torch.tensor(expected) / 2)


def test_scores_by_sequence():
    predictions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    positions = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])

    table = masked_vector_scores(predictions, targets, positions)

    cosines = [1.0, 0.2 / math.sqrt(1.04), 1 / math.sqrt(2)]
    # The second is nearest to (0, 1); the third to (1, 0.2), at cosine 0.83.
    assert table[:, 0].tolist() == [2, 1, 0]
    assert table[:, 1].tolist() == pytest.approx([cosines[0] + cosines[1], cosines[2], 0], abs=1e-6)
    assert table[:, 2].tolist() == [1, 0, 0]
    summary = MaskedVectorMetrics().summarize(table)
    assert summary["masked_accuracy"] == pytest.approx(1 / 3)
    assert summary["chance_accuracy"] == pytest.approx(1 / 3)
    assert summary["masked_cosine"] == pytest.approx(sum(cosines) / 3, abs=1e-6)
    assert "r2" not in MaskedVectorMetrics("cross_entropy").summarize(table)


def test_r2_is_the_loss_against_that_of_the_mean():
    """Of all sequences, not of each batch; the mean has 0, the target 1."""
    draw = torch.Generator().manual_seed(0)
    targets = torch.nn.functional.normalize(torch.randn(6, 8, generator=draw) + 1, dim=-1)
    predictions = targets + 0.1 * torch.randn(6, 8, generator=draw)
    mean = targets.mean(dim=0).expand(6, 8)
    positions = torch.tensor([[True, True], [False, True]])

    def r2(vectors: torch.Tensor) -> float:
        batches = [slice(0, 3), slice(3, 6)]
        tables = [masked_vector_scores(vectors[rows], targets[rows], positions) for rows in batches]
        return MaskedVectorMetrics().summarize(torch.cat(tables))["r2"]

    loss = masked_vector_loss("smooth_l1", predictions, targets)
    loss_of_mean = masked_vector_loss("smooth_l1", mean, targets)
    assert r2(predictions) == pytest.approx(1 - (loss / loss_of_mean).item(), abs=1e-5)
    assert r2(mean) == pytest.approx(0, abs=1e-5)
    assert r2(targets) == 1


def test_metrics_say_what_a_trainer_must_be_given():
    metrics = MaskedVectorMetrics()
    vectors = torch.zeros(1, 4)

    with pytest.raises(ValueError, match="label_names"):
        metrics.score_batch((vectors, vectors), torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="preprocess_logits_for_metrics"):
        metrics(EvalPrediction(predictions=(vectors, vectors), label_ids=None))


@pytest.mark.parametrize(
    ("constant", "targets"),
    [(torch.zeros(5, 4), torch.randn(5, 4)), (torch.ones(5, 4), torch.ones(5, 4))],
)
def test_a_constant_prediction_scores_as_chance(constant, targets):
    table = masked_vector_scores(constant, targets, torch.ones(1, 5, dtype=torch.bool))
    assert MaskedVectorMetrics().summarize(table)["masked_accuracy"] == pytest.approx(1 / 5)


def test_no_selection_scores_as_nothing():
    table = masked_vector_scores(
        torch.zeros(0, 4), torch.zeros(0, 4), torch.zeros(2, 3, dtype=torch.bool)
    )
    assert MaskedVectorMetrics().summarize(table) == {
        "masked_accuracy": 0.0,
        "chance_accuracy": 0.0,
        "r2": 0.0,
        "masked_cosine": 0.0,
    }


def test_the_mean_of_the_context():
    """Of the vectors that are seen: not of specials, of padding, or of what is to be found.

    Position 3 becomes [MASK]; position 4 is to be found, too, but keeps its vector.
    """
    vectors = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [8.0, 6.0], [9.0, 0.0]]
    batch = {
        "labels": torch.tensor([vectors]),
        "special_ids": torch.tensor([[CLS, NOT_SPECIAL, NOT_SPECIAL, MASK, NOT_SPECIAL, SEP]]),
        "mask_positions": torch.tensor([[False, False, False, True, True, False]]),
    }

    def baseline(prepare) -> dict[str, float]:
        return context_mean_baseline(
            [None],
            lambda rows: batch,
            batch_size=8,
            prepare=prepare,
            metrics=MaskedVectorMetrics("cosine"),
        )

    as_they_are = baseline(lambda labels: labels)
    only_y = baseline(lambda labels: labels * torch.tensor([0.0, 1.0]))

    # The mean is (0.5, 0.5): its cosines are 1 and 14 / (10 √2).
    assert as_they_are["masked_cosine"] == pytest.approx((1 + 0.7 * 2**0.5) / 2)
    assert only_y["masked_cosine"] == pytest.approx(1.0)
