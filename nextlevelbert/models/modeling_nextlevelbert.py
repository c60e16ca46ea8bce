"""NextLevelBERT: a masked language model whose tokens are the vectors of text chunks.

Czinczoll et al., "NextLevelBERT: Masked Language Modeling with Higher-Level Representations for Long
Documents", ACL 2024 (arXiv 2402.17682). Its attention layers are those of a `transformers` backbone.

Notation for shapes: B documents or sequences in a batch, T tokens of the longest document, L chunks of
the longest document, S = L + 2 positions with [CLS] and [SEP], D hidden size, M masked positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from os import PathLike
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, MultipleChoiceModelOutput
from transformers.utils import can_return_tuple

from .configuration_nextlevelbert import NextLevelBertConfig
from .configuration_vector_document import PAD
from .document_heads import (
    VectorDocumentForMaskedVectorModeling,
    VectorDocumentForSequenceClassification,
    VectorDocumentWithClassifier,
)
from .encoder_loading import LoadedChunkEncoder, load_chunk_encoder
from .losses import comparable_segments, pair_loss, single_label_loss
from .modeling_vector_document import VectorDocumentModel, VectorDocumentPreTrainedModel, config_values, copy_layers
from .outputs import SegmentPairOutput
from .pooling import (
    ChunkWhitening,
    NeighbourContext,
    NeighbourConvolution,
    PlainPooling,
    ResidualPooling,
    ResidualProjection,
    fit_whitening,
)
from .pretrained import backbone_from_config


class NextLevelBertSpecialVectors(nn.Embedding):
    """The trained vectors [PAD], [CLS], [SEP] and [MASK], one table ``[4, D]`` (paper, section 2.2)."""

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(4, config.hidden_size, padding_idx=PAD)


class NoEncoder(nn.Module):
    """In place of an encoder over chunks: contextual chunk vectors are the chunk vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Identity()

    def forward(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None = None, **extras: bool
    ) -> BaseModelOutput:
        hidden = self.embeddings(inputs_embeds)
        return BaseModelOutput(hidden, (hidden,) if extras.get("output_hidden_states") else None)


class NextLevelBertPredictionHead(nn.Sequential):
    """Linear, GELU, Linear: from a contextual vector to the chunk vector that stood there (paper, section 2.2)."""

    def __init__(self, config: NextLevelBertConfig) -> None:
        size = config.hidden_size
        super().__init__(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))


