"""What the configurations of models over chunk vectors share, and the numbers of their special vectors."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
import math
from collections.abc import Sequence
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .chunk_encoder import vector_size
from .chunking import ChunkingRule
from .hybrid_encoder import OWN_KINDS
from .pooling import PoolingMode
from .pretrained import usable_positions

# Rows of a model's table of special vectors; NOT_SPECIAL marks the positions of chunk vectors.
PAD, CLS, SEP, MASK = 0, 1, 2, 3
NOT_SPECIAL = -1


@strict
class VectorDocumentConfig(PreTrainedConfig):
    """Fields of every model that reads documents as chunk vectors.

    Args:
        encoder_config: the encoder over chunk vectors, any architecture of `AutoModel` that accepts ``inputs_embeds``.
        chunk_encoder_config: the architecture of the frozen encoder of single chunks; or the sizes of a table of token
            vectors, or the parts of a hybrid.
        chunk_encoder_name: where others find the chunk encoder; it is loaded from there when text arrives and the
            checkpoint does not hold it.
        chunk_encoder_fingerprint: hash of its weights, pooling and normalisation; a corpus made by another encoder is
            an error.
        chunk_encoder_pooling, chunk_encoder_normalize: how it turns token vectors into a chunk vector.
        include_chunk_encoder: whether the checkpoint holds the chunk encoder's weights.
        chunking: ``"fixed"`` (every `chunk_size` tokens), ``"sentences"`` (one chunk per sentence) or
            ``"packed_sentences"`` (chunks of whole sentences, most of which an edit does not change).
        chunk_size: most tokens in a chunk, its special tokens included.
        chunk_prefix_ids, chunk_suffix_ids: those special tokens.
        sentence_token_ids: the ids that matter to the sentence rule (not for `chunking="fixed"`).
        sentence_rule: the version of the sentence rule. A checkpoint that names none was made with 1, and keeps it.
        max_chunks: most chunks that the encoder sees at once; the special vectors take further positions. By default
            all that its position table can hold (510 of 512 in NextLevelBERT).
        long_documents: what happens to a document of more than `max_chunks`: ``"window"`` reads overlapping windows
            and averages the contextual vectors where they overlap; ``"truncate"`` keeps the first `max_chunks`, with a
            warning that counts the rest (as the original code does); ``"error"`` raises an error.
        window_overlap: chunks that neighbouring windows share; a quarter of `max_chunks` by default.
        temperature: that of the ``"cross_entropy"`` loss.
        norm_order: the p of the ``"p_norm"`` loss, at least 1; HATE's paper does not name it.
        loss_mean: the loss is a mean over all masked ``"vectors"`` of a batch, or over ``"sequences"`` of the means
            within them, as in the NextLevelBERT authors' code.
        text_pair: whether the sequence classifier reads a question with the document.
        classifier_hidden_size: width of the hidden layer of the classifiers for tasks.
        initializer_range: standard deviation of new linear layers.

    Raises:
        ValueError: for values that do not fit each other; the message says which.
    """

    sub_configs_defaults = {
        "encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert"),
        "chunk_encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert"),
    }
    special_positions = 2  # in a window: [CLS] and [SEP]

    encoder_config: Any = None  # a configuration, a dictionary of one, or None for BERT's defaults
    chunk_encoder_config: Any = None
    chunk_encoder_name: str | None = None
    chunk_encoder_fingerprint: str | None = None
    chunk_encoder_pooling: PoolingMode = "mean"
    chunk_encoder_normalize: bool = True
    include_chunk_encoder: bool = True
    chunking: Literal["fixed", "sentences", "packed_sentences"] = "fixed"
    chunk_size: int = 256
    chunk_prefix_ids: list[int] | tuple[int, ...] = (101,)
    chunk_suffix_ids: list[int] | tuple[int, ...] = (102,)
    sentence_token_ids: dict[str, list[int]] | None = None
    sentence_rule: int = 1
    max_chunks: int | None = None
    long_documents: Literal["window", "truncate", "error"] = "window"
    window_overlap: int | None = None
    temperature: float = 0.05
    norm_order: float = 2.0
    loss_mean: Literal["vectors", "sequences"] = "vectors"
    text_pair: bool = False
    classifier_hidden_size: int = 768
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    bos_token_id: int | None = None  # transformers looks for these two when it warns of padding without a mask
    eos_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        chunks = self.chunk_encoder_config
        for kind in OWN_KINDS:
            if isinstance(chunks, dict) and chunks.get("model_type") == kind.model_type:
                self.chunk_encoder_config = kind(**chunks)
        super().__post_init__(**kwargs)
        # From JSON they come back as lists; to compare equal, they have to be lists from the start.
        self.chunk_prefix_ids = list(self.chunk_prefix_ids)
        self.chunk_suffix_ids = list(self.chunk_suffix_ids)
        for nested in (self.encoder_config, self.chunk_encoder_config):
            nested._name_or_path = ""  # otherwise a path of this machine is published
        self.check_sizes()
        self.max_chunks, _ = self.window()
        if not self.temperature > 0:  # NaN, too
            raise ValueError(f"temperature must be positive, got {self.temperature}.")
        if not 1 <= self.norm_order < math.inf:
            raise ValueError(f"norm_order must be 1 or more, and finite, got {self.norm_order}.")
        if self.classifier_hidden_size < 1:
            raise ValueError(f"classifier_hidden_size must be at least 1, got {self.classifier_hidden_size}.")
        self.chunking_rule()

    @property
    def hidden_size(self) -> int:
        """Dimensions of contextual chunk vectors and of the document vector."""
        return self.encoder_config.hidden_size

    @property
    def chunk_hidden_size(self) -> int:
        """Dimensions of plain chunk vectors."""
        return vector_size(self.chunk_encoder_config)

    def check_sizes(self) -> None:
        """Checks the hidden sizes of the two encoders.

        Raises:
            ValueError: if the encoder over chunks cannot read chunk vectors.
        """
        embedding_size = getattr(self.encoder_config, "embedding_size", self.hidden_size)
        if embedding_size != self.hidden_size:
            raise ValueError(
                f"{self.encoder_config.model_type} has an embedding_size of {embedding_size} and a hidden_size of "
                f"{self.hidden_size}; the two must be equal, so that vectors can take the place of embeddings."
            )

    def usable_positions(self) -> int | None:
        """Longest sequence that the encoder over chunks can read; None if nothing limits it."""
        return usable_positions(self.encoder_config)

    def window(self) -> tuple[int, int]:
        """Chunks in a window, and chunks that neighbouring windows share; checked, since both can be set later."""
        positions, specials = self.usable_positions(), self.special_positions
        size = (positions or 512) - specials if self.max_chunks is None else self.max_chunks
        if size < 1 or (positions and size + specials > positions):
            allowed = f"1 to {positions - specials}" if positions else "1 or more"
            raise ValueError(
                f"max_chunks is {size}, but the encoder has {positions or 'any number of'} positions, {specials} of "
                f"them for special vectors; give {allowed}, or an encoder_config with more positions."
            )
        overlap = size // 4 if self.window_overlap is None else self.window_overlap
        if not 0 <= overlap < size:
            raise ValueError(f"window_overlap must be from 0 to max_chunks - 1 = {size - 1}, got {overlap}.")
        return size, overlap

    def windows_of(self, chunks: int) -> list[tuple[int, int]]:
        """Ranges ``[start, end)`` of the windows that cover a document of so many chunks."""
        return windows(chunks, *self.window())

    def check_lengths(self, lengths: Sequence[int], first: int = 0, one_window: bool = False) -> list[int]:
        """Positions of the documents that have more chunks than a window holds.

        Args:
            lengths: chunks of each document.
            first: number of the first document, for the message.
            one_window: refuse longer documents whatever `long_documents` says.

        Raises:
            ValueError: naming those documents, where they are not allowed.
        """
        limit, _ = self.window()
        long = [index for index, length in enumerate(lengths) if length > limit]
        if long and (one_window or self.long_documents == "error"):
            remedy = (
                "Hidden states and attentions exist for one window." if one_window else "Set long_documents='window'."
            )
            raise ValueError(
                f"Documents {[first + index for index in long]} have {[lengths[index] for index in long]} chunks, "
                f"more than max_chunks = {limit}. {remedy}"
            )
        return long

    def chunking_rule(self) -> ChunkingRule:
        """The rule that cuts documents into chunks; checks its own values."""
        return ChunkingRule(
            chunk_size=self.chunk_size,
            mode=self.chunking,
            prefix_ids=tuple(self.chunk_prefix_ids),
            suffix_ids=tuple(self.chunk_suffix_ids),
            sentence_token_ids=self.sentence_token_ids or {},
            max_chunk_size=usable_positions(self.chunk_encoder_config),
            sentence_rule=self.sentence_rule,
        )


def windows(chunks: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """Ranges of at most `size` chunks that cover a document; neighbours share at least `overlap`.

    The last window is moved back so that it is full.

    Example:
        >>> windows(10, size=4, overlap=1)
        [(0, 4), (3, 7), (6, 10)]
        >>> windows(3, size=4, overlap=1)
        [(0, 3)]
    """
    if not 0 <= overlap < size:
        raise ValueError(
            f"The overlap of windows must be from 0 to {size - 1}, one less than their size, got {overlap}."
        )
    if chunks <= size:
        return [(0, chunks)] if chunks else []
    starts = [*range(0, chunks - size, size - overlap), chunks - size]
    return [(start, start + size) for start in starts]
