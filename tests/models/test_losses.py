"""Losses against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from nextlevelbert.models.losses import masked_vector_loss

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
