"""A baseline for ranking: the mean of frozen vectors, and a linear map that is trained as the models are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ...models.pooling import masked_mean


class MeanRanker(nn.Module):
    """The mean of a text's frozen vectors, through one linear map without bias that starts as the identity.

    So before training it is the encoder itself: an encoder of another kind has one vector a text, and Avg. SBERT one
    for each chunk.

    Args:
        hidden_size: D, size of a vector.
    """

    accepts_loss_kwargs = False  # losses are means over the batch

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.map = nn.Linear(hidden_size, hidden_size, bias=False)
        nn.init.eye_(self.map.weight)

    def forward(self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor) -> BaseModelOutputWithPooling:
        """The vectors as they are, and as `pooler_output` a vector ``[B, D]`` of each text.

        Args:
            inputs_embeds: vectors ``[B, L, D]``.
            attention_mask: 1 where there is one, ``[B, L]``.
        """
        pooled = self.map(masked_mean(inputs_embeds, attention_mask))
        return BaseModelOutputWithPooling(last_hidden_state=inputs_embeds, pooler_output=pooled)

    def contextualize(self, documents: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The vectors ``[n, D]`` of each text as they are, and the texts' own ``[B, D]``; as our models have it."""
        device = self.map.weight.device
        means = torch.stack([rows.float().mean(dim=0) for rows in documents])  # [B, D]
        return list(documents), self.map(means.to(device))
