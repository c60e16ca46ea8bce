"""Controls of masked vectors, which need no training."""

import numpy as np
import pytest
import torch

from benchmarks.common.controls import (
    hits,
    least_squares,
    neighbour_means,
    neighbour_terms,
    weighed_neighbours,
)
from benchmarks.studies.masked_controls import LENGTH, by_least_squares, windows
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, SEP

from .toys.vectors import close


def test_neighbours_are_seen_and_of_the_same_document():
    vectors = torch.arange(8.0).reshape(1, 8, 1)
    chunk = NOT_SPECIAL
    special_ids = torch.tensor([[CLS, chunk, MASK, MASK, chunk, SEP, MASK, chunk]])
    masked = torch.tensor([[False, False, True, True, False, False, True, False]])
    assert neighbour_means(vectors, special_ids, masked).flatten().tolist() == [2.5, 2.5, 7.0]
    nothing_seen = torch.ones_like(masked)
    assert not neighbour_means(vectors, special_ids, nothing_seen).any()


def test_neighbours_count_by_their_distance():
    vectors = torch.arange(8.0).reshape(1, 8, 1)
    chunk = NOT_SPECIAL
    special_ids = torch.tensor([[CLS, chunk, MASK, MASK, chunk, SEP, MASK, chunk]])
    masked = torch.tensor([[False, False, True, True, False, False, True, False]])

    weighed = weighed_neighbours(vectors, special_ids, masked, rate=0.5)
    terms = neighbour_terms(vectors, special_ids, masked, reach=2)

    # The chunk at place 2 sees 1 at distance 1, and 4 at distance 2; the chunk at 6 sees 7 only.
    near_first = (0.5 * 1 + 0.25 * 4) / 0.75
    near_second = (0.25 * 1 + 0.5 * 4) / 0.75
    close(weighed.flatten(), torch.tensor([near_first, near_second, 7.0]))
    assert terms[..., 0].tolist() == [[1.0, 4.0, 4.0], [4.0, 1.0, 4.0], [7.0, 0.0, 4.0]]


def one_hot_window():
    """A window whose vectors are one-hot, so that a prediction shows its weights."""
    masked = torch.zeros(1, LENGTH, dtype=torch.bool)
    masked[0, [0, 10, 11]] = True
    return torch.eye(LENGTH)[None], torch.full((1, LENGTH), NOT_SPECIAL), masked


def test_the_controls_of_masked_vectors_by_hand():
    window = one_hot_window()

    nearest = neighbour_means(*window)
    weighed = weighed_neighbours(*window)

    assert nearest.nonzero().tolist() == [[0, 1], [1, 9], [1, 12], [2, 9], [2, 12]]
    assert nearest[1, [9, 12]].tolist() == [0.5, 0.5]
    ratios = weighed[1, [8, 9, 12]] / weighed[1, 9]
    assert ratios.tolist() == pytest.approx([0.7, 1.0, 0.7])
    assert weighed[1, 11] == 0


def test_least_squares_is_that_of_numpy():
    generator = torch.Generator().manual_seed(0)
    novels = [torch.randn(LENGTH, 6, generator=generator).cumsum(dim=0)]
    [(_, window)] = windows(novels, seed=2)
    vectors, _, masked = window
    columns = neighbour_terms(*window).transpose(1, 2).flatten(0, 1).numpy()
    targets = vectors[masked].flatten().numpy()

    fitted = least_squares([window])
    predictions = by_least_squares(novels)(*window)

    expected = columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]
    assert columns @ fitted.numpy() == pytest.approx(expected, abs=2e-3)
    assert predictions.flatten().numpy() == pytest.approx(expected, abs=2e-3)


def test_a_vector_is_found_if_no_other_is_nearer():
    targets = torch.eye(3)
    predictions = torch.tensor([[0.9, 0.1, 0.0], [0.9, 0.5, 0.0], [0.0, 0.0, 2.0]])

    right = hits(predictions, targets, others=targets)

    assert right.tolist() == [True, False, True]
