"""NextLevelBERT: a masked language model whose tokens are the vectors of text chunks.

Czinczoll et al., "NextLevelBERT: Masked Language Modeling with Higher-Level Representations for
Long Documents", ACL 2024 (arXiv 2402.17682). Its attention layers are those of a `transformers`
backbone.

Notation for shapes: B documents or sequences in a batch, T tokens of the longest document, L chunks
of the longest document, J windows of all documents, S chunks or positions of a window, D size of a
chunk vector, H of a contextual one (D in NextLevelBERT), M masked positions.
"""

from __future__ import annotations

import itertools
import logging
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .chunk_encoder import ChunkEncoder, LoadedChunkEncoder, micro_batches, pool, unit
from .chunking import (
    Splitter,
    TokenizedDocument,
    chunk_spans,
    flatten_chunks,
    iter_texts,
    tokenize_document,
)
from .configuration_nextlevelbert import CLS, NOT_SPECIAL, PAD, SEP, NextLevelBertConfig
from .hybrid_encoder import ChunkCentring, ChunkWhitening
from .pretrained import (
    NextLevelPreTrainedModel,
    backbone_from_config,
    classification_loss,
    encoders_of_package,
    single_label_loss,
    token_mask,
)

logger = logging.getLogger(__name__)

# Positions of one pass of the encoder over chunks: eight full windows keep its memory near 100 MB
# on a CPU.
_POSITIONS_PER_PASS = 4_096
# Documents are encoded together until they have this many chunks, so that short ones share
# micro-batches.
_CHUNKS_PER_GROUP = 4_096


