"""NextLevelBERT: a masked language model whose tokens are the vectors of text chunks.

Czinczoll et al., "NextLevelBERT: Masked Language Modeling with Higher-Level Representations for
Long Documents", ACL 2024 (arXiv 2402.17682). The attention layers belong to a `transformers`
backbone.

Notation for shapes: B documents or sequences in a batch, T tokens of the longest document, L chunks
of the longest document, J windows of all documents, S chunks or positions of a window, D size of a
chunk vector, H size of a contextual vector (D in NextLevelBERT), M masked positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NoReturn, Self, Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_outputs import (
    BaseModelOutput,
    MultipleChoiceModelOutput,
    SequenceClassifierOutput,
)
from transformers.utils import ModelOutput, can_return_tuple
from transformers.utils.generic import TransformersKwargs

from .backbones import (
    backbone_from_config,
    get_logger,
    mask_for,
    missing_passes,
    select_states,
    token_mask,
)
from .checkpoints import LayerOutputs, NextLevelPreTrainedModel, split_arguments
from .chunk_encoder import (
    LoadedChunkEncoder,
    encode_documents,
    micro_batches,
    pool,
    unit,
)
from .chunking import ChunkingRule, lay_windows
from .configuration_nextlevelbert import NOT_SPECIAL, PAD, NextLevelBertConfig
from .document_encoding import DocumentEncodingMixin, warn_of_empty_documents
from .from_encoder import (
    as_loaded_encoder,
    can_copy_layers,
    copy_layers,
    layers_over,
    new_model_over,
)
from .losses import choice_loss, classification_loss, single_label_loss, smooth_l1_loss
from .pairs import HOW_TO_PASS_PAIRS, concatenate_pairs, shared_documents, split_pairs
from .prompts import split_prompt
from .static_encoders import ChunkCentring, ChunkWhitening
from .windows import (
    copy_to,
    front_order,
    gather_chunks,
    indices,
    mean_by_row,
    pad_vectors,
    special_ids_of_windows,
    traced,
)

logger = get_logger(__name__)

# Positions of one pass of the encoder over chunks: eight full windows keep its memory near 100 MB
# on a CPU.
_POSITIONS_PER_PASS = 4_096
_POSITIONS_PER_PASS_ACCELERATOR = 65_536  # so that one pass has enough work


@dataclass
class DocumentModelOutput(ModelOutput):
    """Holds the output for a batch of documents. Rows without a chunk are zero.

    Attributes:
        last_hidden_state: contextual chunk vectors, ``[B, L, H]``.
        pooler_output: document vectors, ``[B, H]``.
        chunk_vectors: plain chunk vectors, ``[B, L, D]``.
        chunk_mask: bool mask ``[B, L]``, true for chunks that were read.
        hidden_states: states of all layers at chunks, [CLS] and [SEP]; only on request, and for
            documents of one window.
        attentions: attentions of all layers, under the same conditions.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    chunk_vectors: Tensor | None = None
    chunk_mask: Tensor | None = None
    hidden_states: LayerOutputs = None
    attentions: LayerOutputs = None


@dataclass
class MaskedVectorModelingOutput(ModelOutput):
    """Holds the output of masked vector modelling at the M masked positions, row by row.

    Attributes:
        loss: the mean loss.
        predictions: vectors that the head predicts, ``[M, D]``.
        targets: the true vectors, ``[M, D]``.
        hidden_states, attentions: see `DocumentModelOutput`.
    """

    loss: Tensor | None = None
    predictions: Tensor | None = None
    targets: Tensor | None = None
    hidden_states: LayerOutputs = None
    attentions: LayerOutputs = None


@dataclass
class SegmentPairOutput(ModelOutput):
    """Holds the output of contrastive learning.

    Attributes:
        loss: the mean loss.
        scores: scaled cosines between first segments (rows) and second segments (columns),
            ``[N, N]``; matching pairs are on the diagonal.
        hidden_states, attentions: see `DocumentModelOutput`; of 2N sequences, in which the two
            segments of a pair follow each other.
    """

    loss: Tensor | None = None
    scores: Tensor | None = None
    hidden_states: LayerOutputs = None
    attentions: LayerOutputs = None


class NextLevelBertSpecialVectors(nn.Embedding):
    """Holds the trained vectors [PAD], [CLS], [SEP] and [MASK], ``[4, D]`` (paper, section 2.2)."""


class ResidualProjection(nn.Linear):
    """Multiplies by a square matrix that starts as a multiple of the identity."""

    def __init__(self, hidden_size: int, start: float) -> None:
        super().__init__(hidden_size, hidden_size, bias=False)
        self.start = start


class ResidualPooling(nn.Module):
    """Makes document vectors of length 1 that keep the plain mean: normalise(A p + C c).

    p is the normalised mean of the chunk vectors, and c the normalised mean of the contextual
    vectors. A starts as the identity and C at zero, so that training starts no worse than the mean
    of the chunk vectors.
    """

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__()
        self.plain = ResidualProjection(config.hidden_size, start=1.0)
        self.contextual = ResidualProjection(config.hidden_size, start=config.residual_start)

    def forward(self, plain: Tensor, contextual: Tensor) -> Tensor:
        """Maps both means ``[B, H]`` to document vectors ``[B, H]``."""
        return unit(self.plain(unit(plain)) + self.contextual(unit(contextual)))


class TaskClassifier(nn.Sequential):
    """Scores [document vector ; encoded question]: Linear, ReLU, Linear (paper, section 3.2)."""

    def __init__(self, in_features: int, hidden_size: int, out_features: int) -> None:
        super().__init__(
            nn.Linear(in_features, hidden_size), nn.ReLU(), nn.Linear(hidden_size, out_features)
        )


