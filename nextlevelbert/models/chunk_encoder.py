"""The frozen sentence encoder: one vector per chunk, computed in length-sorted micro-batches.

The network is a plain `transformers` encoder with the pooling and the normalisation of the
sentence-transformers model it comes from, so that a checkpoint needs nothing but transformers to run.

Notation for shapes: N chunks (of any number of documents), C tokens in the longest chunk of a
micro-batch, D hidden size.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedConfig

from .chunking import ChunkingRule
from .pooling import DenseLayer, PoolingMode, masked_mean, pool
from .pretrained import backbone_from_config
from .static_encoder import (
    HashedTfidfConfig,
    HashedTfidfModel,
    StaticEmbeddingConfig,
    StaticEmbeddingModel,
    StaticModel,
)

# Token positions of one forward pass. On a CPU small batches stay in the cache (measured best on two
# cores: 8 chunks of 256); a GPU needs enough work to be busy.
_TOKENS_PER_BATCH, _TOKENS_PER_BATCH_ACCELERATOR = 2_048, 131_072

# Chunks of at least this share of the longest one's length cost little padding beside it.
_SIMILAR = 15 / 16

# Fields of a configuration that depend on how it was loaded, not on what it describes.
INCIDENTAL = {"_name_or_path", "transformers_version", "architectures", "dtype"}

# The field of a backbone's configuration that `sentence_steps` reads.
STEPS = "sentence_steps"


_OWN_KINDS = {StaticEmbeddingConfig.model_type: StaticEmbeddingModel, HashedTfidfConfig.model_type: HashedTfidfModel}


def network_from_config(config: PreTrainedConfig) -> Any:
    """A new network of this architecture: an encoder of `transformers`, or a table of token vectors."""
    own = _OWN_KINDS.get(config.model_type)
    return backbone_from_config(config) if own is None else own(config)


def default_tokens_per_batch(device: torch.device) -> int:
    """Token positions of one forward pass that suit a device."""
    return _TOKENS_PER_BATCH if device.type == "cpu" else _TOKENS_PER_BATCH_ACCELERATOR


def micro_batches(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[np.ndarray]:
    """Groups of chunks of similar length whose padded size stays within the budget (one chunk at least).

    A group that fills an eighth of the budget also ends where chunks become much shorter than its longest,
    so that a large budget is not filled with padding.
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