@dataclass
class DocumentModelOutput(ModelOutput):
    """Contextual chunk vectors `last_hidden_state` ``[B, L, H]`` and document vectors
    `pooler_output` ``[B, H]``.

    Zero where there is no chunk. `chunk_vectors` ``[B, L, D]`` are plain, `chunk_mask` ``[B, L]``
    is true where one was read. For one window, on request: `hidden_states`, `attentions`, with the
    positions of [CLS] and [SEP].
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    chunk_vectors: Tensor | None = None
    chunk_mask: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class MaskedVectorModelingOutput(ModelOutput):
    """`loss`, and what the head predicts at the M selected positions, row by row, with the true
    vectors ``[M, D]``.
    """

    loss: Tensor | None = None
    predictions: Tensor | None = None
    targets: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class SegmentPairOutput(ModelOutput):
    """`loss`, and scaled cosines ``[N, N]`` of first segments (rows) and second ones, the right on
    the diagonal.
    """

    loss: Tensor | None = None
    scores: Tensor | None = None


@dataclass(frozen=True)
class DocumentEmbedding:
    """What one pass over a document of n chunks gives, on the CPU in float32.

    The vector `document` ``[H]``, contextual `chunks` ``[n, H]`` (under truncation the first
    `max_chunks`), `plain` ``[n, D]`` as the chunk encoder made them, `spans` ``[n, 2]`` int64,
    characters of each chunk: ``text[start:end]``.
    """

    document: Tensor
    chunks: Tensor
    plain: Tensor
    spans: np.ndarray

    def __repr__(self) -> str:
        return f"DocumentEmbedding({', '.join(f'{name}={list(field.shape)}' for name, field in vars(self).items())})"


@dataclass(frozen=True)
class DocumentPlan:
    """What encoding one document would take: tokens and chunks of the whole, and passes of the
    encoder over chunks.
    """

    tokens: int
    chunks: int
    windows: int


class NextLevelBertSpecialVectors(nn.Embedding):
    """The trained vectors [PAD], [CLS], [SEP] and [MASK], one table ``[4, D]`` (paper, section
    2.2).
    """


class ResidualProjection(nn.Linear):
    """A square matrix that starts as a multiple of the identity."""

    def __init__(self, hidden_size: int, start: float) -> None:
        super().__init__(hidden_size, hidden_size, bias=False)
        self.start = start


class ResidualPooling(nn.Module):
    """Document vectors ``[B, H]`` of length 1 that keep the plain mean: normalise(A p + C c).

    p is the mean of the chunk vectors and c that of the contextual ones, both normalised. A starts
    as the identity and C at zero, so that training starts no worse than the mean of the chunk
    vectors.
    """

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__()
        self.plain = ResidualProjection(config.hidden_size, 1.0)
        self.contextual = ResidualProjection(config.hidden_size, config.residual_start)

    def forward(self, plain: Tensor, contextual: Tensor) -> Tensor:
        return unit(self.plain(unit(plain)) + self.contextual(unit(contextual)))


class TaskClassifier(nn.Sequential):
    """Linear, ReLU, Linear over [document vector ; encoded question] (paper, section 3.2
    "Experimental Setup").
    """

    def __init__(self, in_features: int, hidden_size: int, out_features: int) -> None:
        super().__init__(
            nn.Linear(in_features, hidden_size), nn.ReLU(), nn.Linear(hidden_size, out_features)
        )


class NextLevelBertPreTrainedModel(NextLevelPreTrainedModel):
    """What all NextLevelBERT classes share: configuration, initialisation, and the start from a
    chunk encoder.
    """

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
    pooling_over_static = (  # of a new model over a table of token vectors, see `ResidualPooling`
        "residual"
    )
    accepts_loss_kwargs = False  # losses are means over the batch
    supports_gradient_checkpointing = True
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, NextLevelBertSpecialVectors):
            if not getattr(
                module.weight, "_is_hf_initialized", False
            ):  # a loaded table stays, even its [PAD] row
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
        chunk_encoder: str | PathLike[str] | LoadedChunkEncoder,
        chunk_size: int = 256,
        *,
        num_hidden_layers: int | None = None,
        random_layers: bool = False,
        attention_dropout: float = 0.0,
        **config_kwargs: Any,
    ) -> Any:
        """A new model around a sentence encoder, initialised from that encoder's own layers and
        position table.

        Over a static encoder, which has none, layers start at random, and the document vector as
        the mean of the chunk vectors (`pooling="residual"`), except in masked vector modelling,
        which would not train that.

        Args:
            chunk_encoder: name or folder of a sentence-transformers model, or one already loaded.
            chunk_size: most tokens in a chunk.
            num_hidden_layers: layers over the chunk vectors: the first so many of the chunk
                encoder's (by default all) or new ones over a static encoder (by default two). With
                0, nothing passes between chunks.
            random_layers: start from random layers, which fails in the paper (section 4.5, table
                4).
            attention_dropout: of the encoder over chunks, 0.1 in the paper; it more than doubles a
                step on a CPU.
            config_kwargs: further fields of `NextLevelBertConfig`; a ValueError names an unknown
                one.
        """
        return encoders_of_package().new_document_model(
            cls,
            chunk_encoder=chunk_encoder,
            chunk_size=chunk_size,
            num_hidden_layers=num_hidden_layers,
            random_layers=random_layers,
            attention_dropout=attention_dropout,
            fields=config_kwargs,
        )

    def new_model(self) -> NextLevelBertModel:
        """The model below a head."""
        return NextLevelBertModel(self.config)

    def get_input_embeddings(self) -> nn.Module:
        """The block that adds positions: vectors enter here, and hooks that need input gradients
        are set here.
        """
        model = self.base_model
        return model.special_embeddings if model.encoder is None else model.encoder.embeddings

    def set_input_embeddings(self, value: nn.Module) -> NoReturn:
        """Raises a ValueError: the tokens belong to the frozen chunk encoder."""
        self.resize_token_embeddings()

    def resize_position_embeddings(self, *args: object, **kwargs: object) -> NoReturn:
        """Raises a ValueError: a longer document is read in further windows."""
        raise ValueError(
            "The position table is not resized; documents of any length are read in windows of"
            " max_chunks. For longer windows make a new model with an encoder_config of more"
            " positions."
        )

    def resize_token_embeddings(self, *args: object, **kwargs: object) -> NoReturn:
        """Raises a ValueError: the tokens belong to the frozen chunk encoder."""
        raise ValueError(
            "The chunk encoder is frozen, so its token embeddings cannot be changed for new tokens."
            " Add them to the sentence encoder, train it, and make a new model of it with"
            f" {type(self).__name__}.from_chunk_encoder."
        )


class NextLevelBertModel(NextLevelBertPreTrainedModel):
    """Whole documents to contextual chunk vectors and one document vector (paper, section 2.2).

    Example:
        >>> model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=32)
        >>> book = model.encode("Call me Ishmael. Some years ago, never mind how long precisely, I went to sea.")
        >>> book.document.shape, book.chunks.shape, book.spans.tolist()
        (torch.Size([384]), torch.Size([1, 384]), [[0, 78]])
    """

    # Dropped on purpose: heads, and a chunk encoder where the model is opened without one.
    _keys_to_ignore_on_load_unexpected = [
        r"^head\.",
        r"^logit_scale$",
        r"^classifier\.",
        r"\bchunk_encoder\.",
    ]

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        self.special_embeddings: Any = self.new_special_vectors()
        self.encoder = None if config.pooling == "plain" else self.new_encoder()
        self.whitening = ChunkWhitening(config.chunk_hidden_size) if config.whiten_chunks else None
        self.residual_pooling = ResidualPooling(config) if config.pooling == "residual" else None
        self.chunk_encoder = self._new_chunk_encoder() if config.include_chunk_encoder else None
        self.post_init()

    def new_special_vectors(self) -> nn.Module:
        return NextLevelBertSpecialVectors(4, self.config.hidden_size, padding_idx=PAD)

    def new_encoder(self) -> nn.Module:
        """The encoder over chunks: from ``inputs_embeds`` ``[B, S, D]`` to contextual vectors ``[B,
        S, H]``.
        """
        encoder = backbone_from_config(self.config.encoder_config)
        encoder.set_input_embeddings(None)  # vectors come in, not ids
        return encoder

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        special_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> DocumentModelOutput:
        """Reads whole documents, as token ids or as chunk vectors; both give the same result.

        Args:
            input_ids: ``[B, T]`` ids of whole documents from the stock tokenizer, of any length.
            attention_mask: ``[B, T]`` or, with vectors, ``[B, L]``; zero at padding. All ones by
                default.
            inputs_embeds: ``[B, L, D]`` chunk vectors, without [CLS] and [SEP].
            special_ids: ``[B, S]`` for packed sequences, where `inputs_embeds` already has a place
                for every special vector: -1 at chunk vectors, else the row of the special table.
            token_type_ids: accepted because tokenizers return it; has no meaning here.
            output_hidden_states, output_attentions: as in transformers, by default as the
                configuration says; see `DocumentModelOutput`.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                "Give either input_ids [B, T] of whole documents or inputs_embeds [B, L, D] of"
                " chunks."
            )
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        extras = {}
        if output_hidden_states:
            extras["output_hidden_states"] = True
        if output_attentions:
            extras["output_attentions"] = True
        if input_ids is not None:
            documents = self.encode_ids(input_ids, attention_mask)
            lengths = torch.tensor([len(rows) for rows in documents], device=self.device)
            if self.training and self.encoder is None and torch.is_grad_enabled():
                warnings.warn(
                    "pooling='plain' has nothing to train: training changes only layers that you"
                    " put over this model. To train the model itself, make it with"
                    " NextLevelBertModel.from_chunk_encoder(…, pooling='residual').",
                    stacklevel=2,
                )
            # A last row that is dropped, so that a batch of empty documents can be padded, too.
            # Without a gradient: a loss over a model with nothing to train is an error.
            no_chunk = self.special_embeddings.weight[:1].detach()
            inputs_embeds = pad_sequence([*documents, no_chunk], batch_first=True)[:-1]
            attention_mask = (
                torch.arange(inputs_embeds.shape[1], device=self.device) < lengths[:, None]
            )
        assert inputs_embeds is not None
        if special_ids is not None:
            return self._read_packed(inputs_embeds, special_ids, extras)
        if attention_mask is None:
            attention_mask = torch.ones(inputs_embeds.shape[:2], device=self.device)
        mask = attention_mask.bool()
        vectors = inputs_embeds.to(self.dtype)  # [B, L, D]
        if traced() or not mask.all():
            vectors = torch.where(mask.unsqueeze(-1), vectors, 0.0)
        read_mask = self._readable(mask)
        chunks = self.prepare_chunks(vectors)  # [B, L, D]
        counts = read_mask.sum(dim=1)  # [B]
        is_padded = traced() or not read_mask.all()
        front_mask = read_mask
        if is_padded:
            # Real chunks move to the front, wherever the padding is; a chunk's position is its
            # number among them.
            position = (read_mask.cumsum(dim=1) - 1).clamp(min=0)  # [B, L]
            order = position.masked_fill(~read_mask, 2**31).argsort(dim=1)
            if not traced():  # padding that all documents have is not read
                order = order[:, : max(int(counts.max()), 1)]
            document = torch.arange(counts.shape[0], device=counts.device)
            front_position = torch.arange(order.shape[1], device=counts.device)
            front_mask = front_position < counts[:, None]  # [B, S]
            chunks = rows_of(chunks, document, order) * front_mask.unsqueeze(-1)

        hidden, cls_states, output = self._read_windows(chunks, counts, extras)
        pooled = self._pool(chunks, hidden, first=cls_states, mask=front_mask)
        if is_padded:
            hidden = rows_of(hidden, document, position) * read_mask.unsqueeze(-1)
        return DocumentModelOutput(
            last_hidden_state=hidden,
            pooler_output=pooled,
            chunk_vectors=vectors,
            chunk_mask=read_mask,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )

    def _readable(self, mask: Tensor) -> Tensor:
        """Returns where chunks are read ``[B, L]``: all, or fewer as `long_documents` says."""
        if traced():
            return mask
        size, _ = self.config.window()
        counts = mask.sum(dim=1)
        empty = (counts == 0).nonzero().flatten().tolist()
        if empty:
            warn_of_empty_documents(empty)

        long = (counts > size).nonzero().flatten().tolist()
        if self.config.long_documents == "window" or not long:
            return mask
        what = (
            f"Documents {long} have {counts[long].tolist()} chunks, more than max_chunks = {size}"
        )
        if self.config.long_documents == "error":
            raise ValueError(f"{what}. Set long_documents='window'.")
        removed = int((counts - size).clamp(min=0).sum())
        logger.warning("%s; long_documents='truncate' cuts %d off.", what, removed)
        return mask & (mask.cumsum(dim=1) <= size)

    def _read_windows(
        self, chunks: Tensor, counts: Tensor, extras: dict[str, bool]
    ) -> tuple[Tensor, Tensor, BaseModelOutput]:
        """Reads windows [CLS] v1 … vn [SEP] and averages their outputs where windows overlap.

        Args:
            chunks: ``[B, L, D]``, in front those that each document has.
            counts: ``[B]``, the chunks of each document.
            extras: arguments of the encoder that ask for hidden states or attentions.

        Returns:
            Contextual vectors ``[B, L, H]``, the mean of each document's outputs at [CLS]
            ``[B, H]``, and the encoder's last output.
        """
        batch, length, _ = chunks.shape
        document, chunk = self._windows(counts, length)  # [J], [J, S]
        is_one_window = length <= self.config.window()[0]
        if extras and not is_one_window:
            raise ValueError(
                f"Hidden states and attentions are of one window of {chunk.shape[1]} chunks, not"
                f" {length}."
            )
        chunks_in_window = counts[document] - chunk[:, :1].sum(dim=1)
        chunks_in_window = chunks_in_window.clamp(max=chunk.shape[1])  # [J]
        hidden = chunks.new_zeros(batch * length, self.config.hidden_size)
        times_read = chunks.new_zeros(batch * length, 1)
        cls_states = chunks.new_zeros(batch, self.config.hidden_size)
        for rows, width in self._passes(chunks_in_window, chunk.shape[1], at_once=bool(extras)):
            is_whole = is_one_window and isinstance(rows, slice)
            n = chunks_in_window[rows, None]  # [J, 1]
            vectors = chunks
            if not is_whole:
                vectors = rows_of(chunks, document[rows], chunk[rows, :width])
            special_ids = self._special_ids(n, width)
            specials = special_ids.shape[1] - width
            output = self._run_encoder(
                F.pad(vectors, (0, 0, 1, specials - 1)), special_ids=special_ids, extras=extras
            )
            real = (torch.arange(width, device=n.device) < n).unsqueeze(-1)  # [J, S, 1]
            states = output.last_hidden_state[:, 1 : width + 1] * real
            summary = output.last_hidden_state[:, 0] * (n > 0)
            if is_whole:
                return states, summary, output
            row = (document[rows, None] * length + chunk[rows, :width]).flatten()
            hidden.index_add_(0, row, states.flatten(0, 1))
            times_read.index_add_(0, row, real.flatten(0, 1).to(times_read.dtype))
            cls_states.index_add_(0, document[rows], summary)
        hidden = hidden.div_(times_read.clamp_(min=1)).unflatten(0, (batch, length))
        windows = document.bincount(minlength=batch).unsqueeze(-1)
        return hidden, cls_states / windows, output

    def _windows(self, counts: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Lays windows over documents, the longest of which has `length` chunks.

        Windows start every `size` - `overlap` chunks; the last one of a document is moved back so
        that it is full.

        Args:
            counts: ``[B]``, the chunks of each document.
            length: the chunks of the longest document, padding included.

        Returns:
            The document ``[J]`` and the chunks ``[J, S]`` of each window.
        """
        size, overlap = self.config.window()
        device = counts.device
        if length <= size:  # nothing depends on values, so that it can be exported
            document = torch.arange(counts.shape[0], device=device)
            return document, torch.arange(length, device=device).expand(counts.shape[0], -1)
        step = size - overlap
        last = (counts - size).clamp(min=0)  # [B], where the last window of a document starts
        start = torch.arange(1 + math.ceil((length - size) / step), device=device) * step
        used = (start == 0) | (start - step < last[:, None])  # [B, windows]
        document, number = used.nonzero(as_tuple=True)
        first_chunk = torch.minimum(start[number], last[document])
        return document, first_chunk[:, None] + torch.arange(size, device=device)

    def _special_ids(self, n: Tensor, width: int) -> Tensor:
        """Returns what stands at each position of windows with `n` ``[J, 1]`` of `width` chunks."""
        specials = self.config.special_positions
        position = torch.arange(width + specials, device=n.device)
        special_ids = torch.where(position <= n, NOT_SPECIAL, PAD)  # [J, S + specials]
        special_ids = special_ids.masked_fill(position == 0, CLS)
        if specials == 2:  # HATE has no [SEP]
            special_ids = special_ids.masked_fill(position == n + 1, SEP)
        return special_ids

    def _passes(self, reach: Tensor, width: int, at_once: bool) -> Iterator[tuple[Any, int]]:
        """The windows of each pass of the encoder, of similar lengths, and the chunks of the
        longest.
        """
        specials = self.config.special_positions
        if at_once or traced() or len(reach) * (width + specials) <= _POSITIONS_PER_PASS:
            yield slice(None), width
            return
        for rows in micro_batches(reach.cpu().numpy() + specials, _POSITIONS_PER_PASS):
            yield torch.from_numpy(rows).to(reach.device), int(reach[rows[0]])

    def _run_encoder(
        self, vectors: Tensor, special_ids: Tensor, extras: dict[str, bool]
    ) -> BaseModelOutput:
        """The encoder over sequences ``[J, S, D]`` with a special vector wherever `special_ids` has
        its number.
        """
        if self.encoder is None:  # contextual chunk vectors are the chunk vectors
            return BaseModelOutput(vectors)
        table = self.special_embeddings(special_ids.clamp(min=PAD)).to(vectors.dtype)
        embeds = torch.where((special_ids == NOT_SPECIAL).unsqueeze(-1), vectors, table)
        real = special_ids != PAD
        mask = None  # with which kernels are faster
        if traced() or not real.all():
            mask = real.long()
        return self.encoder(inputs_embeds=embeds, attention_mask=mask, return_dict=True, **extras)

    def _pool(self, chunks: Tensor, hidden: Tensor, first: Tensor, mask: Tensor) -> Tensor:
        """Document vectors ``[B, H]`` by the configured pooling; zero where a document has no
        chunk.
        """
        mode: Any = self.config.pooling
        if mode == "cls":
            return first
        if self.residual_pooling is not None:
            return self.residual_pooling(pool(chunks, mask), pool(hidden, mask))
        return unit(pool(chunks, mask)) if mode == "plain" else pool(hidden, mask, mode)

    def prepare_chunks(self, vectors: Tensor) -> Tensor:
        """Chunk vectors ``[..., D]`` as the encoder over chunks reads them: whitened if the
        configuration says so.
        """
        return vectors if self.whitening is None else self.whitening(vectors)

    def _read_packed(
        self, inputs_embeds: Tensor, special_ids: Tensor, extras: dict[str, bool]
    ) -> DocumentModelOutput:
        """Sequences that hold their special positions already, as pretraining packs them; each has
        one vector.
        """
        most = self.config.window()[0] + self.config.special_positions
        if special_ids.shape[1] > most:
            raise ValueError(
                f"{special_ids.shape[1]} positions exceed the model's {most}; lower"
                " --sequence_length."
            )
        chunks = self.prepare_chunks(inputs_embeds.to(self.dtype))
        real = special_ids == NOT_SPECIAL
        output = self._run_encoder(chunks, special_ids=special_ids, extras=extras)
        hidden = output.last_hidden_state
        pooled = self._pool(chunks, hidden, first=hidden[:, 0], mask=real)
        return DocumentModelOutput(
            last_hidden_state=hidden,
            pooler_output=pooled,
            chunk_vectors=inputs_embeds,
            chunk_mask=real,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )

    def contextualize(self, documents: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """`forward` for documents of very different lengths: each is padded beside those of similar
        length.

        Of the chunk vectors ``[n, D]`` of each document, on any device and in any floating dtype,
        come its contextual ones ``[n, H]`` (fewer under truncation), and the document vectors ``[B,
        H]``.
        """
        lengths = np.asarray([len(vectors) for vectors in documents])
        zero = torch.zeros(self.config.hidden_size, device=self.device, dtype=self.dtype)
        # Values of empty documents, which the encoder does not read.
        contextual = [zero.new_zeros(0, len(zero))] * len(documents)
        pooled = [zero] * len(documents)
        filled = np.flatnonzero(lengths)
        for rows in (filled[part] for part in micro_batches(lengths[filled], _POSITIONS_PER_PASS)):
            batch = pad_sequence([documents[row].to(self.device) for row in rows], batch_first=True)
            mask = torch.arange(batch.shape[1]) < torch.from_numpy(lengths[rows])[:, None]
            output = self(
                inputs_embeds=batch,
                attention_mask=mask.to(self.device),
                output_hidden_states=False,
                output_attentions=False,
                return_dict=True,
            )
            for place, row in enumerate(rows):
                contextual[row] = output.last_hidden_state[
                    place, : int(output.chunk_mask[place].sum())
                ]
                pooled[row] = output.pooler_output[place]
        return contextual, torch.stack(pooled)

    def encode(
        self,
        texts: str | Iterable[Any],
        tokens_per_batch: int | None = None,
        show_progress_bar: bool = False,
        chunk_encoder: Any = None,
        splitter: Splitter | None = None,
    ) -> DocumentEmbedding | list[DocumentEmbedding]:
        """Document vector, contextual and plain chunk vectors and their characters, in one pass.

        Args:
            texts: a document of any length, or several in any form that `chunking.iter_texts`
                knows.
            tokens_per_batch: token positions of one forward pass of the chunk encoder.
            show_progress_bar: show a bar that counts chunks.
            chunk_encoder: the model's own chunk encoder in another form, such as
                ``CachedEncoder(model.chunk_encoder, folder)``, which keeps what it has seen. A
                ValueError says where it is another encoder.
            splitter: finds the sentences of a text instead of the model's rule, as `text_sentences`
                does: from a text to (start, end) of each, or to their texts. For chunks made of
                    sentences only.
        """
        books = list(
            self.iter_encode(texts, tokens_per_batch, show_progress_bar, chunk_encoder, splitter)
        )
        if isinstance(texts, str):
            return books[0]
        return books

    def iter_encode(
        self,
        texts: str | Iterable[Any],
        tokens_per_batch: int | None = None,
        show_progress_bar: bool = False,
        chunk_encoder: Any = None,
        splitter: Splitter | None = None,
    ) -> Iterator[DocumentEmbedding]:
        """As `encode`, one document after the other: for more of them than memory holds."""
        rule = self.config.chunking_rule()
        if chunk_encoder is None:
            encoder = self.get_chunk_encoder()
        else:
            encoder = self._same_encoder(chunk_encoder)
        chunks = 0
        group: list[tuple[TokenizedDocument, np.ndarray]] = []
        empty: list[int] = []
        with tqdm(total=0, unit="chunk", desc="encoding", disable=not show_progress_bar) as bar:
            for index, text in enumerate(iter_texts(texts)):
                document = tokenize_document(self.tokenizer, text)
                boundaries = rule.text_boundaries(text, document, splitter)
                group.append((document, boundaries))
                chunks += len(boundaries) - 1
                if len(document) == 0:
                    empty.append(index)
                if chunks >= _CHUNKS_PER_GROUP:
                    yield from self._encode_group(group, encoder, tokens_per_batch, bar)
                    group = []
                    chunks = 0
            if group:
                yield from self._encode_group(group, encoder, tokens_per_batch, bar)
        if empty:
            warn_of_empty_documents(empty)

    @torch.no_grad()
    def _encode_group(
        self,
        group: list[tuple[TokenizedDocument, np.ndarray]],
        encoder: Any,
        tokens_per_batch: int | None,
        bar: tqdm,
    ) -> list[DocumentEmbedding]:
        """Tokenised documents with their chunk boundaries, encoded together."""
        ids, flat, offsets = flatten_chunks(
            [document.input_ids for document, _ in group], [cuts for _, cuts in group]
        )
        bar.total += int(offsets[-1])
        training = self.training
        self.eval()
        try:
            vectors = encoder.encode(ids, flat, self.config.chunking_rule(), tokens_per_batch, bar)
            plain = [vectors[start:end] for start, end in itertools.pairwise(offsets)]
            contextual, pooled = self.contextualize(plain)
        finally:
            self.train(training)
        levels = (
            [values.float().cpu() for values in row]
            for row in zip(pooled, contextual, plain, strict=True)
        )
        return [
            DocumentEmbedding(document, chunks, rows, chunk_spans(tokens, cuts))
            for (document, chunks, rows), (tokens, cuts) in zip(levels, group, strict=True)
        ]

    def plan(
        self, texts: str | Iterable[Any], splitter: Splitter | None = None
    ) -> DocumentPlan | list[DocumentPlan]:
        """Counts tokens, chunks and windows without running any network; arguments as in
        `encode`.
        """
        size, overlap = self.config.window()
        rule = self.config.chunking_rule()
        plans = []
        for text in iter_texts(texts):
            document = tokenize_document(self.tokenizer, text)
            chunks = len(rule.text_boundaries(text, document, splitter)) - 1
            windows = min(chunks, 1) + math.ceil(max(chunks - size, 0) / (size - overlap))
            plans.append(DocumentPlan(len(document), chunks, windows))
        if isinstance(texts, str):
            return plans[0]
        return plans

    def encode_ids(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Tensor]:
        """Token ids ``[B, T]`` of whole documents to their chunk vectors, each ``[n, D]``."""
        mask = token_mask(input_ids, attention_mask)
        rule = self.config.chunking_rule()
        rows = zip(input_ids.cpu(), mask.cpu(), strict=True)
        ids = [rule.strip_special_tokens(row[real].numpy().astype(np.int32)) for row, real in rows]
        flat_ids, boundaries, offsets = flatten_chunks(
            ids, [rule.boundaries(document) for document in ids]
        )
        vectors = (
            self.get_chunk_encoder().encode(flat_ids, boundaries, rule).to(self.dtype)
        )  # [N, D]
        return list(vectors.split(np.diff(offsets).tolist()))

    def encode_pairs(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None = None,
        embeds: Tensor | None = None,
    ) -> Tensor | None:
        """Vectors ``[…, D]`` of the short texts that go with documents: questions ``[N]``, or
        candidates ``[N, C]``.

        Of their ids ``[…, Q]``, one chunk each or the mean of several, or of `embeds`; None if
        nothing was given.
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
            raise ValueError(f"Questions or candidates {blank} contain no token; give each a text.")
        means = torch.stack([chunks.mean(dim=0) for chunks in vectors])
        return means.reshape(*input_ids.shape[:-1], -1)

    def _new_chunk_encoder(self) -> ChunkEncoder:
        config = self.config
        return ChunkEncoder(
            config.chunk_encoder_config,
            config.chunk_encoder_pooling,
            config.chunk_encoder_normalize,
        )

    def attach_chunk_encoder(self, source: LoadedChunkEncoder) -> None:
        """Makes a chunk encoder, the one that the model was trained with, part of it and of its
        checkpoint.
        """
        self.check_chunk_encoder(source)
        if self.chunk_encoder is None:
            self.chunk_encoder = self._new_chunk_encoder().to(self.device, self.dtype)
        self.chunk_encoder.load_state_dict(source.encoder.state_dict())
        self.config.include_chunk_encoder = True
        self.tokenizer = source.tokenizer

    def detach_chunk_encoder(self) -> LoadedChunkEncoder:
        """Takes the frozen encoder out, so that not every checkpoint of a run holds a copy;
        `attach` puts it back.
        """
        encoder = self.get_chunk_encoder()
        config = self.config
        self.chunk_encoder = None
        config.include_chunk_encoder = False
        return LoadedChunkEncoder(
            encoder=encoder,
            tokenizer=self.tokenizer,
            name=config.chunk_encoder_name or "the model's own chunk encoder",
            fingerprint=config.chunk_encoder_fingerprint or encoder.fingerprint(),
        )

    def check_chunk_encoder(self, source: Any) -> None:
        """Raises a ValueError for a chunk encoder with other weights, pooling or normalisation than
        the model's.
        """
        expected = self.config.chunk_encoder_fingerprint
        got = source.fingerprint
        if callable(got):
            got = got()
        if expected and got != expected:
            raise ValueError(
                "chunk_encoder_fingerprint: the model was made with the encoder"
                f" {self.config.chunk_encoder_name} ({expected[:12]}…), but this one is"
                f" {getattr(source, 'name', 'an unnamed one')} ({got[:12]}…)."
            )

    def _same_encoder(self, chunk_encoder: Any) -> Any:
        """Another form of the model's own chunk encoder, loaded or cached, that can `encode`."""
        inner = getattr(chunk_encoder, "encoder", chunk_encoder)
        if hasattr(chunk_encoder, "encode"):  # a cached encoder
            if inner is not self.chunk_encoder:
                self.check_chunk_encoder(inner)
            return chunk_encoder
        if inner is not self.chunk_encoder:
            self.check_chunk_encoder(chunk_encoder)
        return inner

    def get_chunk_encoder(self) -> ChunkEncoder:
        """The frozen encoder; loaded from `config.chunk_encoder_name` if the checkpoint does not
        hold it.
        """
        if self.chunk_encoder is not None:
            return self.chunk_encoder
        if (encoder := self.__dict__.get("borrowed_encoder")) is None:
            name = self.config.chunk_encoder_name
            # Without a fingerprint, nothing would say what its weights must be: it could be any
            # encoder, in silence.
            if not name or not self.config.chunk_encoder_fingerprint or Path(name).exists():
                raise ValueError(
                    f"This checkpoint holds no chunk encoder, and its chunk_encoder_name {name!r}"
                    " is not on the Hub, or has no fingerprint: use"
                    " attach_chunk_encoder(load_chunk_encoder(path)) or --chunk_encoder."
                )
            source = encoders_of_package().load_chunk_encoder(
                name, pooling=self.config.chunk_encoder_pooling
            )
            self.check_chunk_encoder(source)
            encoder = source.encoder
            self.__dict__["borrowed_encoder"] = (
                encoder  # not a submodule: it is never saved and never trained
            )
        return encoder.to(self.device, self.dtype)


class NextLevelBertForMaskedVectorModeling(NextLevelBertPreTrainedModel):
    """Predicts masked chunk vectors from their context (paper, section 2.2)."""

    main_input_name = "inputs_embeds"
    pooling_over_static = "mean"  # masked modelling does not train the document vector

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config)
        if config.pooling == "plain":
            raise ValueError("pooling='plain' has no encoder to predict with; choose another.")
        self.model = self.new_model()
        self.head = self.new_head()
        self.post_init()

    def new_head(self) -> nn.Module:
        """From a contextual vector to the chunk vector that stood there (paper, section 2.2)."""
        size = self.config.hidden_size
        return nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))

    @can_return_tuple
    def forward(
        self,
        inputs_embeds: Tensor,
        special_ids: Tensor,
        mask_positions: Tensor,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedVectorModelingOutput:
        """One step over packed sequences, as `DataCollatorForVectorMasking` makes them.

        Args:
            inputs_embeds, special_ids: as in the model's own `forward`; some vectors are replaced
                by others.
            mask_positions: ``[B, S]`` bool, where to predict.
            labels: ``[B, S, D]`` the true vectors; targets are as the encoder reads them, perhaps
                whitened.
            kwargs: `output_hidden_states`, `output_attentions`.
        """
        output = self.model(
            inputs_embeds=inputs_embeds, special_ids=special_ids, return_dict=True, **kwargs
        )
        config = self.config
        selected = mask_positions.bool()
        predictions = self.head(output.last_hidden_state[selected])  # [M, D]
        targets = None
        loss = None
        if labels is not None:
            targets = self.model.prepare_chunks(labels[selected].to(self.dtype))  # [M, D]
            sequences = None
            if config.loss_mean == "sequences":
                sequences = selected.nonzero()[:, 0]  # [M]
            loss = masked_vector_loss(
                config.loss,
                predictions=predictions,
                targets=targets,
                temperature=config.temperature,
                p=config.norm_order,
                sequences=sequences,
            )
        return MaskedVectorModelingOutput(
            loss=loss,
            predictions=predictions,
            targets=targets,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )


class NextLevelBertForContrastiveLearning(NextLevelBertPreTrainedModel):
    """Tells two segments of one document, long runs of chunks such as chapters, from the others of
    a batch.

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
        self.logit_scale = nn.Parameter(
            torch.tensor(-math.log(config.temperature))
        )  # trained, as in CLIP
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        inputs_embeds: Tensor,
        special_ids: Tensor,
        document_ids: Tensor,
        return_loss: bool = True,
    ) -> SegmentPairOutput:
        """One step over N pairs of segments, as `DataCollatorForSegmentPairs` makes them.

        Args:
            inputs_embeds: ``[N, 2, S, D]`` chunk vectors of both segments of each pair.
            special_ids: ``[N, 2, S]``: -1 at chunk vectors, else [PAD] 0, [CLS] 1, [SEP] 2, [MASK]
                3.
            document_ids: ``[N]``, the document of each pair.
            return_loss: not read: by this name `Trainer` knows that there is a loss without labels.
        """
        output = self.model(
            inputs_embeds=inputs_embeds.flatten(0, 1),
            special_ids=special_ids.flatten(0, 1),
            return_dict=True,
        )
        first, second = output.pooler_output.unflatten(0, (-1, 2)).unbind(dim=1)  # [N, D] each
        with torch.autocast(first.device.type, enabled=False):
            scores = unit(first.float()) @ unit(second.float()).T * self.logit_scale.exp()  # [N, N]
            right = torch.arange(len(scores), device=scores.device)
            same = (document_ids[:, None] == document_ids) & (right[:, None] != right)
            scores = scores.masked_fill(
                same, -torch.inf
            )  # further segments of one document are not compared
            loss = (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)) / 2
        return SegmentPairOutput(loss=loss, scores=scores)


class NextLevelBertForTask(NextLevelBertPreTrainedModel):
    """A classifier over [document vector ; vector of a text that goes with it] (paper, section
    3.2).

    These texts have vectors of `pair_axes`: 2 of questions ``[N, D]``, 3 of candidates ``[N, C,
    D]``; 0 for none.
    """

    def __init__(self, config: NextLevelBertConfig, pair_axes: int, outputs: int) -> None:
        super().__init__(config)
        self.pair_axes = pair_axes
        self.model = self.new_model()
        width = config.hidden_size + (config.chunk_hidden_size if pair_axes else 0)
        self.classifier = TaskClassifier(width, config.classifier_hidden_size, outputs)
        self.post_init()

    @can_return_tuple
    def forward(
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
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Reads each document once, however many questions and candidates it has.

        Args:
            input_ids, attention_mask, inputs_embeds: documents, as in the model's own `forward`; or
                pairs, with `token_type_ids` that are 1 at the question: ``[B, T]``, or ``[B, C,
                T]`` with a row for each candidate, as transformers' `DataCollatorForMultipleChoice`
                makes them.
            pair_input_ids, pair_attention_mask, pair_embeds: N questions, ids ``[N, Q]`` or encoded
                ``[N, D]``; of questions with C candidates, each as one text, ids ``[N, C, Q]`` or
                encoded ``[N, C, D]``.
            document_index: ``[N]``, the document of each question (or label); by default one each,
                in order.
            labels: ``[N]`` integers, the numbers of classes or of the right candidates; or, of
                several labels, ``[N, num_labels]`` zeros and ones as floats, or ``[N]`` values.
            kwargs: `output_hidden_states`, `output_attentions`.
        """
        if (
            input_ids is not None
            and token_type_ids is not None
            and bool((token_type_ids == 1).any())
        ):
            # [CLS] document [SEP] question [SEP]; the special tokens at the start belong to both.
            mask = (
                torch.ones_like(input_ids).bool()
                if attention_mask is None
                else attention_mask.bool()
            )
            question = mask & (token_type_ids == 1)
            start = mask & (mask.cumsum(dim=-1) <= len(self.config.chunk_prefix_ids))
            pair_input_ids = input_ids
            attention_mask = mask & ~question
            pair_attention_mask = question | start
            if input_ids.ndim == 3:
                documents = input_ids * attention_mask
                if not bool((documents == documents[:, :1]).all()):
                    raise ValueError(
                        "The candidates of a row have different documents; give each row one"
                        " document."
                    )
                input_ids, attention_mask = input_ids[:, 0], attention_mask[:, 0]
        pairs = self.model.encode_pairs(pair_input_ids, pair_attention_mask, pair_embeds)
        if (0 if pairs is None else pairs.ndim) != self.pair_axes:
            what = {0: "no questions (text_pair=False)", 2: "questions", 3: "candidates [N, C, …]"}[
                self.pair_axes
            ]
            raise ValueError(
                f"This model reads {what}: pair_input_ids, pair_embeds or token_type_ids of 1."
                " Where the tokenizer gives no such types, take DataCollatorForDocumentChoice."
            )
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(
            concatenate_pairs(output.pooler_output, pairs, document_index)
        )  # [N, (C,) outputs]
        is_choice = self.pair_axes == 3
        if is_choice:
            logits = logits.squeeze(-1)  # [N, C]
        loss = None
        if labels is not None and is_choice:
            loss = single_label_loss(logits, labels)
        elif labels is not None:
            loss = classification_loss(logits, labels, self.config)
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )


