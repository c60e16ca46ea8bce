"""A new document model starts from its chunk encoder: the configuration read off it, and the layers copied."""

from __future__ import annotations

from typing import Any

import torch

from .backbones import without_attention_dropout
from .chunk_encoder import LoadedChunkEncoder
from .chunking import ChunkingRule


def config_values(source: LoadedChunkEncoder, chunk_size: int, chunking: str) -> dict[str, Any]:
    """Fields of a configuration whose two encoders both have the architecture of the chunk encoder.

    Attention dropout of the encoder over chunks is set to 0: it makes a training step on a CPU more than
    twice as slow.

    Raises:
        ValueError: for a chunk size that the encoder does not allow.
    """
    rule = ChunkingRule.from_tokenizer(source.tokenizer, chunk_size, chunking, source.max_chunk_size)  # type: ignore[arg-type]
    backbone = source.encoder.model
    return {
        "encoder_config": without_attention_dropout(backbone.config),
        "chunk_encoder_config": backbone.config.to_dict(),
        "chunk_encoder_name": source.name,
        "chunk_encoder_fingerprint": source.fingerprint,
        "chunk_encoder_pooling": source.encoder.pooling,
        "chunk_encoder_normalize": source.encoder.normalize,
        "chunking": chunking,
        "chunk_size": chunk_size,
        "chunk_prefix_ids": rule.prefix_ids,
        "chunk_suffix_ids": rule.suffix_ids,
        "sentence_token_ids": rule.sentence_token_ids or None,
        "pad_token_id": source.tokenizer.pad_token_id,
    }


def copy_layers(source: LoadedChunkEncoder, encoder: torch.nn.Module) -> None:
    """Copies the chunk encoder's layers and position table; word embeddings are left out.

    Raises:
        ValueError: for an encoder of another architecture, with more layers or other sizes (named).
    """
    weights = source.encoder.model.state_dict()
    wanted = encoder.state_dict()
    if missing := sorted(wanted.keys() - weights.keys()):
        raise ValueError(
            f"The chunk encoder has no weights for {len(missing)} tensors of encoder_config ({missing[0]}, …): "
            "another architecture or more layers cannot start from it; build the model from its configuration instead."
        )
    encoder.load_state_dict({name: _fit_rows(weights[name], wanted[name], name) for name in wanted})


def _fit_rows(source: torch.Tensor, target: torch.Tensor, name: str) -> torch.Tensor:
    """A weight, cut or continued by the target's own rows where only the number of rows (positions) differs."""
    if source.shape[1:] != target.shape[1:] or (source.shape != target.shape and "position" not in name):
        raise ValueError(
            f"{name} has shape {tuple(source.shape)} in the chunk encoder, but {tuple(target.shape)} here."
        )
    rows = min(len(source), len(target))
    return torch.cat([source[:rows], target[rows:]])
