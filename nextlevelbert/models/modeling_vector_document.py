"""`forward` of the models over chunk vectors: whole documents in, all levels out.

Notation for shapes: B documents or sequences in a batch, T tokens of the longest document, L chunks of
the longest document, S positions of a sequence with its special vectors, D size of a chunk vector, H hidden size
of the encoder over chunks (equal to D in NextLevelBERT).
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.utils import can_return_tuple

from .chunk_encoder import LoadedChunkEncoder
from .document_encoding import DocumentEncodingMixin, warn_of_empty_documents
from .input_checks import check_packed, check_vectors
from .masking import NOT_SPECIAL, PAD, SEP
from .outputs import DocumentModelOutput
from .pooling import PoolingMode, pool
from .portable_checkpoint import PortableCheckpointMixin
from .windowed_pass import WindowedPassMixin


class VectorPreTrainedMixin(PortableCheckpointMixin):
    """What all classes of NextLevelBERT and HATE share; stands before `PreTrainedModel`."""

    base_model_prefix = "model"
    made_by = "from_chunk_encoder"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def adopt(self, source: LoadedChunkEncoder) -> Any:
        """The model in evaluation mode, with the tokenizer of its chunk encoder and that itself where it is saved."""
        base = self.base_model
        base.tokenizer = source.tokenizer
        if base.chunk_encoder is not None:
            base.attach_chunk_encoder(source)
        return self.eval()


class VectorDocumentMixin(DocumentEncodingMixin, WindowedPassMixin):
    """What `NextLevelBertModel` and `HateModel` do alike; stands before their `…PreTrainedModel`."""

    def build_chunk_encoder(self) -> None:
        """Makes room for the chunk encoder where the checkpoint holds it; in a subclass's `__init__`."""
        self.chunk_encoder = self._new_chunk_encoder() if self.config.include_chunk_encoder else None

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        special_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> DocumentModelOutput:
        """Reads whole documents, as token ids or as chunk vectors; both give the same result.

        Args:
            input_ids: ``[B, T]`` ids of whole documents from the stock tokenizer, of any length.
            attention_mask: ``[B, T]`` or, with vectors, ``[B, L]``; zero at padding. All ones by default.
            inputs_embeds: ``[B, L, D]`` chunk vectors, without [CLS] and [SEP].
            special_ids: ``[B, S]`` for packed sequences, where `inputs_embeds` already has a place for every
                special vector: -1 at chunk vectors, else the row of the special table.
            token_type_ids: accepted because tokenizers give it; has no meaning here.
            output_hidden_states, output_attentions: as in transformers; see `DocumentModelOutput`.

        Raises:
            ValueError: for both or neither input, vectors of a wrong shape or with NaN or infinity, or a
                document above `max_chunks` under ``long_documents="error"``.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                "Give either input_ids [B, T] of whole documents or inputs_embeds [B, L, D] of chunk vectors."
            )
        extras = {
            name: True
            for name, wanted in (
                ("output_hidden_states", output_hidden_states),
                ("output_attentions", output_attentions),
            )
            if wanted
        }
        if special_ids is not None:
            if inputs_embeds is None or attention_mask is not None:
                raise ValueError(
                    "special_ids go with inputs_embeds and without an attention_mask: [PAD] is one of them."
                )
            positions = self.config.window()[0] + self.config.special_positions
            check_packed(inputs_embeds, special_ids, self.config.chunk_hidden_size, positions)
            if self.config.special_positions == 1 and (special_ids == SEP).any():
                raise ValueError(
                    "special_ids hold 2, [SEP], which this model does not have; use DocumentVectorDataset."
                )
            return self._forward_packed(inputs_embeds, special_ids, extras)
        if input_ids is not None:
            documents = self._encode_ids(input_ids, attention_mask)
            mask = torch.arange(max(map(len, documents)), device=self.device) < torch.tensor(
                [[len(document)] for document in documents], device=self.device
            )  # [B, L]
        elif inputs_embeds is not None:
            mask = check_vectors(inputs_embeds, attention_mask, self.config.chunk_hidden_size)
            documents = [vectors[keep].to(self.dtype) for vectors, keep in zip(inputs_embeds, mask, strict=True)]
        empty = [index for index, document in enumerate(documents) if len(document) == 0]
        if empty:
            warn_of_empty_documents(empty)
        raw: dict[str, Any] = {}
        contextual, pooled = self.contextualize(documents, extras, raw)
        read = mask & (mask.cumsum(dim=1) <= torch.tensor([[len(rows)] for rows in contextual], device=mask.device))
        return DocumentModelOutput(
            last_hidden_state=_padded(torch.cat(contextual), read),  # [B, L, H]
            pooler_output=pooled,  # [B, H]
            chunk_vectors=_padded(torch.cat(documents), mask),  # [B, L, D]
            chunk_mask=read,
            **raw,
        )

    def _forward_packed(
        self, inputs_embeds: torch.Tensor, special_ids: torch.Tensor, extras: dict
    ) -> DocumentModelOutput:
        """Sequences that hold their special positions already, as pretraining packs them.

        Where several documents can share one, its vector is the mean of all chunks though `pooling` is another;
        the residual kind is computed over all that are not masked.
        """
        special = special_ids != NOT_SPECIAL
        rows = self.special_embeddings(special_ids.clamp(min=PAD))  # [B, S, D]
        chunks = self.prepare_chunks(inputs_embeds.to(self.dtype))
        embeds = torch.where(special.unsqueeze(-1), rows, chunks)
        real = special_ids != PAD
        output = self.encoder(inputs_embeds=embeds, attention_mask=None if real.all() else real.long(), **extras)
        hidden = output.last_hidden_state
        pooling: PoolingMode = self.config.pooling if self.config.special_positions == 1 else "mean"
        pooled = hidden[:, 0] if pooling == "cls" else pool(hidden, ~special, pooling)
        if self.config.pooling == "residual":
            pooled = self.residual_pooling(pool(chunks, ~special), pooled)
        return DocumentModelOutput(
            last_hidden_state=hidden,
            pooler_output=pooled,
            chunk_vectors=inputs_embeds,
            chunk_mask=~special,
            hidden_states=output.get("hidden_states"),
            attentions=output.get("attentions"),
        )


def _padded(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Rows ``[N, D]`` at the N places of a mask ``[B, L]``, zeros elsewhere."""
    return rows.new_zeros(*mask.shape, rows.shape[-1]).masked_scatter(mask.unsqueeze(-1), rows)
