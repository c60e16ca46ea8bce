"""Chunk encoders without layers: a table of token vectors, hashed TF-IDF, and hybrids.

A hybrid may hold a transformer, too. Its parts, and the chunk vectors of a document model, can be
whitened: sentence encoders leave a large common direction in every vector, and what varies most
from chunk to chunk of a book (dialogue or narration) says little about which book it is; whitening
takes both out.

Notation for shapes: N chunks, T tokens in all, D size of the whole vector.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from .backbones import copy_properties_of_children
from .chunk_encoder import ChunkEncoder, unit
from .chunking import ChunkingRule
from .configuration_nextlevelbert import (
    STATIC_CONFIGS,
    HashedTfidfConfig,
    HybridConfig,
    PoolingMode,
    StaticEmbeddingConfig,
)


class ChunkCentring(nn.Module):
    """Centres chunk vectors and scales them to length 1: normalise(v - m).

    Mean and weight are buffers, not parameters: they are saved with the model, but optimisers and
    unfreezing do not reach them. Before `whitening.fit_whitening` they are zero and the identity.
    """

    mean: Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(hidden_size))

    def forward(self, vectors: Tensor) -> Tensor:
        """Maps ``[..., D]`` to ``[..., D]``."""
        return unit(vectors.to(self.mean.dtype) - self.mean)


class ChunkWhitening(ChunkCentring):
    """Whitens chunk vectors and scales them to length 1: normalise(W (v - m))."""

    weight: Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size)
        self.register_buffer("weight", torch.eye(hidden_size))

    def forward(self, vectors: Tensor) -> Tensor:
        """Maps ``[..., D]`` to ``[..., D]``."""
        centred = vectors.to(self.mean.dtype) - self.mean
        return unit(centred @ self.weight.T)


class StaticModel(PreTrainedModel):
    """Replaces the transformer of a chunk encoder: computes chunk vectors without layers.

    A subclass has a method `means`, or its own `encode`.
    """

    base_model_prefix = "static"

    def _init_weights(self, module: nn.Module) -> None:
        """Does nothing: the weights come from an encoder or are fitted, and never trained."""

    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        bar: tqdm | None = None,
        **options: Any,
    ) -> Tensor:
        """Computes the vector of each chunk, with arguments as in `ChunkEncoder.encode`.

        Warns of chunks without a known token: all of them have the vector of the unknown token.
        """
        if bar is not None:
            bar.update(len(boundaries) - 1)

        is_known = input_ids != self.config.unk_token_id
        known_before = np.append(0, np.cumsum(is_known))
        is_unknown = (np.diff(known_before[boundaries]) == 0) & (np.diff(boundaries) > 0)
        if is_unknown.any():
            warnings.warn(
                f"{is_unknown.sum()} chunk(s) consist of unknown tokens only, so their vectors are"
                " the same. Is the text in a language that the static chunk encoder was not made"
                " for?",
                stacklevel=2,
            )

        if rule.prompt_ids:
            input_ids, boundaries = _put_before_chunks(rule.prompt_ids, input_ids, boundaries)

        ids = torch.from_numpy(np.ascontiguousarray(input_ids, np.int32))
        offsets = torch.from_numpy(boundaries.astype(np.int32))
        return self.means(ids.to(self.device), offsets.to(self.device))


def _put_before_chunks(
    prompt_ids: Sequence[int], input_ids: np.ndarray, boundaries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Puts the ids of a prompt before the ids of each chunk; returns all ids, and boundaries."""
    size = len(prompt_ids)
    starts = boundaries[:-1]
    prompts = np.tile(np.asarray(prompt_ids, input_ids.dtype), len(starts))
    return (
        np.insert(input_ids, np.repeat(starts, size), prompts),
        boundaries + size * np.arange(len(boundaries)),
    )


