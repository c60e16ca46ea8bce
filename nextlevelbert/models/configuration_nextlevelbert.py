"""Configurations of NextLevelBERT and its static chunk encoders, and values derived from them."""

# No `from __future__ import annotations` here: `strict` checks types only if they are not strings.
import copy
import math
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .chunking import ChunkingMode, ChunkingRule
from .prompts import Prompts

PoolingMode = Literal[
    "mean", "sum", "max", "cls", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"
]

# Rows of a model's table of special vectors; NOT_SPECIAL marks the positions of chunk vectors.
PAD = 0
CLS = 1
SEP = 2
MASK = 3
NOT_SPECIAL = -1

# Backbones whose position table starts after the padding id, so that two rows are never used.
_OFFSET_POSITIONS = (
    "camembert",
    "data2vec-text",
    "esm",
    "ibert",
    "lilt",
    "longformer",
    "luke",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)
# Names of the size of `inputs_embeds`.
_EMBEDDING_SIZES = ("embedding_size", "input_embedding_size", "word_embed_proj_dim")


def usable_positions(config: PreTrainedConfig) -> int | None:
    """Returns the length of the longest sequence that a backbone reads, or None without a limit."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    if config.model_type in _OFFSET_POSITIONS:
        return positions - 2
    return positions


def embedding_size(config: PreTrainedConfig) -> int:
    """Returns the size of the vectors that a backbone reads as `inputs_embeds`.

    ALBERT and small ELECTRAs read narrower vectors than they return.
    """
    for name in _EMBEDDING_SIZES:
        size = getattr(config, name, None)
        if size is not None:
            return size
    return config.hidden_size


def without_name(config: PreTrainedConfig) -> PreTrainedConfig:
    """Copies a configuration without its name, which may be a path that must not be published."""
    config = copy.deepcopy(config)
    config._name_or_path = ""
    return config


def sentence_steps(config: PreTrainedConfig) -> dict[str, Any]:
    """Returns the further steps of a chunk encoder; most have none.

    ``"include_prompt"`` is false if pooling leaves out the tokens of a prompt; ``"dense"`` lists
    the arguments of each `DenseLayer` after pooling; ``"truncate_dim"`` is the number of values of
    a finished vector that are kept.
    """
    return getattr(config, "sentence_steps", None) or {}


def vector_size(config: PreTrainedConfig) -> int:
    """Returns the number of dimensions of the vectors that a chunk encoder gives."""
    steps = sentence_steps(config)
    size = config.hidden_size
    if "dense" in steps:
        size = steps["dense"][-1]["out_features"]
    return min(size, steps.get("truncate_dim", size))


@strict
class StaticEmbeddingConfig(PreTrainedConfig):
    """Describes a table of token vectors.

    `unk_token_id` is the row of tokens that the tokenizer does not know.
    """

    model_type = "static-embedding"

    vocab_size: int = 30_522
    hidden_size: int = 384
    num_hidden_layers: int = 0
    pad_token_id: int | None = 0
    unk_token_id: int | None = None


@strict
class HashedTfidfConfig(StaticEmbeddingConfig):
    """Describes TF-IDF vectors whose tokens are hashed to `hidden_size` dimensions."""

    model_type = "hashed-tfidf"

    hidden_size: int = 2_048


@strict
class HybridConfig(PreTrainedConfig):
    """Describes a chunk encoder of several parts.

    `parts` have the ``config`` (a dictionary), ``pooling`` and ``normalize`` of an encoder, the
    ``size`` of its vectors, and whether to ``whiten`` or only to centre them.
    `max_position_embeddings` is the longest chunk.
    """

    model_type = "hybrid-chunk-encoder"

    parts: list[dict[str, Any]] | None = None
    max_position_embeddings: int | None = None
    num_hidden_layers: int = 0
    pad_token_id: int | None = 0

    @property
    def hidden_size(self) -> int:
        """Dimensions of the vectors of all parts, side by side."""
        return sum(part["size"] for part in self.parts or [])


# The chunk encoders that `AutoConfig` does not know, by `model_type`.
STATIC_CONFIGS = {
    config.model_type: config for config in (StaticEmbeddingConfig, HashedTfidfConfig, HybridConfig)
}


class SizesOfEncoder:
    """Gives a configuration the sizes of its `encoder_config`, where generic tools look for them.

    A size that the encoder does not have is an AttributeError, as in any configuration.
    """

    encoder_config: Any

    @property
    def hidden_size(self) -> int:
        """Dimensions of the states of the encoder, and of the document vector."""
        return self.encoder_config.hidden_size

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers of the encoder."""
        return self.encoder_config.num_hidden_layers

    @property
    def num_attention_heads(self) -> int:
        """Number of attention heads in a layer of the encoder."""
        return self.encoder_config.num_attention_heads


