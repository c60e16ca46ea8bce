"""What is fitted to text: whitening of chunk vectors, hashed TF-IDF, and several chunk encoders
side by side.

Sentence encoders leave a large common direction in every vector, and what varies most from chunk to
chunk of a book (dialogue or narration) says little about which book it is: whitening takes both
out.

Notation for shapes: N chunks, T tokens in all, D size of the whole vector.
"""

# No `from __future__ import annotations` here: `strict` checks types only where they are not
# strings.
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoConfig, PreTrainedConfig

from .chunk_encoder import STATIC_MODELS, ChunkEncoder, StaticEmbeddingConfig, StaticModel, unit
from .chunking import ChunkingRule


class ChunkCentring(nn.Module):
    """``[..., D]`` chunk vectors to centred ones of length 1: normalise(v - m).

    Mean and weight are buffers, not parameters: saved with the model, but out of reach of
    optimisers and of unfreezing. Before `fitting.fit_whitening` gives others they are zero and the
    identity.
    """

    mean: torch.Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(hidden_size))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return unit(vectors.to(self.mean.dtype) - self.mean)


class ChunkWhitening(ChunkCentring):
    """``[..., D]`` chunk vectors to whitened ones of length 1: normalise(W (v - m))."""

    weight: torch.Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size)
        self.register_buffer("weight", torch.eye(hidden_size))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return unit((vectors.to(self.mean.dtype) - self.mean) @ self.weight.T)


@strict
class HashedTfidfConfig(StaticEmbeddingConfig):
    """The `hidden_size` places that tokens are hashed to."""

    model_type = "hashed-tfidf"

    hidden_size: int = 2_048


class HashedTfidfModel(StaticModel):
    """TF-IDF by feature hashing: every token has a place among D and a signed weight, the vector is
    zero elsewhere.

    The dot product of two vectors is that of the TF-IDF vectors plus noise with mean zero and
    variance about 1 / D (Weinberger and others 2009, Feature Hashing for Large Scale Multitask
    Learning, lemma 2).
    """

    config_class = HashedTfidfConfig
    places: torch.Tensor

    def __init__(self, config: HashedTfidfConfig) -> None:
        super().__init__(config)
        self.register_buffer("places", torch.zeros(config.vocab_size, dtype=torch.int32))
        self.weight = nn.Parameter(torch.zeros(config.vocab_size))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: they are fitted, never trained."""

    def _means(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        lengths = offsets.diff()
        size = self.config.hidden_size
        chunk = torch.repeat_interleave(
            torch.arange(len(lengths), device=ids.device), lengths
        )  # [T]
        pairs, counts = torch.unique(chunk * self.config.vocab_size + ids, return_counts=True)
        chunk, ids = (
            pairs // self.config.vocab_size,
            pairs % self.config.vocab_size,
        )  # each token once in a chunk
        times = 1 + counts.float().log()
        sums = torch.zeros(len(lengths) * size, device=lengths.device)
        sums.index_add_(0, chunk * size + self.places[ids], times * self.weight[ids].float())
        return sums.view(-1, size) / lengths.clamp(min=1)[:, None]  # [N, D]


@strict
class HybridConfig(PreTrainedConfig):
    """The parts of a hybrid chunk encoder.

    `parts` have the ``config`` (a dictionary), ``pooling`` and ``normalize`` of an encoder, the
    ``size`` of its vectors, and whether to ``whiten`` or only to centre them.
    `max_position_embeddings` is the longest chunk.
    """

    model_type = "hybrid-chunk-encoder"

    parts: list[dict[str, Any]] | None = None
    max_position_embeddings: int | None = None
    num_hidden_layers: int = 0
    pad_token_id: int | None = 0

    @property
    def hidden_size(self) -> int:
        return sum(part["size"] for part in self.parts or [])


class HybridModel(StaticModel):
    """Several encoders side by side, each centred or whitened and weighted so that chunk vectors
    have length 1.
    """

    config_class = HybridConfig
    weights: torch.Tensor

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config)
        parts = config.parts or []
        self.parts = nn.ModuleList(
            ChunkEncoder(chunk_encoder_config(part["config"]), part["pooling"], part["normalize"])
            for part in parts
        )
        self.whitenings = nn.ModuleList(
            (ChunkWhitening if part["whiten"] else ChunkCentring)(part["size"]) for part in parts
        )
        self.register_buffer("weights", torch.full((len(parts),), max(len(parts), 1) ** -0.5))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: the parts come with weights."""

    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        tokens_per_batch: int | None,
        bar: tqdm | None,
    ) -> torch.Tensor:
        """Arguments and result as those of `ChunkEncoder.encode`."""
        shares = []
        parts = list[Any](self.parts)
        slowest = max(parts, key=lambda part: part.has_layers)
        for part, whitening, weight in zip(parts, self.whitenings, self.weights, strict=True):
            vectors = part.encode(
                input_ids, boundaries, rule, tokens_per_batch, bar if part is slowest else None
            )
            shares.append(weight * whitening(vectors.to(self.device)).float())
        return torch.cat(shares, dim=1)  # [N, D]


STATIC_MODELS[HashedTfidfConfig.model_type] = HashedTfidfModel
STATIC_MODELS[HybridConfig.model_type] = HybridModel


def chunk_encoder_config(values: dict[str, Any]) -> PreTrainedConfig:
    """The configuration of a chunk encoder of any kind."""
    static: Any = STATIC_MODELS.get(values["model_type"])
    return AutoConfig.for_model(**values) if static is None else static.config_class(**values)
