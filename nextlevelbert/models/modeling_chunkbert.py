"""ChunkBERT: any pretrained BERT, fine-tuned end to end on documents of any length.

Jaiswal and Milios, "Breaking the Token Barrier: Chunking and Convolution for Efficient Long Text
Classification with BERT", 2023 (arXiv 2310.20558). The encoder is a `transformers` backbone.

Notation for shapes: B documents in a batch, T token positions of the batch, N real tokens in all of
it, R chunks in all of it, C tokens in a chunk, D hidden size, F filters of one size, P positions of
documents joined, K labels.
"""

from typing import Unpack

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple
from transformers.utils.generic import TransformersKwargs

from .backbones import backbone_from_config, mask_for, missing_passes
from .configuration_chunkbert import ChunkBertConfig
from .losses import classification_loss
from .token_document import (
    PieceLayout,
    TokenDocumentPreTrainedModel,
    TokenFeaturesOutput,
    assign_to_pieces,
    scatter_features,
)
from .windows import copy_to


class TextCnnClassifier(nn.Module):
    """Convolutions of several widths, the maximum over time, and one linear layer.

    See section 3.3 of the paper, and Kim, 2014.
    """

    def __init__(self, config: ChunkBertConfig) -> None:
        super().__init__()
        self.filter_sizes = config.filter_sizes
        self.convolutions = nn.ModuleList()
        for width in self.filter_sizes:
            self.convolutions.append(nn.Conv1d(config.hidden_size, config.num_filters, width))
        self.dropout = nn.Dropout(config.classifier_dropout or 0.0)
        self.projection = nn.Linear(config.num_filters * len(self.filter_sizes), config.num_labels)

    def forward(self, features: Tensor, lengths: np.ndarray) -> Tensor:
        """Scores documents.

        A document shorter than the widest filter is padded with zeros to the width of that filter;
        otherwise no window reaches beyond a document.

        Args:
            features: features of the tokens, ``[N, D]``, document after document.
            lengths: number of tokens in each document, ``[B]``.

        Returns:
            The scores ``[B, K]``.
        """
        widest = max(self.filter_sizes)
        counts = lengths.tolist()
        # One row for all documents: memory grows with their tokens, not with the longest times
        # their number.
        documents = []
        starts = []
        positions = 0
        for document in features.split(counts):
            missing = max(widest - len(document), 0)
            documents.append(nn.functional.pad(document, (0, 0, 0, missing)))
            starts.append(positions)
            positions += len(document) + missing

        packed = torch.cat(documents).T.unsqueeze(0)  # [1, D, P]

        maxima = []
        for width, convolution in zip(self.filter_sizes, self.convolutions, strict=True):
            windows = convolution(packed)[0].relu()  # [F, P - width + 1]
            over_time = []
            for start, count in zip(starts, counts, strict=True):
                end = start + max(count - width, 0) + 1
                over_time.append(windows[:, start:end].amax(dim=-1))
            maxima.append(torch.stack(over_time))  # [B, F]

        return self.projection(self.dropout(torch.cat(maxima, dim=-1)))


