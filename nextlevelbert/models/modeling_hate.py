"""HATE, "Hierarchical Attention-based Text Encoder": identifies masked sentences within a batch.

HATE is NextLevelBERT with another encoder over chunks (sinusoids, a bottleneck), fixed random
vectors, no [SEP], and another loss (see `p_norm_loss`).

Notation for shapes: B documents in a batch, L sentences of the longest, S = L + 1 positions with
[CLS], D hidden size of the sentence vectors, H hidden size of the document model, M masked
positions of the batch.
"""

from __future__ import annotations

import itertools
from os import PathLike
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput

from .backbones import (
    backbone_from_config,
    bert_over_vectors,
    copy_properties_of_children,
    mask_for,
)
from .checkpoints import split_arguments
from .chunk_encoder import LoadedChunkEncoder
from .configuration_hate import HateConfig
from .configuration_nextlevelbert import PAD
from .from_encoder import as_loaded_encoder, new_model_over
from .losses import mean_of_losses
from .modeling_nextlevelbert import (
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    NextLevelBertPreTrainedModel,
)


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """Computes position vectors (Vaswani et al., 2017, section 3.5).

    Entry 2i of position p is sin(p / 10000^(2i/H)), and entry 2i + 1 is the cosine of the same.

    Args:
        positions: positions from 0, of any shape ``[…]``.
        size: size of the vectors, H.

    Returns:
        The position vectors, ``[…, H]`` float32.
    """
    exponents = torch.arange(0, size, 2, device=positions.device) / size  # [ceil(H / 2)]
    rates = 10_000.0**-exponents
    angles = positions.unsqueeze(-1).float() * rates  # […, ceil(H / 2)]
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return pairs.flatten(-2)[..., :size]


def p_norm_loss(
    predictions: Tensor,
    targets: Tensor,
    p: float = 2.0,
    sequences: Tensor | None = None,
) -> Tensor:
    """Returns HATE's loss: the norm of the rows of softmax(Ŝ Lᵀ) - I, from 0 to 2^(1/p).

    Row i of softmax(Ŝ Lᵀ) is a distribution for prediction i over the masked vectors of the batch.

    Args:
        predictions: predicted vectors Ŝ, ``[M, D]``.
        targets: true vectors L, ``[M, D]``.
        p: order of the norm.
        sequences: index of the sequence of each vector, see `mean_of_losses`.

    Returns:
        A float32 scalar; zero (with a gradient path) without predictions.
    """
    if len(predictions) == 0:  # torch has no norm of order inf over no values
        return predictions.sum() * 0.0
    with torch.autocast(predictions.device.type, enabled=False):  # which would use bfloat16
        scores = predictions.float() @ targets.float().T  # [M, M]
        distributions = scores.softmax(dim=-1)
        identity = torch.eye(len(scores)).to(scores)
        losses = torch.linalg.vector_norm(distributions - identity, ord=p, dim=-1)
    return mean_of_losses(losses, sequences)


class NoPositions(nn.Module):
    """Replaces a backbone's table of positions: adds zero to every vector, in any dtype."""

    def forward(self, position_ids: Tensor) -> Tensor:
        return torch.zeros_like(position_ids).unsqueeze(-1)  # [B, S, 1]


class HateFixedVectors(nn.Module):
    """Holds random vectors that are never trained.

    The rows are [PAD] (zeros), [CLS], an unused row, and [MASK].
    """

    weight: Tensor

    def __init__(self, config: HateConfig) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(4, config.chunk_hidden_size))

    def forward(self, special_ids: Tensor) -> Tensor:
        return self.weight[special_ids]


class HateBottleneckLinear(nn.Linear):
    """Maps vectors in the autoencoder; has a class of its own for its initialisation."""


class HateBottleneck(nn.Sequential):
    """Reduces vectors from D to H: the encoder of an undercomplete autoencoder.

    With step = floor((D - H) / 2), the layers have the widths D, H + 2 step, H + step, H, and GELU
    between them (paper: "Downscaling Representations via Autoencoding"). If H is D, there are no
    layers.

    Args:
        config: configuration with D as `chunk_hidden_size` and H as `hidden_size`.
        mirrored: if true, makes the decoder, which follows the document model in pretraining only.
    """

    def __init__(self, config: HateConfig, mirrored: bool = False) -> None:
        wide = config.chunk_hidden_size
        narrow = config.hidden_size
        step = (wide - narrow) // 2
        widths = [wide]
        if narrow != wide:
            widths += [narrow + 2 * step, narrow + step, narrow]
        if mirrored:
            widths.reverse()

        layers: list[nn.Module] = []
        for width, next_width in itertools.pairwise(widths):
            if layers:
                layers.append(nn.GELU())
            layers.append(HateBottleneckLinear(width, next_width))

        super().__init__(*layers)


