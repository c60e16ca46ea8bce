"""Losses of masked vectors, against torch, numpy and sentence-transformers, and by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch.nn import functional as F
from transformers import BertConfig

from nextlevelbert import (
    NextLevelBertForMaskedVectorModeling,
)
from nextlevelbert.models import losses
from nextlevelbert.models.losses import (
    choice_loss,
    classification_loss,
    labelled_loss,
    smooth_l1_loss,
)
from nextlevelbert.models.modeling_hate import p_norm_loss

from ..toys.vectors import close, ranking_loss, toy_config

PREDICTIONS = torch.tensor([[3.0, 4.0], [1.0, 0.0]])

TARGETS = torch.tensor([[0.0, 4.0], [1.0, 0.5]])


def test_smooth_l1():
    """|3| - 0.5 above beta, 0.5 * 0.5 ** 2 below."""
    loss = smooth_l1_loss(PREDICTIONS, TARGETS)

    assert loss.item() == pytest.approx((2.5 + 0 + 0 + 0.125) / 4, abs=1e-6)


def test_rows_without_labels_are_in_no_mean_of_labelled_rows():
    """A logit of 0 costs ln 2, one of ln 3 costs ln 4 - ln 3 if its label is 1."""
    logits = torch.tensor([[math.log(3), 0.0], [5.0, 5.0], [0.0, 9.0]])
    labels = torch.tensor([[1, 0], [-100, -100], [1, -100]])

    loss = labelled_loss(logits, labels)

    first = (math.log(4 / 3) + math.log(2)) / 2
    assert loss.item() == pytest.approx((first + math.log(2)) / 2, abs=1e-6)
    assert labelled_loss(logits[1:2], labels[1:2]).item() == 0


def test_the_problem_type_that_labels_mean_is_stored():
    """As by transformers; a saved model then tells what its labels are."""
    config = BertConfig(num_labels=3)

    classification_loss(torch.zeros(2, 3), torch.tensor([0, 2]), config)

    assert config.problem_type == "single_label_classification"


@pytest.mark.parametrize("temperature", [1.0, 0.2, 0.05])
def test_the_choice_is_the_ranking_loss_of_sentence_transformers(temperature):
    """Random vectors of 32 dimensions are no near copies of each other."""
    torch.manual_seed(0)
    targets = torch.randn(6, 32)
    predictions = (targets + torch.randn(6, 32)).requires_grad_()
    candidates = torch.randn(9, 32)

    among_targets = choice_loss(predictions, targets, temperature=temperature)
    among_all = choice_loss(predictions, targets, candidates=candidates, temperature=temperature)

    expected = ranking_loss(predictions, torch.cat([targets, candidates]), temperature)
    close(among_targets, ranking_loss(predictions, targets, temperature))
    close(among_all, expected)
    [gradient] = torch.autograd.grad(among_all, predictions)
    close(gradient, torch.autograd.grad(expected, predictions)[0])


def test_cross_entropy_among_further_candidates():
    """The right answer, two wrong candidates, and a near copy of the target that does not count.

    The second wrong candidate is similar to the target, but no near copy.
    """
    prediction = torch.tensor([[3.0, 4.0]])
    target = torch.tensor([[0.0, 2.0]])  # cosine with the prediction: 0.8
    wrong = torch.tensor([[5.0, 0.0], [0.8, 1.8]])  # cosines with the target: 0, 0.914
    near_copy = torch.tensor([[0.3, 1.0]])  # cosine with the target: 0.958

    loss = choice_loss(
        prediction,
        target,
        candidates=torch.cat([wrong, near_copy]),
        temperature=0.5,
    )

    scores = [math.exp(0.8 / 0.5)]
    for x, y in wrong.tolist():
        cosine = (0.6 * x + 0.8 * y) / math.hypot(x, y)
        scores.append(math.exp(cosine / 0.5))
    assert loss.item() == pytest.approx(-math.log(scores[0] / sum(scores)), abs=1e-6)


@pytest.mark.parametrize("size", [1, 40, 1_000])
@pytest.mark.parametrize("has_copies", [False, True])
def test_pieces_of_the_scores_give_the_cross_entropy_of_all(size, has_copies, monkeypatch):
    monkeypatch.setattr(losses, "_SCORES_PER_PIECE", size)
    torch.manual_seed(0)
    targets = F.normalize(torch.randn(11, 16), dim=-1)
    choices = torch.cat([targets, F.normalize(torch.randn(9, 16), dim=-1)])
    choices[-1] = choices[0]
    predictions = F.normalize(torch.randn(11, 16), dim=-1).requires_grad_()
    weights = torch.rand(11)

    pieces = losses.losses_of_choices(predictions, choices, temperature=0.05, has_copies=has_copies)
    [gradient] = torch.autograd.grad((weights * pieces).sum(), predictions)

    scores = predictions @ choices.T / 0.05
    if has_copies:
        scores = scores.index_put((torch.tensor(0), torch.tensor(19)), torch.tensor(-torch.inf))
    expected = F.cross_entropy(scores, torch.arange(11), reduction="none")
    close(pieces, expected)
    close(gradient, torch.autograd.grad((weights * expected).sum(), predictions)[0])


def test_only_a_choice_has_a_whitening_of_its_targets():
    regression = NextLevelBertForMaskedVectorModeling(
        toy_config(loss="smooth_l1", num_candidates=5)
    )
    choice = NextLevelBertForMaskedVectorModeling(
        toy_config(loss="cross_entropy", num_candidates=0)
    )

    assert regression.target_whitening is None
    assert choice.target_whitening is None


def test_the_mean_over_sequences_counts_those_with_a_masked_vector():
    """Sequence 0 has one position, 2 has two, and 1 has none: it is in no mean."""
    predictions = torch.tensor([[1.0], [2.0], [4.0]])
    targets = torch.zeros(3, 1)
    sequences = torch.tensor([0, 2, 2])

    loss = smooth_l1_loss(predictions, targets, sequences=sequences)

    assert loss.item() == pytest.approx((0.5 + (1.5 + 3.5) / 2) / 2)


@pytest.mark.parametrize("loss", [p_norm_loss, choice_loss])
def test_mixed_precision_leaves_the_loss_alone(loss):
    """Vectors of length 10: in bfloat16 their products would be off by tenths, and the loss by a
    tenth of itself."""
    targets = 10 * F.normalize(torch.randn(50, 32), dim=-1)
    predictions = targets + torch.randn(50, 32)
    exact = loss(predictions, targets)

    with torch.autocast("cpu", torch.bfloat16):
        mixed = loss(predictions, targets)

    assert mixed.dtype == torch.float32
    close(mixed, exact, atol=0)


def p_norm(predictions, targets, p=2.0):
    return p_norm_loss(predictions, targets, p=p)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_the_p_norm_is_that_of_numpy(p):
    """HATE: the distance of each row of softmax(Ŝ Lᵀ) from the row of the identity."""
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=(5, 8))
    targets = rng.normal(size=(5, 8))

    loss = p_norm(torch.from_numpy(predictions), torch.from_numpy(targets), p)

    chosen = softmax(predictions @ targets.T, axis=1)
    distances = np.linalg.norm(chosen - np.eye(5), ord=p, axis=1)
    assert loss.item() == pytest.approx(distances.mean(), abs=1e-6)


def test_the_loss_of_three_masked_sentences_by_hand():
    """HATE, with Ŝ = ln 2 · I and L = I: every row of softmax(Ŝ Lᵀ) is 1/2 at its own place and 1/4
    at two others."""
    predictions = math.log(2) * torch.eye(3)
    targets = torch.eye(3)
    by_hand = math.sqrt(
        0.5**2 + 0.25**2 + 0.25**2
    )  # the distance of (1/2, 1/4, 1/4) from (1, 0, 0)

    close(p_norm(predictions, targets), torch.tensor(by_hand))
    close(p_norm(predictions, targets, p=1.0), torch.tensor(1.0))
    # Every prediction certain of its neighbour: (0, 1, 0) from (1, 0, 0).
    close(p_norm(100 * torch.eye(3).roll(1, 0), targets), torch.tensor(math.sqrt(2)))
