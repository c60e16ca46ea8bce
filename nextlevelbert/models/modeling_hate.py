"""HATE, "Hierarchical Attention-based Text Encoder": finds masked sentences in a vocabulary made of
the batch.

It is NextLevelBERT with another encoder over chunks (sinusoids, a bottleneck), fixed random
vectors, no [SEP], and another loss (see `masked_vector_loss`).

Notation for shapes: B documents in a batch, L sentences of the longest, S = L + 1 positions with
[CLS], D hidden size of the sentence vectors, H of the document model, M masked positions of the
batch.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput

from .configuration_hate import HateConfig
from .configuration_nextlevelbert import PAD
from .modeling_nextlevelbert import (
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    NextLevelBertPreTrainedModel,
)
from .pretrained import backbone_from_config, encoders_of_package


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """sin(p / 10000^(2i/H)) at 2i and cos of it at 2i + 1 (Vaswani et al. 2017, section 3.5): ``[…,
    H]`` float32."""
    rates = 10_000.0 ** (-torch.arange(0, size, 2, device=positions.device) / size)  # [ceil(H / 2)]
    angles = positions.unsqueeze(-1).float() * rates  # […, ceil(H / 2)]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :size]  # […, H]


class NoPositions(nn.Module):
    """Takes the place of a backbone's table of positions, and adds zero to every vector, in any
    dtype."""

    def forward(self, position_ids: Tensor) -> Tensor:
        return torch.zeros_like(position_ids).unsqueeze(-1)  # [B, S, 1]


class HateFixedVectors(nn.Module):
    """Random vectors, a buffer that is never trained: rows [PAD] (zeros), [CLS], an unused one,
    [MASK]."""

    weight: Tensor

    def __init__(self, config: HateConfig) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(4, config.chunk_hidden_size))

    def forward(self, special_ids: Tensor) -> Tensor:
        return self.weight[special_ids]


class HateBottleneckLinear(nn.Linear):
    """A layer of the autoencoder; it has its own class because its initialisation differs, see
    `_init_weights`."""


class HateBottleneck(nn.Sequential):
    """The encoder of an undercomplete autoencoder, from D to H, with GELU between its layers; none
    where H is D.

    With step = floor((D - H) / 2) its widths are D, H + 2 step, H + step, H (paper: "Downscaling
    Representations via Autoencoding"). Mirrored, it is the decoder, after the document model, in
    pretraining only.
    """

    def __init__(self, config: HateConfig, mirrored: bool = False) -> None:
        wide, narrow = config.chunk_hidden_size, config.hidden_size
        step = (wide - narrow) // 2
        widths = [wide] if wide == narrow else [wide, narrow + 2 * step, narrow + step, narrow]
        pairs = itertools.pairwise(widths[::-1] if mirrored else widths)
        super().__init__(
            *[*itertools.chain(*([nn.GELU(), HateBottleneckLinear(*pair)] for pair in pairs))][1:]
        )


class HateEncoder(nn.Module):
    """From sentence vectors ``[B, S, D]`` to contextual ones ``[B, S, H]``: scale, bottleneck,
    positions, layers."""

    def __init__(self, config: HateConfig) -> None:
        super().__init__()
        self.scale: Any = config.vector_scale  # the configuration has set it
        self.reduction = HateBottleneck(config)
        upper = config.encoder_config
        self.layers = backbone_from_config(upper)
        # Longformer embeds ids to pad its windows; DistilBERT's sinusoids are a table that is
        # filled on loading.
        unfit = upper.model_type == "longformer" or getattr(upper, "sinusoidal_pos_embds", False)
        if unfit or not hasattr(getattr(self.layers, "embeddings", None), "position_embeddings"):
            raise ValueError(
                f"{upper.model_type} has no table of positions that sinusoids can replace; give a"
                " BERT."
            )
        self.layers.set_input_embeddings(None)  # vectors come in, not ids
        self.layers.embeddings.position_embeddings = NoPositions()

    @property
    def embeddings(self) -> nn.Module:
        return self.layers.embeddings

    def forward(
        self, inputs_embeds: Tensor, attention_mask: Tensor | None = None, **extras: bool
    ) -> BaseModelOutput:
        hidden = self.reduction(inputs_embeds * self.scale)  # [B, S, H]
        positions = torch.arange(hidden.shape[1], device=hidden.device)  # [S]
        hidden = hidden + sinusoids(positions, hidden.shape[-1]).to(hidden.dtype)
        return self.layers(inputs_embeds=hidden, attention_mask=attention_mask, **extras)


class HatePreTrainedModel(NextLevelBertPreTrainedModel):
    """What all HATE classes share: configuration, initialisation, and the start from a chunk
    encoder."""

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
            length_one = self.config.chunk_encoder_normalize  # as the sentence vectors around them
            init.normal_(
                module.weight, std=self.config.chunk_hidden_size**-0.5 if length_one else 1.0
            )
            init.zeros_(module.weight[PAD])
        elif isinstance(module, HateBottleneckLinear):
            # Keeps the size of the vectors; with initializer_range they would almost vanish beside
            # the positions.
            init.kaiming_normal_(module.weight, nonlinearity="relu")

    @classmethod
    def from_chunk_encoder(  # type: ignore[override]
        cls,
        chunk_encoder: Any,
        hidden_size: int | None = None,
        num_hidden_layers: int = 6,
        chunk_size: int = 256,
        **fields: Any,
    ) -> Any:
        """A new, random document model over a frozen sentence encoder; arguments as in
        NextLevelBERT.

        A `hidden_size` H below D, the default, adds the bottleneck; an `encoder_config` may stand
        for both sizes.
        """
        return encoders_of_package().new_hate(
            cls, chunk_encoder, chunk_size, hidden_size, num_hidden_layers, fields
        )

    def new_model(self) -> HateModel:
        return HateModel(self.config)


class HateModel(HatePreTrainedModel, NextLevelBertModel):
    """Whole documents to contextual sentence vectors ``[B, L, H]`` and one document vector ``[B,
    H]``."""

    def new_special_vectors(self) -> nn.Module:
        return HateFixedVectors(self.config)

    def new_encoder(self) -> nn.Module:
        return HateEncoder(self.config)


class HateForMaskedSentencePrediction(HatePreTrainedModel, NextLevelBertForMaskedVectorModeling):
    """Finds each masked sentence among all masked ones of the batch (paper: "Model
    Pre-Training")."""

    def new_head(self) -> nn.Module:
        """Decoder of the autoencoder, Linear, LayerNorm: from ``[M, H]`` to sentence vectors ``[M,
        D]``."""
        size = self.config.chunk_hidden_size
        return nn.Sequential(
            HateBottleneck(self.config, mirrored=True), nn.Linear(size, size), nn.LayerNorm(size)
        )


class HateForSequenceClassification(HatePreTrainedModel, NextLevelBertForSequenceClassification):
    """Classifies documents, alone or with a question, as `NextLevelBertForSequenceClassification`
    does."""