class ChunkBertPreTrainedModel(TokenDocumentPreTrainedModel):
    """Shares configuration and auto classes among ChunkBERT's classes."""

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
    """Computes a feature for every token of whole documents (paper, sections 3.1 and 3.2).

    Attention stays within a chunk. For a document of at most `chunk_size` tokens the features are
    the encoder's own. Padding costs no computation, except in a chunk that is shorter than others
    of the same pass.

    Example:
        >>> model = ChunkBertModel.from_encoder(minilm)
        >>> book = model.tokenizer("Call me Ishmael. " * 200, return_tensors="pt")
        >>> model(**book).last_hidden_state.shape
        torch.Size([1, 1202, 384])
    """

    _keys_to_ignore_on_load_unexpected = [r"^classifier\."]  # heads are dropped on purpose

    def __init__(self, config: ChunkBertConfig) -> None:
        super().__init__(config)
        config.check("chunk_size")
        states = config.encoder_config.num_hidden_layers + 1
        if not 1 <= config.num_averaged_layers <= states:
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
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenFeaturesOutput:
        """Splits documents of any length into chunks and joins the encoder's outputs.

        Args:
            input_ids: token ids ``[B, T]``, padded anywhere.
            attention_mask: mask ``[B, T]`` (default: no padding).
            token_type_ids: token types ``[B, T]``.
            **kwargs: arguments that adapters pass on; None or False, see `capture_arguments`.
        """
        self.check_arguments(kwargs)
        features, mask, layout = self.token_features(input_ids, attention_mask, token_type_ids)
        return scatter_features(features, mask=mask, token=layout.token)

    def token_features(
        self, input_ids: Tensor, attention_mask: Tensor | None, types: Tensor | None
    ) -> tuple[Tensor, Tensor, PieceLayout]:
        """Computes the features of tokens without padding; arguments as in `forward`.

        Returns:
            Features ``[N, D]``, document after document; the mask ``[B, T]`` of their tokens; and
            the places of the tokens.
        """
        mask, mask_on_cpu = self.tokens_to_read(input_ids, attention_mask)
        layout = assign_to_pieces(mask_on_cpu, size=self.config.chunk_size)
        fields, real = self.lay_out(input_ids, token_type_ids=types, layout=layout)  # [R, C]
        # The encoder keeps the listed states only.
        averaged = list(range(-self.config.num_averaged_layers, 0))
        chunks = len(layout.sizes)
        chunks_at_once = chunks
        if self.config.chunk_batch_size is not None:
            chunks_at_once = self.config.chunk_batch_size

        passes = range(0, chunks, chunks_at_once)
        missing = missing_passes(self.encoder, len(passes))
        places = copy_to(mask.device, np.stack([layout.piece, layout.column]))  # [2, N]
        features = []
        for first in passes:
            sizes = layout.sizes[first : first + chunks_at_once]
            longest = int(sizes.max())
            chunks_of_pass = slice(first, first + len(sizes))
            inputs = {name: values[chunks_of_pass, :longest] for name, values in fields.items()}
            output = self.encoder(
                **inputs,
                attention_mask=mask_for(
                    self.encoder, real[chunks_of_pass, :longest].long()
                ),  # of [r, C]
                output_hidden_states=averaged,
                return_dict=True,
            )
            states = torch.stack([output.hidden_states[layer] for layer in averaged])
            start = int(layout.sizes[:first].sum())
            piece, column = places[:, start : start + int(sizes.sum())]
            features.append(states.mean(dim=0)[piece - first, column])  # [tokens of the pass, D]

        for _ in range(missing):
            inputs = {name: values[:1, :1] for name, values in fields.items()}
            unused = self.encoder(**inputs, return_dict=True).last_hidden_state
            features[-1] = features[-1] + 0.0 * unused.sum()  # so that backward runs through it

        return torch.cat(features), mask, layout


class ChunkBertForSequenceClassification(ChunkBertPreTrainedModel):
    """Classifies documents of any length: one label, several, or values (paper, section 3).

    `config.problem_type` decides which of the three; if it is not set, it is inferred from the
    labels, as in transformers.

    Example:
        >>> model = ChunkBertForSequenceClassification.from_encoder(minilm, num_labels=20)
        >>> texts = ["A short post.", "A long one. " * 300]
        >>> posts = model.tokenizer(texts, padding=True, return_tensors="pt")
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
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Scores the K classes of each document: `logits` ``[B, K]``.

        Args:
            input_ids: token ids ``[B, T]``, padded anywhere.
            attention_mask: mask ``[B, T]`` (default: no padding).
            token_type_ids: token types ``[B, T]``.
            labels: classes ``[B]`` as integers, ``[B, K]`` zeros and ones as floats, or values
                ``[B]``.
            **kwargs: arguments that adapters pass on; None or False, see `capture_arguments`.
        """
        self.check_arguments(kwargs)
        features, _, layout = self.model.token_features(input_ids, attention_mask, token_type_ids)
        logits = self.classifier(features, lengths=layout.lengths)  # [B, K]
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)
