"""Pooling of hidden states, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from nextlevelbert.models.pooling import pool


def test_pooling_by_hand():
    hidden = torch.tensor([[[1.0, -2.0], [3.0, 0.0], [9.0, 9.0]], [[7.0, 7.0]] * 3])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    expected = {
        "mean": [2.0, -1.0],
        "max": [3.0, 0.0],
        "cls": [1.0, -2.0],
        "lasttoken": [3.0, 0.0],
        "mean_sqrt_len_tokens": [4 / math.sqrt(2), -2 / math.sqrt(2)],
    }
    for mode, row in expected.items():
        torch.testing.assert_close(pool(hidden, mask, mode), torch.tensor([row, [0.0, 0.0]]))
    with pytest.raises(ValueError, match="Unknown pooling 'median'"):
        pool(hidden, mask, "median")
