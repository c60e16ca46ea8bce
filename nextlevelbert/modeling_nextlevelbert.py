"""NextLevelBERT: a masked language model whose tokens are the vectors of text chunks.

Czinczoll et al., "NextLevelBERT: Masked Language Modeling with Higher-Level Representations for Long
Documents", ACL 2024 (arXiv 2402.17682). Its attention layers are those of a `transformers` backbone.

Notation for shapes: B documents or sequences in a batch, T tokens of the longest document, L chunks of
the longest document, S = L + 2 positions with [CLS] and [SEP], D hidden size, M masked positions.
"""

from __future__ import annotations

import logging
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import can_return_tuple

from .chunk_encoder import ChunkEncoder, LoadedChunkEncoder, backbone_from_config, load_chunk_encoder, micro_batches
from .chunking import ChunkingRule, windows
from .configuration_nextlevelbert import NextLevelBertConfig
from .document_encoding import DocumentEncodingMixin, warn_of_empty_documents
from .input_checks import check_lengths, check_packed, check_vectors
from .losses import masked_vector_loss
from .masking import CLS, NOT_SPECIAL, PAD, SEP
from .outputs import DocumentModelOutput, MaskedVectorModelingOutput
from .pooling import pool
from .sentence_transformer import write_sentence_transformer_files

logger = logging.getLogger(__name__)

# Positions of one pass of the encoder over chunks: eight full windows keep its memory near 100 MB on a CPU.
_POSITIONS_PER_PASS = 4_096

# Every class of a checkpoint, whichever of them saves it.
_AUTO_MAP = {
    "AutoConfig": "configuration_nextlevelbert.NextLevelBertConfig",
    "AutoModel": "modeling_nextlevelbert.NextLevelBertModel",
    "AutoModelForPreTraining": "modeling_nextlevelbert.NextLevelBertForMaskedVectorModeling",
}

# What `save_pretrained(push_to_hub=True)` hands on; what `from_pretrained` has to read the tokenizer with, too.
_HUB_ARGUMENTS = ("repo_id", "commit_message", "private", "token", "revision", "create_pr", "tags", "max_shard_size")
_LOADING_ARGUMENTS = ("revision", "token", "cache_dir", "subfolder", "local_files_only", "force_download")


class NextLevelBertSpecialVectors(nn.Embedding):
    """The trained vectors [PAD], [CLS], [SEP] and [MASK], one table ``[4, D]`` (paper, section 3.2)."""

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(4, config.hidden_size, padding_idx=PAD)


class NextLevelBertPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation that all NextLevelBERT classes share."""

    config: NextLevelBertConfig
    config_class = NextLevelBertConfig
    base_model_prefix = "model"
    model_tags = ["nextlevelbert", "sentence-transformers"]
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, NextLevelBertSpecialVectors):
            if not getattr(module.weight, "_is_hf_initialized", False):  # a loaded table stays, its [PAD] row too
                # Length 1 on average, as the chunk vectors have that they stand among.
                init.normal_(module.weight, std=self.config.hidden_size**-0.5)
                init.zeros_(module.weight[PAD])

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As `PreTrainedModel.from_pretrained`; remembers where from, because the tokenizer is read on first use."""
        loaded_with = {key: kwargs[key] for key in _LOADING_ARGUMENTS if kwargs.get(key) is not None}
        loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # a pair with output_loading_info=True
        model.base_model._loaded_with = loaded_with
        return loaded

    @classmethod
    def from_chunk_encoder(
        cls, chunk_encoder: str | PathLike[str] | LoadedChunkEncoder, chunk_size: int = 256, **config_kwargs: Any
    ) -> NextLevelBertPreTrainedModel:
        """A new model around a sentence encoder, initialised from that encoder's own layers.

        The paper shows that random initialisation fails (section 4.5). Word embeddings are left out; the
        position table is copied. Attention dropout is set to 0, because it makes a training step on a
        CPU more than twice as slow; pass another `encoder_config` to the config for the paper's 0.1.

        Args:
            chunk_encoder: name or folder of a sentence-transformers model, or one already loaded.
            chunk_size: most tokens in a chunk.
            config_kwargs: further fields of `NextLevelBertConfig`.

        Raises:
            ValueError: for an encoder that cannot be used, or a chunk size it does not allow.
        """
        source = chunk_encoder if isinstance(chunk_encoder, LoadedChunkEncoder) else load_chunk_encoder(chunk_encoder)
        chunking = config_kwargs.pop("chunking", "fixed")
        rule = ChunkingRule.from_tokenizer(source.tokenizer, chunk_size, chunking, source.max_chunk_size)
        backbone = source.encoder.model
        encoder_config = backbone.config.to_dict()
        encoder_config.update(
            {key: 0.0 for key in ("attention_probs_dropout_prob", "attention_dropout") if key in encoder_config}
        )
        config = NextLevelBertConfig(
            encoder_config=config_kwargs.pop("encoder_config", encoder_config),
            chunk_encoder_config=backbone.config.to_dict(),
            chunk_encoder_name=source.name,
            chunk_encoder_fingerprint=source.fingerprint,
            chunk_encoder_pooling=source.encoder.pooling,
            chunk_encoder_normalize=source.encoder.normalize,
            chunking=chunking,
            chunk_size=chunk_size,
            chunk_prefix_ids=rule.prefix_ids,
            chunk_suffix_ids=rule.suffix_ids,
            sentence_token_ids=rule.sentence_token_ids or None,
            pad_token_id=source.tokenizer.pad_token_id,
            **config_kwargs,
        )
        model = cls(config)
        weights = backbone.state_dict()
        base: NextLevelBertModel = model.base_model
        wanted = base.encoder.state_dict()
        if missing := sorted(wanted.keys() - weights.keys()):
            raise ValueError(
                f"The chunk encoder has no weights for {len(missing)} tensors of encoder_config ({missing[0]}, …): "
                "another architecture or more layers cannot start from it; build NextLevelBertModel(config) instead."
            )
        base.encoder.load_state_dict({name: _fit_rows(weights[name], wanted[name], name) for name in wanted})
        base.tokenizer = source.tokenizer
        if base.chunk_encoder is not None:
            base.attach_chunk_encoder(source)
        return model.eval()

    def save_pretrained(self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any) -> None:
        """Saves a folder that opens with this package, with `SentenceTransformer`, and with `trust_remote_code`.

        Beside weights and configuration it holds the tokenizer, the modelling code, and three small files
        that tell sentence-transformers to take `pooler_output`. Arguments as in `PreTrainedModel`.
        """
        push = kwargs.pop("push_to_hub", False)
        hub = {key: kwargs.pop(key) for key in _HUB_ARGUMENTS if push and key in kwargs}
        tokenizer = self.base_model.find_tokenizer()
        self.config.auto_map = dict(_AUTO_MAP)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if not is_main_process:
            return
        write_sentence_transformer_files(save_directory, tokenizer)
        if push:
            self.push_to_hub(hub.pop("repo_id", Path(save_directory).name), **hub)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        raise ValueError("NextLevelBERT has no word embeddings to resize: its inputs are chunk vectors.")


def _fit_rows(source: torch.Tensor, target: torch.Tensor, name: str) -> torch.Tensor:
    """A weight, cut or continued by the target's own rows where only the number of rows (positions) differs."""
    if source.shape[1:] != target.shape[1:] or (source.shape != target.shape and "position" not in name):
        raise ValueError(
            f"{name} has shape {tuple(source.shape)} in the chunk encoder, but {tuple(target.shape)} here."
        )
    rows = min(len(source), len(target))
    return torch.cat([source[:rows], target[rows:]])