class HateEncoder(nn.Module):
    """Computes contextual sentence vectors: scale, bottleneck, positions, layers."""

    def __init__(self, config: HateConfig) -> None:
        super().__init__()
        self.scale: Any = config.vector_scale  # the configuration has set it
        self.reduction = HateBottleneck(config)
        self.layers = backbone_from_config(config.encoder_config)
        if not self._has_position_table():
            raise ValueError(
                f"{config.encoder_config.model_type} has no position table that sinusoids can"
                " replace. Give the configuration of a BERT."
            )

        self.layers.set_input_embeddings(value=None)  # vectors come in, not ids
        self.layers.embeddings.position_embeddings = NoPositions()
        copy_properties_of_children(self)

    def _has_position_table(self) -> bool:
        """Returns whether the layers add positions from a table, and from nothing else."""
        config = self.layers.config
        if config.model_type == "longformer":  # embeds ids to pad its windows
            return False
        if getattr(config, "sinusoidal_pos_embds", False):  # DistilBERT fills the table on loading
            return False
        embeddings = getattr(self.layers, "embeddings", None)
        return hasattr(embeddings, "position_embeddings")

    @property
    def embeddings(self) -> nn.Module:
        """Returns the embeddings of the layers."""
        return self.layers.embeddings

    def forward(
        self, inputs_embeds: Tensor, attention_mask: Tensor | None = None, **extras: Any
    ) -> BaseModelOutput:
        """Reads sentence vectors.

        Args:
            inputs_embeds: sentence vectors, ``[B, S, D]``.
            attention_mask: mask ``[B, S]``, 1 at vectors.
            **extras: further arguments of the layers, such as `output_hidden_states`.

        Returns:
            The output of the layers, with states ``[B, S, H]``.
        """
        hidden = self.reduction(inputs_embeds * self.scale)  # [B, S, H]
        positions = torch.arange(hidden.shape[1], device=hidden.device)  # [S]
        hidden = hidden + sinusoids(positions, size=hidden.shape[-1]).to(hidden.dtype)
        mask = attention_mask
        if mask is not None:
            mask = mask_for(self.layers, mask)
        return self.layers(inputs_embeds=hidden, attention_mask=mask, **extras)


class HatePreTrainedModel(NextLevelBertPreTrainedModel):
    """Shares configuration, initialisation, and the making of new models among HATE's classes."""

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
            std = 1.0
            if self.config.chunk_encoder_normalize:
                std = self.config.chunk_hidden_size**-0.5  # of length 1, as sentence vectors are
            init.normal_(module.weight, std=std)
            init.zeros_(module.weight[PAD])
        elif isinstance(module, HateBottleneckLinear):
            # Keeps the size of the vectors; with initializer_range they would almost vanish beside
            # the positions.
            init.kaiming_normal_(module.weight, nonlinearity="relu")

    @classmethod
    def from_chunk_encoder(  # type: ignore[override]
        cls,
        chunk_encoder: str | PathLike | LoadedChunkEncoder,
        hidden_size: int | None = None,
        num_hidden_layers: int = 6,
        chunk_size: int = 256,
        **config_kwargs: Any,
    ) -> Self:
        """Makes a random document model over a frozen sentence encoder.

        Args:
            chunk_encoder: a sentence-transformers model, or its folder or Hub name.
            hidden_size: H of the document model (default: D of the sentence vectors); a smaller one
                adds the bottleneck.
            num_hidden_layers: layers of the document model.
            chunk_size: most tokens of a sentence.
            **config_kwargs: fields of the configuration, of which an `encoder_config` replaces both
                sizes; and arguments of `load_chunk_encoder` such as `revision` and `token`.
        """
        loading, fields = split_arguments(cls.config_class, config_kwargs)
        loaded = as_loaded_encoder(chunk_encoder, loading)
        if hidden_size is None:
            hidden_size = loaded.encoder.hidden_size

        positions = 512
        if fields.get("max_chunks") is not None:
            positions = max(positions, fields["max_chunks"] + 1)  # one more for [CLS]

        layers = bert_over_vectors(hidden_size, num_hidden_layers, positions)
        fields = {"chunking": "sentences", "encoder_config": layers, **fields}
        return new_model_over(loaded, cls, chunk_size=chunk_size, fields=fields)

    def new_model(self) -> HateModel:
        """Makes the base model below a head."""
        return HateModel(self.config)


class HateModel(HatePreTrainedModel, NextLevelBertModel):
    """Turns documents into contextual sentence vectors and one vector."""

    def new_special_vectors(self) -> nn.Module:
        """Makes the fixed vectors of [CLS] and [MASK]."""
        return HateFixedVectors(self.config)

    def new_encoder(self) -> nn.Module:
        """Makes the document model."""
        return HateEncoder(self.config)


class HateForMaskedSentencePrediction(HatePreTrainedModel, NextLevelBertForMaskedVectorModeling):
    """Identifies each masked sentence among the batch's masked sentences.

    See section "Model Pre-Training" of the paper.
    """

    def new_head(self) -> nn.Module:
        """Makes the decoder of the autoencoder, with LayerNorm: from ``[M, H]`` to ``[M, D]``."""
        size = self.config.chunk_hidden_size
        return nn.Sequential(
            HateBottleneck(self.config, mirrored=True), nn.Linear(size, size), nn.LayerNorm(size)
        )

    def vector_loss(
        self,
        predictions: Tensor,
        targets: Tensor,
        candidates: Tensor | None,
        sequences: Tensor | None,
    ) -> Tensor:
        """Returns the p-norm loss, or the loss of choosing; arguments as in NextLevelBERT."""
        if self.config.loss == "p_norm":
            return p_norm_loss(
                predictions, targets=targets, p=self.config.norm_order, sequences=sequences
            )
        return super().vector_loss(
            predictions, targets=targets, candidates=candidates, sequences=sequences
        )


class HateForSequenceClassification(HatePreTrainedModel, NextLevelBertForSequenceClassification):
    """Classifies documents, alone or with a question; see NextLevelBERT's class."""
