"""The models that `pretraining_step.py` compares ours with."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from nextlevelbert.models.backbones import backbone_from_config


def without_word_embeddings(config: Any) -> Any:
    """A backbone with random weights that takes vectors."""
    backbone: Any = backbone_from_config(config)
    backbone.set_input_embeddings(None)
    return backbone


class AuthorsModel(nn.Module):
    """Backbone, head and smooth L1 on every position, the whole mask given.

    With attention written out: with dropout in it, that is faster on a CPU than PyTorch's fused call (measured),
    so the comparison is not in our favour.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = copy.deepcopy(config)
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.1
        config._attn_implementation = "eager"
        size = config.hidden_size
        self.backbone = without_word_embeddings(config)
        self.head = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))

    def forward(self, inputs_embeds: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        batch, length = inputs_embeds.shape[:2]
        mask = inputs_embeds.new_zeros(batch, 1, length, length)  # [B, 1, L, L], added to the scores
        hidden = self.backbone(inputs_embeds=inputs_embeds, attention_mask=mask).last_hidden_state
        return nn.functional.smooth_l1_loss(self.head(hidden), labels)