class NextLevelBertForSequenceClassification(NextLevelBertForTask):
    """Classifies documents, alone or with a question: one label, several, or values.

    `config.problem_type` says which; otherwise it is inferred from the labels as in transformers.
    With ``config.text_pair`` the classifier reads [document vector ; encoded question].
    """

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config, 2 if config.text_pair else 0, config.num_labels)


class NextLevelBertForMultipleChoice(NextLevelBertForTask):
    """Chooses among candidate answers to a question about a document.

    Each candidate is encoded together with the question as one text, and scored beside the
    document's vector.
    """

    def __init__(self, config: NextLevelBertConfig) -> None:
        super().__init__(config, 3, 1)


def masked_vector_loss(
    name: str,
    predictions: Tensor,
    targets: Tensor,
    temperature: float = 0.05,
    p: float = 2.0,
    sequences: Tensor | None = None,
) -> Tensor:
    """The mean loss of M predicted vectors ``[M, D]``, in float32; zero (with a gradient path)
    where there is none.

    `smooth_l1` (Huber with beta 1; paper, section 2.2), `l1` and `l2` (the authors' options) are
    means over the dimensions, `cosine` is 1 - cosine. HATE's two look among the batch's masked
    vectors: `p_norm` is that of row i of softmax(Ŝ Lᵀ), a distribution for prediction i, minus row
    i of the identity, from 0 to 2^(1/p); `cross_entropy` is that of finding the own target by
    cosine / temperature (InfoNCE, 2018).

    With `sequences` ``[M]``, where each vector stands, it is over sequences of the means within
    them, as in the authors' code.
    """
    if len(predictions) == 0:
        return predictions.sum() * 0.0
    with torch.autocast(
        predictions.device.type, enabled=False
    ):  # it would compute the products in bfloat16
        predictions = predictions.float()
        targets = targets.float()
        if name in ("smooth_l1", "l1", "l2"):
            loss = {"smooth_l1": F.smooth_l1_loss, "l1": F.l1_loss, "l2": F.mse_loss}[name]
            losses = loss(predictions, targets, reduction="none").mean(dim=-1)  # [M]
        elif name == "cosine":
            losses = 1.0 - F.cosine_similarity(predictions, targets, dim=-1)
        elif name == "p_norm":
            chosen = (predictions @ targets.T).softmax(dim=-1)  # [M, M]
            losses = torch.linalg.vector_norm(
                chosen - torch.eye(len(chosen)).to(chosen), ord=p, dim=-1
            )
        else:
            scores = unit(predictions) @ unit(targets).T / temperature  # [M, M]
            losses = F.cross_entropy(
                scores, torch.arange(len(scores), device=scores.device), reduction="none"
            )
        if sequences is None:
            return losses.mean()
        counts = sequences.bincount()  # [B]
        return (losses / counts[sequences]).sum() / (counts > 0).sum()


