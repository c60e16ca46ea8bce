"""A chunk encoder made of several: their vectors centred, whitened or not, weighted and put side by side.

A table of token vectors knows words and style, a transformer knows meaning; together they know more than either.

Notation for shapes: N chunks, C tokens in the longest chunk, D size of the whole vector.
"""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from .chunk_encoder import ChunkEncoder
from .chunking import ChunkingRule
from .pooling import ChunkCentring, ChunkWhitening
from .static_encoder import HashedTfidfConfig, StaticEmbeddingConfig


@strict
class HybridConfig(PreTrainedConfig):
    """The parts of a hybrid chunk encoder.

    Args:
        parts: of each the ``config`` (a dictionary), ``pooling``, ``normalize``, the ``size`` of its share of the
            vector, and whether to ``whiten`` it or only to centre it; by default True.
        prefix_ids, suffix_ids: special tokens around every chunk, for those parts that are transformers.
        max_position_embeddings: longest chunk, special tokens included; None if nothing limits it.
    """

    model_type = "hybrid-chunk-encoder"

    parts: list[dict[str, Any]] | None = None
    prefix_ids: list[int] | tuple[int, ...] = ()
    suffix_ids: list[int] | tuple[int, ...] = ()
    vocab_size: int = 30_522
    max_position_embeddings: int | None = None
    num_hidden_layers: int = 0
    pad_token_id: int | None = 0

    @property
    def hidden_size(self) -> int:
        return sum(part["size"] for part in self.parts or [])


# Chunk encoders that `AutoModel` does not know.
OWN_KINDS: tuple[type[PreTrainedConfig], ...] = (StaticEmbeddingConfig, HashedTfidfConfig, HybridConfig)


def part_config(values: dict[str, Any]) -> PreTrainedConfig:
    """The configuration of a chunk encoder of any kind."""
    for kind in OWN_KINDS:
        if values["model_type"] == kind.model_type:
            return kind(**values)
    return AutoConfig.for_model(**values)


class HybridModel(PreTrainedModel):
    """The weights of a hybrid: its parts, how each is centred or whitened, and how much it counts."""

    config_class = HybridConfig
    base_model_prefix = "hybrid"
    weights: torch.Tensor

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config)
        parts = config.parts or []
        if not parts:
            raise ValueError("A hybrid chunk encoder needs parts, of two encoders or more.")
        encoders = [ChunkEncoder(part_config(part["config"]), part["pooling"], part["normalize"]) for part in parts]
        self.parts = nn.ModuleList(encoders)
        self.whitenings = nn.ModuleList(
            ChunkWhitening(encoder.hidden_size, part["size"])
            if part.get("whiten", True)
            else ChunkCentring(encoder.hidden_size)
            for encoder, part in zip(encoders, parts, strict=True)
        )
        self.register_buffer("weights", torch.full((len(parts),), len(parts) ** -0.5))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: the parts come with weights."""


class HybridChunkEncoder(ChunkEncoder):
    """Chunk vectors ``[N, D]`` of several encoders side by side, of length 1."""

    model: HybridModel

    def __init__(self, config: HybridConfig, pooling: Any = "mean", normalize: bool = True) -> None:
        nn.Module.__init__(self)  # not the parent's: there is no single network
        self.model = HybridModel(config)
        self.dense = nn.Sequential()
        self.pooling, self.normalize = pooling, normalize
        self._identity = None
        self.eval()

    @property
    def has_layers(self) -> bool:
        return False

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Chunk vectors ``[N, D]`` of chunk ids ``[N, C]``, special tokens included; no mask means no padding."""
        config = self.model.config
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        before, after = len(config.prefix_ids), len(config.suffix_ids)
        rows = [row[keep.bool()].cpu().numpy() for row, keep in zip(input_ids, mask, strict=True)]
        texts = [row[before : len(row) - after] for row in rows]
        boundaries = np.cumsum([0] + [len(text) for text in texts])
        return self.encode(np.concatenate(texts), boundaries, self._rule(boundaries))

    def _rule(self, boundaries: np.ndarray) -> ChunkingRule:
        config = self.model.config
        specials = len(config.prefix_ids) + len(config.suffix_ids)
        longest = int(np.diff(boundaries).max(initial=1))
        return ChunkingRule(
            max(3, longest + specials), prefix_ids=tuple(config.prefix_ids), suffix_ids=tuple(config.suffix_ids)
        )

    @torch.no_grad()
    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        tokens_per_batch: int | None = None,
        bar: tqdm | None = None,
    ) -> torch.Tensor:
        """Arguments and result as those of `ChunkEncoder.encode`."""
        shares = []
        encoders: list[Any] = list(self.model.parts)
        slowest = max(range(len(encoders)), key=lambda number: encoders[number].has_layers)
        for number, (encoder, whitening) in enumerate(zip(encoders, self.model.whitenings, strict=True)):
            vectors = encoder.encode(input_ids, boundaries, rule, tokens_per_batch, bar if number == slowest else None)
            shares.append(self.model.weights[number] * whitening(vectors.to(self.device)).float())
        return torch.cat(shares, dim=1)  # [N, D]

    def encode_padded(
        self, input_ids: torch.Tensor, mask: torch.Tensor, rule: ChunkingRule
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Arguments and result as those of `ChunkEncoder.encode_padded`."""
        parts: list[Any] = list(self.model.parts)
        encoded = [part.encode_padded(input_ids, mask, rule) for part in parts]
        shares = [
            weight * whitening(vectors).float()
            for weight, whitening, (vectors, _) in zip(self.model.weights, self.model.whitenings, encoded, strict=True)
        ]
        return torch.cat(shares, dim=-1), encoded[0][1]