class NextLevelBertModel(DocumentEncodingMixin, NextLevelBertPreTrainedModel):
    """Whole documents to contextual chunk vectors and one document vector (paper, section 3).

    Args:
        config: with ``include_chunk_encoder=False`` the frozen encoder is neither built nor saved; it is
            then read from `config.chunk_encoder_name` when token ids first arrive.

    Example:
        >>> model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=32)
        >>> book = model.encode("Call me Ishmael. Some years ago, never mind how long precisely, I went to sea.")
        >>> book.document.shape, book.chunks.shape, book.spans.tolist()
        (torch.Size([384]), torch.Size([1, 384]), [[0, 78]])
    """

    _auto_class = "AutoModel"
    _keys_to_ignore_on_load_unexpected = [r"^head\."]  # the pretraining head is dropped on purpose

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        encoder: Any = backbone_from_config(config.encoder_config)
        encoder.set_input_embeddings(None)  # vectors come in, not ids
        self.special_embeddings = NextLevelBertSpecialVectors(config)
        self.encoder = encoder
        self.chunk_encoder: ChunkEncoder | None = None
        if config.include_chunk_encoder:
            self.chunk_encoder = self._new_chunk_encoder()
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The block that adds positions: vectors enter here, and so do hooks that ask for input gradients."""
        return self.encoder.embeddings

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
            check_packed(inputs_embeds, special_ids, self.config.hidden_size, self.config.window()[0] + 2)
            return self._forward_packed(inputs_embeds, special_ids, extras)
        if input_ids is not None:
            documents = self._encode_ids(input_ids, attention_mask)
            mask = torch.arange(max(map(len, documents)), device=self.device) < torch.tensor(
                [[len(document)] for document in documents], device=self.device
            )  # [B, L]
        elif inputs_embeds is not None:
            mask = check_vectors(inputs_embeds, attention_mask, self.config.hidden_size)
            documents = [vectors[keep].to(self.dtype) for vectors, keep in zip(inputs_embeds, mask, strict=True)]
        empty = [index for index, document in enumerate(documents) if len(document) == 0]
        if empty:
            warn_of_empty_documents(empty)
        raw: dict[str, Any] = {}
        contextual, pooled = self.contextualize(documents, extras, raw)
        read = mask & (mask.cumsum(dim=1) <= torch.tensor([[len(rows)] for rows in contextual], device=mask.device))
        vectors = torch.zeros(*mask.shape, self.config.hidden_size, device=self.device, dtype=self.dtype)
        return DocumentModelOutput(
            last_hidden_state=vectors.masked_scatter(read.unsqueeze(-1), torch.cat(contextual)),  # [B, L, D]
            pooler_output=pooled,  # [B, D]
            chunk_vectors=vectors.masked_scatter(mask.unsqueeze(-1), torch.cat(documents)),  # [B, L, D]
            chunk_mask=read,
            **raw,
        )

    def _forward_packed(
        self, inputs_embeds: torch.Tensor, special_ids: torch.Tensor, extras: dict
    ) -> DocumentModelOutput:
        """Sequences that hold their special positions already, as pretraining packs them."""
        special = special_ids != NOT_SPECIAL
        rows = self.special_embeddings(special_ids.clamp(min=PAD))  # [B, S, D]
        embeds = torch.where(special.unsqueeze(-1), rows, inputs_embeds.to(self.dtype))
        real = special_ids != PAD
        output = self.encoder(inputs_embeds=embeds, attention_mask=None if real.all() else real.long(), **extras)
        hidden = output.last_hidden_state
        return DocumentModelOutput(
            last_hidden_state=hidden,
            pooler_output=pool(hidden, ~special, "mean"),
            chunk_vectors=inputs_embeds,
            chunk_mask=~special,
            hidden_states=output.get("hidden_states"),
            attentions=output.get("attentions"),
        )

    def contextualize(
        self,
        documents: list[torch.Tensor],
        extras: dict[str, bool] | None = None,
        raw: dict[str, Any] | None = None,
        first: int = 0,
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Runs the encoder over each document's chunk vectors: [CLS] v1 … vn [SEP], in windows where n is large.

        Args:
            documents: chunk vectors ``[n, D]`` of each document, on any device and in any floating dtype.
            extras: further arguments of the encoder (hidden states, attentions), given for all documents at once.
            raw: receives what `extras` asked for.
            first: number of the first document, for messages.

        Returns:
            Contextual chunk vectors ``[n, D]`` of each document (fewer under truncation), and the document
            vectors ``[B, D]``.

        Raises:
            ValueError: for no document, vectors of another size, or a document too long for the configuration.
        """
        size = self.config.hidden_size
        if not documents or any(vectors.ndim != 2 or vectors.shape[1] != size for vectors in documents):
            raise ValueError(
                f"Give at least one document, each as chunk vectors [n, {size}]; "
                f"got {[tuple(vectors.shape) for vectors in documents]}."
            )
        (limit, overlap), policy = self.config.window(), self.config.long_documents
        long = check_lengths([len(vectors) for vectors in documents], limit, policy, first, one_window=bool(extras))
        if long and policy == "truncate":
            lost = sum(len(documents[index]) - limit for index in long)
            names = [first + index for index in long]
            logger.warning("long_documents='truncate': %d chunks of document(s) %s are cut off.", lost, names)
            documents = [vectors[:limit] for vectors in documents]
        documents = [vectors.to(self.device, self.dtype) for vectors in documents]
        jobs = [
            (index, start, end)
            for index, vectors in enumerate(documents)
            for start, end in windows(len(vectors), limit, overlap)
        ]
        lengths = np.asarray([end - start + 2 for _, start, end in jobs], np.int64)
        batches = [np.arange(len(jobs))] if extras and jobs else micro_batches(lengths, _POSITIONS_PER_PASS)
        specials = self.special_embeddings.weight
        totals = [torch.zeros(len(vectors), size, device=self.device, dtype=self.dtype) for vectors in documents]
        counts = [torch.zeros(len(vectors), 1, device=self.device) for vectors in documents]
        summaries: list[list[torch.Tensor]] = [[] for _ in documents]  # [CLS] outputs, one a window
        for batch in batches:
            pieces = [documents[index][start:end] for index, start, end in (jobs[i] for i in batch)]
            embeds = pad_sequence(
                [torch.cat([specials[CLS : CLS + 1], piece, specials[SEP : SEP + 1]]) for piece in pieces],
                batch_first=True,
            )  # [B, S, D]
            reach = torch.from_numpy(lengths[batch]).to(self.device)
            mask = None
            if lengths[batch].min() < embeds.shape[1]:
                mask = (torch.arange(embeds.shape[1], device=self.device) < reach[:, None]).long()
            output = self.encoder(inputs_embeds=embeds, attention_mask=mask, **(extras or {}))
            if extras and raw is not None:
                raw.update({name: output[name] for name in ("hidden_states", "attentions") if output.get(name)})
            for hidden, (index, start, end) in zip(output.last_hidden_state, (jobs[i] for i in batch), strict=True):
                part = slice(start, end)
                totals[index][part] = totals[index][part] + hidden[1 : end - start + 1]
                counts[index][part] += 1
                summaries[index].append(hidden[0])
        contextual = [total / count.to(total.dtype) for total, count in zip(totals, counts, strict=True)]
        return contextual, self._pool_documents(contextual, summaries)

    def _pool_documents(self, contextual: list[torch.Tensor], summaries: list[list[torch.Tensor]]) -> torch.Tensor:
        """Document vectors ``[B, D]`` by the configured pooling; zero where a document has no chunk."""
        zero = torch.zeros(self.config.hidden_size, device=self.device, dtype=self.dtype)
        if self.config.pooling == "cls":
            return torch.stack([torch.stack(rows).mean(dim=0) if rows else zero for rows in summaries])
        pooled = [
            pool(rows[None], torch.ones(1, len(rows), device=self.device), self.config.pooling)[0]
            if len(rows)
            else zero
            for rows in contextual
        ]
        return torch.stack(pooled)


class NextLevelBertPredictionHead(nn.Sequential):
    """Linear, GELU, Linear: from a contextual vector to the chunk vector that stood there (paper, section 3.2)."""

    def __init__(self, config: NextLevelBertConfig) -> None:
        size = config.hidden_size
        super().__init__(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))


class NextLevelBertForMaskedVectorModeling(NextLevelBertPreTrainedModel):
    """Predicts masked chunk vectors from their context (paper, section 3.2)."""

    _auto_class = "AutoModelForPreTraining"
    main_input_name = "inputs_embeds"
    accepts_loss_kwargs = False  # the loss is a mean over the batch's selected positions

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        self.model = NextLevelBertModel(config)
        self.head = NextLevelBertPredictionHead(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    @can_return_tuple
    def forward(
        self,
        inputs_embeds: torch.Tensor,
        special_ids: torch.Tensor,
        mask_positions: torch.Tensor,
        labels: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> MaskedVectorModelingOutput:
        """One step over packed sequences, as `DataCollatorForVectorMasking` makes them.

        Args:
            inputs_embeds: ``[B, S, D]`` chunk vectors, some replaced by others; anything at special positions.
            special_ids: ``[B, S]``: -1 at chunk vectors, else [PAD] 0, [CLS] 1, [SEP] 2, [MASK] 3.
            mask_positions: ``[B, S]`` bool, where to predict.
            labels: ``[B, S, D]`` the true vectors.

        Raises:
            ValueError: if the shapes do not fit each other.
        """
        output = self.model(
            inputs_embeds=inputs_embeds,
            special_ids=special_ids,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        if mask_positions.shape != special_ids.shape:
            raise ValueError(
                f"mask_positions must be {tuple(special_ids.shape)} like special_ids, "
                f"got {tuple(mask_positions.shape)}."
            )
        if labels is not None and labels.shape != inputs_embeds.shape:
            raise ValueError(f"labels must be {tuple(inputs_embeds.shape)}, got {tuple(labels.shape)}.")
        selected = mask_positions.bool()
        predictions = self.head(output.last_hidden_state[selected])  # [M, D]
        loss = targets = None
        if labels is not None:
            targets = labels[selected]  # [M, D]
            loss = masked_vector_loss(self.config.loss, predictions, targets, self.config.temperature)
        return MaskedVectorModelingOutput(
            loss=loss,
            predictions=predictions,
            targets=targets,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )
