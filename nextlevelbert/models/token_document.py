"""Shared by ChunkBERT and BERT-AL: an encoder that reads whole documents piece by piece.

B documents in a batch, T token positions of the batch, N real tokens in all of it, D hidden size.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from .backbones import load_backbone, token_mask
from .checkpoints import NextLevelPreTrainedModel, load_tokenizer, split_arguments
from .configuration_token_document import TokenDocumentConfig


@dataclass
class TokenFeaturesOutput(ModelOutput):
    """Features of the tokens of whole documents.

    Attributes:
        last_hidden_state: features of the tokens, ``[B, T, D]``, zero at padding.
        pooler_output: mean of the features of each document, ``[B, D]``.
        token_mask: bool mask ``[B, T]``, true at the tokens that were read.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    token_mask: Tensor | None = None


class TokenDocumentPreTrainedModel(NextLevelPreTrainedModel):
    """Builds base models around one `encoder`, for ChunkBERT and BERT-AL."""

    config: TokenDocumentConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @classmethod
    def from_encoder(cls, name_or_path: str | PathLike, **config_kwargs: Any) -> Self:
        """Makes a model from a pretrained encoder such as BERT, RoBERTa, MPNet or ModernBERT.

        Encoders whose result depends on padding (FNet, Funnel, ConvBERT, Nyströmformer, YOSO) do
        not suit. Attention dropout is 0.

        Args:
            name_or_path: folder or Hub name of the encoder.
            **config_kwargs: fields of the configuration such as `num_labels`, and loading arguments
                such as `revision`.
        """
        loading, fields = split_arguments(cls.config_class, config_kwargs)
        source = load_backbone(name_or_path, **loading)
        tokenizer = load_tokenizer(name_or_path, **loading)
        values = {
            "encoder_config": source.config.to_dict(),
            "pad_token_id": tokenizer.pad_token_id,
            "cls_token_id": tokenizer.cls_token_id,
            **fields,
        }
        model = cls(cls.config_class(**values))
        model.base_model.encoder.load_state_dict(source.state_dict())
        model.base_model.tokenizer = tokenizer
        return model.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.encoder.get_input_embeddings()

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        """Resizes the encoder's embeddings; arguments as in `PreTrainedModel`."""
        embeddings = self.base_model.encoder.resize_token_embeddings(*args, **kwargs)
        self.config.encoder_config.vocab_size = embeddings.num_embeddings
        return embeddings

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Checks that nothing is asked for that a document read piece by piece does not have.

        Args:
            arguments: further keyword arguments of a forward pass, which are only checked.

        Raises:
            ValueError: the arguments or the configuration ask for hidden states or attentions.
            TypeError: an argument that is not None is unknown, such as a misspelt one.
        """
        for name in self.requested_outputs(**arguments):
            raise ValueError(
                f"{type(self).__name__} reads documents piece by piece and has no {name}. Leave it"
                " out. For the layers of one piece, call the `encoder` of the base model."
            )
        for name, value in arguments.items():
            if value is not None and not name.startswith("output_"):
                raise TypeError(f"{type(self).__name__} does not take the argument {name!r}.")

    def tokens_to_read(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Finds the tokens to read: all of them, or the first `max_training_tokens` in training.

        A warning counts the tokens that training leaves out.

        Args:
            input_ids: token ids ``[B, T]``.
            attention_mask: mask ``[B, T]``; None if there is no padding.

        Returns:
            A bool mask ``[B, T]``, true at the tokens to read.
        """
        mask = token_mask(input_ids, attention_mask)
        self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        limit = self.config.max_training_tokens
        if limit is None or not self.training:
            return mask

        lost = (mask.sum(dim=1) - limit).clamp(min=0)  # [B]
        if not lost.any():
            return mask
        warnings.warn(
            f"Training reads the first {limit} tokens (max_training_tokens):"
            f" {int((lost > 0).sum())} of {len(mask)} documents of this batch lose"
            f" {int(lost.sum())} tokens.",
            stacklevel=4,
        )
        return mask & (mask.cumsum(dim=1) <= limit)

    def lay_out(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        mask: Tensor,
        index: tuple[Tensor, Tensor],
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Lays the tokens of documents out in pieces.

        Args:
            input_ids: token ids ``[B, T]``.
            token_type_ids: token types ``[B, T]``; left out if the encoder has no types.
            mask: bool mask ``[B, T]``, true at the N tokens to read.
            index: row and column of each token among the pieces, ``[N]`` each.

        Returns:
            Inputs of the encoder by name, and the mask of real tokens.
        """
        config = self.base_model.encoder.config
        shape = [int(positions.max()) + 1 for positions in index]
        # Some encoders count positions from the padding id.
        padding = getattr(config, "pad_token_id", None) or 0
        ids = input_ids.new_full(shape, padding, dtype=torch.long)
        ids[index] = input_ids[mask].long()
        fields = {"input_ids": ids}
        if token_type_ids is not None and getattr(config, "type_vocab_size", 0) > 1:
            types = torch.zeros_like(ids)
            types[index] = token_type_ids[mask].long()
            fields["token_type_ids"] = types

        real = mask.new_zeros(shape)
        real[index] = True
        return fields, real


def scatter_features(features: Tensor, mask: Tensor) -> TokenFeaturesOutput:
    """Puts the features of tokens at their positions in the batch, and averages them.

    Args:
        features: features ``[N, D]``, document after document.
        mask: bool mask ``[B, T]``, true at the N tokens.
    """
    states = features.new_zeros((*mask.shape, features.shape[-1]))
    states = states.masked_scatter(mask.unsqueeze(-1), features)
    counts = mask.sum(dim=1, keepdim=True).clamp(min=1)
    return TokenFeaturesOutput(
        last_hidden_state=states, pooler_output=states.sum(dim=1) / counts, token_mask=mask
    )


def assign_to_chunks(mask: Tensor, chunk_size: int) -> tuple[Tensor, Tensor, int]:
    """Assigns every token to a chunk of its document; padding belongs to no chunk.

    Args:
        mask: bool mask ``[B, T]``, true at N tokens.
        chunk_size: tokens in a chunk.

    Returns:
        The chunk of each token, numbered through the batch, ``[N]``; the token's position in the
        chunk, ``[N]``; and the number of chunks.
    """
    token = mask.cumsum(dim=1) - 1  # [B, T], the index of each token in its document
    chunks = (mask.sum(dim=1) + chunk_size - 1) // chunk_size  # [B]
    first_chunk = chunks.cumsum(dim=0) - chunks  # [B]
    chunk = first_chunk[:, None] + token // chunk_size  # [B, T]
    position = token % chunk_size
    return chunk[mask], position[mask], int(chunks.sum())
