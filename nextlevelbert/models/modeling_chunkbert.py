"""ChunkBERT: any pretrained BERT, fine-tuned end to end on documents of any length.

Jaiswal and Milios, "Breaking the Token Barrier: Chunking and Convolution for Efficient Long Text Classification
with BERT", 2023 (arXiv 2310.20558). The encoder is a `transformers` backbone.

Notation for shapes: B documents in a batch, T token positions of the batch, N real tokens in all of it, R chunks in
all of it, C tokens in a chunk, D hidden size, F filters of one size, P positions of documents joined, K labels.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_chunkbert import ChunkBertConfig
from .losses import classification_loss
from .modeling_token_document import TokenDocumentPreTrainedModel, at_their_places, place_in_chunks
from .outputs import TokenFeaturesOutput
from .pooling import pool
from .pretrained import backbone_from_config


class TextCnnClassifier(nn.Module):
    """Convolutions of several widths, the maximum over time, and one linear layer (paper, section 3.3; Kim, 2014).

    Args:
        config: sizes.
        out_features: K.
    """

    def __init__(self, config: ChunkBertConfig, out_features: int) -> None:
        super().__init__()
        self.filter_sizes = list(config.filter_sizes)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.hidden_size, config.num_filters, width) for width in self.filter_sizes
        )
        self.dropout = nn.Dropout(config.classifier_dropout or 0.0)
        self.projection = nn.Linear(config.num_filters * len(self.filter_sizes), out_features)

    def forward(self, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Scores ``[B, K]`` of documents by their token features.

        Args:
            features: ``[N, D]`` of all documents, one after another.
            lengths: ``[B]``, tokens of each document, at least 1. One shorter than a filter is padded with
                zeros to the filter's width; otherwise no window reaches beyond its document.
        """
        widest, counts = max(self.filter_sizes), lengths.tolist()
        documents = features.split(counts)
        # One row for all documents: memory grows with their tokens, not with the longest times their number.
        packed = torch.cat(
            [nn.functional.pad(document, (0, 0, 0, max(widest - len(document), 0))) for document in documents]
        )  # [P, D]
        starts = list(itertools.accumulate((max(count, widest) for count in counts[:-1]), initial=0))
        found = []
        for width, convolution in zip(self.filter_sizes, self.convolutions, strict=True):
            windows = convolution(packed.T.unsqueeze(0))[0].relu()  # [F, P - width + 1]
            own = [
                windows[:, start : start + max(count - width, 0) + 1]
                for start, count in zip(starts, counts, strict=True)
            ]
            found.append(torch.stack([each.amax(dim=-1) for each in own]))  # [B, F]
        return self.projection(self.dropout(torch.cat(found, dim=-1)))  # [B, K]


class ChunkBertPreTrainedModel(TokenDocumentPreTrainedModel):
    """What all ChunkBERT classes share."""

    config: ChunkBertConfig
    config_class = ChunkBertConfig
    family_auto_map = {
        "AutoConfig": "configuration_chunkbert.ChunkBertConfig",
        "AutoModel": "modeling_chunkbert.ChunkBertModel",
        "AutoModelForSequenceClassification": "modeling_chunkbert.ChunkBertForSequenceClassification",
    }
    model_tags = ["chunkbert", "nextlevelbert", "sentence-transformers"]