class NextLevelBertPreTrainedModel(VectorDocumentPreTrainedModel):
    """What all NextLevelBERT classes share: configuration, initialisation, and the start from a chunk encoder."""

    config: NextLevelBertConfig
    config_class = NextLevelBertConfig
    family_auto_map = {
        "AutoConfig": "configuration_nextlevelbert.NextLevelBertConfig",
        "AutoModel": "modeling_nextlevelbert.NextLevelBertModel",
        "AutoModelForPreTraining": "modeling_nextlevelbert.NextLevelBertForMaskedVectorModeling",
        "AutoModelForSequenceClassification": "modeling_nextlevelbert.NextLevelBertForSequenceClassification",
        "AutoModelForMultipleChoice": "modeling_nextlevelbert.NextLevelBertForMultipleChoice",
    }
    model_tags = ["nextlevelbert", "sentence-transformers"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, NextLevelBertSpecialVectors):
            if not getattr(module.weight, "_is_hf_initialized", False):  # a loaded table stays, even its [PAD] row
                # Length 1 on average, like the chunk vectors around them.
                init.normal_(module.weight, std=self.config.hidden_size**-0.5)
                init.zeros_(module.weight[PAD])
        elif isinstance(module, ResidualProjection):
            init.copy_(module.weight, module.start * torch.eye(len(module.weight)))
        elif isinstance(module, NeighbourConvolution):
            init.copy_(module.weight, module.start())
        elif isinstance(module, ChunkWhitening):
            init.zeros_(module.mean)
            init.eye_(module.weight)
        elif isinstance(module, NextLevelBertForContrastiveLearning):
            init.constant_(module.logit_scale, -math.log(self.config.temperature))

    @classmethod
    def from_chunk_encoder(
        cls,
        chunk_encoder: str | PathLike[str] | LoadedChunkEncoder,
        chunk_size: int = 256,
        *,
        num_hidden_layers: int | None = None,
        random_layers: bool = False,
        attention_dropout: float = 0.0,
        **config_kwargs: Any,
    ) -> NextLevelBertPreTrainedModel:
        """A new model around a sentence encoder, initialised from that encoder's own layers.

        The position table is copied, the word embeddings are not. A static encoder has no layers: those over its
        vectors start at random, and the document vector as the mean of the chunk vectors (`pooling="residual"`).

        Args:
            chunk_encoder: name or folder of a sentence-transformers model, or one already loaded.
            chunk_size: most tokens in a chunk.
            num_hidden_layers: layers over the chunk vectors: the first so many of the chunk encoder's, by default
                all. Over a static encoder, new ones, by default two. With 0, nothing passes between chunks, except by
                `neighbours`.
            random_layers: start from random layers, which fails in the paper (section 4.5, table 4).
            attention_dropout: of the encoder over chunks. The paper's models have 0.1, that of their encoders; on a
                CPU it makes a training step more than twice as slow.
            config_kwargs: further fields of `NextLevelBertConfig`.

        Raises:
            ValueError: for an encoder that cannot be used, a chunk size that it does not allow, or an unknown
                argument.
        """
        cls.split_arguments(config_kwargs)
        source = chunk_encoder if isinstance(chunk_encoder, LoadedChunkEncoder) else load_chunk_encoder(chunk_encoder)
        values = config_values(source, chunk_size, config_kwargs.pop("chunking", "fixed"), attention_dropout)
        if source.layers is None:
            values["pooling"] = "residual"
        without = config_kwargs.get("neighbours") is not None or config_kwargs.get("pooling") == "plain"
        if num_hidden_layers is None and without:
            num_hidden_layers = 0
        if num_hidden_layers is not None:
            if "encoder_config" in config_kwargs:
                raise ValueError("encoder_config already says how many layers there are: leave out num_hidden_layers.")
            values["encoder_config"]["num_hidden_layers"] = num_hidden_layers
        model = cls(NextLevelBertConfig(**{**values, **config_kwargs}))
        if not random_layers and source.layers is not None and model.config.pooling != "plain":
            copy_layers(source, model.base_model.encoder)
        return model.adopt(source)