class NextLevelBertPreTrainedModel(NextLevelPreTrainedModel):
    """Shares configuration, initialisation, and the start from a chunk encoder."""

    config: NextLevelBertConfig
    config_class = NextLevelBertConfig
    family_auto_map = {
        "AutoConfig": "configuration_nextlevelbert.NextLevelBertConfig",
        "AutoModel": "modeling_nextlevelbert.NextLevelBertModel",
        "AutoModelForPreTraining": "modeling_nextlevelbert.NextLevelBertForMaskedVectorModeling",
        "AutoModelForSequenceClassification": (
            "modeling_nextlevelbert.NextLevelBertForSequenceClassification"
        ),
        "AutoModelForMultipleChoice": "modeling_nextlevelbert.NextLevelBertForMultipleChoice",
    }
    model_tags = ["nextlevelbert", "sentence-transformers"]
    base_model_prefix = "model"
    made_by = "from_chunk_encoder"
    # The pooling of a new model over a table of token vectors.
    pooling_over_static = "residual"
    accepts_loss_kwargs = False  # losses are means over the batch
    supports_gradient_checkpointing = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, NextLevelBertSpecialVectors):
            is_loaded = getattr(module.weight, "_is_hf_initialized", False)
            if not is_loaded:  # a loaded table stays, even its [PAD] row
                # Length 1 on average, like the chunk vectors around them.
                init.normal_(module.weight, std=self.config.hidden_size**-0.5)
                init.zeros_(module.weight[PAD])
        elif isinstance(module, ResidualProjection):
            init.copy_(module.weight, module.start * torch.eye(len(module.weight)))
        elif isinstance(module, ChunkCentring):
            init.zeros_(module.mean)
            if isinstance(module, ChunkWhitening):
                init.eye_(module.weight)
        elif isinstance(module, NextLevelBertForContrastiveLearning):
            init.constant_(module.logit_scale, -math.log(self.config.temperature))

    @classmethod
    def from_chunk_encoder(
        cls,
        chunk_encoder: str | PathLike | LoadedChunkEncoder,
        chunk_size: int = 256,
        *,
        num_hidden_layers: int | None = None,
        random_layers: bool = False,
        attention_dropout: float = 0.0,
        **config_kwargs: Any,
    ) -> Self:
        """Makes a model around a sentence encoder, from that encoder's layers and position table.

        The layers of the model start at random over a static encoder, which has no layers, and over
        an encoder whose vectors have another size than its layers read: behind a Dense layer or
        `truncate_dim` that changes the size, or in ALBERT and small ELECTRAs. The document vector
        then starts as the mean of the chunk vectors (`pooling="residual"`), except in masked vector
        modelling, which would not train this pooling.

        Args:
            chunk_encoder: name or folder of a sentence-transformers model, or an encoder that is
                already loaded.
            chunk_size: most tokens in a chunk.
            num_hidden_layers: number of layers over the chunk vectors. They are the first layers of
                the chunk encoder (default: all), or new layers if they start at random (default:
                two). With 0, no information passes between chunks.
            random_layers: if true, layers start at random, which fails in the paper (section 4.5,
                table 4).
            attention_dropout: dropout on the attention of the layers over chunks. The paper uses
                0.1, which doubles the time of a step on a CPU.
            **config_kwargs: further fields of `NextLevelBertConfig`, and arguments of
                `load_chunk_encoder` such as `revision` and `token`. A given `encoder_config` is
                used as it is, without `num_hidden_layers` and `attention_dropout`.

        Raises:
            ValueError: for an unknown field or a negative number of layers.
        """
        if num_hidden_layers is not None and num_hidden_layers < 0:
            raise ValueError(f"num_hidden_layers must be 0 or more, got {num_hidden_layers}.")

        loading, fields = split_arguments(cls.config_class, config_kwargs)
        loaded = as_loaded_encoder(chunk_encoder, loading)
        encoder = loaded.encoder
        fields.setdefault("chunking", "fixed")
        is_plain = fields.get("pooling") == "plain"
        if is_plain and num_hidden_layers is None:
            num_hidden_layers = 0

        can_copy = can_copy_layers(encoder, num_hidden_layers)
        if not can_copy:
            fields.setdefault("pooling", cls.pooling_over_static)
        if "encoder_config" not in fields:
            fields["encoder_config"] = layers_over(
                encoder,
                can_copy=can_copy,
                num_hidden_layers=num_hidden_layers,
                attention_dropout=attention_dropout,
            )

        model = new_model_over(loaded, cls, chunk_size=chunk_size, fields=fields)
        if can_copy and not random_layers and not is_plain:
            copy_layers(encoder, model.base_model.encoder)  # also with a given `encoder_config`

        return model

    def new_model(self) -> NextLevelBertModel:
        """Makes the model below a head."""
        return NextLevelBertModel(self.config)

    def get_input_embeddings(self) -> nn.Module:
        """Returns the block that adds positions to vectors.

        Vectors enter the model in this block, and hooks that need input gradients are set on it.
        """
        model = self.base_model
        # Decoders and T5 have a table of tokens in place of such a block.
        return getattr(model.encoder, "embeddings", model.special_embeddings)

    def set_input_embeddings(self, value: nn.Module) -> NoReturn:
        """Raises a ValueError: the tokens belong to the frozen chunk encoder."""
        self.resize_token_embeddings()

    def resize_token_embeddings(self, *args: object, **kwargs: object) -> NoReturn:
        """Raises a ValueError: the tokens belong to the frozen chunk encoder."""
        raise ValueError(
            "The chunk encoder is frozen, so its token embeddings cannot be changed for new tokens."
            " Add them to the sentence encoder, train it, and make a new model of it with"
            f" {type(self).__name__}.from_chunk_encoder."
        )


