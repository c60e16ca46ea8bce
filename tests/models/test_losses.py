"""Losses against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.clip.modeling_clip import image_text_contrastive_loss

from nextlevelbert.models.losses import comparable_segments, masked_vector_loss, pair_loss, single_label_loss

from ..segment_toys import close

PREDICTIONS = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
TARGETS = torch.tensor([[0.0, 4.0], [1.0, 0.5]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("smooth_l1", (2.5 + 0 + 0 + 0.125) / 4),  # |3| - 0.5 above beta, 0.5 * 0.5 ** 2 below
        ("l1", (3 + 0.5) / 4),
        ("l2", (9 + 0.25) / 4),
        ("cosine", 1 - (0.8 + 1 / math.sqrt(1.25)) / 2),
    ],
)
def test_regression_losses(name, value):
    assert masked_vector_loss(name, PREDICTIONS, TARGETS).item() == pytest.approx(value, abs=1e-6)


def test_cross_entropy_over_the_batch():
    """Every entry of the matrix of cosines worked out, at temperature 0.5."""
    unit_p, unit_t = [(0.6, 0.8), (1.0, 0.0)], [(0.0, 1.0), (1 / math.sqrt(1.25), 0.5 / math.sqrt(1.25))]
    scores = [[(p[0] * t[0] + p[1] * t[1]) / 0.5 for t in unit_t] for p in unit_p]
    expected = -sum(s[i] - math.log(sum(math.exp(v) for v in s)) for i, s in enumerate(scores)) / 2
    assert masked_vector_loss("cross_entropy", PREDICTIONS, TARGETS, 0.5).item() == pytest.approx(expected, abs=1e-6)


def test_smooth_l1_between_unit_vectors_is_half_the_square():
    a, b = (torch.nn.functional.normalize(torch.randn(50, 384), dim=-1) for _ in range(2))
    assert masked_vector_loss("smooth_l1", a, b) == pytest.approx(masked_vector_loss("l2", a, b).item() / 2, rel=1e-5)


def test_the_mean_over_sequences_counts_those_with_a_masked_vector():
    """Sequence 0 has one position, 2 has two, and 1 has none: it is in no mean."""
    predictions, targets = torch.tensor([[1.0], [2.0], [4.0]]), torch.zeros(3, 1)
    sequences = torch.tensor([0, 2, 2])
    loss = masked_vector_loss("l1", predictions, targets, sequences=sequences)
    assert loss.item() == pytest.approx((1 + (2 + 4) / 2) / 2)


def test_rows_without_a_label_are_in_no_mean():
    logits, labels = torch.randn(4, 3), torch.tensor([2, -100, 0, -100])
    close(single_label_loss(logits, labels), torch.nn.functional.cross_entropy(logits[::2], labels[::2]))


def unlike_pairs(count=7, size=5):
    torch.manual_seed(8)
    return 3 * torch.randn(count, size), torch.randn(count, size)


def test_without_exceptions_the_loss_is_that_of_clip():
    first, second = unlike_pairs()
    loss, scores = pair_loss(first, second, torch.ones(7, 7, dtype=torch.bool), 20.0)
    expected = 20 * torch.nn.CosineSimilarity(dim=-1)(first[:, None], second[None, :])
    close(scores, expected)
    close(loss, image_text_contrastive_loss(expected))


def test_what_is_not_compared_is_in_no_denominator():
    first, second = unlike_pairs(4)
    comparable = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 1, 1]]).bool()
    loss, scores = pair_loss(first, second, comparable, torch.tensor(3.0))
    a, b = ([[v / math.hypot(*row) for v in row] for row in rows.double().tolist()] for rows in (first, second))
    e = [[math.exp(3 * sum(x * y for x, y in zip(p, q, strict=True))) for q in b] for p in a]
    total = 0.0
    for i in range(4):
        row = sum(e[i][j] for j in range(4) if comparable[i, j])
        column = sum(e[j][i] for j in range(4) if comparable[j, i])
        total -= math.log(e[i][i] / row) + math.log(e[i][i] / column)
    assert loss.item() == pytest.approx(total / 8, abs=1e-6)
    assert torch.equal(scores == -torch.inf, ~comparable)


def test_scores_are_float32_under_autocast_and_in_half_precision():
    first, second = unlike_pairs()
    every = torch.ones(7, 7, dtype=torch.bool)
    expected = pair_loss(first, second, every, 20.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (first @ second.T).dtype == torch.bfloat16
        found = pair_loss(first, second, every, 20.0)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
    assert pair_loss(first.bfloat16(), second.bfloat16(), every, torch.tensor(20.0).bfloat16())[1].dtype == torch.float


def test_which_segments_are_compared():
    """Pairs 0 to 2 and 4 lie in document 7, pair 3 in document 9; worked out by hand."""
    documents = torch.tensor([7, 7, 7, 9, 7])
    spans = torch.tensor(
        [[[0, 4], [4, 8]], [[8, 12], [12, 16]], [[2, 6], [6, 10]], [[0, 4], [4, 8]], [[5, 6], [16, 20]]]
    )
    expected = [
        [1, 1, 1, 1, 1],  # 0-4 touches only its own 4-8; 12-16 and 6-10 are apart
        [0, 1, 0, 1, 1],  # 8-12 touches 4-8 from behind and overlaps 6-10
        [0, 1, 1, 1, 1],  # 2-6 overlaps 4-8
        [1, 1, 1, 1, 1],  # another document: the same numbers say nothing
        [0, 1, 0, 1, 1],  # 5-6 overlaps 4-8 and touches 6-10 from the front
    ]
    assert comparable_segments(documents, spans).int().tolist() == expected
    unknown = [[1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [0, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 1]]
    assert comparable_segments(documents).int().tolist() == unknown
    assert comparable_segments(documents, spans - spans % 2).int().tolist() == expected
    spans[0, 1, 1] = 7  # one chunk between 4-7 and 8-12 is enough
    assert comparable_segments(documents, spans)[1, 0]
