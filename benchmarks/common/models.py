"""Models that ours are compared with: the authors' recipe, and long-document encoders of others.

Those of others are built from their published sizes with random weights: speed needs no training.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import (
    LongformerConfig,
    LongformerModel,
    ModernBertConfig,
    ModernBertModel,
    NomicBertConfig,
    NomicBertModel,
    PreTrainedConfig,
)

from nextlevelbert.models.pretrained import backbone_from_config


def without_word_embeddings(config: PreTrainedConfig) -> Any:
    """A backbone with random weights that takes vectors."""
    backbone: Any = backbone_from_config(config)
    backbone.set_input_embeddings(None)
    return backbone


class AuthorsModel(nn.Module):
    """Backbone, head and smooth L1 on every position, the whole mask given.

    With attention written out: with dropout in it, that is faster on a CPU than PyTorch's fused call (measured),
    so the comparison is not in our favour.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
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


def longformer() -> tuple[Any, int]:
    """allenai/longformer-base-4096: 12 layers, 768, 12 heads, each position sees 256 to both sides."""
    config = LongformerConfig(
        vocab_size=50_265, attention_window=512, max_position_embeddings=4_098, type_vocab_size=1
    )
    return LongformerModel(config, add_pooling_layer=False), 4_096


def modernbert() -> tuple[Any, int]:
    """answerdotai/ModernBERT-base: 22 layers, 768, 12 heads, 128 positions seen, all in every third layer."""
    config = ModernBertConfig(
        vocab_size=50_368,
        hidden_size=768,
        intermediate_size=1_152,
        num_hidden_layers=22,
        num_attention_heads=12,
        local_attention=128,
        max_position_embeddings=8_192,
        layer_types=["sliding_attention" if layer % 3 else "full_attention" for layer in range(22)],
    )
    return ModernBertModel(config), 8_192


def nomicbert() -> tuple[Any, int]:
    """nomic-ai/nomic-embed-text-v1.5: 12 layers, 768, 12 heads, rotary positions, gated 3,072."""
    config = NomicBertConfig(vocab_size=30_528, intermediate_size=3_072, max_position_embeddings=8_192)
    return NomicBertModel(config), 8_192


LONG_MODELS: dict[str, Callable[[], tuple[Any, int]]] = {
    "Longformer-base": longformer,
    "ModernBERT-base": modernbert,
    "NomicBERT-base": nomicbert,
}


def one_window(name: str, ids: torch.Tensor, dtype: torch.dtype) -> tuple[Callable[[], torch.Tensor], int]:
    """A run of one window of a long model, as full as the ids allow.

    Args:
        name: one of `LONG_MODELS`.
        ids: ``[T]`` token ids. Those of another vocabulary cost the same, as long as they are below its size.
        dtype: what the model computes in.

    Returns:
        The run, which gives the window's mean vector ``[D]``, and the tokens it reads.
    """
    model, window = LONG_MODELS[name]()
    model = model.to(dtype).eval()
    batch = ids[None, :window]  # [1, T]
    extras = {}
    if name == "Longformer-base":  # its first token sees all, and is seen by all
        extras["global_attention_mask"] = torch.zeros_like(batch).index_fill(1, torch.tensor([0]), 1)

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return model(input_ids=batch, **extras).last_hidden_state[0].float().mean(dim=0)

    return run, batch.shape[1]
