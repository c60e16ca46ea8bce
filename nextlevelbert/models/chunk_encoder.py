"""The frozen sentence encoder: one vector per chunk, by a transformer in micro-batches or by a
table of token vectors.

A transformer has the pooling, layers and normalisation of the sentence-transformers model it comes
from; with a table, a chunk's vector is the mean of its tokens'.

Notation for shapes: N chunks (of any number of documents), C tokens in the longest chunk of a
micro-batch, T tokens in all, D size of a chunk vector; in pooling, B entries of L vectors.
"""

# No `from __future__ import annotations` here: `strict` checks types only where they are not
# strings.
import hashlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from torch.nn import functional as F
from tqdm.auto import tqdm
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .chunking import ChunkingRule
from .pretrained import backbone_from_config, usable_positions

PoolingMode = Literal[
    "mean", "sum", "max", "cls", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"
]

# Token positions of one forward pass. On a CPU small batches stay in the cache (measured best on
# two
# cores: 8 chunks of 256); a GPU needs enough work to be busy.
_TOKENS_PER_BATCH = 2_048
_TOKENS_PER_BATCH_ACCELERATOR = 131_072
# Chunks of at least this share of the longest one's length cost little padding beside it.
_SIMILAR = 15 / 16


def masked_mean(hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Mean of the rows that a mask keeps (all by default): ``[B, L, D]`` to ``[B, D]`` float32,
    zero without rows.
    """
    if mask is None:
        return hidden.mean(dim=1, dtype=torch.float32)
    keep = mask.bool().unsqueeze(-1)  # [B, L, 1]
    total = hidden.masked_fill(~keep, 0).sum(dim=1, dtype=torch.float32)  # [B, D]
    return total / keep.sum(dim=1).clamp(min=1)


def pool(hidden: torch.Tensor, mask: torch.Tensor, mode: PoolingMode = "mean") -> torch.Tensor:
    """Pools the rows of ``[B, L, D]`` that a mask ``[B, L]`` keeps, as sentence-transformers
    defines it: ``[B, D]``.

    ``"cls"`` is the first such row, ``"lasttoken"`` the last one, ``"mean_sqrt_len_tokens"`` their
    sum over the square root of their number; in ``"weightedmean"`` the k-th weighs k. Zero without
    rows.
    """
    keep = mask.bool().unsqueeze(-1)  # [B, L, 1]
    if mode in ("mean", "sum", "mean_sqrt_len_tokens"):
        power = {"mean": 0.0, "sum": 1.0, "mean_sqrt_len_tokens": 0.5}[mode]
        return (masked_mean(hidden, mask) * keep.sum(dim=1).float() ** power).to(hidden.dtype)
    if mode == "weightedmean":
        weights = (keep.cumsum(dim=1) * keep).float()  # [B, L, 1]
        total = (weights * hidden.masked_fill(~keep, 0.0).float()).sum(dim=1)  # [B, D]
        return (total / weights.sum(dim=1).clamp(min=1)).to(hidden.dtype)
    if mode == "max":
        row = hidden.masked_fill(~keep, torch.finfo(hidden.dtype).min).amax(dim=1)  # [B, D]
    else:
        flags = keep.squeeze(-1).long()  # [B, L]
        position = (
            flags.argmax(dim=1)
            if mode == "cls"
            else flags.shape[1] - 1 - flags.flip(1).argmax(dim=1)
        )
        row = hidden[torch.arange(len(hidden), device=hidden.device), position]  # [B, D]
    return row.masked_fill(~keep.any(dim=1), 0.0)


def unit(vectors: torch.Tensor) -> torch.Tensor:
    """Rows scaled to length 1, zero rows unchanged; in float32, since the epsilon against zero
    vanishes in float16.
    """
    return F.normalize(vectors.float(), dim=-1).to(vectors.dtype)


def micro_batches(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[np.ndarray]:
    """Groups of chunks of similar length whose padded size stays within the budget (one chunk at
    least).

    A group that fills an eighth of the budget also ends where chunks become much shorter, to save
    padding.
    """
    order = np.argsort(-lengths, kind="stable")
    descending = lengths[order]
    start = 0
    while start < len(order):
        width = max(int(descending[start]), 1)
        count = max(1, tokens_per_batch // width)
        similar = int(np.searchsorted(-descending[start:], -width * _SIMILAR, side="right"))
        count = min(count, max(similar, -(-tokens_per_batch // (8 * width))))
        yield order[start : start + count]
        start += count


def weights_fingerprint(model: nn.Module) -> str:
    """SHA-256 over names, shapes and float32 values of all weights of a model."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def sentence_steps(config: PreTrainedConfig) -> dict[str, Any]:
    """What a chunk encoder does beside its network, pooling and normalisation; empty for most.

    ``"prompt"`` is a text before every chunk, whose ids are part of the chunking rule; ``"dense"``
    lists the arguments of each `DenseLayer` after pooling.
    """
    return getattr(config, "sentence_steps", None) or {}


def vector_size(config: PreTrainedConfig) -> int:
    """Dimensions of the vectors that a chunk encoder of this configuration gives."""
    dense = sentence_steps(config).get("dense")
    return dense[-1]["out_features"] if dense else config.hidden_size


class DenseLayer(nn.Module):
    """sentence-transformers' `Dense`, with the same names of weights; `activation` is a class of
    `torch.nn`.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, activation: str) -> None:
        super().__init__()
        self.activation_function = getattr(nn, activation)()
        self.linear = nn.Linear(in_features, out_features, bias)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Maps ``[N, D]`` to ``[N, K]``, in the dtype that the chunk encoder computes in."""
        return self.activation_function(self.linear(vectors))


@strict
class StaticEmbeddingConfig(PreTrainedConfig):
    """Sizes of a table of token vectors; `unk_token_id` is the row of what the tokenizer does not
    know.
    """

    model_type = "static-embedding"

    vocab_size: int = 30_522
    hidden_size: int = 384
    num_hidden_layers: int = 0
    pad_token_id: int | None = 0
    unk_token_id: int | None = None


class StaticModel(PreTrainedModel):
    """Stands where a chunk encoder has its transformer, and makes chunk vectors by itself."""

    base_model_prefix = "static"

    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        tokens_per_batch: int | None,
        bar: tqdm | None,
    ) -> torch.Tensor:
        """Mean token vector of each chunk, arguments and result as those of `ChunkEncoder.encode`.

        Warns of chunks in which the tokenizer knows nothing: they all have the vector of its
        unknown token.
        """
        if bar is not None:
            bar.update(len(boundaries) - 1)
        known = input_ids != self.config.unk_token_id
        if not known.all():
            before = np.append(0, np.cumsum(known))  # known tokens before each place
            if count := int((np.diff(before[boundaries]) == 0)[np.diff(boundaries) > 0].sum()):
                warnings.warn(
                    f"{count} chunk(s) consist of unknown tokens only, so their vectors are the"
                    " same. Is the text in a language that the static chunk encoder was not made"
                    " for?",
                    stacklevel=2,
                )
        ids = torch.from_numpy(np.ascontiguousarray(input_ids, np.int32)).to(self.device)
        return self._means(ids, torch.from_numpy(boundaries.astype(np.int32)).to(self.device))


