"""ChunkBERT: any pretrained BERT, fine-tuned end to end on documents of any length.

Jaiswal and Milios, "Breaking the Token Barrier: Chunking and Convolution for Efficient Long Text
Classification with BERT", 2023 (arXiv 2310.20558). The encoder is a `transformers` backbone.

Notation for shapes: B documents in a batch, T token positions of the batch, N real tokens in all of
it, R chunks in all of it, C tokens in a chunk, D hidden size, F filters of one size, P positions of
documents joined, K labels.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_chunkbert import ChunkBertConfig
from .pretrained import backbone_from_config, classification_loss
from .token_document import (
    TokenDocumentPreTrainedModel,
    TokenFeaturesOutput,
    at_their_places,
    place_in_chunks,
)


class TextCnnClassifier(nn.Module):
    """Convolutions of several widths, the maximum over time, and one linear layer (paper, section
    3.3; Kim, 2014)."""

    def __init__(self, config: ChunkBertConfig) -> None:
        super().__init__()
        self.filter_sizes = list(config.filter_sizes)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.hidden_size, config.num_filters, width) for width in self.filter_sizes
        )
        self.dropout = nn.Dropout(config.classifier_dropout or 0.0)
        self.projection = nn.Linear(config.num_filters * len(self.filter_sizes), config.num_labels)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Scores ``[B, K]`` from features ``[N, D]`` of all documents, one after another, and their
        lengths ``[B]``.

        A document shorter than a filter is padded with zeros to its width; otherwise no window
        reaches beyond one.
        """
        widest, counts = max(self.filter_sizes), lengths.tolist()
        # One row for all documents: memory grows with their tokens, not with the longest times
        # their number.
        documents = (
            nn.functional.pad(rows, (0, 0, 0, max(widest - len(rows), 0)))
            for rows in features.split(counts)
        )
        packed = torch.cat(list(documents))  # [P, D]
        starts = list(
            itertools.accumulate((max(count, widest) for count in counts[:-1]), initial=0)
        )
        maxima = []
        for width, convolution in zip(self.filter_sizes, self.convolutions, strict=True):
            windows = convolution(packed.T.unsqueeze(0))[0].relu()  # [F, P - width + 1]
            ends = [
                start + max(count - width, 0) + 1
                for start, count in zip(starts, counts, strict=True)
            ]
            over_time = [
                windows[:, start:end].amax(dim=-1) for start, end in zip(starts, ends, strict=True)
            ]
            maxima.append(torch.stack(over_time))  # [B, F]
        return self.projection(self.dropout(torch.cat(maxima, dim=-1)))  # [B, K]


class ChunkBertPreTrainedModel(TokenDocumentPreTrainedModel):
    config: ChunkBertConfig
    config_class = ChunkBertConfig
    family_auto_map = {
        "AutoConfig": "configuration_chunkbert.ChunkBertConfig",
        "AutoModel": "modeling_chunkbert.ChunkBertModel",
        "AutoModelForSequenceClassification": (
            "modeling_chunkbert.ChunkBertForSequenceClassification"
        ),
    }
    model_tags = ["chunkbert", "nextlevelbert", "sentence-transformers"]
    accepts_loss_kwargs = False  # the loss is a mean over the batch


class ChunkBertModel(ChunkBertPreTrainedModel):
    """Whole documents to a feature for every token; attention stays within a chunk (paper, sections
    3.1 and 3.2).

    For a document of at most `chunk_size` tokens the features are those of the encoder itself.
    Padding costs no computation, except within a chunk where others of the same pass are longer.

    Example:
        >>> model = ChunkBertModel.from_encoder(minilm)
        >>> book = model.tokenizer("Call me Ishmael. " * 500, return_tensors="pt")
        >>> model(**book).last_hidden_state.shape
        torch.Size([1, 3002, 384])
    """

    _keys_to_ignore_on_load_unexpected = [r"^classifier\."]  # heads are dropped on purpose

    def __init__(self, config: ChunkBertConfig) -> None:
        super().__init__(config)
        config.check("chunk_size")
        if (
            not 1
            <= config.num_averaged_layers
            <= (states := config.encoder_config.num_hidden_layers + 1)
        ):
            raise ValueError(
                f"num_averaged_layers must be 1 to {states}, the hidden states of the encoder, got "
                f"{config.num_averaged_layers}."
            )
        self.encoder = backbone_from_config(config.encoder_config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenFeaturesOutput:
        """Cuts documents of any length ``[B, T]``, padded anywhere, into chunks, and joins the
        encoder's outputs.

        What adapters pass on in `kwargs` has no meaning.
        """
        return at_their_places(*self.token_features(input_ids, attention_mask, token_type_ids))

    def token_features(
        self, input_ids: Tensor, attention_mask: Tensor | None, types: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Features ``[N, D]``, document after document, and the mask ``[B, T]`` of their tokens."""
        mask = self.tokens_to_read(input_ids, attention_mask)
        row, offset, chunks = place_in_chunks(mask, self.config.chunk_size)  # [N], [N], R
        fields, real = self.lay_out(input_ids, types, mask, (row, offset))  # [R, C]
        last = list(
            range(-self.config.num_averaged_layers, 0)
        )  # of a list, the encoder does not keep the others
        features = []
        for part in torch.arange(chunks, device=mask.device).split(
            self.config.chunk_batch_size or chunks
        ):
            keep = real[part, : int(real[part].sum(dim=1).max())]  # [r, C]
            inputs = {name: values[part, : keep.shape[1]] for name, values in fields.items()}
            output = self.encoder(
                **inputs, attention_mask=keep.long(), output_hidden_states=last, return_dict=True
            )
            states = torch.stack(
                [output.hidden_states[number] for number in last]
            )  # [averaged, r, C, D]
            features.append(states.mean(dim=0)[keep])
        return torch.cat(features), mask


class ChunkBertForSequenceClassification(ChunkBertPreTrainedModel):
    """Classifies documents of any length: one label, several, or values (paper, section 3).

    `config.problem_type` says which; otherwise it is inferred from the labels as in transformers.

    Example:
        >>> model = ChunkBertForSequenceClassification.from_encoder(minilm, num_labels=20)
        >>> posts = model.tokenizer(["A short post.", "A long one. " * 2000], padding=True, return_tensors="pt")
        >>> model(**posts).logits.shape
        torch.Size([2, 20])
    """

    def __init__(self, config: ChunkBertConfig) -> None:
        super().__init__(config)
        self.model = ChunkBertModel(config)
        self.classifier = TextCnnClassifier(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Scores ``[B, K]``; `labels` are ``[B]`` integers, ``[B, K]`` zeros and ones as floats, or
        ``[B]`` values."""
        features, mask = self.model.token_features(input_ids, attention_mask, token_type_ids)
        logits = self.classifier(features, mask.sum(dim=1))  # [B, K]
        loss = None if labels is None else classification_loss(logits, labels, self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)
