"""What ChunkBERT and BERT-AL share: an encoder reads whole documents piece by piece.

B documents in a batch, T token positions of the batch, N real tokens in all of it, D hidden size.
"""

# No `from __future__ import annotations` here: `strict` checks types only where they are not
# strings.
import copy
import warnings
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec
from transformers.utils import ModelOutput

from .pretrained import (
    NextLevelPreTrainedModel,
    encoders_of_package,
    load_tokenizer,
    token_mask,
    usable_positions,
)


@strict
class TokenDocumentConfig(PreTrainedConfig):
    """Fields of both families; `encoder_config` is a configuration, a dictionary of one, or None
    for BERT's."""

    sub_configs_defaults = {
        "encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")
    }

    encoder_config: Any = None
    max_training_tokens: int | None = None
    classifier_dropout: float | None = None
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    cls_token_id: int | None = None
    bos_token_id: int | None = (
        None  # transformers looks for these two when it warns of padding without a mask
    )
    eos_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.encoder_config = copy.deepcopy(self.encoder_config)  # it may belong to a model in use
        self.encoder_config._name_or_path = ""  # otherwise a path of this machine is published
        if self.classifier_dropout is None:
            names = ("hidden_dropout_prob", "dropout", "mlp_dropout")
            dropouts = (
                getattr(self.encoder_config, name)
                for name in names
                if hasattr(self.encoder_config, name)
            )
            self.classifier_dropout = next(dropouts, 0.1)

    @property
    def hidden_size(self) -> int:
        return self.encoder_config.hidden_size

    def check(self, piece: str) -> None:
        """Raises a ValueError if `piece`, the field of tokens in a piece, is not what the encoder
        can read."""
        most = usable_positions(self.encoder_config)
        if not 1 <= (tokens := getattr(self, piece)) <= (most or tokens):
            raise ValueError(
                f"{piece} must be 1 to {most}, the positions of the encoder; got {tokens}."
            )
        if self.max_training_tokens is not None and self.max_training_tokens < 1:
            raise ValueError(
                f"max_training_tokens must be 1 or more, got {self.max_training_tokens}."
            )


@dataclass
class TokenFeaturesOutput(ModelOutput):
    """Token features ``[B, T, D]``, 0 at padding; their means ``[B, D]``; mask ``[B, T]`` of the
    tokens read."""

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    token_mask: Tensor | None = None


class TokenDocumentPreTrainedModel(NextLevelPreTrainedModel):
    """All classes of ChunkBERT and BERT-AL: the base model is built around one `encoder`."""

    config: TokenDocumentConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    @classmethod
    def from_encoder(cls, name_or_path: str | PathLike[str], **config_kwargs: Any) -> Self:
        """A new model around a pretrained encoder such as BERT, RoBERTa, MPNet, ModernBERT or
        MiniLM.

        Encoders whose result depends on padding (FNet, Funnel, ConvBERT, Nyströmformer, YOSO) do
        not suit. Attention dropout is 0. Arguments are fields of the configuration (`num_labels`),
        and those of loading (`revision`).
        """
        encoders = encoders_of_package()
        loading, fields = encoders.split_arguments(cls.config_class, config_kwargs)
        source, tokenizer = (
            encoders.load_backbone(name_or_path, **loading),
            load_tokenizer(name_or_path, **loading),
        )
        ids = {"pad_token_id": tokenizer.pad_token_id, "cls_token_id": tokenizer.cls_token_id}
        model = cls(
            cls.config_class(**{"encoder_config": source.config.to_dict(), **ids, **fields})
        )
        model.base_model.encoder.load_state_dict(source.state_dict())
        model.base_model.tokenizer = tokenizer
        return model.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.encoder.get_input_embeddings()

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = self.base_model.encoder.resize_token_embeddings(*args, **kwargs)
        self.config.encoder_config.vocab_size = embeddings.num_embeddings
        return embeddings

    def tokens_to_read(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The mask ``[B, T]`` of all real tokens; in training, of the first `max_training_tokens`,
        with a warning."""
        self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        mask = token_mask(input_ids, attention_mask)
        limit = self.config.max_training_tokens
        if (
            not self.training
            or limit is None
            or not (lost := (mask.sum(dim=1) - limit).clamp(min=0)).any()
        ):
            return mask
        cut = (
            f"{int((lost > 0).sum())} of {len(mask)} documents of this batch lose {int(lost.sum())}"
            " tokens"
        )
        warnings.warn(
            f"Training reads the first {limit} tokens (max_training_tokens): {cut}.", stacklevel=4
        )
        return mask & (mask.cumsum(dim=1) <= limit)

    def lay_out(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        mask: Tensor,
        place: tuple[Tensor, Tensor],
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Inputs of the encoder by name, and the mask of real tokens: each at its `place`, row and
        column ``[N]``."""
        config, shape = self.base_model.encoder.config, [int(index.max()) + 1 for index in place]
        padding = (
            getattr(config, "pad_token_id", None) or 0
        )  # some encoders count positions from it
        fields = {"input_ids": input_ids.new_full(shape, padding, dtype=torch.long)}
        fields["input_ids"][place] = input_ids[mask].long()
        if (
            token_type_ids is not None and getattr(config, "type_vocab_size", 0) > 1
        ):  # others have no types
            fields["token_type_ids"] = input_ids.new_zeros(shape, dtype=torch.long)
            fields["token_type_ids"][place] = token_type_ids[mask].long()
        return fields, mask.new_zeros(shape).index_put(place, mask.new_ones(()))


def at_their_places(features: Tensor, mask: Tensor) -> TokenFeaturesOutput:
    """Features ``[N, D]`` of the real tokens at their places in the batch ``[B, T]``."""
    states = features.new_zeros(*mask.shape, features.shape[-1]).masked_scatter(
        mask.unsqueeze(-1), features
    )
    return TokenFeaturesOutput(
        states, states.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1), mask
    )


def place_in_chunks(mask: Tensor, chunk_size: int) -> tuple[Tensor, Tensor, int]:
    """For the N tokens of `mask` ``[B, T]``, when each document is cut into chunks without its
    padding: the chunk of each, numbered through the batch ``[N]``, and the place in it ``[N]``;
    then the number of chunks.
    """
    number = mask.cumsum(dim=1) - 1  # [B, T], of each token among the real ones of its document
    chunks = (mask.sum(dim=1) + chunk_size - 1) // chunk_size  # [B]
    first = chunks.cumsum(dim=0) - chunks  # [B]
    return (
        (first[:, None] + number // chunk_size)[mask],
        (number % chunk_size)[mask],
        int(chunks.sum()),
    )