@strict
class NextLevelBertConfig(SizesOfEncoder, PreTrainedConfig):
    """Configures a NextLevelBERT (Czinczoll et al., ACL 2024, arXiv 2402.17682).

    Args:
        encoder_config: the encoder over chunk vectors, any architecture of `AutoModel` that accepts
            ``inputs_embeds``: a configuration, a dictionary of one, or None for BERT's defaults.
        chunk_encoder_config: the frozen encoder of single chunks, a table of token vectors, or a
            hybrid.
        chunk_encoder_name: Hub name or folder of the chunk encoder, which is loaded from there if
            the model reads text and the checkpoint does not hold the chunk encoder.
        chunk_encoder_fingerprint: hash of the chunk encoder's weights, pooling and normalisation;
            another encoder is an error.
        chunk_encoder_pooling: pooling that makes a chunk vector of the chunk encoder's token
            vectors.
        chunk_encoder_normalize: if true, the chunk encoder scales chunk vectors to length 1.
        prompts: prompts of the chunk encoder, by name: a prompt is a text before every chunk. The
            names ``"query"`` and ``"document"`` or ``"passage"`` are those of sentence-transformers
            for questions and documents.
        default_prompt_name: name of the prompt that is used if none is chosen (default: none).
        include_chunk_encoder: if true, the checkpoint holds the weights of the chunk encoder.
        chunking: way of splitting a text, see `ChunkingRule.mode`; `chunk_size`,
            `sentence_token_ids`, `chunk_prefix_ids` and `chunk_suffix_ids` are also fields of the
            rule.
        max_chunks: most chunks that the encoder reads at once; the special vectors take further
            positions (default: as many as its position table allows, 510 of 512 in NextLevelBERT).
        long_documents: treatment of documents of more than `max_chunks` chunks. ``"window"`` reads
            overlapping windows and averages the contextual vectors where the windows overlap;
            ``"truncate"`` keeps the first `max_chunks`, with a warning that counts the rest (as the
            original code does); ``"error"`` raises an error.
        window_overlap: chunks that neighbouring windows share (default: a quarter of `max_chunks`).
        pooling: the document vector: ``"mean"`` or ``"max"`` of the contextual chunk vectors,
            ``"cls"``, ``"residual"``: a sum of projections of the mean chunk vector and of the mean
            contextual vector, or ``"plain"``: the mean of the chunk vectors scaled to length 1,
            without an encoder over chunks and without anything to train.
        residual_start: initial value of the second projection of the ``"residual"`` pooling, as a
            multiple of the identity. With 0 an untrained model gives the mean of the chunk vectors,
            with 1 the sum of both means.
        whiten_chunks: if true, chunk vectors are centred and whitened within documents before any
            other step; `fit_whitening` computes the mean and the matrix.
        loss: loss of masked vector modelling. ``"smooth_l1"``, the paper's, compares the predicted
            vector with the target; ``"cross_entropy"`` chooses the target among candidates by
            cosine.
        num_candidates: number of stored chunk vectors that the loss ``"cross_entropy"`` chooses
            among, besides all chunks of the batch; targets are whitened. With 0, the loss chooses
            among the masked vectors of the batch, without whitening.
        temperature: temperature of the loss ``"cross_entropy"`` and of contrastive learning.
        norm_order: p of the loss ``"p_norm"``, at least 1, which HATE's paper does not name.
        loss_mean: ``"vectors"`` averages the loss over all masked vectors of a batch;
            ``"sequences"`` averages within each sequence first, as in the authors' code.
        text_pair: if true, the sequence classifier reads a question with the document.
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

    encoder_config: Any = None
    chunk_encoder_config: Any = None
    chunk_encoder_name: str | None = None
    chunk_encoder_fingerprint: str | None = None
    chunk_encoder_pooling: PoolingMode = "mean"
    chunk_encoder_normalize: bool = True
    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    include_chunk_encoder: bool = True
    chunking: ChunkingMode = "fixed"
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
    loss: Literal["smooth_l1", "cross_entropy"] = "smooth_l1"
    num_candidates: int = 0
    temperature: float = 0.05
    norm_order: float = 2.0
    loss_mean: Literal["vectors", "sequences"] = "vectors"
    text_pair: bool = False
    classifier_hidden_size: int = 768
    initializer_range: float = 0.02
    pad_token_id: int | None = 0

    def __post_init__(self, **kwargs: Any) -> None:
        values = self.chunk_encoder_config
        if isinstance(values, dict) and values.get("model_type") in STATIC_CONFIGS:
            self.chunk_encoder_config = STATIC_CONFIGS[values["model_type"]](**values)

        super().__post_init__(**kwargs)

        # From JSON they come back as lists; to compare equal, they have to be lists from the start.
        self.chunk_prefix_ids = list(self.chunk_prefix_ids)
        self.chunk_suffix_ids = list(self.chunk_suffix_ids)
        self.encoder_config = without_name(self.encoder_config)
        self.chunk_encoder_config = without_name(self.chunk_encoder_config)

        self.check_sizes()
        self.max_chunks, _ = self.window()
        is_positive = self.temperature > 0 and self.classifier_hidden_size > 0
        if not is_positive or not 1 <= self.norm_order < math.inf:
            raise ValueError(
                "temperature and classifier_hidden_size must be positive and norm_order 1 or more,"
                f" got {self.temperature}, {self.classifier_hidden_size} and {self.norm_order}."
            )

        self.chunking_rule()
        self.encoder_prompts().text()  # an error if there is no prompt of the default name

    @property
    def vocab_size(self) -> int:
        """Number of token ids that the chunk encoder reads."""
        return self.chunk_encoder_config.vocab_size

    @property
    def chunk_hidden_size(self) -> int:
        """Dimensions of plain chunk vectors."""
        return vector_size(self.chunk_encoder_config)

    def check_sizes(self) -> None:
        """Checks that the encoder over chunks can read the chunk vectors.

        Raises:
            ValueError: the sizes differ, or the pooling ``"plain"`` has layers.
        """
        size_read = embedding_size(self.encoder_config)
        if not self.chunk_hidden_size == self.hidden_size == size_read:
            raise ValueError(
                f"The chunk encoder returns vectors of {self.chunk_hidden_size} dimensions, but the"
                f" encoder over chunks reads {size_read} and returns {self.hidden_size}. These"
                f" sizes must be equal: give an encoder_config of hidden_size"
                f" {self.chunk_hidden_size}, or leave encoder_config out."
            )

        if self.pooling == "plain" and getattr(self.encoder_config, "num_hidden_layers", None):
            raise ValueError(
                "pooling='plain' has no layers over chunks. Set num_hidden_layers=0, or another"
                " pooling."
            )

    def window(self) -> tuple[int, int]:
        """Returns the chunks in a window, and the chunks that neighbouring windows share.

        Raises:
            ValueError: the values, which can be set later, do not fit the encoder.
        """
        positions = usable_positions(self.encoder_config)
        specials = self.special_positions
        most = (positions or 512) - specials
        size = self.max_chunks
        if size is None:
            size = most
        if size < 1 or (positions and size > most):
            raise ValueError(
                f"max_chunks is {size}, but the encoder has {positions or 'any number of'}"
                f" positions, {specials} of them for special vectors; give 1 to {most}, or an"
                " encoder_config with more positions."
            )

        overlap = self.window_overlap
        if overlap is None:
            overlap = size // 4
        if not 0 <= overlap < size:
            raise ValueError(
                f"window_overlap must be from 0 to max_chunks - 1 = {size - 1}, got {overlap}."
            )

        return size, overlap

    def encoder_prompts(self) -> Prompts:
        """Returns the prompts of the chunk encoder."""
        return Prompts(self.prompts or {}, self.default_prompt_name)

    def chunking_rule(self) -> ChunkingRule:
        """Returns the rule that splits documents into chunks, which checks its own values.

        The rule has no prompt. `NextLevelBertModel.prompted_rule` has one.
        """
        return ChunkingRule(
            chunk_size=self.chunk_size,
            mode=self.chunking,
            prefix_ids=tuple(self.chunk_prefix_ids),
            suffix_ids=tuple(self.chunk_suffix_ids),
            sentence_token_ids=self.sentence_token_ids or {},
            max_chunk_size=usable_positions(self.chunk_encoder_config),
        )
