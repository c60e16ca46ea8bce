"""HATE: a Transformer over sentence vectors that finds masked sentences in a vocabulary made of the batch.

"Hierarchical Attention-based Text Encoder (HATE)". It is NextLevelBERT with another encoder over chunks (sinusoids, a
bottleneck), fixed random vectors, no [SEP], and another loss (see `masked_vector_loss`).

Notation for shapes: B documents in a batch, L sentences of the longest, S = L + 1 positions with [CLS], D hidden
size of the sentence vectors, H of the document model, M masked positions of the batch.
"""

from __future__ import annotations

import itertools
from os import PathLike
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput

from .chunk_encoder import LoadedChunkEncoder
from .configuration_hate import HateConfig
from .configuration_nextlevelbert import PAD
from .modeling_nextlevelbert import (
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    NextLevelBertPreTrainedModel,
)
from .pretrained import backbone_from_config, encoders_of_package


def sinusoids(positions: torch.Tensor, size: int) -> torch.Tensor:
    """Sinusoidal positions ``[…, H]`` in float32: sin(p / 10000^(2i/H)) at 2i, cos of the same at 2i + 1.

    Vaswani et al. 2017, section 3.5, which the paper follows ("HATE Model Architecture").
    """
    rates = 10_000.0 ** (-torch.arange(0, size, 2, device=positions.device) / size)  # [ceil(H / 2)]
    angles = positions.unsqueeze(-1).float() * rates  # […, ceil(H / 2)]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :size]  # […, H]


class NoPositions(nn.Module):
    """Takes the place of a backbone's table of positions, and adds zero to every vector, in any dtype."""

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(position_ids).unsqueeze(-1)  # [B, S, 1]


class HateFixedVectors(nn.Module):
    """Random vectors, a buffer that is never trained: rows [PAD] (zeros), [CLS], an unused one, [MASK]."""

    weight: torch.Tensor

    def __init__(self, config: HateConfig) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(4, config.chunk_hidden_size))

    def forward(self, special_ids: torch.Tensor) -> torch.Tensor:
        return self.weight[special_ids]


class HateBottleneckLinear(nn.Linear):
    """A layer of the autoencoder; it has its own class because its initialisation differs, see `_init_weights`."""


class HateBottleneck(nn.Sequential):
    """Half of an undercomplete autoencoder: linear layers of given widths, or none, with GELU between them.

    From D to H before the document model, and mirrored after it in pretraining (paper: "Downscaling …").
    """

    def __init__(self, widths: list[int]) -> None:
        layers = [[nn.GELU(), HateBottleneckLinear(wide, narrow)] for wide, narrow in itertools.pairwise(widths)]
        super().__init__(*[*itertools.chain(*layers)][1:])


class HateEncoder(nn.Module):
    """From sentence vectors ``[B, S, D]`` to contextual ones ``[B, S, H]``: scale, bottleneck, positions, layers."""

    def __init__(self, config: HateConfig) -> None:
        super().__init__()
        self.scale: Any = config.vector_scale  # the configuration has set it
        self.reduction = HateBottleneck(config.bottleneck_widths())
        upper = config.encoder_config
        self.layers = backbone_from_config(upper)
        # Longformer embeds ids to pad its windows; DistilBERT's sinusoids are a table that is filled on loading.
        unfit = upper.model_type == "longformer" or getattr(upper, "sinusoidal_pos_embds", False)
        if unfit or not hasattr(getattr(self.layers, "embeddings", None), "position_embeddings"):
            raise ValueError(
                f"HATE replaces the learned position table with sinusoids, but {upper.model_type} as configured has "
                "no table that can be removed. Give an encoder_config of BERT, RoBERTa or similar."
            )
        self.layers.set_input_embeddings(None)  # vectors come in, not ids
        self.layers.embeddings.position_embeddings = NoPositions()

    @property
    def embeddings(self) -> nn.Module:
        return self.layers.embeddings

    def forward(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None = None, **extras: bool
    ) -> BaseModelOutput:
        hidden = self.reduction(inputs_embeds * self.scale)  # [B, S, H]
        positions = torch.arange(hidden.shape[1], device=hidden.device)  # [S]
        hidden = hidden + sinusoids(positions, hidden.shape[-1]).to(hidden.dtype)
        return self.layers(inputs_embeds=hidden, attention_mask=attention_mask, **extras)


