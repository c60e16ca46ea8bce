"""What ChunkBERT and BERT-AL share: they read the token ids of whole documents through one pretrained encoder."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any, Self

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from .configuration_token_document import TokenDocumentConfig
from .pretrained import NextLevelPreTrainedModel, load_backbone, load_tokenizer, token_mask


class TokenDocumentPreTrainedModel(NextLevelPreTrainedModel):
    """What all classes of ChunkBERT and BERT-AL share: the base model is built around one `encoder`."""

    config: TokenDocumentConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @classmethod
    def from_encoder(cls, name_or_path: str | PathLike[str], **config_kwargs: Any) -> Self:
        """A new model around a pretrained encoder such as BERT, RoBERTa, MPNet, ModernBERT or MiniLM.

        It does not work with encoders whose result depends on padding (FNet, Funnel, ConvBERT, Nyströmformer, YOSO).

        Attention dropout is set to 0, because it makes a training step on a CPU more than twice as slow; pass
        another `encoder_config` for the papers' 0.1. Weights that the encoder does not have are random.

        Args:
            name_or_path: folder or Hub name of the encoder, with its tokenizer.
            config_kwargs: fields of the configuration such as `num_labels` and `problem_type`, and loading arguments
                such as `revision` and `token`.

        Raises:
            ValueError: for sizes above what the encoder reads, an unknown argument, or an encoder or tokenizer that
                `load_backbone` or `load_tokenizer` cannot load.
        """
        loading, fields = cls.split_arguments(config_kwargs)
        source = load_backbone(name_or_path, **loading)
        tokenizer = load_tokenizer(name_or_path, **loading)
        values = {"encoder_config": source.config.to_dict(), **cls._tokenizer_fields(tokenizer)}
        model = cls(cls.config_class(**{**values, **fields}))
        model.base_model.encoder.load_state_dict(source.state_dict())
        model.base_model.tokenizer = tokenizer
        return model.eval()

    @classmethod
    def _tokenizer_fields(cls, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """Fields of the configuration that come from the tokenizer."""
        return {"pad_token_id": tokenizer.pad_token_id}

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.base_model.encoder.set_input_embeddings(value)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Module:
        """As in transformers; the size of the vocabulary is the encoder's."""
        embeddings = self.base_model.encoder.resize_token_embeddings(new_num_tokens, *args, **kwargs)
        self.config.encoder_config.vocab_size = embeddings.num_embeddings
        return embeddings

    def refuse_other_inputs(self, inputs_embeds: object, output_attentions: object) -> None:
        """Raises a ValueError for inputs that adapters pass on but documents cannot have."""
        if inputs_embeds is not None or output_attentions:
            raise ValueError(
                f"{type(self).__name__} reads input_ids, because documents are cut by token ids, and has no attention "
                "over whole documents to return: leave out inputs_embeds and output_attentions."
            )

    def check_documents(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """The mask ``[B, T]`` of the tokens to read: all real ones, in training cut to `max_training_tokens`.

        Raises:
            ValueError: for ids that are not integers ``[B, T]`` of the encoder's vocabulary, or a document without
                tokens (numbered).
        """
        mask = token_mask(input_ids, attention_mask)
        if input_ids.numel():
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        if not mask.any(dim=1).all():
            empty = (~mask.any(dim=1)).nonzero().flatten().tolist()
            raise ValueError(f"Documents {empty} of the batch have no token (their attention_mask is all zero).")
        limit = self.config.max_training_tokens
        if not self.training or limit is None or not (lost := (mask.sum(dim=1) - limit).clamp(min=0)).any():
            return mask
        warnings.warn(
            f"Training reads the first {limit} tokens of a document (max_training_tokens): {int((lost > 0).sum())} of "
            f"{len(mask)} documents of this batch lose {int(lost.sum())} tokens.",
            stacklevel=4,
        )
        return mask & (mask.cumsum(dim=1) <= limit)

    def lay_out(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        mask: torch.Tensor,
        place: tuple[torch.Tensor, torch.Tensor],
        shape: tuple[int, int],
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Puts the real tokens of a batch of documents into the rows that the encoder reads.

        Args:
            input_ids, token_type_ids: ``[B, T]``; token types only go to encoders with several.
            mask: ``[B, T]`` bool, the N tokens to read.
            place: row and column ``[N]`` of each, see `place_in_chunks`.
            shape: rows and columns.

        Returns:
            Inputs of the encoder by name, and the mask of real tokens, all of that shape.

        Raises:
            ValueError: for token types of another shape than the ids, or outside the encoder's range.
        """
        encoder = self.base_model.encoder
        types = getattr(encoder.config, "type_vocab_size", 0)
        padding = getattr(encoder.config, "pad_token_id", None) or 0  # some encoders count positions from it
        fields = {"input_ids": input_ids.new_full(shape, padding, dtype=torch.long)}
        fields["input_ids"][place] = input_ids[mask].long()
        if token_type_ids is not None and types > 1:
            if token_type_ids.shape != mask.shape or not ((token_type_ids >= 0) & (token_type_ids < types)).all():
                raise ValueError(
                    f"token_type_ids must be {tuple(mask.shape)} like input_ids, from 0 to {types - 1}, got "
                    f"{tuple(token_type_ids.shape)} with {token_type_ids.unique().tolist()[:9]}."
                )
            fields["token_type_ids"] = torch.zeros_like(fields["input_ids"])
            fields["token_type_ids"][place] = token_type_ids[mask].long()
        real = torch.zeros(shape, dtype=torch.bool, device=mask.device)
        real[place] = True
        return fields, real


def place_in_chunks(mask: torch.Tensor, chunk_size: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Where each real token of a batch goes when every document is cut into chunks, without its padding.

    Args:
        mask: ``[B, T]`` bool, true at real tokens.
        chunk_size: tokens in a chunk; the last one of a document may have fewer.

    Returns:
        For the N real tokens in order: the chunk, numbered through the batch ``[N]``, and the place in it ``[N]``;
        then the number of chunks.
    """
    number = mask.cumsum(dim=1) - 1  # [B, T], of each token among the real ones of its document
    chunks = (mask.sum(dim=1) + chunk_size - 1) // chunk_size  # [B]
    first = chunks.cumsum(dim=0) - chunks  # [B]
    return (first[:, None] + number // chunk_size)[mask], (number % chunk_size)[mask], int(chunks.sum())


def at_their_places(flat: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``[N, D]`` of the real tokens back to their places in the batch, ``[B, T, D]``; zero at padding."""
    return flat.new_zeros(*mask.shape, flat.shape[-1]).masked_scatter(mask.unsqueeze(-1), flat)
