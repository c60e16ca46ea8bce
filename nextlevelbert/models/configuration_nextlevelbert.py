"""Configuration of NextLevelBERT, and the numbers of its special vectors."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not
# strings.
import math
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .chunk_encoder import PoolingMode, vector_size
from .chunking import ChunkingRule
from .hybrid_encoder import STATIC_MODELS
from .pretrained import usable_positions

# Rows of a model's table of special vectors; NOT_SPECIAL marks the positions of chunk vectors.
PAD = 0
CLS = 1
SEP = 2
MASK = 3
NOT_SPECIAL = -1


@strict
class NextLevelBertConfig(PreTrainedConfig):
    """The parts and sizes of a NextLevelBERT (paper: Czinczoll et al., ACL 2024, arXiv 2402.17682).

    Args:
        encoder_config: the encoder over chunk vectors, any architecture of `AutoModel` that accepts
            ``inputs_embeds``.
        chunk_encoder_config: that of the frozen encoder of single chunks, a table of token vectors,
            or a hybrid.
        chunk_encoder_name: where it is loaded from when text arrives and the checkpoint does not
            hold it.
        chunk_encoder_fingerprint: hash of its weights, pooling and normalisation; another encoder
            is an error.
        chunk_encoder_pooling, chunk_encoder_normalize: how it turns token vectors into a chunk
            vector.
        include_chunk_encoder: whether the checkpoint holds its weights.
        chunking, chunk_size, sentence_token_ids, chunk_prefix_ids, chunk_suffix_ids: see
            `ChunkingRule`.
        max_chunks: most chunks that the encoder sees at once; the special vectors take further
            positions. By default all that its position table can hold (510 of 512 in
            NextLevelBERT).
        long_documents: of a document of more than `max_chunks`, ``"window"`` reads overlapping
            windows and averages the contextual vectors where they overlap; ``"truncate"`` keeps the
            first `max_chunks`, with a warning that counts the rest (as the original code does);
            ``"error"`` raises an error.
        window_overlap: chunks that neighbouring windows share; a quarter of `max_chunks` by
            default.
        pooling: the document vector: ``"mean"`` or ``"max"`` of the contextual chunk vectors,
            ``"cls"``, ``"residual"`` (see `ResidualPooling`), or ``"plain"``: the mean of the chunk
            vectors scaled to length 1, without an encoder over chunks and anything to train.
        residual_start: with ``"residual"``, the multiple of the identity from which the second
            projection starts. With 0 an untrained model gives the mean of the chunk vectors, with 1
            the sum of both means.
        whiten_chunks: whether chunk vectors are whitened before anything else, see
            `ChunkWhitening`.
        loss, temperature, norm_order: of masked vector modelling, see `masked_vector_loss`;
            `norm_order` is the p of ``"p_norm"``, at least 1, which HATE's paper does not name.
        loss_mean: over all masked ``"vectors"`` of a batch, or over ``"sequences"``, as in the
            authors' code.
        text_pair: whether the sequence classifier reads a question with the document.
        classifier_hidden_size: width of the hidden layer of the classifiers for tasks.
        initializer_range: standard deviation of new linear layers.
    """

    model_type = "nextlevelbert"
    sub_configs_defaults = {
        "encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert"),
        "chunk_encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert"),
    }
    special_positions = 2  # in a window: [CLS] and [SEP]
    _auto_class = "AutoConfig"

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
    max_chunks: int | None = None
    long_documents: Literal["window", "truncate", "error"] = "window"
    window_overlap: int | None = None
    pooling: Literal["mean", "max", "cls", "residual", "plain"] = "mean"
    residual_start: float = 0.0
    whiten_chunks: bool = False
    loss: Literal["smooth_l1", "l1", "l2", "cosine", "cross_entropy"] = "smooth_l1"
    temperature: float = 0.05
    norm_order: float = 2.0
    loss_mean: Literal["vectors", "sequences"] = "vectors"
    text_pair: bool = False
    classifier_hidden_size: int = 768
    initializer_range: float = 0.02
    pad_token_id: int | None = 0

    def __post_init__(self, **kwargs: Any) -> None:
        values: Any = self.chunk_encoder_config
        if isinstance(values, dict) and (static := STATIC_MODELS.get(values.get("model_type", ""))):
            self.chunk_encoder_config = static.config_class(**values)
        super().__post_init__(**kwargs)
        # From JSON they come back as lists; to compare equal, they have to be lists from the start.
        self.chunk_prefix_ids, self.chunk_suffix_ids = (
            list(self.chunk_prefix_ids),
            list(self.chunk_suffix_ids),
        )
        for nested in (self.encoder_config, self.chunk_encoder_config):
            nested._name_or_path = ""  # otherwise a path of this machine is published
        self.check_sizes()
        self.max_chunks, _ = self.window()
        if not (
            self.temperature > 0
            and 1 <= self.norm_order < math.inf
            and self.classifier_hidden_size > 0
        ):
            raise ValueError(
                "temperature and classifier_hidden_size must be positive and norm_order 1 or more,"
                f" got {self.temperature}, {self.classifier_hidden_size} and {self.norm_order}."
            )
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
        """Raises a ValueError if the encoder over chunks cannot read the chunk vectors."""
        embedding_size = getattr(self.encoder_config, "embedding_size", self.hidden_size)
        if not self.chunk_hidden_size == self.hidden_size == embedding_size:
            raise ValueError(
                f"The chunk encoder gives vectors of {self.chunk_hidden_size} dimensions, but the"
                f" encoder reads {embedding_size} and gives {self.hidden_size}; these hidden sizes"
                " must be equal."
            )
        if self.pooling == "plain" and getattr(self.encoder_config, "num_hidden_layers", None):
            raise ValueError(
                "pooling='plain' has no layers over chunks; set num_hidden_layers=0 or another"
                " pooling."
            )

    def window(self) -> tuple[int, int]:
        """Chunks in a window, and chunks that neighbouring windows share; checked, since both can
        be set later.
        """
        positions = usable_positions(self.encoder_config)
        specials = self.special_positions
        most = (positions or 512) - specials
        size = most if self.max_chunks is None else self.max_chunks
        if size < 1 or (positions and size > most):
            raise ValueError(
                f"max_chunks is {size}, but the encoder has {positions or 'any number of'}"
                f" positions, {specials} of them for special vectors; give 1 to {most}, or an"
                " encoder_config with more positions."
            )
        overlap = size // 4 if self.window_overlap is None else self.window_overlap
        if not 0 <= overlap < size:
            raise ValueError(
                f"window_overlap must be from 0 to max_chunks - 1 = {size - 1}, got {overlap}."
            )
        return size, overlap

    def chunking_rule(self) -> ChunkingRule:
        """The rule that cuts documents into chunks; checks its own values."""
        around = tuple(self.chunk_prefix_ids), tuple(self.chunk_suffix_ids)
        limit = usable_positions(self.chunk_encoder_config)
        return ChunkingRule(
            self.chunk_size, self.chunking, *around, self.sentence_token_ids or {}, limit
        )
