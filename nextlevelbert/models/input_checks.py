"""Refuses what torch would refuse less kindly, or compute in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .masking import MASK, NOT_SPECIAL


def check_token_ids(input_ids: torch.Tensor, attention_mask: torch.Tensor | None, vocab_size: int) -> torch.Tensor:
    """The mask of token ids ``[B, T]`` as bool, all true where none is given.

    Raises:
        ValueError: for ids that are not integers ``[B, T]`` of at least one document, a mask of another
            shape, or an id outside the vocabulary.
    """
    if input_ids.ndim != 2 or len(input_ids) == 0 or input_ids.is_floating_point():
        raise ValueError(
            "input_ids must be integers [documents, tokens] of at least one document, "
            f"got {input_ids.dtype} {tuple(input_ids.shape)}."
        )
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    if attention_mask.shape != input_ids.shape:
        raise ValueError(
            f"attention_mask must be {tuple(input_ids.shape)} like input_ids, got {tuple(attention_mask.shape)}."
        )
    mask = attention_mask.bool()
    bad = ((input_ids < 0) | (input_ids >= vocab_size)) & mask
    if bad.any():
        raise ValueError(
            f"input_ids must be from 0 to {vocab_size - 1}, the encoder's vocabulary, got "
            f"{int(input_ids[bad][0])}; use the tokenizer that belongs to the model (model.tokenizer)."
        )
    return mask


def check_sequences(
    config: Any,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    global_attention_mask: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    token_type_ids: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Real and global positions, ``[B, L]`` bool each, of what a Longformer reads.

    Args:
        config: of the model, with `vocab_size` and `max_sequence_length`.
        input_ids, attention_mask, global_attention_mask, inputs_embeds, token_type_ids: as in `CdlmModel`.

    Raises:
        ValueError: for ids and embeddings or neither, ids outside the vocabulary, masks of other shapes or values, a
            sequence without tokens or with more than the model reads.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Give either input_ids or inputs_embeds, not both and not neither.")
    if input_ids is not None:
        real = check_token_ids(input_ids, attention_mask, config.vocab_size)
    else:
        assert inputs_embeds is not None  # said above
        shape = inputs_embeds.shape[:2]
        if inputs_embeds.ndim != 3 or (attention_mask is not None and attention_mask.shape != shape):
            got = None if attention_mask is None else tuple(attention_mask.shape)
            raise ValueError(
                "inputs_embeds must be [B, L, D] and attention_mask [B, L], "
                f"got {tuple(inputs_embeds.shape)} and {got}."
            )
        real = inputs_embeds.new_ones(shape).bool() if attention_mask is None else attention_mask.bool()
    if token_type_ids is not None:
        types = config.type_vocab_size
        if token_type_ids.shape != real.shape or ((token_type_ids < 0) | (token_type_ids >= types)).any():
            raise ValueError(
                f"token_type_ids must be {tuple(real.shape)}, from 0 to {types - 1}, got "
                f"{tuple(token_type_ids.shape)} with {token_type_ids.unique().tolist()[:9]}."
            )
    lengths, limit = real.sum(dim=1), config.max_sequence_length
    if not lengths.all():
        raise ValueError(f"Rows {(lengths == 0).nonzero().flatten().tolist()} have no token to read.")
    if (long := lengths > limit).any():
        raise ValueError(
            f"Rows {long.nonzero().flatten().tolist()} have up to {int(lengths.max())} tokens, the model reads "
            f"{limit}: let a CdlmProcessor share them out among the documents, or start from the encoder with a "
            "larger max_length."
        )
    if global_attention_mask is None:
        return real, torch.zeros_like(real)
    wide = global_attention_mask
    if wide.shape != real.shape or ((wide != 0) & (wide != 1)).any():
        raise ValueError(
            f"global_attention_mask must be {tuple(real.shape)} with 0 and 1, got {tuple(wide.shape)} with "
            f"{wide.unique().tolist()[:9]}."
        )
    return real, wide.bool() & real


def check_vectors(inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, hidden_size: int) -> torch.Tensor:
    """The mask of chunk vectors ``[B, L, D]`` as bool ``[B, L]``, all true where none is given.

    Raises:
        ValueError: for vectors of another shape, a mask that does not fit them, or NaN or infinity in a
            vector that the mask keeps.
    """
    if inputs_embeds.ndim != 3 or inputs_embeds.shape[-1] != hidden_size or len(inputs_embeds) == 0:
        raise ValueError(
            f"inputs_embeds must be [documents, chunks, {hidden_size}] of at least one document, "
            f"got {tuple(inputs_embeds.shape)}. Vectors of another encoder do not fit this model."
        )
    if attention_mask is None:
        attention_mask = torch.ones(inputs_embeds.shape[:2], device=inputs_embeds.device)
    if attention_mask.shape != inputs_embeds.shape[:2]:
        raise ValueError(
            f"attention_mask must be {tuple(inputs_embeds.shape[:2])}, one flag a chunk, "
            f"got {tuple(attention_mask.shape)}."
        )
    mask = attention_mask.bool()
    _check_finite(inputs_embeds, mask, "document(s)")
    return mask


def check_packed(inputs_embeds: torch.Tensor, special_ids: torch.Tensor, hidden_size: int, positions: int) -> None:
    """Looks at packed sequences ``[B, S, D]`` and their special positions ``[B, S]``.

    Args:
        inputs_embeds, special_ids: the sequences.
        hidden_size: what D must be.
        positions: most that S may be.

    Raises:
        ValueError: for shapes that do not fit, too many positions, an unknown special id, NaN or infinity.
    """
    shape = tuple(inputs_embeds.shape)
    if len(shape) != 3 or shape[-1] != hidden_size or special_ids.shape != shape[:2] or 0 in shape:
        raise ValueError(
            f"Packed sequences are inputs_embeds [B, S, {hidden_size}] and special_ids [B, S], "
            f"got {shape} and {tuple(special_ids.shape)}."
        )
    if shape[1] > positions:
        raise ValueError(
            f"Packed sequences may have {positions} positions here, got {shape[1]}; make them shorter "
            "(--sequence_length), or use an encoder_config with more positions."
        )
    if special_ids.min() < NOT_SPECIAL or special_ids.max() > MASK:
        raise ValueError(
            f"special_ids must be {NOT_SPECIAL} at chunk vectors, else 0 to {MASK}, "
            f"got {int(special_ids.min())} to {int(special_ids.max())}."
        )
    _check_finite(inputs_embeds, special_ids == NOT_SPECIAL, "sequence(s)")


def check_lengths(
    lengths: Sequence[int], limit: int, policy: str, first: int = 0, one_window: bool = False
) -> list[int]:
    """Positions of the documents that have more chunks than a window holds.

    Args:
        lengths: chunks of each document.
        limit: chunks in a window.
        policy: `long_documents` of the configuration.
        first: number of the first document, for the message.
        one_window: refuse longer ones whatever the policy is.

    Raises:
        ValueError: naming those documents, where they are not allowed.
    """
    long = [index for index, length in enumerate(lengths) if length > limit]
    if long and (one_window or policy == "error"):
        remedy = "Hidden states and attentions exist for one window." if one_window else "Set long_documents='window'."
        raise ValueError(
            f"Documents {[first + index for index in long]} have {[lengths[index] for index in long]} chunks, "
            f"more than max_chunks = {limit}. {remedy}"
        )
    return long


def _check_finite(vectors: torch.Tensor, mask: torch.Tensor, what: str) -> None:
    bad = (~torch.isfinite(vectors).all(dim=-1) & mask).any(dim=1)
    if bad.any():
        raise ValueError(
            f"inputs_embeds of {what} {bad.nonzero().flatten().tolist()} hold NaN or infinity; encode them again."
        )
