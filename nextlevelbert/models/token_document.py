"""Shared by ChunkBERT and BERT-AL: an encoder that reads whole documents piece by piece.

B documents in a batch, T token positions of the batch, N real tokens in all of it, R pieces of at
most C tokens, D hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput
from transformers.utils.generic import TransformersKwargs

from .backbones import get_logger, load_backbone, token_mask
from .checkpoints import NextLevelPreTrainedModel, load_tokenizer, split_arguments
from .configuration_token_document import TokenDocumentConfig
from .model_names import full_name
from .windows import copy_to

logger = get_logger(__name__)


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


@dataclass(frozen=True)
class PieceLayout:
    """Says where the N tokens of a batch are in R pieces of documents, on the CPU.

    Values that the host knows need no wait for a GPU.

    Attributes:
        token: position of each token in the batch, counted row by row, ``[N]``.
        piece: piece of each token, numbered through the batch, ``[N]``.
        column: position of each token in its piece, ``[N]``.
        lengths: number of tokens in each document, ``[B]``.
        sizes: number of tokens in each piece, ``[R]``.
    """

    token: np.ndarray
    piece: np.ndarray
    column: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray


class TokenDocumentPreTrainedModel(NextLevelPreTrainedModel):
    """Builds base models around one `encoder`, for ChunkBERT and BERT-AL."""

    config: TokenDocumentConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True

    @classmethod
    def from_encoder(cls, name_or_path: str | PathLike, **config_kwargs: Any) -> Self:
        """Makes a model from a pretrained encoder such as BERT, RoBERTa, MPNet or ModernBERT.

        Encoders whose result depends on padding (FNet, Funnel, ConvBERT, Nyströmformer, YOSO) do
        not suit. Attention dropout is 0.

        Args:
            name_or_path: folder or Hub name of the encoder, or ``"minilm"`` (see `model_path`).
            **config_kwargs: fields of the configuration such as `num_labels`, and loading arguments
                such as `revision`.
        """
        loading, fields = split_arguments(cls.config_class, config_kwargs)
        name = full_name(name_or_path)
        pretrained = load_backbone(name, **loading)
        tokenizer = load_tokenizer(name, **loading)
        values = {
            "encoder_config": pretrained.config.to_dict(),
            "pad_token_id": tokenizer.pad_token_id,
            "cls_token_id": tokenizer.cls_token_id,
            **fields,
        }
        model = cls(cls.config_class(**values))
        model.base_model.encoder.load_state_dict(pretrained.state_dict())
        model.base_model.tokenizer = tokenizer
        return model.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.base_model.encoder.set_input_embeddings(value)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        """Resizes the encoder's embeddings; arguments as in `PreTrainedModel`."""
        embeddings = self.base_model.encoder.resize_token_embeddings(*args, **kwargs)
        self.vocab_size = embeddings.num_embeddings  # which `PreTrainedModel` sets, too
        self.config.vocab_size = self.vocab_size
        return embeddings

    def check_arguments(self, arguments: TransformersKwargs) -> None:
        """Checks that nothing is asked for that a document read piece by piece does not have.

        Raises:
            ValueError: the arguments or the configuration ask for hidden states or attentions.
            TypeError: see `capture_arguments`.
        """
        for name in self.capture_arguments(arguments):
            raise ValueError(
                f"{type(self).__name__} reads documents piece by piece and has no {name}. Leave it"
                " out. For the layers of one piece, call the `encoder` of the base model."
            )

    def tokens_to_read(
        self, input_ids: Tensor, attention_mask: Tensor | None
    ) -> tuple[Tensor, np.ndarray]:
        """Finds the tokens to read: all of them, or the first `max_training_tokens` in training.

        A warning counts the tokens that training leaves out.

        Args:
            input_ids: token ids ``[B, T]``.
            attention_mask: mask ``[B, T]``; None if there is no padding.

        Returns:
            A bool mask ``[B, T]``, true at the tokens to read, and the same mask on the CPU.
        """
        mask = token_mask(input_ids, attention_mask)
        self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        if attention_mask is None:
            on_cpu = np.ones(input_ids.shape, bool)
        else:
            # The only wait for a GPU in most passes. `torch.func` has no `numpy` of a tensor.
            on_cpu = np.array(mask.tolist(), bool).reshape(mask.shape)

        limit = self.config.max_training_tokens
        if limit is None or not self.training:
            return mask, on_cpu

        lost = np.maximum(on_cpu.sum(axis=1) - limit, 0)  # [B]
        if not lost.any():
            return mask, on_cpu

        logger.warning_once(
            f"Training reads the first {limit} tokens (max_training_tokens):"
            f" {int((lost > 0).sum())} of {len(mask)} documents of this batch lose"
            f" {int(lost.sum())} tokens."
        )
        read = on_cpu & (on_cpu.cumsum(axis=1) <= limit)
        return copy_to(mask.device, read), read

    def lay_out(
        self, input_ids: Tensor, token_type_ids: Tensor | None, layout: PieceLayout
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Lays the tokens of documents out in pieces.

        Args:
            input_ids: token ids ``[B, T]``.
            token_type_ids: token types ``[B, T]``; left out if the encoder has no types.
            layout: places of the tokens.

        Returns:
            Inputs of the encoder by name, and the mask of real tokens, ``[R, C]`` each.
        """
        config = self.base_model.encoder.config
        shape = (len(layout.sizes), int(layout.sizes.max()))
        device = input_ids.device
        on_device = np.stack([layout.token, layout.piece, layout.column])
        token, piece, column = copy_to(device, on_device)
        # Some encoders count positions from the padding id.
        padding = getattr(config, "pad_token_id", None) or 0
        ids = input_ids.new_full(shape, padding, dtype=torch.long)
        ids[piece, column] = input_ids.flatten()[token].long()
        fields = {"input_ids": ids}
        if token_type_ids is not None and getattr(config, "type_vocab_size", 0) > 1:
            types = torch.zeros_like(ids)
            types[piece, column] = token_type_ids.flatten()[token].long()
            fields["token_type_ids"] = types

        sizes = copy_to(device, layout.sizes)
        real = torch.arange(shape[1], device=device) < sizes[:, None]
        return fields, real


def scatter_features(features: Tensor, mask: Tensor, token: np.ndarray) -> TokenFeaturesOutput:
    """Puts the features of tokens at their positions in the batch, and averages them.

    Args:
        features: features ``[N, D]``, document after document.
        mask: bool mask ``[B, T]``, true at the N tokens.
        token: positions of the tokens in the batch, counted row by row, ``[N]``.
    """
    states = features.new_zeros((mask.numel(), features.shape[-1]))
    states = states.index_put((copy_to(mask.device, token),), features).view(*mask.shape, -1)
    counts = mask.sum(dim=1, keepdim=True).clamp(min=1)
    return TokenFeaturesOutput(
        last_hidden_state=states, pooler_output=states.sum(dim=1) / counts, token_mask=mask
    )


def assign_to_pieces(mask: np.ndarray, size: int) -> PieceLayout:
    """Assigns every token to a piece of its document; padding belongs to no piece.

    Args:
        mask: bool mask ``[B, T]``, true at N tokens.
        size: most tokens in a piece.
    """
    lengths = mask.sum(axis=1)  # [B]
    first_token = np.cumsum(lengths) - lengths
    index = np.arange(lengths.sum()) - np.repeat(first_token, lengths)  # [N], in its document
    pieces = -(-lengths // size)  # [B]
    first_piece = np.cumsum(pieces) - pieces
    piece = np.repeat(first_piece, lengths) + index // size
    return PieceLayout(
        token=np.flatnonzero(mask),
        piece=piece,
        column=index % size,
        lengths=lengths,
        sizes=np.bincount(piece, minlength=int(pieces.sum())),
    )