class NextLevelBertModel(NextLevelBertPreTrainedModel, DocumentEncodingMixin):
    """Turns whole documents into contextual chunk vectors and one vector (paper, section 2.2).

    `from_chunk_encoder` makes a new model over a sentence encoder, and `from_pretrained` opens a
    saved one. `encode` reads texts. A call of the model, as in transformers, reads a batch of token
    ids or of chunk vectors.

    Example:
        >>> model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=32)
        >>> book = model.encode("Call me Ishmael. Some years ago, I went to sea.")
        >>> book.document.shape, book.chunks.shape, book.spans.tolist()
        (torch.Size([384]), torch.Size([1, 384]), [[0, 47]])
    """

    # Dropped on purpose: heads, and a chunk encoder if the model is opened without one.
    _keys_to_ignore_on_load_unexpected = [
        r"^head\.",
        r"^target_whitening\.",
        r"^logit_scale$",
        r"^classifier\.",
        r"\bchunk_encoder\.",
    ]

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        self.special_embeddings: Any = self.new_special_vectors()
        self.encoder = None
        self.whitening = None
        self.residual_pooling = None
        self.chunk_encoder = None
        if config.pooling != "plain":
            self.encoder = self.new_encoder()
        if config.whiten_chunks:
            self.whitening = ChunkWhitening(config.chunk_hidden_size)
        if config.pooling == "residual":
            self.residual_pooling = ResidualPooling(config)
        if config.include_chunk_encoder:
            self.chunk_encoder = self.new_chunk_encoder()

        self.borrowed_encoder = None
        self.post_init()

    def new_special_vectors(self) -> nn.Module:
        """Makes the table of special vectors."""
        return NextLevelBertSpecialVectors(4, self.config.hidden_size, padding_idx=PAD)

    def new_encoder(self) -> nn.Module:
        """Makes the encoder over chunks, from ``[B, S, D]`` to ``[B, S, H]``."""
        encoder = backbone_from_config(self.config.encoder_config)
        no_table: Any = None  # vectors come in, not ids
        encoder.set_input_embeddings(no_table)  # the argument has different names
        return encoder

    @can_return_tuple
    def forward(  # ids, chunk vectors or packed sequences
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        special_ids: Tensor | None = None,
        has_padding: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> DocumentModelOutput:
        """Reads whole documents, as token ids or as chunk vectors; both give the same result.

        Args:
            input_ids: token ids ``[B, T]`` of whole documents from the stock tokenizer, of any
                length.
            attention_mask: mask ``[B, T]`` of the ids, or ``[B, L]`` of the vectors; zero at
                padding (default: all ones).
            token_type_ids: ignored; accepted because tokenizers return it.
            inputs_embeds: chunk vectors ``[B, L, D]``, without [CLS] and [SEP].
            special_ids: row in the table of special vectors at each position, ``[B, S]``, -1 at
                chunk vectors; for packed sequences, in which `inputs_embeds` already has a position
                for every special vector.
            has_padding: true if any of the packed sequences is padded (default: the model looks,
                for which it waits for a GPU).
            **kwargs: `output_hidden_states`, true or a list of layers such as ``[0, -1]``, and
                `output_attentions`, see `DocumentModelOutput` (default: the values in the
                configuration).
        """
        extras = self.capture_arguments(kwargs)
        if special_ids is not None and inputs_embeds is not None:
            return self._read_packed(inputs_embeds, special_ids, extras, has_padding=has_padding)

        # Every chunk is a vector (section 2.2, "Input Encoding").
        vectors, mask, lengths = self._chunk_vectors(input_ids, attention_mask, inputs_embeds)
        read_mask, lengths = self._readable(mask, lengths)
        counts = read_mask.sum(dim=1)  # [B]
        chunks = self.prepare_chunks(vectors)

        # Padding goes behind the chunks, wherever it is; a chunk's position counts chunks only.
        front_mask = read_mask
        is_padded = lengths is None or bool((lengths < mask.shape[1]).any())
        if is_padded:
            longest = None
            if lengths is not None:
                longest = int(lengths.max())
            document = indices(counts.shape[0], like=counts)
            order, front_mask, position = front_order(read_mask, longest)
            chunks = gather_chunks(chunks, document, order) * front_mask.unsqueeze(-1)

        # Chunks get their context in windows [CLS] v1 … vn [SEP] ("Model Architecture").
        states, output = self._read_windows(chunks, counts, lengths, extras)  # [B, 1 + L, H]
        hidden = states[:, 1:]
        pooled = self._pool(chunks, hidden, cls_states=states[:, 0], mask=front_mask)
        if is_padded:
            hidden = gather_chunks(hidden, document, position) * read_mask.unsqueeze(-1)

        return DocumentModelOutput(
            last_hidden_state=hidden,
            pooler_output=pooled,
            chunk_vectors=vectors,
            chunk_mask=read_mask,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )

    def _chunk_vectors(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None,
    ) -> tuple[Tensor, Tensor, np.ndarray | None]:
        """Returns chunk vectors ``[B, L, D]``, zero at padding, and their mask ``[B, L]``.

        The third value is the number of chunks in each document ``[B]``, on the CPU; None while a
        graph is recorded.
        """
        if input_ids is not None and inputs_embeds is None:
            if self.training and self.encoder is None and torch.is_grad_enabled():
                logger.warning_once(
                    "pooling='plain' has nothing to train: training changes only layers that you"
                    " put over this model. To train the model itself, make it with"
                    " NextLevelBertModel.from_chunk_encoder(…, pooling='residual')."
                )

            documents = self.encode_ids(input_ids, attention_mask)
            padded = self._pad_documents(documents)
            lengths = _on_cpu([len(chunks) for chunks in documents])
            return padded["inputs_embeds"], padded["attention_mask"].bool(), lengths

        if input_ids is not None or inputs_embeds is None:
            raise ValueError(
                "Give either input_ids [B, T] of whole documents or inputs_embeds [B, L, D] of"
                " chunks."
            )

        vectors = inputs_embeds.to(self.dtype)
        batch, length = vectors.shape[:2]
        if attention_mask is None:
            mask = torch.ones_like(vectors[..., 0]).bool()
            return vectors, mask, _on_cpu([length] * batch)

        mask = attention_mask.bool()
        vectors = torch.where(mask.unsqueeze(-1), vectors, 0.0)
        if traced():
            return vectors, mask, None

        return vectors, mask, _on_cpu(mask.sum(dim=1).tolist())  # the only wait for a GPU

    def _pad_documents(self, documents: list[Tensor]) -> dict[str, Tensor]:
        """Pads the chunk vectors of documents, also if all documents are empty."""
        # A last row that is dropped, so that a batch of empty documents can be padded, too.
        # Without a gradient: a loss over a model with nothing to train is an error.
        device = self.get_chunk_encoder().device
        size = self.config.chunk_hidden_size
        no_chunk = torch.zeros(1, size, device=device, dtype=self.dtype)
        padded = pad_vectors([*documents, no_chunk])
        return {name: values[:-1] for name, values in padded.items()}

    def forward_prompted(
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> DocumentModelOutput:
        """Reads ids that begin with their prompt, as sentence-transformers gives them.

        In contrast to `forward`, ids without a prompt do not get the default prompt:
        sentence-transformers adds it unless another prompt is chosen, which may be empty.

        Args:
            input_ids: token ids ``[B, T]`` of whole documents.
            attention_mask: mask ``[B, T]``; None if there is no padding.
        """
        documents = self.encode_ids(input_ids, attention_mask, default_prompt="")
        return self(**self._pad_documents(documents), return_dict=True)

    def _readable(
        self, mask: Tensor, lengths: np.ndarray | None
    ) -> tuple[Tensor, np.ndarray | None]:
        """Returns the mask of the chunks to read ``[B, L]``, and their number in each document.

        `long_documents` decides what happens beyond `max_chunks`.
        """
        if lengths is None or traced():
            return mask, lengths

        size, _ = self.config.window()
        empty = np.flatnonzero(lengths == 0).tolist()
        if empty:
            warn_of_empty_documents(empty)

        long = np.flatnonzero(lengths > size).tolist()
        if self.config.long_documents == "window" or not long:
            return mask, lengths

        problem = (
            f"Documents {long} have {lengths[long].tolist()} chunks, more than max_chunks = {size}"
        )
        if self.config.long_documents == "error":
            raise ValueError(f"{problem}. Set long_documents='window'.")

        read = np.minimum(lengths, size)
        removed = int((lengths - read).sum())
        logger.warning("%s; long_documents='truncate' removes %d chunks.", problem, removed)
        return mask & (mask.cumsum(dim=1) <= size), read

    def prepare_chunks(self, vectors: Tensor) -> Tensor:
        """Returns chunk vectors as the encoder over chunks reads them, whitened if configured."""
        if self.whitening is None:
            return vectors
        return self.whitening(vectors)

    def _read_windows(
        self,
        chunks: Tensor,
        counts: Tensor,
        lengths: np.ndarray | None,
        extras: dict[str, Any],
    ) -> tuple[Tensor, BaseModelOutput]:
        """Reads documents in windows, and averages the states of each position over its windows.

        The state of a chunk is its mean over the windows that hold the chunk, and the state of
        [CLS] its mean over all windows of the document, each of which begins with [CLS].

        Args:
            chunks: chunk vectors ``[B, L, D]``; the chunks of each document come before its
                padding.
            counts: number of chunks in each document, ``[B]``.
            lengths: the same numbers on the CPU; None while a graph is recorded.
            extras: arguments of the encoder that ask for hidden states or attentions.

        Returns:
            States of each document at [CLS] and at its chunks, ``[B, 1 + L, H]``; and the output of
            the encoder for documents of one window.
        """
        batch, length, _ = chunks.shape
        size, overlap = self.config.window()
        specials = self.config.special_positions
        if extras and length > size:
            raise ValueError(
                f"Hidden states and attentions exist for one window of {size} chunks, but a"
                f" document has {length}."
            )

        # A graph that is recorded must not depend on the number of documents.
        most = _POSITIONS_PER_PASS
        if chunks.device.type != "cpu":
            most = _POSITIONS_PER_PASS_ACCELERATOR

        is_one_pass = extras or lengths is None or batch * (length + specials) <= most
        if length <= size and is_one_pass:
            is_padded = lengths is None or bool((lengths < length).any())
            missing = missing_passes(self.encoder, passes=1)
            states, output = self._read_window(chunks, counts, extras, is_padded=is_padded)
            return self._with_missing_passes(states, missing), output

        # Windows of similar lengths share a pass of the encoder. Each state belongs to a row: row 0
        # of a document is its [CLS], row 1 + c its chunk c. States at padding are zero and belong
        # to padding rows of the same document.
        if lengths is None:
            lengths = np.array(counts.tolist())

        windows = np.stack(lay_windows(lengths, size=size, overlap=overlap))  # [3, J]
        passes = list(micro_batches(windows[2] + specials, most))
        missing = missing_passes(self.encoder, passes=len(passes))
        order = np.concatenate(passes)
        on_device = copy_to(counts.device, windows[:, order])
        rows_of_document = 1 + length
        states_of_passes = []
        rows_of_passes = []
        for window_indices, laid_out in zip(
            passes, on_device.split([len(each) for each in passes], dim=1), strict=True
        ):
            documents, starts, chunks_of_window = laid_out
            sizes = windows[2, window_indices]  # the largest first
            longest = int(sizes[0])
            chunk = starts.unsqueeze(-1) + indices(longest, like=counts)  # [j, S]
            vectors = gather_chunks(chunks, documents, chunk)
            states, _ = self._read_window(
                vectors, chunks_of_window, extras, is_padded=int(sizes[-1]) < longest
            )  # [j, 1 + S, H]
            rows = documents.unsqueeze(-1) * rows_of_document + F.pad(1 + chunk, (1, 0))
            states_of_passes.append(states.flatten(0, 1))
            rows_of_passes.append(rows.flatten())

        means = mean_by_row(
            torch.cat(states_of_passes),
            rows=torch.cat(rows_of_passes),
            count=batch * rows_of_document,
        )
        means = self._with_missing_passes(means, missing)
        return means.unflatten(0, (batch, rows_of_document)), BaseModelOutput()

    def _with_missing_passes(self, states: Tensor, missing: int) -> Tensor:
        """Returns states unchanged, after the passes that other processes need.

        The result depends on the further passes, so that the backward pass runs through them.
        """
        for _ in range(missing):
            chunk = states.new_zeros(1, 1, self.config.chunk_hidden_size)
            count = torch.ones(1, dtype=torch.long, device=states.device)
            unused, _ = self._read_window(chunk, count, {}, is_padded=False)
            states = states + 0.0 * unused.sum()
        return states

    def _read_window(
        self, chunks: Tensor, counts: Tensor, extras: dict[str, Any], *, is_padded: bool
    ) -> tuple[Tensor, BaseModelOutput]:
        """Reads windows with the special vectors around their chunks.

        Args:
            chunks: chunk vectors of each window, ``[J, S, D]``.
            counts: number of chunks in each window, ``[J]``.
            extras: arguments of the encoder that ask for hidden states or attentions.
            is_padded: true if a window may have fewer than S chunks.

        Returns:
            States at [CLS] and at chunks, ``[J, 1 + S, H]``, zero at padding; and the output of the
            encoder.
        """
        width = chunks.shape[1]
        specials = self.config.special_positions
        special_ids = special_ids_of_windows(counts, width=width, specials=specials)
        padded = F.pad(chunks, (0, 0, 1, specials - 1))
        output = self._run_encoder(
            padded, special_ids=special_ids, extras=extras, is_padded=is_padded
        )
        ends = counts.unsqueeze(-1)  # [J, 1]
        real = (indices(width + 1, like=counts) <= ends) & (ends > 0)
        return output.last_hidden_state[:, : width + 1] * real.unsqueeze(-1), output

    def _run_encoder(
        self, vectors: Tensor, special_ids: Tensor, extras: dict[str, Any], *, is_padded: bool
    ) -> BaseModelOutput:
        """Runs the encoder over sequences ``[J, S, D]``, with special vectors put in."""
        if self.encoder is None:  # contextual chunk vectors are the chunk vectors
            return BaseModelOutput(vectors)

        table = self.special_embeddings(special_ids.clamp(min=PAD)).to(vectors.dtype)
        embeds = torch.where((special_ids == NOT_SPECIAL).unsqueeze(-1), vectors, table)
        mask = None  # with which kernels are faster
        if is_padded:
            mask = mask_for(self.encoder, (special_ids != PAD).long())

        output = self.encoder(inputs_embeds=embeds, attention_mask=mask, return_dict=True, **extras)
        if "output_hidden_states" in extras:
            output.hidden_states = select_states(
                self.encoder, output.hidden_states, selection=extras["output_hidden_states"]
            )

        return output

    def _pool(self, chunks: Tensor, hidden: Tensor, cls_states: Tensor, mask: Tensor) -> Tensor:
        """Returns document vectors ``[B, H]``; zero if a document has no chunk."""
        mode: Any = self.config.pooling
        if mode == "cls":
            return cls_states
        if self.residual_pooling is not None:
            return self.residual_pooling(pool(chunks, mask), pool(hidden, mask))
        if mode == "plain":
            return unit(pool(chunks, mask))
        return pool(hidden, mask, mode)

    def _read_packed(
        self,
        inputs_embeds: Tensor,
        special_ids: Tensor,
        extras: dict[str, Any],
        *,
        has_padding: bool | None,
    ) -> DocumentModelOutput:
        """Reads sequences in which pretraining has already left positions for special vectors."""
        most = self.config.window()[0] + self.config.special_positions
        if special_ids.shape[1] > most:
            raise ValueError(
                f"{special_ids.shape[1]} positions exceed the {most} of the model. Lower"
                " --sequence_length."
            )

        chunks = self.prepare_chunks(inputs_embeds.to(self.dtype))
        real = special_ids == NOT_SPECIAL
        if has_padding is None:
            has_padding = traced() or bool((special_ids == PAD).any())

        output = self._run_encoder(
            chunks, special_ids=special_ids, extras=extras, is_padded=has_padding
        )
        hidden = output.last_hidden_state
        pooled = self._pool(chunks, hidden, cls_states=hidden[:, 0], mask=real)
        return DocumentModelOutput(
            last_hidden_state=hidden,
            pooler_output=pooled,
            chunk_vectors=inputs_embeds,
            chunk_mask=real,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )

    def contextualize(self, documents: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Reads documents of very different lengths, in batches of similar length.

        Args:
            documents: chunk vectors ``[n, D]`` of each document, on any device and in any floating
                dtype.

        Returns:
            Contextual chunk vectors ``[n, H]`` of each document (fewer under truncation), and
            document vectors ``[B, H]``.
        """
        lengths = np.asarray([len(vectors) for vectors in documents])
        zero = torch.zeros(self.config.hidden_size, device=self.device, dtype=self.dtype)
        # Values of empty documents, which the encoder does not read.
        contextual = [zero.new_zeros(0, len(zero)) for _ in documents]
        pooled = [zero for _ in documents]

        filled = np.flatnonzero(lengths)
        most = _POSITIONS_PER_PASS
        if self.device.type != "cpu":
            most = _POSITIONS_PER_PASS_ACCELERATOR

        for group in micro_batches(lengths[filled], most):
            members = filled[group]
            output = self(
                **pad_vectors([documents[index].to(self.device) for index in members]),
                output_hidden_states=False,
                output_attentions=False,
                return_dict=True,
            )
            read = lengths[members]
            if self.config.long_documents == "truncate":
                read = np.minimum(read, self.config.window()[0])
            for row, index in enumerate(members):
                contextual[index] = output.last_hidden_state[row, : read[row]]
                pooled[index] = output.pooler_output[row]

        return contextual, torch.stack(pooled)

    @torch.compiler.disable  # chunking is numpy, which `torch.compile` cannot follow everywhere
    def encode_ids(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        default_prompt: str | None = None,
    ) -> list[Tensor]:
        """Encodes the chunks of whole documents.

        If ids begin with a prompt of the configuration, as sentence-transformers' do, every chunk
        gets that prompt; otherwise every chunk gets the default prompt, if there is one.

        Args:
            input_ids: token ids ``[B, T]``.
            attention_mask: mask ``[B, T]``; None if there is no padding.
            default_prompt: text of another default prompt; empty for none.

        Returns:
            The chunk vectors of each document, ``[n, D]``.

        Raises:
            ValueError: `torch.jit.trace` or `torch.export` records this pass.
        """
        if traced():
            raise ValueError(
                "A graph would keep the chunks of the example. Trace or export the pass over chunk"
                " vectors (inputs_embeds)."
            )

        mask = token_mask(input_ids, attention_mask)
        encoder = self.get_chunk_encoder()
        rules = self._rules_by_prompt(default_prompt)
        members: dict[str, tuple[ChunkingRule, list[int]]] = {}
        ids = []
        for index, (row, real) in enumerate(zip(input_ids.cpu(), mask.cpu(), strict=True)):
            document = rules[-1].strip_special_tokens(np.array(row[real].tolist(), np.int32))
            rule, document = split_prompt(document, rules)
            ids.append(document)
            members.setdefault(rule.prompt, (rule, []))[1].append(index)

        vectors: list[Any] = [None] * len(ids)
        for rule, indices_of_rule in members.values():
            documents = [ids[index] for index in indices_of_rule]
            boundaries = [rule.boundaries(document) for document in documents]
            encoded = encode_documents(encoder, documents, boundaries, rule=rule)
            for index, chunks in zip(indices_of_rule, encoded, strict=True):
                vectors[index] = chunks.to(self.dtype)

        return vectors

    def _rules_by_prompt(self, default_prompt: str | None) -> list[ChunkingRule]:
        """Returns a rule for each prompt, the longest prompt first, then the rule of other ids."""
        prompts = self.config.encoder_prompts()
        # A prompt that ends in a word would run into the text.
        texts = [text for text in prompts.texts.values() if text and not text[-1].isalnum()]
        rules = list(map(self.prompted_rule, texts))
        rules.sort(key=lambda rule: -len(rule.prompt_ids))
        return [*rules, self.prompted_rule(prompts.text(prompt=default_prompt))]

    def encode_pairs(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None = None,
        embeds: Tensor | None = None,
    ) -> Tensor | None:
        """Encodes the short texts beside documents: N questions, or C candidates of each.

        Args:
            input_ids: token ids ``[N, Q]`` or ``[N, C, Q]``; a text of several chunks gets the mean
                of their vectors.
            attention_mask: mask of the shape of `input_ids`; None if there is no padding.
            embeds: vectors of the texts, which are returned unchanged.

        Returns:
            The vectors ``[N, D]`` or ``[N, C, D]``; None without ids and vectors.
        """
        if embeds is not None:
            return embeds.to(self.device, self.dtype)
        if input_ids is None:
            return None

        flat_ids = input_ids.reshape(-1, input_ids.shape[-1])  # [N * C, Q]
        flat_mask = None
        if attention_mask is not None:
            flat_mask = attention_mask.reshape(flat_ids.shape)

        vectors = self.encode_ids(flat_ids, flat_mask)
        blank = [index for index, chunks in enumerate(vectors) if len(chunks) == 0]
        if blank:
            raise ValueError(
                f"Questions or candidates {blank} contain no token. Give each of them a text."
            )

        means = torch.stack([chunks.mean(dim=0) for chunks in vectors])
        return means.reshape(*input_ids.shape[:-1], -1)


def _on_cpu(lengths: list[int]) -> np.ndarray | None:
    """Returns numbers of chunks as an array; None while a graph is recorded, for any numbers."""
    if traced():
        return None
    return np.array(lengths, np.int64)


class NextLevelBertForMaskedVectorModeling(NextLevelBertPreTrainedModel):
    """Predicts masked chunk vectors from their context (paper, section 2.2)."""

    main_input_name = "inputs_embeds"
    pooling_over_static = "mean"  # masked modelling does not train the document vector

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        if config.pooling == "plain":
            raise ValueError(
                "pooling='plain' has no encoder to predict with. Choose another pooling."
            )

        self.model = self.new_model()
        self.head = self.new_head()
        self.target_whitening = None
        if config.loss == "cross_entropy" and config.num_candidates > 0:
            self.target_whitening = ChunkWhitening(config.chunk_hidden_size)
            # A training draws them from its documents, so checkpoints need not hold them.
            self.register_buffer(
                "candidates", torch.zeros(0, config.chunk_hidden_size), persistent=False
            )

        self.post_init()

    def new_head(self) -> nn.Module:
        """Makes the layers from a contextual vector to the chunk vector at its position."""
        size = self.config.hidden_size
        return nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))

    def prepare_targets(self, vectors: Tensor) -> Tensor:
        """Returns the targets that the model predicts, given chunk vectors.

        Targets are whitened if the loss chooses among candidates; otherwise they are the vectors
        that the encoder reads.
        """
        if self.target_whitening is None:
            return self.model.prepare_chunks(vectors)
        return self.target_whitening(vectors)

    def vector_loss(
        self,
        predictions: Tensor,
        targets: Tensor,
        candidates: Tensor | None,
        sequences: Tensor | None,
    ) -> Tensor:
        """Returns the loss that the configuration names; see `choice_loss` for the arguments."""
        if self.config.loss == "smooth_l1":
            return smooth_l1_loss(predictions, targets, sequences)
        return choice_loss(
            predictions,
            targets=targets,
            candidates=candidates,
            temperature=self.config.temperature,
            sequences=sequences,
        )

    @can_return_tuple
    def forward(
        self,
        inputs_embeds: Tensor,
        special_ids: Tensor,
        mask_positions: Tensor,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedVectorModelingOutput:
        """Reads packed sequences, as `DataCollatorForVectorMasking` makes them.

        Args:
            inputs_embeds: vectors of the packed sequences, some of them replaced, see
                `NextLevelBertModel.forward`.
            special_ids: positions of special vectors, see `NextLevelBertModel.forward`.
            mask_positions: bool mask ``[B, S]``, true at the positions to predict.
            labels: the true vectors ``[B, S, D]``, from which `prepare_targets` makes the targets.
            **kwargs: `output_hidden_states`, `output_attentions`.
        """
        masked, visible, has_padding = split_positions(special_ids, mask_positions)
        output = self.model(
            inputs_embeds=inputs_embeds,
            special_ids=special_ids,
            has_padding=has_padding,
            return_dict=True,
            **kwargs,
        )
        predictions = self.head(output.last_hidden_state.flatten(0, 1)[masked])  # [M, D]
        targets = None
        loss = None
        if labels is not None:
            vectors = labels.flatten(0, 1)  # [B * S, D]
            targets = self.prepare_targets(vectors[masked].to(self.dtype))  # [M, D]
            candidates = None
            if self.target_whitening is not None:
                others = self.prepare_targets(vectors[visible].to(self.dtype))
                candidates = torch.cat([others, self.candidates])  # [N, D]
            sequences = None
            if self.config.loss_mean == "sequences":
                sequences = masked // special_ids.shape[1]  # [M]
            loss = self.vector_loss(
                predictions, targets=targets, candidates=candidates, sequences=sequences
            )

        return MaskedVectorModelingOutput(
            loss=loss,
            predictions=predictions,
            targets=targets,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )


def split_positions(special_ids: Tensor, mask_positions: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Finds the masked vectors of packed sequences, with one wait for a GPU.

    Args:
        special_ids: positions of special vectors, ``[B, S]``, see `NextLevelBertModel.forward`.
        mask_positions: mask ``[B, S]``, nonzero at the positions to predict.

    Returns:
        The positions to predict ``[M]`` and the other chunk vectors ``[N]``, counted row by row;
        and whether a sequence has padding.
    """
    is_masked = mask_positions.bool()
    is_visible = (special_ids == NOT_SPECIAL) & ~is_masked
    is_padding = special_ids == PAD
    # Masked positions first, then visible ones; a stable sort keeps their order.
    kind = torch.where(is_masked, 0, torch.where(is_visible, 1, 2))
    order = kind.flatten().argsort(stable=True)
    sums = torch.stack([is_masked.sum(), is_visible.sum(), is_padding.sum()])
    masked, visible, padding = sums.tolist()
    return order[:masked], order[masked : masked + visible], padding > 0


class NextLevelBertForContrastiveLearning(NextLevelBertPreTrainedModel):
    """Learns to match two segments of a document among the segments of other documents in a batch.

    For spans of words this is DeCLUTR (Giorgi et al., ACL 2021, section 3).
    """

    main_input_name = "inputs_embeds"
    family_auto_map = {
        **NextLevelBertPreTrainedModel.family_auto_map,
        "AutoModelForPreTraining": "modeling_nextlevelbert.NextLevelBertForContrastiveLearning",
    }

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        if config.pooling not in ("mean", "residual"):  # packed sequences have no other
            raise ValueError(
                f"Contrastive learning needs pooling='mean' or 'residual', got {config.pooling!r}."
            )
        self.model = self.new_model()
        # The temperature is trained, as in CLIP.
        self.logit_scale = nn.Parameter(torch.tensor(-math.log(config.temperature)))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        inputs_embeds: Tensor,
        special_ids: Tensor,
        document_ids: Tensor,
        return_loss: bool = True,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SegmentPairOutput:
        """Reads N pairs of segments, as `DataCollatorForSegmentPairs` makes them.

        Args:
            inputs_embeds: chunk vectors of both segments of each pair, ``[N, 2, S, D]``.
            special_ids: special vector at each position, ``[N, 2, S]``: -1 at chunk vectors,
                otherwise [PAD] 0, [CLS] 1, [SEP] 2, [MASK] 3.
            document_ids: document of each pair, ``[N]``.
            return_loss: ignored; `Trainer` finds by this name that there is a loss without labels.
            **kwargs: `output_hidden_states`, `output_attentions`.
        """
        output = self.model(
            inputs_embeds=inputs_embeds.flatten(0, 1),
            special_ids=special_ids.flatten(0, 1),
            return_dict=True,
            **kwargs,
        )
        first, second = output.pooler_output.unflatten(0, (-1, 2)).unbind(dim=1)  # [N, D] each
        with torch.autocast(first.device.type, enabled=False):
            cosines = unit(first.float()) @ unit(second.float()).T
            scores = cosines * self.logit_scale.exp()  # [N, N]

            # Further segments of one document are not compared.
            diagonal = indices(len(scores), like=scores)
            is_same_document = document_ids[:, None] == document_ids
            is_other_pair = diagonal[:, None] != diagonal
            scores = scores.masked_fill(is_same_document & is_other_pair, -torch.inf)

            by_rows = F.cross_entropy(scores, diagonal)
            by_columns = F.cross_entropy(scores.T, diagonal)

        return SegmentPairOutput(
            loss=(by_rows + by_columns) / 2,
            scores=scores,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )


class NextLevelBertForSequenceClassification(NextLevelBertPreTrainedModel):
    """Classifies documents, alone or with a question: one label, several, or values.

    `config.problem_type` decides which of the three; if it is not set, it is inferred from the
    labels, as in transformers. With ``config.text_pair`` the classifier reads [document vector ;
    encoded question] (paper, section 3.2).
    """

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        self.model = self.new_model()
        width = config.hidden_size
        if config.text_pair:
            width += config.chunk_hidden_size
        self.classifier = TaskClassifier(width, config.classifier_hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(  # noqa: PLR0913  # the inputs of documents, of questions, and labels
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        pair_input_ids: Tensor | None = None,
        pair_attention_mask: Tensor | None = None,
        pair_embeds: Tensor | None = None,
        document_index: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Scores the K classes of each document, or of each of N questions: `logits` ``[N, K]``.

        A document is read once, however many questions it has.

        Args:
            input_ids: ids of documents, see `NextLevelBertModel.forward`; or ids of pairs of a
                document and a question, ``[N, T]``.
            attention_mask: mask of the shape of `input_ids`.
            token_type_ids: types of the shape of `input_ids`. If any is 1, rows are pairs: 0 marks
                the document, 1 the question. The model below the head ignores types.
            inputs_embeds: chunk vectors of the documents, see `NextLevelBertModel.forward`.
            pair_input_ids: ids of the questions, ``[N, Q]``.
            pair_attention_mask: mask ``[N, Q]``.
            pair_embeds: encoded questions, ``[N, D]``.
            document_index: index of the document of each question or label, ``[N]`` (default: one
                document each, in order).
            labels: classes as integers, ``[N]``; for several labels, ``[N, K]`` zeros and ones as
                floats; for regression, values ``[N]``.
            **kwargs: `output_hidden_states`, `output_attentions`.
        """
        prefix = self.config.chunk_prefix_ids
        pair_masks = split_pairs(input_ids, attention_mask, token_type_ids, prefix=prefix)
        if input_ids is not None and pair_masks is not None:
            pair_input_ids = input_ids
            attention_mask, pair_attention_mask = pair_masks

        questions = self.model.encode_pairs(pair_input_ids, pair_attention_mask, pair_embeds)
        self._check_questions(questions)
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        features = concatenate_pairs(output.pooler_output, questions, document_index)
        logits = self.classifier(features)  # [N, K]

        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config)

        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )

    def _check_questions(self, questions: Tensor | None) -> None:
        """Raises a ValueError if vectors of questions are missing, or of no use."""
        if questions is None and not self.config.text_pair:
            return
        if not self.config.text_pair:
            raise ValueError(
                "This model takes no questions (text_pair=False): leave out pair_input_ids,"
                " pair_embeds and token_type_ids of 1. For pairs of texts, make or open the model"
                " with text_pair=True."
            )

        if questions is None or questions.ndim != 2:
            raise ValueError(f"This model needs questions [N, …]: {HOW_TO_PASS_PAIRS}")


class NextLevelBertForMultipleChoice(NextLevelBertPreTrainedModel):
    """Chooses among candidate answers to a question about a document (paper, section 3.2).

    Each candidate is encoded together with the question as one text, and scored beside the
    document's vector.
    """

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        self.model = self.new_model()
        width = config.hidden_size + config.chunk_hidden_size
        self.classifier = TaskClassifier(width, config.classifier_hidden_size, out_features=1)
        self.post_init()

    @can_return_tuple
    def forward(  # noqa: PLR0913  # the inputs of documents, of candidates, and labels
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        pair_input_ids: Tensor | None = None,
        pair_attention_mask: Tensor | None = None,
        pair_embeds: Tensor | None = None,
        document_index: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultipleChoiceModelOutput:
        """Scores the C candidates of each of N questions: `logits` ``[N, C]``.

        A document is read once, however many questions and candidates it has.

        Args:
            input_ids: ids of documents, see `NextLevelBertModel.forward`; or ids of pairs of a
                document and a candidate, ``[N, C, T]``, as transformers'
                `DataCollatorForMultipleChoice` makes them.
            attention_mask: mask of the shape of `input_ids`.
            token_type_ids: types of the shape of `input_ids`. If any is 1, rows are pairs: 0 marks
                the document, 1 the candidate. The model below the head ignores types.
            inputs_embeds: chunk vectors of the documents, see `NextLevelBertModel.forward`.
            pair_input_ids: ids of the candidates, ``[N, C, Q]``, each one text with its question.
            pair_attention_mask: mask ``[N, C, Q]``.
            pair_embeds: encoded candidates, ``[N, C, D]``.
            document_index: index of the document of each question, ``[N]`` (default: one document
                each, in order).
            labels: indices of the right candidates, ``[N]``.
            **kwargs: `output_hidden_states`, `output_attentions`.
        """
        prefix = self.config.chunk_prefix_ids
        pair_masks = split_pairs(input_ids, attention_mask, token_type_ids, prefix=prefix)
        if input_ids is not None and pair_masks is not None:
            pair_input_ids = input_ids
            attention_mask, pair_attention_mask = pair_masks
            if input_ids.ndim == 3:
                input_ids, attention_mask = shared_documents(input_ids, attention_mask)

        candidates = self.model.encode_pairs(pair_input_ids, pair_attention_mask, pair_embeds)
        if candidates is None or candidates.ndim != 3:
            raise ValueError(f"This model needs candidates [N, C, …]: {HOW_TO_PASS_PAIRS}")

        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        features = concatenate_pairs(output.pooler_output, candidates, document_index)
        logits = self.classifier(features).squeeze(-1)  # [N, C]

        loss = None
        if labels is not None:
            loss = single_label_loss(logits, labels)

        return MultipleChoiceModelOutput(
            loss=loss,
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )
