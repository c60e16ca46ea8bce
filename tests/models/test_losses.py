"""Losses against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from nextlevelbert.models.modeling_nextlevelbert import masked_vector_loss

from ..vector_toys import close

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


def test_the_mean_over_sequences_counts_those_with_a_masked_vector():
    """Sequence 0 has one position, 2 has two, and 1 has none: it is in no mean."""
    predictions, targets = torch.tensor([[1.0], [2.0], [4.0]]), torch.zeros(3, 1)
    sequences = torch.tensor([0, 2, 2])
    loss = masked_vector_loss("l1", predictions, targets, sequences=sequences)
    assert loss.item() == pytest.approx((1 + (2 + 4) / 2) / 2)


def p_norm(predictions, targets, p=2.0):
    return masked_vector_loss("p_norm", predictions, targets, p=p)


def test_the_loss_of_three_masked_sentences_by_hand():
    """HATE, with Ŝ = ln 2 · I and L = I: every row of softmax(Ŝ Lᵀ) is 1/2 at its own place and 1/4 at two others."""
    predictions, targets = math.log(2) * torch.eye(3), torch.eye(3)
    by_hand = math.sqrt(0.5**2 + 0.25**2 + 0.25**2)  # the distance of (1/2, 1/4, 1/4) from (1, 0, 0)
    close(p_norm(predictions, targets), torch.tensor(by_hand))
    close(p_norm(predictions, targets, p=1.0), torch.tensor(1.0))
    # Every prediction certain of its neighbour: (0, 1, 0) from (1, 0, 0).
    close(p_norm(100 * torch.eye(3).roll(1, 0), targets), torch.tensor(math.sqrt(2)))


@pytest.mark.parametrize("loss", ["p_norm", "cross_entropy"])
def test_mixed_precision_leaves_the_loss_alone(loss):
    """Vectors of length 10: in bfloat16 their products would be off by tenths, and the loss by a tenth of itself."""
    targets = 10 * F.normalize(torch.randn(50, 32), dim=-1)
    predictions = targets + torch.randn(50, 32)
    exact = masked_vector_loss(loss, predictions, targets, 0.05)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = masked_vector_loss(loss, predictions, targets, 0.05)
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, exact, atol=0, rtol=1e-6)
