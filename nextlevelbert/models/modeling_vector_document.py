"""The models over chunk vectors, NextLevelBERT and HATE: whole documents in, all levels out.

Notation for shapes: B documents or sequences in a batch, T tokens of the longest document, L chunks of
the longest document, S positions of a sequence with its special vectors, D size of a chunk vector, H hidden size
of the encoder over chunks (equal to D in NextLevelBERT).
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import can_return_tuple

from .chunk_encoder import micro_batches
from .chunking import ChunkingMode, ChunkingRule
from .configuration_vector_document import CLS, MASK, NOT_SPECIAL, PAD, SEP, VectorDocumentConfig
from .document_encoding import DocumentEncodingModel, warn_of_empty_documents
from .encoder_loading import LoadedChunkEncoder
from .outputs import DocumentModelOutput
from .pooling import PoolingMode, pool
from .pretrained import NextLevelPreTrainedModel, bert_over_vectors, token_mask, with_attention_dropout

logger = logging.getLogger(__name__)

_NEW_LAYERS = 2


def traced() -> bool:
    """Whether a graph is recorded (`torch.export`, ONNX, `torch.compile`, tracing): values are not known then."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def exported() -> bool:
    """Whether that graph has to hold the whole pass, as an exported one does; a compiled one may have breaks."""
    return torch.jit.is_tracing() or getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()


# Positions of one pass of the encoder over chunks: eight full windows keep its memory near 100 MB on a CPU.
_POSITIONS_PER_PASS = 4_096


class VectorDocumentPreTrainedModel(NextLevelPreTrainedModel):
    """What all classes of NextLevelBERT and HATE share, heads included."""

    config: VectorDocumentConfig
    base_model_prefix = "model"
    made_by = "from_chunk_encoder"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def adopt(self, source: LoadedChunkEncoder) -> Any:
        """The model in evaluation mode, with the tokenizer of its chunk encoder, and its weights if they are saved."""
        base = self.base_model
        base.tokenizer = source.tokenizer
        if base.chunk_encoder is not None:
            base.attach_chunk_encoder(source)
        return self.eval()

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        raise ValueError(f"{type(self).__name__} has no word embeddings to resize: its inputs are chunk vectors.")


