"""Objectives of masked vector modelling that a study compares."""

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common.objectives import (
    Choice,
    Codes,
    DataCollatorForSpanMasking,
    Regression,
    TargetSpace,
)
from nextlevelbert import DataCollatorForVectorMasking

from .toys.vectors import close


def test_target_spaces_and_their_losses():
    torch.manual_seed(0)
    documents = [torch.randn(200, 4) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + 5 for _ in range(2)]
    vectors = torch.cat(documents)
    space = TargetSpace(4)
    assert torch.equal(space(vectors), vectors)
    space.standardise(documents)
    close(space(vectors).mean(dim=0), torch.zeros(4))
    close(space(vectors).std(dim=0), torch.ones(4))
    space.whiten(documents)
    # Shrinkage keeps the variance of the smallest dimension below 1.
    assert 0.4 < float(space(vectors).var(dim=0).min()) < 1.1
    assert space.state_dict().keys() == {"mean", "weight"}

    targets = torch.randn(3, 4)
    outputs = torch.randn(3, 4)
    loss = Regression()(outputs, targets, anchors=torch.ones(3, 4), others=targets)
    by_hand = F.smooth_l1_loss(outputs + 1, targets, reduction="sum") / 3
    close(loss, by_hand)


def test_choice_leaves_copies_of_the_target_out():
    targets = torch.eye(4)[:2]
    memory = torch.eye(4)[2:]
    zero = torch.zeros(2, 4)
    objective = Choice(memory, temperature=1.0)

    def chosen_among(wrong: int) -> torch.Tensor:
        scores = torch.tensor([[1.0] + [0.0] * wrong])
        return F.cross_entropy(scores, torch.tensor([0]))

    # Two of the memory, the other target, and this once more; but no second copy of its own.
    close(objective(targets, targets, anchors=zero, others=targets), chosen_among(4))
    close(objective(zero, targets, anchors=targets, others=targets[:0]), chosen_among(3))
    assert "memory" not in objective.state_dict()


@torch.no_grad()
def test_codes_are_of_the_target_and_of_what_is_left():
    objective = Codes([torch.tensor([[0.0, 0.0], [4.0, 4.0]]), torch.tensor([[1.0, 0.0]])])
    first = objective.heads[0]
    torch.nn.init.zeros_(first.weight)
    first.bias.copy_(torch.tensor([0.0, 50.0]))
    outputs = torch.randn(1, 2)
    anchor = torch.tensor([[1.0, 1.0]])
    zero = torch.zeros(1, 2)
    assert objective(outputs, torch.tensor([[6.0, 5.0]]), anchors=anchor, others=zero) < 1e-6
    assert objective(outputs, torch.tensor([[1.0, 1.0]]), anchors=anchor, others=zero) > 40
    close(objective.decode(outputs), torch.tensor([[5.0, 4.0]]))
    assert not any(codebook.requires_grad for codebook in objective.codebooks)


def test_spans_are_masked_together():
    maskable = np.ones(30_000, dtype=bool)
    collator = DataCollatorForSpanMasking(shortest=3, longest=8)
    selected, masked, replaced = collator.draw_mask(maskable, [0])
    assert 0.12 < selected.mean() < 0.15
    edges = np.flatnonzero(np.diff(np.pad(selected, 1).astype(int)))
    lengths = edges[1::2] - edges[::2]
    assert lengths[:-1].min() == 3
    assert np.median(lengths) >= 5
    # Each span has one fate, but for the few that overlap.
    fates = masked.astype(int) + 2 * replaced
    whole = [np.ptp(fates[a:b]) == 0 for a, b in edges.reshape(-1, 2)]
    assert np.mean(whole) > 0.9
    single = DataCollatorForVectorMasking().draw_mask(maskable, [0])
    same = DataCollatorForSpanMasking().draw_mask(maskable, [0])
    np.testing.assert_array_equal(single, same)
