"""Longformer's attention through `scaled_dot_product_attention`: the same result as transformers' own, faster.

A token with local attention sees a window of tokens around it and every global token; a global token sees
everything, through projections of its own (Beltagy et al., 2020, section 3.1). Queries are taken in blocks: each
block sees the keys of its windows, laid out next to each other, and the global keys after them. The global tokens of
CDLM are everywhere (they are the masked ones), so a block mask over the whole square would have no empty block.

Shapes: B sequences, L positions, H heads, d dimensions of a head, G global positions in the sequence that has most,
n blocks of c queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention


@dataclass(frozen=True)
class AttentionPlan:
    """Who sees whom, worked out once for all layers with the same window.

    Attributes:
        real, is_global: ``[B, L]`` bool.
        global_index: ``[B, G]``, positions of the global tokens, then of others where a sequence has fewer.
        global_real: ``[B, G]`` bool, where `global_index` means something.
        allowed: which keys a query may see: ``[B, 1, L, L]``, or with blocks ``[B · n, 1, c, c + window + G]``.
        block: c; None where every query sees the keys of all positions, because blocks would have as many.
    """

    real: torch.Tensor
    is_global: torch.Tensor
    global_index: torch.Tensor
    global_real: torch.Tensor
    allowed: torch.Tensor
    block: int | None


def plan_attention(real: torch.Tensor, is_global: torch.Tensor, window: int) -> AttentionPlan:
    """Who sees whom, of ``[B, L]`` real and global (and real) positions, with a window of both sides together."""
    rows, length = real.shape
    half = window // 2
    counts = is_global.sum(dim=1)
    most = int(counts.max())
    # A stable sort puts the global positions first and keeps their order.
    global_index = (~is_global).long().argsort(dim=1, stable=True)[:, :most]  # [B, G]
    global_real = torch.arange(most, device=real.device) < counts[:, None]
    position = torch.arange(length, device=real.device)
    if 3 * half + most >= length:
        near = (position[:, None] - position).abs() <= half  # [L, L]
        allowed = (near & real[:, None, :]) | is_global[:, None, :]
        allowed = allowed | ~real[:, :, None]  # a query without keys would give NaN; padding is set to zero later
        return AttentionPlan(real, is_global, global_index, global_real, allowed[:, None], None)
    blocks = -(-length // half)
    # Global keys are seen as such, not a second time in the window.
    local = _windows(nn.functional.pad((real & ~is_global).unsqueeze(-1), (0, 0, 0, blocks * half - length)), half)
    query = torch.arange(half, device=real.device)
    key = torch.arange(3 * half, device=real.device) - half
    near = (query[:, None] - key).abs() <= half  # [c, 3c]
    allowed = near & local.squeeze(-1)[:, :, None, :]  # [B, n, c, 3c]
    wide = global_real[:, None, None, :].expand(rows, blocks, half, most)
    allowed = torch.cat([allowed, wide], dim=-1)
    query_real = nn.functional.pad(real, (0, blocks * half - length)).view(rows, blocks, half, 1)
    allowed = (allowed | ~query_real).flatten(0, 1).unsqueeze(1)
    return AttentionPlan(real, is_global, global_index, global_real, allowed, half)


def _windows(values: torch.Tensor, block: int) -> torch.Tensor:
    """Every block of ``[B, n · c, …]`` between its neighbours: ``[B, n, 3c, …]``, zero outside."""
    parts = values.unflatten(1, (-1, block))  # [B, n, c, …]
    edge = torch.zeros_like(parts[:, :1])
    padded = torch.cat([edge, parts, edge], dim=1)
    return torch.cat([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], dim=2)


class CdlmSelfAttention(LongformerSelfAttention):
    """Longformer's self-attention; with an `AttentionPlan` in place of its mask, through SDPA."""

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As in transformers, or with a plan: ``([B, L, D],)``, zero at padding."""
        if not isinstance(attention_mask, AttentionPlan):
            return super().forward(hidden_states, attention_mask, *args, **kwargs)
        plan = attention_mask
        query, key, value = (
            project(hidden_states).unflatten(-1, (self.num_heads, self.head_dim))
            for project in (self.query, self.key, self.value)
        )  # [B, L, H, d] each
        if plan.block is None:
            output = self._attend(query, key, value, plan.allowed)
        else:
            length = hidden_states.shape[1]
            missing = (0, 0, 0, 0, 0, -length % plan.block)
            query, keys, values = (nn.functional.pad(heads, missing) for heads in (query, key, value))
            keys, values = (_windows(heads, plan.block) for heads in (keys, values))  # [B, n, 3c, H, d]
            if plan.global_index.shape[1]:
                blocks = keys.shape[1]
                keys, values = (
                    torch.cat([near, _take(heads, plan.global_index)[:, None].expand(-1, blocks, -1, -1, -1)], dim=2)
                    for near, heads in ((keys, key), (values, value))
                )
            query = query.unflatten(1, (-1, plan.block)).flatten(0, 1)  # [B · n, c, H, d]
            output = self._attend(query, keys.flatten(0, 1), values.flatten(0, 1), plan.allowed)
            output = output.reshape(len(hidden_states), -1, self.num_heads, self.head_dim)[:, :length]
        output = output.flatten(-2)  # [B, L, D]
        if plan.global_index.shape[1]:
            seen = self._attend(
                self.query_global(_take(hidden_states, plan.global_index)).unflatten(-1, (self.num_heads, -1)),
                self.key_global(hidden_states).unflatten(-1, (self.num_heads, -1)),
                self.value_global(hidden_states).unflatten(-1, (self.num_heads, -1)),
                plan.real[:, None, None, :],
            ).flatten(-2)  # [B, G, D]
            # Both masks are read row by row, in the order of positions.
            output = output.masked_scatter(plan.is_global.unsqueeze(-1), seen[plan.global_real])
        return (output.masked_fill(~plan.real.unsqueeze(-1), 0.0),)

    def _attend(self, query: Any, key: Any, value: Any, allowed: torch.Tensor) -> torch.Tensor:
        """Attention over ``[…, positions, H, d]``; `allowed` broadcasts over the heads."""
        query, key, value = (heads.transpose(1, 2) for heads in (query, key, value))
        dropout = self.dropout if self.training else 0.0
        output = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed, dropout_p=dropout)
        return output.transpose(1, 2)


def _take(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Positions ``[B, G]`` out of ``[B, L, …]``: ``[B, G, …]``."""
    rows = torch.arange(len(values), device=values.device)[:, None]
    return values[rows, index]


def real_tokens(
    input_ids: torch.Tensor | None, attention_mask: torch.Tensor | None, inputs_embeds: torch.Tensor | None = None
) -> torch.Tensor:
    """Where a batch has tokens, ``[B, L]`` bool: everywhere without a mask."""
    if (values := inputs_embeds if input_ids is None else input_ids) is None:
        raise ValueError("Give input_ids or inputs_embeds.")
    whole = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
    return whole if attention_mask is None else attention_mask.bool()


def first_token(real: torch.Tensor) -> torch.Tensor:
    """True at the first real position of each row, its [CLS]: ``[B, L]``."""
    return (real.cumsum(dim=1) == 1) & real