class VectorDocumentModel(DocumentEncodingModel, VectorDocumentPreTrainedModel):
    """`forward` of `NextLevelBertModel` and `HateModel`: text to chunk vectors, and the encoder over those.

    Attributes:
        encoder: from ``inputs_embeds`` ``[B, S, D]`` to contextual vectors ``[B, S, H]``; made by the subclass.
        special_embeddings: a module with the table of special vectors `weight` ``[4, D]``; made by the subclass.
        residual_pooling: made by the subclass where `config.pooling` reads the plain chunk vectors.
        chunk_encoder: the frozen encoder of chunks, where the checkpoint holds it.
    """

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
            token_type_ids: accepted because tokenizers return it; has no meaning here.
            output_hidden_states, output_attentions: as in transformers; see `DocumentModelOutput`.

        Raises:
            ValueError: for both or neither input, vectors of a wrong shape or with NaN or infinity, or a
                document above `max_chunks` under ``long_documents="error"``.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                "Give either input_ids [B, T] of whole documents or inputs_embeds [B, L, D] of chunk vectors."
            )
        wanted = {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
        extras = {name: True for name, value in wanted.items() if value}
        if special_ids is not None:
            if inputs_embeds is None or attention_mask is not None:
                raise ValueError(
                    "special_ids go with inputs_embeds and without an attention_mask: [PAD] is one of them."
                )
            return self._forward_packed(inputs_embeds, special_ids, extras)
        limit, _ = self.config.window()
        # While a compiler reads along, ids and documents of several windows are left to Python.
        if exported() or (traced() and inputs_embeds is not None and inputs_embeds.shape[1] <= limit):
            return self._forward_padded(input_ids, attention_mask, inputs_embeds, extras)
        if input_ids is not None:
            documents = self.encode_ids(input_ids, attention_mask)  # [n, D] each
            lengths = torch.tensor([len(document) for document in documents], device=self.device)
            mask = torch.arange(int(lengths.max()), device=self.device) < lengths[:, None]  # [B, L]
        else:
            assert inputs_embeds is not None  # checked above
            mask = check_vectors(inputs_embeds, attention_mask, self.config.chunk_hidden_size)  # [B, L]
            documents = [vectors[keep].to(self.dtype) for vectors, keep in zip(inputs_embeds, mask, strict=True)]
        if empty := [index for index, document in enumerate(documents) if len(document) == 0]:
            warn_of_empty_documents(empty)
        raw: dict[str, tuple[torch.Tensor, ...]] = {}
        contextual, pooled = self.contextualize(documents, extras, raw)
        read = mask & (mask.cumsum(dim=1) <= torch.tensor([[len(rows)] for rows in contextual], device=mask.device))
        return DocumentModelOutput(
            last_hidden_state=_padded(torch.cat(contextual), read),  # [B, L, H]
            pooler_output=pooled,  # [B, H]
            chunk_vectors=_padded(torch.cat(documents), mask),  # [B, L, D]
            chunk_mask=read,
            **raw,
        )

    def _forward_padded(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        extras: dict[str, bool],
    ) -> DocumentModelOutput:
        """`forward` without loops over documents, for graphs: the same results for documents of one window.

        Raises:
            ValueError: for sequences that may have more chunks than a window holds.
        """
        if input_ids is not None:
            keep = token_mask(input_ids, attention_mask)
            inputs_embeds, mask = self.get_chunk_encoder().encode_padded(input_ids, keep, self.config.chunking_rule())
        else:
            assert inputs_embeds is not None  # checked by the caller
            mask = check_vectors(inputs_embeds, attention_mask, self.config.chunk_hidden_size)  # [B, L]
        before, after = self._special_rows()
        vectors = inputs_embeds.to(before.dtype)  # [B, L, D]
        limit, specials = self.config.window()[0], self.config.special_positions
        if vectors.shape[1] > limit:
            raise ValueError(
                f"A graph holds one window of {limit} chunks, got up to {vectors.shape[1]}. Give Dim(...) that "
                "maximum, or a smaller example."
            )
        chunks = self.prepare_chunks(vectors)
        counts = mask.sum(dim=1, keepdim=True)  # [B, 1]
        length = vectors.shape[1] + specials  # S
        # A chunk goes to its number among those that the mask keeps, the others one past the end.
        place = torch.where(mask, mask.cumsum(dim=1), length).unsqueeze(-1)  # [B, L, 1]
        embeds = chunks.new_zeros(chunks.shape[0], length + 1, chunks.shape[-1])
        embeds = embeds.scatter(1, place.expand(-1, -1, chunks.shape[-1]), chunks)[:, :length]  # [B, S, D]
        position = torch.arange(length, device=mask.device)
        embeds = torch.where((position == 0).unsqueeze(-1), before, embeds)
        if specials == 2:
            embeds = torch.where((position == counts + 1).unsqueeze(-1), after, embeds)
        real = position < counts + specials  # [B, S]
        output = self.read_chunks(embeds, real.long(), (position > 0) & (position <= counts), extras)
        hidden = output.last_hidden_state  # [B, S, H]
        index = place.clamp(max=length - 1).expand(-1, -1, hidden.shape[-1])
        contextual = hidden.gather(1, index).masked_fill(~mask.unsqueeze(-1), 0.0)  # [B, L, H]
        if self.config.pooling == "cls":
            pooled = hidden[:, 0].masked_fill(counts == 0, 0.0)
        elif self.config.pooling in ("residual", "plain"):
            pooled = self.residual_pooling(pool(chunks, mask), pool(contextual, mask))
        else:
            pooled = pool(contextual, mask, self.config.pooling)
        return DocumentModelOutput(
            last_hidden_state=contextual,
            pooler_output=pooled,
            chunk_vectors=vectors.masked_fill(~mask.unsqueeze(-1), 0.0),
            chunk_mask=mask,
            hidden_states=output.get("hidden_states"),
            attentions=output.get("attentions"),
        )

    def contextualize(
        self,
        documents: list[torch.Tensor],
        extras: dict[str, bool] | None = None,
        raw: dict[str, tuple[torch.Tensor, ...]] | None = None,
        first: int = 0,
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Runs the encoder over each document's chunk vectors: [CLS] v1 … vn [SEP], in windows where n is large.

        HATE has no [SEP]; `config.special_positions` says so.

        Args:
            documents: chunk vectors ``[n, D]`` of each document, on any device and in any floating dtype.
            extras: further arguments of the encoder (hidden states, attentions), for all documents at once.
            raw: receives what `extras` asked for.
            first: number of the first document, for messages.

        Returns:
            Contextual chunk vectors ``[n, H]`` of each document (fewer under truncation), and the document
            vectors ``[B, H]``.

        Raises:
            ValueError: for no document, vectors of another size, a document too long for the configuration, or a
                result with NaN or infinity (the documents numbered, and the weight named that is the cause).
        """
        size, width = self.config.chunk_hidden_size, self.config.hidden_size
        if not documents or any(vectors.ndim != 2 or vectors.shape[1] != size for vectors in documents):
            raise ValueError(
                f"Give at least one document, each as chunk vectors [n, {size}]; "
                f"got {[tuple(vectors.shape) for vectors in documents]}."
            )
        limit, _ = self.config.window()
        long = self.config.check_lengths([len(vectors) for vectors in documents], first, one_window=bool(extras))
        if long and self.config.long_documents == "truncate":
            lost = sum(len(documents[index]) - limit for index in long)
            names = [first + index for index in long]
            logger.warning("long_documents='truncate': %d chunks of document(s) %s are cut off.", lost, names)
            documents = [vectors[:limit] for vectors in documents]
        documents = [self.prepare_chunks(vectors.to(self.device, self.dtype)) for vectors in documents]
        jobs = [
            (index, start, end)
            for index, vectors in enumerate(documents)
            for start, end in self.config.windows_of(len(vectors))
        ]
        lengths = np.asarray([end - start + self.config.special_positions for _, start, end in jobs], np.int64)
        batches = [np.arange(len(jobs))] if extras and jobs else micro_batches(lengths, _POSITIONS_PER_PASS)
        before, after = self._special_rows()
        totals = [torch.zeros(len(vectors), width, device=self.device, dtype=self.dtype) for vectors in documents]
        counts = [torch.zeros(len(vectors), 1, device=self.device) for vectors in documents]
        summaries: list[list[torch.Tensor]] = [[] for _ in documents]  # [CLS] outputs, one a window
        for batch in batches:
            pieces = [documents[index][start:end] for index, start, end in (jobs[i] for i in batch)]
            embeds = pad_sequence(
                [torch.cat([before, piece, after]) for piece in pieces], batch_first=True
            )  # [B, S, D]
            reach = torch.from_numpy(lengths[batch]).to(self.device)
            mask = None
            if lengths[batch].min() < embeds.shape[1]:
                mask = (torch.arange(embeds.shape[1], device=self.device) < reach[:, None]).long()
            places = torch.arange(embeds.shape[1], device=self.device)
            chunks = (places >= len(before)) & (places < reach[:, None] - len(after))  # [B, S]
            output = self.read_chunks(embeds, mask, chunks, extras or {})
            if extras and raw is not None:
                raw.update({name: output[name] for name in ("hidden_states", "attentions") if output.get(name)})
            for hidden, (index, start, end) in zip(output.last_hidden_state, (jobs[i] for i in batch), strict=True):
                part = slice(start, end)
                totals[index][part] = totals[index][part] + hidden[1 : end - start + 1]
                counts[index][part] += 1
                summaries[index].append(hidden[0])
        contextual = [total / count.to(total.dtype) for total, count in zip(totals, counts, strict=True)]
        pooled = self._pool_documents(documents, contextual, summaries)
        return contextual, pooled

    def prepare_chunks(self, vectors: torch.Tensor) -> torch.Tensor:
        """Chunk vectors ``[..., D]`` as the encoder over chunks reads them: by default as they are."""
        return vectors

    def read_chunks(
        self, embeds: torch.Tensor, mask: torch.Tensor | None, chunks: torch.Tensor, extras: dict[str, bool]
    ) -> BaseModelOutput:
        """Contextual vectors ``[B, S, H]`` of chunk and special vectors ``[B, S, D]``: by default the encoder's.

        `mask` ``[B, S]`` is zero at padding, `chunks` ``[B, S]`` true at chunk vectors; `extras` go to the encoder.
        """
        return self.encoder(inputs_embeds=embeds, attention_mask=mask, **extras)

    def _special_rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The special vectors before and after the chunk vectors of a window, ``[1, D]`` or ``[0, D]`` each."""
        rows = self.special_embeddings.weight
        after = self.config.special_positions - 1
        return rows[CLS : CLS + 1].to(self.dtype), rows[SEP : SEP + after].to(self.dtype)

    def _pool_documents(
        self, documents: list[torch.Tensor], contextual: list[torch.Tensor], summaries: list[list[torch.Tensor]]
    ) -> torch.Tensor:
        """Document vectors ``[B, H]`` by the configured pooling; zero where a document has no chunk."""
        zero = torch.zeros(self.config.hidden_size, device=self.device, dtype=self.dtype)
        if self.config.pooling == "cls":
            return torch.stack([torch.stack(rows).mean(dim=0) if rows else zero for rows in summaries])
        residual = self.config.pooling in ("residual", "plain")

        def pooled(vectors: list[torch.Tensor]) -> torch.Tensor:
            mode: PoolingMode = "mean" if residual else self.config.pooling
            return torch.stack(
                [pool(rows[None], torch.ones(1, len(rows), device=self.device), mode)[0] if len(rows) else zero
                 for rows in vectors]
            )  # fmt: skip

        return self.residual_pooling(pooled(documents), pooled(contextual)) if residual else pooled(contextual)

    def _forward_packed(
        self, inputs_embeds: torch.Tensor, special_ids: torch.Tensor, extras: dict[str, bool]
    ) -> DocumentModelOutput:
        """Sequences that hold their special positions already, as pretraining packs them.

        Several documents can share one sequence, so its vector is the mean of all chunks even where `pooling` is
        another; residual pooling reads all chunks that are not masked.
        """
        self._check_packed(inputs_embeds, special_ids)
        special = special_ids != NOT_SPECIAL
        rows = self.special_embeddings(special_ids.clamp(min=PAD))  # [B, S, D]
        chunks = self.prepare_chunks(inputs_embeds.to(self.dtype))
        embeds = torch.where(special.unsqueeze(-1), rows, chunks)
        real = special_ids != PAD
        keep = real.long() if traced() or not real.all() else None
        output = self.read_chunks(embeds, keep, ~special, extras)
        hidden = output.last_hidden_state  # [B, S, H]
        pooling: PoolingMode = self.config.pooling if self.config.special_positions == 1 else "mean"
        pooled = hidden[:, 0] if pooling == "cls" else pool(hidden, ~special, pooling)
        if self.config.pooling in ("residual", "plain"):
            pooled = self.residual_pooling(pool(chunks, ~special), pooled)
        return DocumentModelOutput(
            last_hidden_state=hidden,
            pooler_output=pooled,
            chunk_vectors=inputs_embeds,
            chunk_mask=~special,
            hidden_states=output.get("hidden_states"),
            attentions=output.get("attentions"),
        )

    def _check_packed(self, inputs_embeds: torch.Tensor, special_ids: torch.Tensor) -> None:
        """Checks packed sequences ``[B, S, D]`` and their special positions ``[B, S]``.

        Raises:
            ValueError: for shapes that do not fit, too many positions, an unknown special id, NaN or infinity.
        """
        size, specials = self.config.chunk_hidden_size, self.config.special_positions
        shape, positions = tuple(inputs_embeds.shape), self.config.window()[0] + specials
        if len(shape) != 3 or shape[-1] != size or special_ids.shape != shape[:2] or 0 in shape:
            raise ValueError(
                f"Packed sequences are inputs_embeds [B, S, {size}] and special_ids [B, S], "
                f"got {shape} and {tuple(special_ids.shape)}."
            )
        if shape[1] > positions:
            raise ValueError(
                f"Packed sequences may have at most {positions} positions, got {shape[1]}; make them shorter "
                "(--sequence_length), or use an encoder_config with more positions."
            )
        if not traced() and ((special_ids < NOT_SPECIAL) | (special_ids > MASK)).any():
            raise ValueError(
                f"special_ids must be {NOT_SPECIAL} at chunk vectors, else 0 to {MASK}, "
                f"got {int(special_ids.min())} to {int(special_ids.max())}."
            )
        if specials == 1 and not traced() and (special_ids == SEP).any():
            raise ValueError("special_ids hold 2, [SEP], which this model does not have; use DocumentVectorDataset.")


def config_values(
    source: LoadedChunkEncoder, chunk_size: int, chunking: ChunkingMode, attention_dropout: float = 0.0
) -> dict[str, Any]:
    """Fields of a configuration whose two encoders both have the architecture of the chunk encoder.

    A static chunk encoder has no layers to copy, and those of one whose vectors have another size do not fit: over
    its vectors stands a new BERT of two layers.

    Attention dropout of the encoder over chunks is 0 by default: it makes a training step on a CPU more than
    twice as slow.

    Raises:
        ValueError: for a chunk size that the encoder does not allow.
    """
    rule = ChunkingRule.from_tokenizer(source.tokenizer, chunk_size, chunking, source.max_chunk_size)
    backbone = source.encoder.model
    layers = source.layers or bert_over_vectors(source.encoder.hidden_size, _NEW_LAYERS)
    return {
        "encoder_config": with_attention_dropout(layers, attention_dropout),
        "chunk_encoder_config": backbone.config.to_dict(),
        "chunk_encoder_name": source.name,
        "chunk_encoder_fingerprint": source.fingerprint,
        "chunk_encoder_pooling": source.encoder.pooling,
        "chunk_encoder_normalize": source.encoder.normalize,
        "chunking": chunking,
        "chunk_size": chunk_size,
        "chunk_prefix_ids": rule.prefix_ids,
        "chunk_suffix_ids": rule.suffix_ids,
        "sentence_token_ids": rule.sentence_token_ids or None,
        "sentence_rule": rule.sentence_rule,
        "pad_token_id": source.tokenizer.pad_token_id,
    }


def copy_layers(source: LoadedChunkEncoder, encoder: nn.Module) -> None:
    """Copies the chunk encoder's layers and position table into a new encoder; word embeddings are left out.

    Raises:
        ValueError: for an encoder of another architecture, with more layers or other sizes (named).
    """
    weights = source.encoder.model.state_dict()
    wanted = encoder.state_dict()
    if missing := sorted(wanted.keys() - weights.keys()):
        raise ValueError(
            f"The chunk encoder has no weights for {len(missing)} tensors of encoder_config ({missing[0]}, …): "
            "another architecture or more layers cannot start from it; build the model from its configuration instead."
        )
    encoder.load_state_dict({name: _fit_rows(weights[name], wanted[name], name) for name in wanted})


def _fit_rows(source: torch.Tensor, target: torch.Tensor, name: str) -> torch.Tensor:
    """A weight, cut or continued by the target's own rows where only the number of rows (positions) differs."""
    if source.shape[1:] != target.shape[1:] or (source.shape != target.shape and "position" not in name):
        raise ValueError(
            f"{name} has shape {tuple(source.shape)} in the chunk encoder, but {tuple(target.shape)} here."
        )
    rows = min(len(source), len(target))
    return torch.cat([source[:rows], target[rows:]])


def check_vectors(inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, hidden_size: int) -> torch.Tensor:
    """The mask of chunk vectors ``[B, L, D]`` as bool ``[B, L]``, all true where none is given.

    Raises:
        ValueError: for vectors of another shape, a mask that does not fit them, or NaN or infinity in a
            vector that the mask keeps.
    """
    if inputs_embeds.ndim != 3 or inputs_embeds.shape[-1] != hidden_size or inputs_embeds.shape[0] == 0:
        raise ValueError(
            f"inputs_embeds must be [documents, chunks, {hidden_size}] of at least one document, "
            f"got {tuple(inputs_embeds.shape)}. Vectors of another encoder do not fit this model."
        )
    if attention_mask is None:
        attention_mask = torch.ones(inputs_embeds.shape[:2], device=inputs_embeds.device)
    if attention_mask.shape != inputs_embeds.shape[:2]:
        raise ValueError(
            f"attention_mask must be {tuple(inputs_embeds.shape[:2])}, one flag per chunk, got "
            f"{tuple(attention_mask.shape)}."
        )
    mask = attention_mask.bool()
    return mask


def _padded(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Rows ``[N, D]`` at the N places of a mask ``[B, L]``, zeros elsewhere."""
    return rows.new_zeros(*mask.shape, rows.shape[-1]).masked_scatter(mask.unsqueeze(-1), rows)