class StaticEmbeddingModel(StaticModel):
    """Averages token vectors from a table."""

    config_class = StaticEmbeddingConfig

    def __init__(self, config: StaticEmbeddingConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def means(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Averages the token vectors of each chunk.

        Args:
            ids: tokens of all chunks, one chunk after the other, ``[T]``.
            offsets: start of each chunk, and T: ``[N + 1]``.

        Returns:
            The means, ``[N, D]`` float32.
        """
        vectors = F.embedding_bag(
            ids,
            self.embedding.weight,
            offsets=offsets,
            mode="mean",
            include_last_offset=True,
        )
        return vectors.float()


class HashedTfidfModel(StaticModel):
    """Computes TF-IDF by feature hashing: each token has one of D dimensions and a signed weight.

    The dot product of two vectors is the dot product of the TF-IDF vectors plus noise with mean
    zero and variance about 1 / D (Weinberger and others 2009, Feature Hashing for Large Scale
    Multitask Learning, lemma 2).
    """

    config_class = HashedTfidfConfig
    places: Tensor

    def __init__(self, config: HashedTfidfConfig) -> None:
        super().__init__(config)
        self.register_buffer("places", torch.zeros(config.vocab_size, dtype=torch.int32))
        self.weight = nn.Parameter(torch.zeros(config.vocab_size))
        self.post_init()

    def means(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Averages the token vectors of each chunk; see `StaticEmbeddingModel.means`."""
        lengths = offsets.diff()
        size = self.config.hidden_size
        words = self.config.vocab_size
        chunk = torch.arange(len(lengths), device=ids.device).repeat_interleave(lengths)  # [T]

        # Each token once in a chunk, with the number of times that it occurs there.
        pairs, counts = torch.unique(chunk * words + ids, return_counts=True)
        chunk = pairs // words
        token = pairs % words

        values = (1 + counts.float().log()) * self.weight[token].float()
        sums = torch.zeros(len(lengths) * size, dtype=torch.float32, device=lengths.device)
        sums.index_add_(0, chunk * size + self.places[token], values)
        return sums.view(-1, size) / lengths.clamp(min=1)[:, None]


class HybridModel(StaticModel):
    """Puts the vectors of several encoders side by side, each centred or whitened, and weighted.

    The weights are scaled so that chunk vectors have length 1.
    """

    config_class = HybridConfig
    weights: Tensor

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config)
        parts = config.parts or []
        self.parts = nn.ModuleList()
        self.whitenings = nn.ModuleList()
        for part in parts:
            values = part["config"]
            new_config = STATIC_CONFIGS.get(values["model_type"], AutoConfig.for_model)
            encoder = new_chunk_encoder(new_config(**values), part["pooling"], part["normalize"])
            whitening = ChunkCentring(part["size"])
            if part["whiten"]:
                whitening = ChunkWhitening(part["size"])
            self.parts.append(encoder)
            self.whitenings.append(whitening)

        copy_properties_of_children(self.parts)
        self.register_buffer("weights", torch.full((len(parts),), max(len(parts), 1) ** -0.5))
        self.post_init()

    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        bar: tqdm | None = None,
        **options: Any,
    ) -> Tensor:
        """Computes the vector of each chunk, with arguments as in `ChunkEncoder.encode`."""
        parts: Any = self.parts
        shares = []
        for part, whitening, weight in zip(parts, self.whitenings, self.weights, strict=True):
            vectors = part.encode(input_ids, boundaries, rule, bar=bar, **options)
            shares.append(weight * whitening(vectors.to(self.device)).float())
            bar = None  # the first part has moved it
        return torch.cat(shares, dim=1)  # [N, D]


STATIC_MODELS: dict[str, type[StaticModel]] = {
    StaticEmbeddingConfig.model_type: StaticEmbeddingModel,
    HashedTfidfConfig.model_type: HashedTfidfModel,
    HybridConfig.model_type: HybridModel,
}


class StaticChunkEncoder(ChunkEncoder):
    """Maps every chunk to one vector with one of the `STATIC_MODELS`."""

    has_layers = False

    def new_network(self, config: PreTrainedConfig) -> PreTrainedModel:
        """Makes the static model."""
        return STATIC_MODELS[config.model_type](config)

    @torch.no_grad()
    def encode(
        self, input_ids: np.ndarray, boundaries: np.ndarray, *args: Any, **options: Any
    ) -> Tensor:
        """Encodes chunks in one pass: a bag of tokens needs no micro-batches.

        The arguments are those of `ChunkEncoder.encode`; `tokens_per_batch` matters only to
        transformers in a hybrid.
        """
        self.check_ids(input_ids)
        vectors = self.model.encode(input_ids, boundaries, *args, **options)
        return self.project_and_normalize(vectors)


def new_chunk_encoder(
    config: PreTrainedConfig, pooling: PoolingMode = "mean", normalize: bool = True
) -> ChunkEncoder:
    """Makes a chunk encoder of any kind, with random weights."""
    if config.model_type in STATIC_MODELS:
        return StaticChunkEncoder(config, pooling, normalize)
    return ChunkEncoder(config, pooling, normalize)