class ChunkBertModel(ChunkBertPreTrainedModel):
    """Whole documents to a feature for every token; attention stays within a chunk (paper, sections 3.1 and 3.2).

    For a document of at most `chunk_size` tokens the features are those of the encoder itself. Padding costs no
    computation, except within a chunk where others of the same pass are longer.

    Example:
        >>> model = ChunkBertModel.from_encoder(minilm)
        >>> book = model.tokenizer("Call me Ishmael. " * 500, return_tensors="pt")
        >>> model(**book).last_hidden_state.shape
        torch.Size([1, 3002, 384])
    """

    _keys_to_ignore_on_load_unexpected = [r"^classifier\."]  # heads are dropped on purpose

    def __init__(self, config: ChunkBertConfig) -> None:
        super().__init__(config)
        self.encoder = backbone_from_config(config.encoder_config)
        self.supports_gradient_checkpointing = bool(self.encoder.supports_gradient_checkpointing)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> TokenFeaturesOutput:
        """Cuts the documents into chunks, runs the encoder over them, and joins its outputs.

        Args:
            input_ids: ``[B, T]`` ids of whole documents from the stock tokenizer, of any length, padded anywhere.
            attention_mask: ``[B, T]``, zero at padding. All ones by default.
            token_type_ids: ``[B, T]``, for encoders that know several types.
            output_hidden_states: also return every hidden state of the encoder, joined like the features.
            inputs_embeds, output_attentions: must be None; adapters pass them on.

        Raises:
            ValueError: for ids that are not integers ``[B, T]`` of the encoder's vocabulary, a document without
                any token (numbered), or a chunk size above what the encoder reads.
        """
        self.refuse_other_inputs(inputs_embeds, output_attentions)
        joined, mask = self.token_states(input_ids, attention_mask, token_type_ids, output_hidden_states)
        features, *hidden = (at_their_places(flat, mask) for flat in joined)  # [B, T, D] each
        pooled = pool(features, mask, "mean")  # [B, D]
        return TokenFeaturesOutput(
            last_hidden_state=features,
            pooler_output=pooled,
            token_mask=mask,
            hidden_states=tuple(hidden) or None,
        )

    def token_states(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        all_states: bool | None = None,
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The features that `forward` returns, but of the real tokens alone, document after document, without padding.

        Args:
            input_ids, attention_mask, token_type_ids: as in `forward`.
            all_states: whether to return every hidden state of the encoder; by default as the configuration says.

        Returns:
            Token features ``[N, D]``, followed by the hidden states if wanted; and the mask ``[B, T]`` of the tokens
            that were read.
        """
        self.config.check()
        all_states = self.config.output_hidden_states if all_states is None else all_states
        mask = self.check_documents(input_ids, attention_mask)
        row, offset, chunks = place_in_chunks(mask, self.config.chunk_size)  # [N], [N], R
        shape = (chunks, int(offset.max()) + 1)  # [R, C]
        fields, real = self.lay_out(input_ids, token_type_ids, mask, (row, offset), shape)

        at_once = self.config.chunk_batch_size or chunks
        parts = torch.arange(chunks, device=mask.device).split(at_once)
        states = [self._encode(fields, real, part, all_states) for part in parts]
        return [torch.cat(flat) for flat in zip(*states, strict=True)], mask

    def _encode(
        self, fields: dict[str, torch.Tensor], real: torch.Tensor, part: torch.Tensor, all_states: bool
    ) -> tuple[torch.Tensor, ...]:
        """Features ``[n, D]`` of the real tokens of some chunks, then their hidden states if wanted."""
        keep = real[part]  # [r, C]
        width = int(keep.sum(dim=1).max())
        keep = keep[:, :width]
        inputs = {name: values[part, :width] for name, values in fields.items()}
        averaged = self.config.num_averaged_layers
        # An encoder that takes a list does not keep the other states in memory.
        wanted: bool | list[int] = True if all_states else list(range(-averaged, 0))
        output = self.encoder(**inputs, attention_mask=keep.long(), output_hidden_states=wanted, return_dict=True)
        last = torch.stack(output.hidden_states[-averaged:])  # [5, r, C, D]
        features = last.mean(dim=0)[keep]
        return (features, *(state[keep] for state in output.hidden_states)) if all_states else (features,)


class ChunkBertForSequenceClassification(ChunkBertPreTrainedModel):
    """Classifies documents of any length: one label, several, or values (paper, section 3).

    `config.problem_type` says which; otherwise it is inferred from the labels as in transformers.

    Example:
        >>> model = ChunkBertForSequenceClassification.from_encoder(minilm, num_labels=20)
        >>> posts = model.tokenizer(["A short post.", "A long one. " * 2000], padding=True, return_tensors="pt")
        >>> model(**posts).logits.shape
        torch.Size([2, 20])
    """

    accepts_loss_kwargs = False  # the loss is a mean over the batch

    def __init__(self, config: ChunkBertConfig) -> None:
        super().__init__(config)
        self.model = ChunkBertModel(config)
        self.supports_gradient_checkpointing = self.model.supports_gradient_checkpointing
        self.classifier = TextCnnClassifier(config, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        inputs_embeds: None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> SequenceClassifierOutput:
        """Reads whole documents.

        Args:
            input_ids, attention_mask, token_type_ids: as in `ChunkBertModel`, like the arguments not named here.
            labels: ``[B]`` integers, ``[B, num_labels]`` zeros and ones as floats, or ``[B]`` values.

        Raises:
            ValueError: for labels of the wrong kind or range (rows named), or inputs that `ChunkBertModel` does not
                accept.
        """
        self.refuse_other_inputs(inputs_embeds, output_attentions)
        joined, mask = self.model.token_states(input_ids, attention_mask, token_type_ids, output_hidden_states)
        logits = self.classifier(joined[0], mask.sum(dim=1))  # [B, K]
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config)
        hidden = tuple(at_their_places(flat, mask) for flat in joined[1:]) or None
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=hidden)