def concatenate_pairs(
    documents: Tensor, pairs: Tensor | None, document_index: Tensor | None
) -> Tensor:
    """Each document's vector ``[B, H]`` with the vectors of its questions ``[N, D]`` or candidates
    ``[N, C, D]``.

    `document_index` ``[N]`` is the document of each question, by default one each, in order.
    """
    if document_index is not None:
        documents = documents[document_index]  # [N, H]
    if pairs is None:
        return documents
    if len(pairs) != len(documents):
        raise ValueError(
            f"{len(pairs)} questions for {len(documents)} documents: give each its document_index"
            " [N]."
        )
    if pairs.ndim == 3:
        documents = documents.unsqueeze(1).expand(-1, pairs.shape[1], -1)  # [N, C, H]
    return torch.cat([documents, pairs.to(documents.dtype)], dim=-1)


def rows_of(values: Tensor, document: Tensor, place: Tensor) -> Tensor:
    """Of vectors ``[B, L, D]`` those at `place` ``[J, S]`` of each `document` ``[J]``: ``[J, S,
    D]``.
    """
    return F.embedding(document[:, None] * values.shape[1] + place, values.flatten(0, 1))


def traced() -> bool:
    """Whether a graph is recorded (`torch.export`, ONNX, `torch.compile`, tracing): values are not
    known then.
    """
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def warn_of_empty_documents(numbers: Sequence[int]) -> None:
    """Warns of documents without tokens, whose vector is zero."""
    names = ", ".join(map(str, numbers))
    warnings.warn(
        f"Document(s) {names} contain no token (empty or blank text): their vector is zero.",
        stacklevel=4,
    )
