"""NextLevelBERT: a masked language model whose tokens are the vectors of text chunks.

Czinczoll et al., "NextLevelBERT: Masked Language Modeling with Higher-Level Representations for Long
Documents", ACL 2024 (arXiv 2402.17682). Its attention layers are those of a `transformers` backbone.

Notation for shapes: B documents or sequences in a batch, T tokens of the longest document, L chunks of
the longest document, S = L + 2 positions with [CLS] and [SEP], D hidden size, M masked positions.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import MultipleChoiceModelOutput, SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .backbones import backbone_from_config
from .chunk_encoder import ChunkEncoder, LoadedChunkEncoder, load_chunk_encoder
from .configuration_nextlevelbert import NextLevelBertConfig
from .document_encoding import DocumentEncodingMixin, warn_of_empty_documents
from .input_checks import check_packed, check_vectors
from .losses import masked_vector_loss
from .masking import NOT_SPECIAL, PAD
from .outputs import DocumentModelOutput, MaskedVectorModelingOutput
from .pooling import pool
from .portable_checkpoint import PortableCheckpointMixin
from .starting_weights import config_values, copy_layers
from .task_heads import TaskClassifier, check_labels, concatenate_pairs, split_pair
from .windowed_pass import WindowedPassMixin


class NextLevelBertSpecialVectors(nn.Embedding):
    """The trained vectors [PAD], [CLS], [SEP] and [MASK], one table ``[4, D]`` (paper, section 3.2)."""

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(4, config.hidden_size, padding_idx=PAD)


class NextLevelBertPreTrainedModel(PortableCheckpointMixin, PreTrainedModel):
    """Loading, saving and initialisation that all NextLevelBERT classes share."""

    config: NextLevelBertConfig
    config_class = NextLevelBertConfig
    base_model_prefix = "model"
    made_by = "from_chunk_encoder"
    family_auto_map = {
        "AutoConfig": "configuration_nextlevelbert.NextLevelBertConfig",
        "AutoModel": "modeling_nextlevelbert.NextLevelBertModel",
        "AutoModelForPreTraining": "modeling_nextlevelbert.NextLevelBertForMaskedVectorModeling",
        "AutoModelForSequenceClassification": "modeling_nextlevelbert.NextLevelBertForSequenceClassification",
        "AutoModelForMultipleChoice": "modeling_nextlevelbert.NextLevelBertForMultipleChoice",
    }
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
        values = config_values(source, chunk_size, config_kwargs.pop("chunking", "fixed"))
        model = cls(NextLevelBertConfig(**{**values, **config_kwargs}))
        base: NextLevelBertModel = model.base_model
        copy_layers(source, base.encoder)
        base.tokenizer = source.tokenizer
        if base.chunk_encoder is not None:
            base.attach_chunk_encoder(source)
        return model.eval()

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        raise ValueError("NextLevelBERT has no word embeddings to resize: its inputs are chunk vectors.")


class NextLevelBertModel(DocumentEncodingMixin, WindowedPassMixin, NextLevelBertPreTrainedModel):
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
    _keys_to_ignore_on_load_unexpected = [r"^head\.", r"^classifier\."]  # heads are dropped on purpose

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


class NextLevelBertTaskModel(NextLevelBertPreTrainedModel):
    """What the heads for tasks share: a document vector beside encoded questions, and a classifier over both."""

    _keys_to_ignore_on_load_unexpected = [r"^head\."]  # the pretraining head is dropped on purpose
    accepts_loss_kwargs = False  # losses are means over the batch

    def __init__(self, config: NextLevelBertConfig, out_features: int, text_pair: bool) -> None:
        super().__init__(config)
        self.model = NextLevelBertModel(config)
        width = config.hidden_size * (2 if text_pair else 1)
        self.classifier = TaskClassifier(width, config.classifier_hidden_size, out_features)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def _score(
        self, pairs: torch.Tensor | None, document_index: torch.Tensor | None, documents: dict[str, Any]
    ) -> tuple[torch.Tensor, DocumentModelOutput]:
        output = self.model(**documents)
        return self.classifier(concatenate_pairs(output.pooler_output, pairs, document_index)), output


class NextLevelBertForSequenceClassification(NextLevelBertTaskModel):
    """Classifies documents, alone or with a question: one label, several, or values (paper, section 4.1).

    Which of the three is `config.problem_type`, or guessed from the labels as in transformers. With
    ``config.text_pair`` the classifier reads [document vector ; encoded question].

    Example:
        >>> model = NextLevelBertForSequenceClassification.from_chunk_encoder(minilm, num_labels=3, text_pair=True)
        >>> book = torch.randn(1, 400, 384)  # chunk vectors, encoded before
        >>> questions = model.base_model.tokenizer(["Who tells it?", "Who dies?"], return_tensors="pt", padding=True)
        >>> model(
        ...     inputs_embeds=book,
        ...     pair_input_ids=questions["input_ids"],
        ...     pair_attention_mask=questions["attention_mask"],
        ...     document_index=torch.tensor([0, 0]),
        ... ).logits.shape
        torch.Size([2, 3])
    """

    _auto_class = "AutoModelForSequenceClassification"

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config, config.num_labels, config.text_pair)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        pair_input_ids: torch.Tensor | None = None,
        pair_attention_mask: torch.Tensor | None = None,
        pair_embeds: torch.Tensor | None = None,
        document_index: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> SequenceClassifierOutput:
        """Reads each document once, whatever the number of its questions.

        Args:
            input_ids, attention_mask, inputs_embeds: documents, as in `NextLevelBertModel`.
            token_type_ids: ``[B, T]``; where the tokenizer was given pairs, 1 marks the question.
            pair_input_ids, pair_attention_mask: ``[N, Q]`` ids of the questions. One longer than a chunk is cut
                like a document, and the mean of its chunk vectors taken.
            pair_embeds: ``[N, D]`` questions encoded before, in place of their ids.
            document_index: ``[N]``, the document of each question (or label); by default one each, in order.
            labels: ``[N]`` integers, ``[N, num_labels]`` zeros and ones as floats, or ``[N]`` values.
            output_hidden_states, output_attentions: as in `NextLevelBertModel`.

        Raises:
            ValueError: for a question where there is no place for one or none where it is needed, labels out of
                range (rows named), or what `NextLevelBertModel` refuses.
        """
        text_pair = self.config.text_pair
        if token_type_ids is not None and input_ids is not None and bool((token_type_ids == 1).any()):
            if pair_input_ids is not None or pair_embeds is not None:
                raise ValueError(
                    "Questions came twice: in input_ids (token_type_ids of 1) and apart; give one of both."
                )
            prefix = len(self.config.chunk_prefix_ids)
            attention_mask, pair_attention_mask = split_pair(input_ids, attention_mask, token_type_ids, prefix)
            pair_input_ids = input_ids
        pairs = self.model.encode_pairs(pair_input_ids, pair_attention_mask, pair_embeds)
        if (pairs is not None) != text_pair:
            raise ValueError(
                f"This model has text_pair={text_pair} and was given {'no ' if pairs is None else 'a '}question: "
                + ("give pair_input_ids or pair_embeds." if text_pair else "load it with text_pair=True.")
            )
        documents: dict[str, Any] = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "inputs_embeds": inputs_embeds,
        }
        documents |= {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
        logits, output = self._score(pairs, document_index, documents)  # [N, num_labels]
        loss = None
        if labels is not None:
            check_labels(labels, logits, self.config.problem_type)
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss, logits, output.hidden_states, output.attentions)


class NextLevelBertForMultipleChoice(NextLevelBertTaskModel):
    """Chooses among candidate answers to a question about a document (paper, section 4.1).

    Each candidate is encoded together with the question as one text; [document vector ; that vector] gives
    its score, and the softmax runs over the candidates of a question.
    """

    _auto_class = "AutoModelForMultipleChoice"

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config, out_features=1, text_pair=True)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        pair_input_ids: torch.Tensor | None = None,
        pair_attention_mask: torch.Tensor | None = None,
        pair_embeds: torch.Tensor | None = None,
        document_index: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> MultipleChoiceModelOutput:
        """Reads each document once, whatever the number of its questions and candidates.

        Args:
            input_ids, attention_mask, inputs_embeds: documents, as in `NextLevelBertModel`.
            token_type_ids: has no meaning here.
            pair_input_ids, pair_attention_mask: ``[N, C, Q]`` ids of question and candidate, N questions with C
                candidates each. One longer than a chunk is cut like a document, and the mean taken.
            pair_embeds: ``[N, C, D]`` the same, encoded before.
            document_index: ``[N]``, the document of each question; by default one each, in order.
            labels: ``[N]``, the number of the right candidate.
            output_hidden_states, output_attentions: as in `NextLevelBertModel`.

        Raises:
            ValueError: without candidates, for labels out of range, or what `NextLevelBertModel` refuses.
        """
        pairs = self.model.encode_pairs(pair_input_ids, pair_attention_mask, pair_embeds)
        if pairs is None or pairs.ndim != 3:
            shape = None if pairs is None else tuple(pairs.shape)
            raise ValueError(f"Give the candidates as pair_input_ids [N, C, Q] or pair_embeds [N, C, D], got {shape}.")
        documents: dict[str, Any] = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "inputs_embeds": inputs_embeds,
        }
        documents |= {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
        logits, output = self._score(pairs, document_index, documents)  # [N, C, 1]
        logits = logits.squeeze(-1)  # [N, C]
        loss = None
        if labels is not None:
            check_labels(labels, logits, "single_label_classification")
            loss = nn.functional.cross_entropy(logits, labels)
        return MultipleChoiceModelOutput(loss, logits, output.hidden_states, output.attentions)