class NextLevelBertModel(NextLevelBertPreTrainedModel, VectorDocumentModel):
    """Whole documents to contextual chunk vectors and one document vector (paper, section 2.2).

    Args:
        config: with ``include_chunk_encoder=False`` the frozen encoder is neither built nor saved, but loaded from
            `config.chunk_encoder_name` when token ids first arrive.

    Example:
        >>> model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=32)
        >>> book = model.encode("Call me Ishmael. Some years ago, never mind how long precisely, I went to sea.")
        >>> book.document.shape, book.chunks.shape, book.spans.tolist()
        (torch.Size([384]), torch.Size([1, 384]), [[0, 78]])
    """

    # Heads are dropped on purpose.
    _keys_to_ignore_on_load_unexpected = [r"^head\.", r"^classifier\.", r"^logit_scale$"]

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        encoder: Any = NoEncoder()
        if config.pooling != "plain":
            encoder = backbone_from_config(config.encoder_config)
            encoder.set_input_embeddings(None)  # vectors come in, not ids
        self.special_embeddings = NextLevelBertSpecialVectors(config)
        self.encoder = encoder
        self.neighbours = (
            None if config.neighbours is None else NeighbourContext(config.hidden_size, config.neighbours)
        )
        self.whitening = ChunkWhitening(config.hidden_size) if config.whiten_chunks else None
        self.residual_pooling: nn.Module | None = None
        if config.pooling == "residual":
            self.residual_pooling = ResidualPooling(config.hidden_size, config.residual_start)
        elif config.pooling == "plain":
            self.residual_pooling = PlainPooling()
        self.build_chunk_encoder()
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The block that adds positions: vectors enter here, and hooks that need input gradients are set here."""
        return self.encoder.embeddings

    def prepare_chunks(self, vectors: torch.Tensor) -> torch.Tensor:
        """Chunk vectors ``[..., D]`` as the encoder over chunks reads them: whitened if the configuration says so."""
        return vectors if self.whitening is None else self.whitening(vectors)

    def read_chunks(
        self, embeds: torch.Tensor, mask: torch.Tensor | None, chunks: torch.Tensor, extras: dict[str, bool]
    ) -> BaseModelOutput:
        """As in the base class; with `config.neighbours` the convolution takes the place of the encoder."""
        if self.neighbours is None:
            return super().read_chunks(embeds, mask, chunks, extras)
        hidden = self.neighbours(embeds, chunks)
        return BaseModelOutput(hidden, (embeds, hidden) if extras.get("output_hidden_states") else None)

    def fit_whitening(self, documents: Iterable[torch.Tensor], shrinkage: float = 0.1) -> None:
        """Fits the whitening to the chunk vectors ``[n, D]`` of many documents, before any training.

        Args:
            documents, shrinkage: as in `nextlevelbert.models.pooling.fit_whitening`.

        Raises:
            ValueError: for a model without whitening, or documents whose chunks have no spread.
        """
        if self.whitening is None:
            raise ValueError("This model does not whiten; make it with whiten_chunks=True.")
        mean, weight = fit_whitening(documents, shrinkage)
        self.whitening.mean.copy_(mean)
        self.whitening.weight.copy_(weight)


class NextLevelBertForMaskedVectorModeling(NextLevelBertPreTrainedModel, VectorDocumentForMaskedVectorModeling):
    """Predicts masked chunk vectors from their context (paper, section 2.2).

    Raises:
        ValueError: for a model without an encoder (`pooling` "plain").
    """

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        if config.pooling == "plain":
            raise ValueError(
                "pooling='plain' has no encoder to predict with; choose 'mean', 'max', 'cls' or 'residual'."
            )
        self.model = NextLevelBertModel(config)
        self.head = NextLevelBertPredictionHead(config)
        self.post_init()


class NextLevelBertForContrastiveLearning(NextLevelBertPreTrainedModel, VectorDocumentForMaskedVectorModeling):
    """Tells two segments of one document from segments of others, and optionally predicts masked vectors as well.

    Segments are long runs of chunks, so that whole chapters are compared; for spans of words this is DeCLUTR (Giorgi
    et al., ACL 2021, section 3). The segments of a batch are each other's negatives.

    Raises:
        ValueError: for a document vector that packed sequences do not have (`pooling` "cls" or "max").
    """

    family_auto_map = {
        **NextLevelBertPreTrainedModel.family_auto_map,
        "AutoModelForPreTraining": "modeling_nextlevelbert.NextLevelBertForContrastiveLearning",
    }

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        if config.pooling not in ("mean", "residual"):
            raise ValueError(
                f"Contrastive learning needs pooling='mean' or 'residual', got {config.pooling!r}; choose one."
            )
        self.model = NextLevelBertModel(config)
        self.head = NextLevelBertPredictionHead(config)
        self.logit_scale = nn.Parameter(torch.tensor(-math.log(config.temperature)))  # trained, as in CLIP
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        inputs_embeds: torch.Tensor,
        special_ids: torch.Tensor,
        document_ids: torch.Tensor,
        spans: torch.Tensor | None = None,
        mask_positions: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SegmentPairOutput:
        """One step over N pairs of segments, as `DataCollatorForSegmentPairs` makes them.

        Args:
            inputs_embeds: ``[N, 2, S, D]`` chunk vectors of both segments of each pair.
            special_ids: ``[N, 2, S]``: -1 at chunk vectors, else [PAD] 0, [CLS] 1, [SEP] 2, [MASK] 3.
            document_ids: ``[N]``, the document of each pair.
            spans: ``[N, 2, 2]``, first chunk and end of each segment in its document. With them, segments of
                one document that do not touch are negatives, too; without, they are not compared.
            mask_positions, labels: ``[N, 2, S]`` bool and ``[N, 2, S, D]``: where to predict, and the true vectors;
                the loss of masked vector modelling is then added to the loss of the pairs.

        Raises:
            ValueError: if the shapes do not fit each other.
        """
        pairs, two, length = special_ids.shape if special_ids.ndim == 3 else (0, 0, 0)
        if two != 2 or inputs_embeds.shape[:3] != special_ids.shape or document_ids.shape != (pairs,):
            raise ValueError(
                "Give inputs_embeds [N, 2, S, D], special_ids [N, 2, S] and document_ids [N]; got "
                f"{tuple(inputs_embeds.shape)}, {tuple(special_ids.shape)} and {tuple(document_ids.shape)}."
            )
        rows = (2 * pairs, length)
        output = self.model(inputs_embeds=inputs_embeds.reshape(*rows, -1), special_ids=special_ids.reshape(rows))
        first, second = output.pooler_output.reshape(pairs, 2, -1).unbind(dim=1)  # [N, D] each
        loss, scores = pair_loss(first, second, comparable_segments(document_ids, spans), self.logit_scale.exp())
        if mask_positions is not None and labels is not None:
            masked_loss, _, _ = self.masked_loss(
                output.last_hidden_state, mask_positions.reshape(rows), labels.reshape(*rows, -1)
            )
            assert masked_loss is not None  # there are labels
            loss = loss + masked_loss
        return SegmentPairOutput(loss=loss, scores=scores)


class NextLevelBertForSequenceClassification(NextLevelBertPreTrainedModel, VectorDocumentForSequenceClassification):
    """Classifies documents, alone or with a question: one label, several, or values (paper, section 3.2).

    `config.problem_type` says which; otherwise it is inferred from the labels as in transformers. With
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

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        self.build(NextLevelBertModel(config), config.num_labels, config.text_pair)


class NextLevelBertForMultipleChoice(NextLevelBertPreTrainedModel, VectorDocumentWithClassifier):
    """Chooses among candidate answers to a question about a document (paper, section 3.2).

    Each candidate is encoded together with the question as one text; its score is computed from [document vector ;
    that vector], and the softmax runs over the candidates of a question.
    """

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        self.build(NextLevelBertModel(config), out_features=1, text_pair=True)

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
        """Reads each document once, however many questions and candidates it has.

        Args:
            input_ids, attention_mask, inputs_embeds: documents, as in `NextLevelBertModel`.
            token_type_ids: accepted because tokenizers return it; has no meaning here.
            pair_input_ids, pair_attention_mask: ``[N, C, Q]`` ids of question and candidate, N questions with C
                candidates each. One longer than a chunk is cut like a document, and the mean taken.
            pair_embeds: ``[N, C, D]`` the same, already encoded.
            document_index: ``[N]``, the document of each question; by default one each, in order.
            labels: ``[N]``, the number of the right candidate.
            output_hidden_states, output_attentions: as in `NextLevelBertModel`.

        Raises:
            ValueError: without candidates, for labels out of range, or inputs that the model does not accept.
        """
        pairs = self.model.encode_pairs(pair_input_ids, pair_attention_mask, pair_embeds)
        if pairs is None or pairs.ndim != 3:
            shape = None if pairs is None else tuple(pairs.shape)
            raise ValueError(f"Give the candidates as pair_input_ids [N, C, Q] or pair_embeds [N, C, D], got {shape}.")
        documents = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "inputs_embeds": inputs_embeds,
            "output_hidden_states": output_hidden_states,
            "output_attentions": output_attentions,
        }
        logits, output = self.score(pairs, document_index, documents)  # [N, C, 1]
        logits = logits.squeeze(-1)  # [N, C]
        loss = None
        if labels is not None:
            loss = single_label_loss(logits, labels)
        return MultipleChoiceModelOutput(loss, logits, output.hidden_states, output.attentions)
