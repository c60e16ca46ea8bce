"""Longformer's attention as CDLM uses it, by blocks of PyTorch's fused attention.

Shapes: B sequences in a batch, L token positions, D hidden size, H heads of d dimensions, G global
positions in the sequence with most of them, n blocks of c queries.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from transformers.models.longformer import modeling_longformer as longformer

# On a CPU, blocks are the faster way wherever they have fewer keys: with a window of 512, a layer
# over 1,536 tokens takes 0.7 times as long. On one H200, a forward pass over 4,096 tokens took 20.9
# ms by blocks and 8.8 ms with all keys, and a training step as long or less.
_LONGEST_SQUARE_ON_GPU = 4_096


@dataclass(frozen=True)
class AttentionPlan:
    """Says which keys each query may attend to, for all layers with the same window.

    Attributes:
        real: bool mask ``[B, L]``, true at tokens.
        is_global: bool mask ``[B, L]``, true at tokens with global attention.
        global_index: positions of the global tokens, ``[B, G]``, followed by other positions if a
            sequence has fewer than G.
        global_real: bool mask ``[B, G]``, true at the entries of `global_index` that are global
            tokens.
        allowed: bool, true at the keys that a query may attend to: ``[B, 1, L, L]``, or with blocks
            ``[B · n, 1, c, 3c + G]``.
        block: c; None if all queries are compared with all keys, because blocks would have as many
            keys.
    """

    real: Tensor
    is_global: Tensor
    global_index: Tensor
    global_real: Tensor
    allowed: Tensor
    block: int | None


def plan_attention(
    real: Tensor, is_global: Tensor, window: int, most: int | None = None
) -> AttentionPlan:
    """Works out which keys each query may attend to (Beltagy et al., 2020, section 3.1).

    A token with local attention attends to the tokens around it and to all global tokens. A global
    token attends to all tokens, with projections of its own. Queries are grouped in blocks; a block
    attends to itself and its two neighbours, which are laid out next to each other, and to the
    global keys after them. A sparse block mask over all positions would not help: CDLM's global
    tokens, the masked words, are everywhere, so that no block would be empty.

    Args:
        real: bool mask ``[B, L]``, true at tokens.
        is_global: bool mask ``[B, L]``, true at tokens with global attention; false at padding.
        window: tokens of both sides together that a token attends to.
        most: G, most global tokens of a sequence (default: they are counted, for which a GPU is
            waited for).
    """
    length = real.shape[1]
    half = window // 2
    counts = is_global.sum(dim=1)
    if most is None:
        most = int(counts.max())

    # A stable sort puts the global positions first and keeps their order.
    global_index = (~is_global).long().argsort(dim=1, stable=True)[:, :most]  # [B, G]
    global_real = torch.arange(most, device=real.device) < counts[:, None]  # [B, G]

    is_square = 3 * half + most >= length
    if real.is_cuda and length <= _LONGEST_SQUARE_ON_GPU:
        is_square = True
    if is_square:
        block = None
        allowed = _allowed_in_square(real, is_global, half=half)
    else:
        block = half
        allowed = _allowed_in_blocks(real, is_global, global_real=global_real, block=half)

    return AttentionPlan(
        real=real,
        is_global=is_global,
        global_index=global_index,
        global_real=global_real,
        allowed=allowed,
        block=block,
    )


def _allowed_in_square(real: Tensor, is_global: Tensor, half: int) -> Tensor:
    """Compares all queries with all keys: ``[B, 1, L, L]``."""
    position = torch.arange(real.shape[1], device=real.device)
    distance = (position[:, None] - position).abs()  # [L, L]
    near = distance <= half
    allowed = (near & real[:, None, :]) | is_global[:, None, :]  # [B, L, L]
    # A query without keys would give NaN; the states of padding are set to zero later.
    allowed = allowed | ~real[:, :, None]
    return allowed.unsqueeze(1)


def _allowed_in_blocks(real: Tensor, is_global: Tensor, global_real: Tensor, block: int) -> Tensor:
    """Compares blocks of queries with their keys and global ones: ``[B · n, 1, c, 3c + G]``."""
    # Global keys come after the window, and must not count twice.
    local_keys = with_neighbours(in_blocks(real & ~is_global, block))  # [B, n, 3c]
    query = torch.arange(block, device=real.device)
    key = torch.arange(3 * block, device=real.device) - block
    distance = (query[:, None] - key).abs()  # [c, 3c]
    near = distance <= block
    allowed_near = near & local_keys[:, :, None, :]  # [B, n, c, 3c]

    blocks = local_keys.shape[1]
    allowed_global = global_real[:, None, None, :].expand((-1, blocks, block, -1))  # [B, n, c, G]
    allowed = torch.cat([allowed_near, allowed_global], dim=-1)

    # A query without keys would give NaN; the states of padding are set to zero later.
    is_query = in_blocks(real, block).unsqueeze(-1)  # [B, n, c, 1]
    allowed = allowed | ~is_query
    return allowed.flatten(0, 1).unsqueeze(1)


def in_blocks(values: Tensor, block: int) -> Tensor:
    """Splits ``[B, L, …]`` into blocks ``[B, n, c, …]``; zeros fill the last block."""
    missing = -values.shape[1] % block
    later_dimensions = (0, 0) * (values.ndim - 2)
    padded = nn.functional.pad(values, (*later_dimensions, 0, missing))
    return padded.unflatten(1, (-1, block))


def with_neighbours(blocks: Tensor) -> Tensor:
    """Puts each block ``[B, n, c, …]`` between its neighbours: ``[B, n, 3c, …]``, zero outside."""
    outside = torch.zeros_like(blocks[:, :1])
    padded = torch.cat([outside, blocks, outside], dim=1)
    before = padded[:, :-2]
    after = padded[:, 2:]
    return torch.cat([before, blocks, after], dim=2)


def take_positions(states: Tensor, index: Tensor) -> Tensor:
    """Takes states ``[B, S, …]`` at positions ``[B, S]`` of ``[B, L, …]``; -1 takes position 0."""
    row = torch.arange(len(states), device=states.device)[:, None]
    return states[row, index.clamp(min=0)]


class CdlmSelfAttention(longformer.LongformerSelfAttention):
    """Computes Longformer's self-attention, with an `AttentionPlan` faster than with a mask."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Attends with PyTorch's fused attention if `attention_mask` is an `AttentionPlan`.

        With a mask, the pass is the one of transformers, with its arguments and outputs.

        Returns:
            With a plan, a tuple with the states ``[B, L, D]`` alone, zero at padding.
        """
        if not isinstance(attention_mask, AttentionPlan):
            return super().forward(hidden_states, attention_mask, *args, **kwargs)

        plan = attention_mask
        output = self._local_attention(hidden_states, plan)  # [B, L, D]
        if plan.global_index.shape[1] > 0:
            global_output = self._global_attention(hidden_states, plan)  # [B, G, D]
            # The other positions of the index keep what they have.
            kept = take_positions(output, plan.global_index)
            new = torch.where(plan.global_real.unsqueeze(-1), global_output, kept)
            row = torch.arange(len(output), device=output.device)[:, None]
            output = output.index_put((row, plan.global_index), new)
        elif self.training and distributed.is_available() and distributed.is_initialized():
            # DistributedDataParallel waits for the gradient of every weight.
            output = output + 0.0 * self._sum_of_global_weights()

        output = output.masked_fill(~plan.real.unsqueeze(-1), 0.0)
        return (output,)

    def _local_attention(self, hidden_states: Tensor, plan: AttentionPlan) -> Tensor:
        """Lets every token attend to its window and to the global tokens: ``[B, L, D]``."""
        query = self._split_heads(self.query(hidden_states))
        key = self._split_heads(self.key(hidden_states))
        value = self._split_heads(self.value(hidden_states))
        if plan.block is None:
            output = self._attend(query=query, key=key, value=value, allowed=plan.allowed)
            return output.flatten(-2)

        output = self._attend(
            query=in_blocks(query, plan.block).flatten(0, 1),  # [B · n, c, H, d]
            key=_seen_from_blocks(key, plan.global_index, block=plan.block),
            value=_seen_from_blocks(value, plan.global_index, block=plan.block),
            allowed=plan.allowed,
        )
        rows, length = hidden_states.shape[:2]
        output = output.flatten(-2).reshape(rows, -1, self.embed_dim)
        return output[:, :length]

    def _global_attention(self, hidden_states: Tensor, plan: AttentionPlan) -> Tensor:
        """Lets global tokens attend to all tokens, by projections of their own: ``[B, G, D]``."""
        global_states = take_positions(hidden_states, plan.global_index)
        output = self._attend(
            query=self._split_heads(self.query_global(global_states)),
            key=self._split_heads(self.key_global(hidden_states)),
            value=self._split_heads(self.value_global(hidden_states)),
            allowed=plan.real[:, None, None, :],
        )
        return output.flatten(-2)

    def _sum_of_global_weights(self) -> Tensor:
        """Sums the weights that only global tokens use."""
        total = self.query_global.weight.new_zeros(())
        for projection in (self.query_global, self.key_global, self.value_global):
            for weight in projection.parameters():
                total = total + weight.sum()
        return total

    def _split_heads(self, projected: Tensor) -> Tensor:
        """Splits ``[…, D]`` into ``[…, H, d]``."""
        return projected.unflatten(-1, (self.num_heads, self.head_dim))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
        """Attends over ``[…, positions, H, d]``; `allowed` broadcasts over the heads."""
        dropout = 0.0
        if self.training:
            dropout = self.dropout

        output = nn.functional.scaled_dot_product_attention(
            query=query.transpose(1, 2),
            key=key.transpose(1, 2),
            value=value.transpose(1, 2),
            attn_mask=allowed,
            dropout_p=dropout,
        )
        return output.transpose(1, 2)


def _seen_from_blocks(heads: Tensor, global_index: Tensor, block: int) -> Tensor:
    """Lays out keys (or values) ``[B, L, H, d]`` for each block: ``[B · n, 3c + G, H, d]``."""
    near = with_neighbours(in_blocks(heads, block))  # [B, n, 3c, H, d]
    if global_index.shape[1] == 0:
        return near.flatten(0, 1)

    global_heads = take_positions(heads, global_index)  # [B, G, H, d]
    blocks = near.shape[1]
    everywhere = global_heads.unsqueeze(1).expand((-1, blocks, -1, -1, -1))
    return torch.cat([near, everywhere], dim=2).flatten(0, 1)