class StaticEmbeddingModel(StaticModel):
    """A table with a vector for every token."""

    config_class = StaticEmbeddingConfig

    def __init__(self, config: StaticEmbeddingConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def _means(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Mean vector ``[N, D]`` of each chunk; `ids` of all chunks in a row, `offsets` ``[N + 1]``
        their borders.
        """
        return F.embedding_bag(
            ids, self.embedding.weight, offsets, mode="mean", include_last_offset=True
        ).float()


# What `AutoModel` does not know, by `model_type`; `hybrid_encoder` adds to it.
STATIC_MODELS: dict[str, type[PreTrainedModel]] = {
    StaticEmbeddingConfig.model_type: StaticEmbeddingModel
}


@dataclass
class LoadedChunkEncoder:
    """A sentence encoder read from disk or the Hub, in float32 on the CPU, with its tokenizer.

    `name` is where others find it, never a path of this machine; `fingerprint` that of
    `ChunkEncoder.fingerprint`.
    """

    encoder: Any
    tokenizer: PreTrainedTokenizerBase
    name: str
    fingerprint: str

    @property
    def max_chunk_size(self) -> int | None:
        return usable_positions(self.encoder.model.config)


class ChunkEncoder(nn.Module):
    """Maps every chunk to one vector with a frozen encoder (paper, section 2.2 "Input Encoding").

    `config` is that of the backbone, any `AutoModel` over token ids, or of one of the
    `STATIC_MODELS`; its `sentence_steps` may add layers after `pooling`, which makes the chunk's
    vector of token vectors.
    """

    def __init__(
        self, config: PreTrainedConfig, pooling: PoolingMode = "mean", normalize: bool = True
    ) -> None:
        super().__init__()
        static = STATIC_MODELS.get(config.model_type)
        self.model: Any = backbone_from_config(config) if static is None else static(config)
        self.dense = nn.Sequential(
            *(DenseLayer(**layer) for layer in sentence_steps(config).get("dense", []))
        )
        self.pooling: PoolingMode = pooling
        self.normalize = normalize
        self.eval()

    def train(self, mode: bool = True) -> Self:
        """Stays frozen and in evaluation mode, whatever the argument and whatever loading did to
        the parameters.
        """
        self.requires_grad_(
            False
        )  # `from_pretrained` makes new parameters, which require gradients
        return super().train(False)

    @property
    def hidden_size(self) -> int:
        return vector_size(self.model.config)

    @property
    def has_layers(self) -> bool:
        """Whether it is a transformer, whose layers a document model can start from."""
        return not isinstance(self.model, StaticModel)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def precision(self) -> str:
        """The dtype it computes in, by the name that a corpus stores."""
        return str(next(self.model.parameters()).dtype).removeprefix("torch.")

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Chunk vectors ``[N, D]`` of chunk ids ``[N, C]``, special tokens included; no mask means
        no padding.
        """
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
        hidden = output.last_hidden_state  # [N, C, D]
        if self.pooling == "mean":  # in float32 whatever the encoder computes in
            return self._project_and_normalize(masked_mean(hidden, attention_mask))
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self._project_and_normalize(pool(hidden, mask, self.pooling).float())

    def _project_and_normalize(self, pooled: torch.Tensor) -> torch.Tensor:
        """Applies Dense layers and normalisation to ``[N, D]`` float32; the result is float32."""
        vectors = pooled
        if len(self.dense) > 0:
            # Not the dtype of their weights, which quantised layers store in 8 bits.
            vectors = self.dense(pooled.to(self.model.dtype)).float()
        return F.normalize(vectors, dim=-1) if self.normalize else vectors

    def _check_ids(self, input_ids: np.ndarray) -> None:
        """Raises a ValueError for token ids that the encoder has no embedding for."""
        vocab_size = getattr(self.model.config, "vocab_size", None)
        if vocab_size is None or len(input_ids) == 0:
            return
        highest = int(input_ids.max())
        if highest >= vocab_size:
            raise ValueError(
                f"The tokenizer gives token id {highest}, but the chunk encoder has embeddings for"
                f" {vocab_size} tokens and is frozen. Use its own tokenizer, without new tokens."
            )

    @torch.no_grad()
    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        tokens_per_batch: int | None = None,
        bar: tqdm | None = None,
    ) -> torch.Tensor:
        """Encodes token ids in one run, cut into chunks, of any number of documents.

        Args:
            input_ids: ``[T]`` ids of all documents, one after the other, without special tokens.
            boundaries: ``[N + 1]``; chunk k is ``input_ids[boundaries[k]:boundaries[k + 1]]``.
            rule: gives the special tokens put around each chunk.
            tokens_per_batch: most token positions, padding included, in one forward pass.
            bar: a progress bar, moved by one per chunk.

        Returns:
            ``[N, D]`` float32 on the encoder's device, in the order of the chunks.
        """
        self._check_ids(input_ids)
        if not self.has_layers:  # a bag of tokens needs no micro-batches
            return self._project_and_normalize(
                self.model.encode(input_ids, boundaries, rule, tokens_per_batch, bar)
            )
        device = self.device
        usual = _TOKENS_PER_BATCH if device.type == "cpu" else _TOKENS_PER_BATCH_ACCELERATOR
        lengths = np.diff(boundaries) + len(rule.prefix_ids) + len(rule.suffix_ids)
        pad_id = getattr(self.model.config, "pad_token_id", None) or 0
        vectors = torch.empty(len(lengths), self.hidden_size, device=device)
        for rows in micro_batches(lengths, tokens_per_batch or usual):
            width = int(lengths[rows[0]])
            ids = np.full((len(rows), width), pad_id, np.int64)  # [N, C]
            for row, chunk in zip(ids, rows, strict=True):
                text = input_ids[boundaries[chunk] : boundaries[chunk + 1]]
                row[: lengths[chunk]] = np.concatenate([rule.prefix_ids, text, rule.suffix_ids])
            mask = (
                None  # nothing is padded: the kernels without a mask are faster on an accelerator
            )
            if int(lengths[rows[-1]]) < width:
                mask = (
                    torch.arange(width, device=device) < _copy(lengths[rows], device)[:, None]
                ).long()
            vectors[_copy(rows, device)] = self(_copy(ids, device), mask)
            if bar is not None:
                bar.update(len(rows))
        return vectors

    def fingerprint(self) -> str:
        """SHA-256 over weights, pooling, normalisation and further steps; of the weights where
        these are usual.
        """
        parts = [weights_fingerprint(self.model)]
        if steps := sentence_steps(self.model.config):
            parts += [weights_fingerprint(self.dense), json.dumps(steps, sort_keys=True)]
            parts = [hashlib.sha256(" ".join(parts).encode()).hexdigest()]
        if (self.pooling, self.normalize) == ("mean", True):
            return parts[0]
        return hashlib.sha256(f"{parts[0]} {self.pooling} {self.normalize}".encode()).hexdigest()


def _copy(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """An array on the device; copied from page-locked memory if that lets the copy overlap with
    computation.
    """
    tensor = torch.from_numpy(array)
    return (
        tensor.pin_memory().to(device, non_blocking=True)
        if device.type == "cuda"
        else tensor.to(device)
    )