def _copy(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """An array on the device; copied from page-locked memory if that lets the copy overlap with computation."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def weights_fingerprint(model: nn.Module) -> str:
    """SHA-256 over names, shapes and float32 values of all weights of a model."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def vector_size(config: PreTrainedConfig) -> int:
    """Dimensions of the vectors that a chunk encoder of this configuration gives."""
    dense = sentence_steps(config).get("dense")
    return dense[-1]["out_features"] if dense else config.hidden_size


def sentence_steps(config: PreTrainedConfig) -> dict[str, Any]:
    """What a chunk encoder does beside its network, pooling and normalisation; empty for most.

    ``"prompt"`` is a text before every chunk, whose ids are part of the chunking rule. ``"dense"`` lists the arguments
    of each `DenseLayer` after pooling. They stand in the configuration of the network, as ``sentence_steps``, so that
    checkpoints, corpora and hybrids carry them like its sizes.
    """
    return getattr(config, STEPS, None) or {}


def with_pooling(weights: str, pooling: str, normalize: bool) -> str:
    """The fingerprint of a chunk encoder: the hash of its weights, and of pooling and normalisation.

    Where these are the usual ones, mean and normalised, it is the hash of the weights alone, as it always was.
    """
    if (pooling, normalize) == ("mean", True):
        return weights
    return hashlib.sha256(f"{weights} {pooling} {normalize}".encode()).hexdigest()


def same_fingerprint(one: str, other: str, pooling: str, normalize: bool) -> bool:
    """Whether two fingerprints are of one encoder; older ones leave out pooling and normalisation, which are given."""
    return (
        one == other
        or with_pooling(one, pooling, normalize) == other
        or one == with_pooling(other, pooling, normalize)
    )


class ChunkEncoder(nn.Module):
    """Maps every chunk to one vector with a frozen encoder (paper, section 2.2 "Input Encoding").

    Args:
        config: configuration of the backbone, any `AutoModel` over token ids, or of a table of token vectors; its
            `sentence_steps` may add layers after pooling.
        pooling: how token vectors become the chunk's vector.
        normalize: whether that vector is scaled to unit length.
    """

    def __init__(self, config: PreTrainedConfig, pooling: PoolingMode = "mean", normalize: bool = True) -> None:
        super().__init__()
        self.model = network_from_config(config)
        self.dense = nn.Sequential(*(DenseLayer(**layer) for layer in sentence_steps(config).get("dense", [])))
        self.pooling: PoolingMode = pooling
        self.normalize = normalize
        self._identity: tuple[list, str, list] | None = None
        self.eval()

    def train(self, mode: bool = True) -> ChunkEncoder:
        """Stays frozen and in evaluation mode, whatever the argument and whatever loading did to the parameters."""
        self.requires_grad_(False)  # `from_pretrained` makes new parameters, which require gradients
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

    def prepared(self, dtype: torch.dtype | str | None, device: str | torch.device, compile: bool) -> ChunkEncoder:
        """A copy on a device, in a dtype (its own by default), compiled or not."""
        precision: torch.dtype | None = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        prepared = copy.deepcopy(self).to(device=device, dtype=precision)
        if compile:
            prepared.compile(dynamic=True)  # one graph for the odd shapes at the end of documents, too
        return prepared

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Chunk vectors ``[N, D]`` of chunk ids ``[N, C]``, special tokens included; no mask means no padding."""
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state  # [N, C, D]
        if self.pooling == "mean":  # by far the most common; in float32 whatever the encoder computes in
            vectors = masked_mean(hidden, attention_mask)  # [N, D]
        else:
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            vectors = pool(hidden, mask, self.pooling).float()  # [N, D]
        return self._finished(vectors)

    def _finished(self, pooled: torch.Tensor) -> torch.Tensor:
        vectors = self.dense(pooled)
        return nn.functional.normalize(vectors, dim=-1) if self.normalize else vectors

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
        if not self.has_layers:  # a bag of tokens needs no micro-batches
            means = self.model.means(input_ids, boundaries)
            if bar is not None:
                bar.update(len(means))
            return self._finished(means)
        device = self.device
        budget = tokens_per_batch or default_tokens_per_batch(device)
        prefix, suffix = np.asarray(rule.prefix_ids, np.int64), np.asarray(rule.suffix_ids, np.int64)
        lengths = np.diff(boundaries) + len(prefix) + len(suffix)
        pad_id = getattr(self.model.config, "pad_token_id", None) or 0
        vectors = torch.empty(len(lengths), self.hidden_size, device=device)
        for rows in micro_batches(lengths, budget):
            width = int(lengths[rows[0]])
            ids = np.full((len(rows), width), pad_id, np.int64)  # [N, C]
            for row, chunk in zip(ids, rows, strict=True):
                text = input_ids[boundaries[chunk] : boundaries[chunk + 1]]
                row[: lengths[chunk]] = np.concatenate([prefix, text, suffix])
            mask = None  # nothing is padded: the kernels without a mask are faster on an accelerator
            if int(lengths[rows[-1]]) < width:
                mask = (torch.arange(width, device=device) < _copy(lengths[rows], device)[:, None]).long()
            vectors[_copy(rows, device)] = self(_copy(ids, device), mask)
            if bar is not None:
                bar.update(len(rows))
        return vectors

    def encode_padded(
        self, input_ids: torch.Tensor, mask: torch.Tensor, rule: ChunkingRule
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encodes whole documents without leaving torch, for graphs: every chunk takes the room of a full one.

        Args:
            input_ids, mask: ``[B, T]`` ids of whole documents, and bool, the real ones. Special tokens around the text
                are left out, as by `ChunkingRule.strip_special_tokens`.
            rule: how documents are cut, by ``"fixed"`` chunks.

        Returns:
            Chunk vectors ``[B, L, D]`` with L = T / capacity, rounded up, and which of them exist ``[B, L]``.

        Raises:
            ValueError: for chunks that end with sentences.
        """
        if rule.mode != "fixed":
            raise ValueError(
                f"Chunks of chunking={rule.mode!r} are found in Python, so they cannot be part of a graph. Export the "
                "pass over vectors (inputs_embeds), or a model with chunking='fixed'."
            )
        prefix, suffix = (rule.prefix_ids, rule.suffix_ids) if self.has_layers else ((), ())
        before, after, capacity = len(rule.prefix_ids), len(rule.suffix_ids), rule.capacity
        number, count = mask.cumsum(dim=1), mask.sum(dim=1, keepdim=True)  # [B, T], from 1; [B, 1]
        wrapped = count >= before + after  # [B, 1]
        for slot, special in enumerate((*rule.prefix_ids, *rule.suffix_ids)):
            at = slot + 1 if slot < before else count - after + (slot - before + 1)
            wrapped = wrapped & ((number == at) & mask & (input_ids == special)).any(dim=1, keepdim=True)
        text = mask & ~(wrapped & ((number <= before) | (number > count - after)))  # [B, T]
        rows, chunks = input_ids.shape[0], (input_ids.shape[1] + capacity - 1) // capacity  # B, L
        pad_id = getattr(self.model.config, "pad_token_id", None) or 0
        # A token goes to its number among those of the text, the others one past the end.
        place = torch.where(text, text.cumsum(dim=1) - 1, chunks * capacity)
        ids = input_ids.new_full((rows, chunks * capacity + 1), pad_id).scatter(1, place, input_ids)
        ids = ids[:, :-1].unflatten(1, (chunks, capacity))  # [B, L, capacity]
        ids = nn.functional.pad(ids, (len(prefix), len(suffix)), value=pad_id)  # [B, L, C]
        starts = torch.arange(chunks, device=ids.device) * capacity
        filled = (text.sum(dim=1, keepdim=True) - starts).clamp(0, capacity).unsqueeze(-1)  # [B, L, 1] tokens
        position = torch.arange(ids.shape[-1], device=ids.device)
        for slot, special in enumerate(prefix):
            ids = torch.where(position == slot, special, ids)
        for slot, special in enumerate(suffix, start=len(prefix)):
            ids = torch.where(position == filled + slot, special, ids)
        real = (position < filled + len(prefix) + len(suffix)).long()
        vectors = self(ids.flatten(0, 1), real.flatten(0, 1)).unflatten(0, (rows, chunks))
        return vectors, filled.squeeze(-1) > 0

    def fingerprint(self) -> str:
        """SHA-256 over names, shapes and float32 values of all weights, pooling, normalisation and further steps."""
        weights = weights_fingerprint(self.model)
        if steps := sentence_steps(self.model.config):
            facts = [weights, weights_fingerprint(self.dense), json.dumps(steps, sort_keys=True)]
            weights = hashlib.sha256(" ".join(facts).encode()).hexdigest()
        return with_pooling(weights, self.pooling, self.normalize)

    def identity(self) -> str:
        """A hash of all that determines a chunk's vector besides its ids: weights with dtype, configuration, pooling.

        Computed again when a weight was replaced or changed in place (not through ``.data``, which leaves no trace).
        """
        config = {key: value for key, value in self.model.config.to_dict().items() if key not in INCIDENTAL}
        facts = json.dumps(
            [self.pooling, self.normalize, self.model.config._attn_implementation, config], sort_keys=True, default=str
        )
        weights = [*sorted(self.model.state_dict().items()), *sorted(self.dense.state_dict().items())]
        state = [facts, *((tensor.data_ptr(), tensor._version, tensor.dtype) for _, tensor in weights)]
        if self._identity is None or self._identity[0] != state:
            digest = hashlib.sha256(facts.encode())
            for name, tensor in weights:
                digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
            # The weights are kept so that no others can take their place in memory.
            self._identity = (state, digest.hexdigest(), weights)
        return self._identity[1]

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_identity": None}