class HatePreTrainedModel(NextLevelBertPreTrainedModel):
    """What all HATE classes share: configuration, initialisation, and the start from a chunk encoder."""

    config: HateConfig
    config_class = HateConfig
    family_auto_map = {
        "AutoConfig": "configuration_hate.HateConfig",
        "AutoModel": "modeling_hate.HateModel",
        "AutoModelForPreTraining": "modeling_hate.HateForMaskedSentencePrediction",
        "AutoModelForSequenceClassification": "modeling_hate.HateForSequenceClassification",
    }
    model_tags = ["hate", "sentence-transformers"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, HateFixedVectors):
            # As long as the sentence vectors around them.
            config = self.config
            init.normal_(module.weight, std=config.chunk_hidden_size**-0.5 if config.chunk_encoder_normalize else 1.0)
            init.zeros_(module.weight[PAD])
        elif isinstance(module, HateBottleneckLinear):
            # Keeps the size of the vectors; with initializer_range they would almost vanish beside the positions.
            init.kaiming_normal_(module.weight, nonlinearity="relu")

    @classmethod
    def from_chunk_encoder(  # type: ignore[override]
        cls, chunk_encoder: str | PathLike[str] | LoadedChunkEncoder, hidden_size: int | None = None,
        num_hidden_layers: int = 6, chunk_size: int = 256, **config_kwargs: Any,
    ) -> Any:  # fmt: skip
        """A new, random document model over the sentence vectors of a frozen encoder.

        Args:
            chunk_encoder, chunk_size, config_kwargs: as in `NextLevelBertPreTrainedModel.from_chunk_encoder`.
            hidden_size: H, the size of document vectors; one below D, the default, adds the bottleneck.
            num_hidden_layers: layers of the document model; for another than a BERT give an
                `encoder_config` instead of both sizes.
        """
        sizes = hidden_size, num_hidden_layers
        return encoders_of_package().new_hate(cls, chunk_encoder, chunk_size, *sizes, config_kwargs)

    def new_model(self) -> HateModel:
        """The model below a head."""
        return HateModel(self.config)


class HateModel(HatePreTrainedModel, NextLevelBertModel):
    """Whole documents to contextual sentence vectors ``[B, L, H]`` and one document vector ``[B, H]``.

    Example:
        >>> model = HateModel.from_chunk_encoder(minilm, hidden_size=64, num_hidden_layers=2)
        >>> book = model.encode("Call me Ishmael. Some years ago, never mind how long precisely, I went to sea.")
        >>> book.document.shape, book.chunks.shape, book.plain.shape, book.spans.tolist()
        (torch.Size([64]), torch.Size([2, 64]), torch.Size([2, 384]), [[0, 16], [17, 78]])
    """

    def new_special_vectors(self) -> nn.Module:
        return HateFixedVectors(self.config)

    def new_encoder(self) -> nn.Module:
        return HateEncoder(self.config)


class HateForMaskedSentencePrediction(HatePreTrainedModel, NextLevelBertForMaskedVectorModeling):
    """Finds each masked sentence among all masked ones of the batch (paper: "Model Pre-Training")."""

    def new_head(self) -> nn.Module:
        """Decoder of the autoencoder, Linear, LayerNorm: from ``[M, H]`` to sentence vectors ``[M, D]``."""
        size = self.config.chunk_hidden_size
        decoder = HateBottleneck(self.config.bottleneck_widths()[::-1])
        return nn.Sequential(decoder, nn.Linear(size, size), nn.LayerNorm(size))


class HateForSequenceClassification(HatePreTrainedModel, NextLevelBertForSequenceClassification):
    """Classifies documents, alone or with a question, as `NextLevelBertForSequenceClassification` does."""
