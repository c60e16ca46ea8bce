"""The frozen sentence encoder: a transformer that makes one vector per chunk, in micro-batches.

The encoder has the pooling, layers and normalisation of its sentence-transformers model.

Notation for shapes: N chunks (of any number of documents), C tokens in the longest chunk of a
micro-batch, T tokens in all, D size of a chunk vector; in pooling, B entries of L vectors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from tqdm.auto import tqdm
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .backbones import (
    backbone_from_config,
    copy_properties_of_children,
    get_logger,
    mask_for,
    missing_passes,
)
from .chunking import ChunkingRule
from .configuration_nextlevelbert import (
    PoolingMode,
    sentence_steps,
    usable_positions,
    vector_size,
)
from .prompts import Prompts, with_prompt
from .windows import copy_to

try:
    from threadpoolctl import ThreadpoolController
except ImportError:  # a checkpoint that is opened without the package
    ThreadpoolController = None

# Token positions of one forward pass. On a CPU small batches stay in the cache (measured best on
# two cores: 8 chunks of 256); a GPU needs enough work to be busy.
_TOKENS_PER_BATCH = 2_048
_TOKENS_PER_BATCH_ACCELERATOR = 131_072
# Chunks of at least this share of the longest one's length cost little padding beside it.
_SIMILAR = 15 / 16

logger = get_logger(__name__)


def masked_mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Averages the rows that a mask keeps, and gives zero without rows.

    Args:
        hidden: rows of vectors, ``[B, L, D]``.
        mask: mask ``[B, L]``, nonzero at rows to keep; None keeps all rows.

    Returns:
        ``[B, D]`` float32.
    """
    if mask is None:
        return hidden.mean(dim=1, dtype=torch.float32)
    keep = mask.bool().unsqueeze(-1)  # [B, L, 1]
    total = hidden.masked_fill(~keep, 0).sum(dim=1, dtype=torch.float32)  # [B, D]
    return total / keep.sum(dim=1).clamp(min=1)


def pool(hidden: Tensor, mask: Tensor, mode: PoolingMode = "mean", unpooled: int = 0) -> Tensor:
    """Pools the rows that a mask keeps, as sentence-transformers defines it; zero without rows.

    Args:
        hidden: rows of vectors, ``[B, L, D]``.
        mask: mask ``[B, L]``, nonzero at rows to keep.
        mode: ``"cls"`` is the first row, ``"lasttoken"`` the last one, ``"mean_sqrt_len_tokens"``
            the sum over the square root of the number of rows; in ``"weightedmean"`` row k weighs
            k.
        unpooled: number of rows that are left out, from the first one on.

    Returns:
        ``[B, D]`` in the dtype of `hidden`.
    """
    if mode == "mean" and unpooled == 0:
        return masked_mean(hidden, mask).to(hidden.dtype)

    keep = mask.bool()  # [B, L]
    order = keep.cumsum(dim=1)  # 1 at the first row of the mask, 2 at the second
    last = order[:, -1:].clamp(min=1)  # [B, 1]
    keep = keep & (order > unpooled)
    if mode == "mean":
        return masked_mean(hidden, keep).to(hidden.dtype)

    if mode == "max":
        least = torch.finfo(hidden.dtype).min
        pooled = hidden.masked_fill(~keep.unsqueeze(-1), least).amax(dim=1)  # [B, D]
        return pooled.masked_fill(~keep.any(dim=1, keepdim=True), 0.0)

    position = order * keep  # 0 at rows that are left out
    count = keep.sum(dim=1, keepdim=True).clamp(min=1)  # [B, 1]
    weights_by_mode = {
        "sum": keep,
        "mean_sqrt_len_tokens": keep / count.sqrt(),
        "weightedmean": position / position.sum(dim=1, keepdim=True).clamp(min=1),
        "cls": position == unpooled + 1,
        "lasttoken": position == last,
    }
    weights = weights_by_mode[mode].float().unsqueeze(-1)  # [B, L, 1]
    rows = hidden.masked_fill(~keep.unsqueeze(-1), 0.0)
    return (weights * rows).sum(dim=1).to(hidden.dtype)


def chunk_bar(name: str, is_shown: bool) -> tqdm:
    """Makes a bar that counts chunks, of which a log file shows nothing."""
    hidden = None  # tqdm then looks for a terminal
    if not is_shown:
        hidden = True
    return tqdm(total=0, unit="chunk", desc=name, disable=hidden)


def unit(vectors: Tensor) -> Tensor:
    """Scales rows to length 1; zero rows stay zero.

    The computation is in float32, because the epsilon against zero vanishes in float16.
    """
    return F.normalize(vectors.float(), dim=-1).to(vectors.dtype)


def micro_batches(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[np.ndarray]:
    """Groups chunks of similar length.

    A group that fills an eighth of the budget also ends if chunks become much shorter, to save
    padding.

    Args:
        lengths: number of tokens in each chunk, ``[N]``.
        tokens_per_batch: most tokens of a group, padding included; a group has at least one chunk.

    Yields:
        The indices of the chunks of each group, the longest chunk first.
    """
    order = np.argsort(-lengths, kind="stable")
    descending = lengths[order]
    start = 0
    while start < len(order):
        width = max(int(descending[start]), 1)
        similar = int(np.searchsorted(-descending[start:], -width * _SIMILAR, side="right"))
        eighth = -(-tokens_per_batch // (8 * width))
        most = max(1, tokens_per_batch // width)
        count = min(most, max(similar, eighth))
        yield order[start : start + count]
        start += count


def usual_tokens_per_batch(device: torch.device, config: PreTrainedConfig) -> int:
    """Returns the token positions of one forward pass, by the free memory of a GPU.

    The estimate for a GPU was made by the shapes of BERT's tensors, not measured.
    """
    if device.type == "cpu":
        return _TOKENS_PER_BATCH
    if device.type != "cuda":
        return _TOKENS_PER_BATCH_ACCELERATOR
    free, _ = torch.cuda.mem_get_info(device)
    return tokens_in_memory(free, config)


def tokens_in_memory(free: int, config: PreTrainedConfig) -> int:
    """Returns the token positions whose tensors fill half of a memory, at most 131,072."""
    hidden = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    # In a layer there are at once: states, queries, keys, values and their result; or the wide
    # layer before and behind its activation.
    bytes_of_token = 4 * (5 * hidden + 2 * inner)
    tokens = free // 2 // bytes_of_token
    return max(_TOKENS_PER_BATCH, min(tokens, _TOKENS_PER_BATCH_ACCELERATOR))


def weights_fingerprint(model: nn.Module, unused: nn.Module | None = None) -> str:
    """Returns the SHA-256 over names, shapes and float32 values of all weights.

    Args:
        model: the model.
        unused: a module of the model whose weights do not count.
    """
    digest = hashlib.sha256()
    skipped = {name for name, module in model.named_modules() if module is unused}
    for name, tensor in sorted(model.state_dict().items()):
        if name.rpartition(".")[0] in skipped:
            continue
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


class DenseLayer(nn.Module):
    """Does the same as sentence-transformers' `Dense`, with the same names of weights.

    Args:
        in_features: size of the vectors before the layer.
        out_features: size of the vectors after the layer.
        bias: if true, the layer has a bias.
        activation: name of a class of `torch.nn`.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, activation: str) -> None:
        super().__init__()
        self.activation_function = getattr(nn, activation)()
        self.linear = nn.Linear(in_features, out_features, bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Maps ``[N, D]`` to ``[N, K]``, in the dtype that the chunk encoder computes in."""
        return self.activation_function(self.linear(vectors))


@dataclass
class LoadedChunkEncoder:
    """Holds a sentence encoder from disk or the Hub, in float32 on the CPU, with its tokenizer.

    Attributes:
        encoder: the network.
        tokenizer: tokenizer of the encoder.
        name: public name of the encoder, never a local path.
        fingerprint: hash of the encoder, see `ChunkEncoder.fingerprint`.
        prompts: prompts of the encoder.
    """

    encoder: ChunkEncoder
    tokenizer: PreTrainedTokenizerBase
    name: str
    fingerprint: str
    prompts: Prompts = field(default_factory=Prompts)

    @property
    def max_chunk_size(self) -> int | None:
        """Returns the most tokens that a chunk may have; None without a limit."""
        return usable_positions(self.encoder.model.config)

    def with_prompt(self, rule: ChunkingRule, prompt: str) -> ChunkingRule:
        """Returns the rule for chunks that begin with a prompt, see `chunking.with_prompt`."""
        include_prompt = sentence_steps(self.encoder.model.config).get("include_prompt", True)
        return with_prompt(rule, self.tokenizer, prompt, include_prompt=include_prompt)


class ChunkEncoder(nn.Module):
    """Maps every chunk to one vector with a frozen encoder (paper, section 2.2 "Input Encoding").

    Args:
        config: the configuration of the backbone, any `AutoModel` over token ids. Its
            `sentence_steps` may add layers after the pooling.
        pooling: pooling that makes one vector of the token vectors of a chunk.
        normalize: if true, scales vectors to length 1.
    """

    has_layers = True  # a document model can start from the layers

    def __init__(
        self, config: PreTrainedConfig, pooling: PoolingMode = "mean", normalize: bool = True
    ) -> None:
        super().__init__()
        self.model = self.new_network(config)
        layers = [DenseLayer(**layer) for layer in sentence_steps(config).get("dense", [])]
        self.dense = nn.Sequential(*layers)
        copy_properties_of_children(self)
        self.pooling = pooling
        self.normalize = normalize
        self._most_tokens: int | None = (
            None  # of a batch that the memory of the device had room for
        )
        self.eval()

    def new_network(self, config: PreTrainedConfig) -> PreTrainedModel:
        """Makes the network below pooling, with random weights."""
        return backbone_from_config(config)

    def train(self, mode: bool = True) -> Self:
        """Keeps the encoder frozen and in evaluation mode."""
        # `from_pretrained` makes new parameters, which require gradients.
        self.requires_grad_(requires_grad=False)
        return super().train(mode=False)

    @property
    def hidden_size(self) -> int:
        """Returns the dimensions of the vectors."""
        return vector_size(self.model.config)

    @property
    def device(self) -> torch.device:
        """Returns the device of the weights; the CPU if accelerate keeps the weights on disk."""
        device = self.model.device
        if device.type == "meta":
            return torch.device("cpu")
        return device

    def to(self, *args: Any, **kwargs: Any) -> Self:  # type: ignore[override]
        """Moves and casts the encoder, but keeps weights in float32 that overflow in float16.

        transformers keeps the same weights in float32 when it opens a checkpoint: of T5, `wo`.
        """
        modules: Any = self._keep_in_fp32_modules
        kept = {}
        for name, weight in self.named_parameters():
            if any(f".{module}." in name for module in modules):
                kept[name] = weight.data

        super().to(*args, **kwargs)
        if self.model.dtype == torch.float16:
            for name, values in kept.items():
                self.get_parameter(name).data = values.to(self.device)

        return self

    @property
    def precision(self) -> str:
        """Returns the dtype of the computation, by the name that a corpus stores."""
        return str(self.model.dtype).removeprefix("torch.")

    def cores_beside(self, threads: int) -> Callable[[], AbstractContextManager[object]]:
        """Returns a context in which an encoder without layers leaves cores to other threads.

        Such an encoder takes less time than the threads that tokenise its texts, and they would
        have to share their cores with OpenMP's threads, which spin while they wait for one another.
        Limits only what the calling thread computes.

        Args:
            threads: number of the other threads, each of which gets a core.
        """
        encoders = [module for module in self.modules() if isinstance(module, ChunkEncoder)]
        if ThreadpoolController is None or any(encoder.has_layers for encoder in encoders):
            return nullcontext
        cores = max(1, torch.get_num_threads() - threads)
        return partial(ThreadpoolController().limit, limits=cores, user_api="openmp")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, unpooled: int = 0
    ) -> Tensor:
        """Computes the vectors of chunks.

        Args:
            input_ids: token ids ``[N, C]``, special tokens included.
            attention_mask: mask ``[N, C]``; None if nothing is padded.
            unpooled: number of tokens at the beginning of a chunk that pooling leaves out.

        Returns:
            The chunk vectors, ``[N, D]`` float32.
        """
        mask = attention_mask
        if mask is not None:
            mask = mask_for(self.model, mask)

        output = self.model(input_ids=input_ids, attention_mask=mask, return_dict=True)
        hidden = output.last_hidden_state  # [N, C, D]
        if self.pooling == "mean" and unpooled == 0:  # in float32, whatever the encoder computes in
            return self.project_and_normalize(masked_mean(hidden, attention_mask))

        mask = attention_mask
        if mask is None:
            mask = torch.ones_like(input_ids)

        pooled = pool(hidden, mask, self.pooling, unpooled=unpooled)
        return self.project_and_normalize(pooled.float())

    def project_and_normalize(self, pooled: Tensor) -> Tensor:
        """Applies Dense layers, normalisation and truncation.

        As in sentence-transformers, truncated vectors are not scaled to length 1 again.

        Args:
            pooled: pooled vectors, ``[N, H]`` float32.

        Returns:
            ``[N, D]`` float32.
        """
        vectors = pooled
        if len(self.dense) > 0:
            # Not the dtype of their weights, which quantised layers store in 8 bits.
            vectors = self.dense(pooled.to(self.model.dtype)).float()
        if self.normalize:
            vectors = F.normalize(vectors, dim=-1)
        return vectors[:, : self.hidden_size]

    def check_ids(self, input_ids: np.ndarray) -> None:
        """Checks that the encoder has an embedding for every token id.

        Raises:
            ValueError: an id is too high.
        """
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
    ) -> Tensor:
        """Encodes chunks of any number of documents.

        Args:
            input_ids: token ids ``[T]`` of all documents, one after the other, without special
                tokens.
            boundaries: boundaries of the chunks, ``[N + 1]``; chunk k is
                ``input_ids[boundaries[k]:boundaries[k + 1]]``.
            rule: chunking rule, which holds the special tokens around each chunk.
            tokens_per_batch: most token positions, padding included, in one forward pass.
            bar: progress bar that counts chunks.

        Returns:
            The chunk vectors, ``[N, D]`` float32 on the encoder's device, in the order of the
            chunks.

        Raises:
            MemoryError: the GPU has no room for a single chunk.
        """
        self.check_ids(input_ids)
        device = self.device
        if tokens_per_batch is None:
            tokens_per_batch = usual_tokens_per_batch(device, self.model.config)
        if self._most_tokens is not None:
            tokens_per_batch = min(tokens_per_batch, self._most_tokens)

        lengths = np.diff(boundaries) + len(rule.head_ids) + len(rule.suffix_ids)
        pad_id = getattr(self.model.config, "pad_token_id", None) or 0

        vectors = torch.empty(len(lengths), self.hidden_size, dtype=torch.float32, device=device)
        batches = list(micro_batches(lengths, tokens_per_batch))
        missing = missing_passes(self, len(batches))
        # One copy to the device for all batches.
        laid_out = _ChunkIds(input_ids, boundaries, rule, pad_id=pad_id, device=device)
        order = copy_to(device, np.concatenate([np.zeros(0, np.int64), *batches]))
        start = 0
        for batch in batches:
            chunks = order[start : start + len(batch)]
            start += len(batch)
            width = int(lengths[batch[0]])
            is_padded = int(lengths[batch[-1]]) < width
            ids, mask = laid_out.batch(chunks, width=width, is_padded=is_padded)
            vectors[chunks] = self._run(ids, mask, rule.unpooled)
            if bar is not None:
                bar.update(len(batch))

        for _ in range(missing):
            self(torch.full((1, 1), pad_id, device=device))

        return vectors

    def _run(self, ids: Tensor, mask: Tensor | None, unpooled: int) -> Tensor:
        """Runs a batch; in halves if the memory of the device is too small, as later batches are.

        Raises:
            MemoryError: there is no room for a single chunk.
        """
        try:
            return self(ids, mask, unpooled)
        except torch.OutOfMemoryError as error:
            if distributed.is_available() and distributed.is_initialized():
                raise  # other processes wait for this pass of a sharded encoder
            if len(ids) == 1:
                raise MemoryError(
                    f"{self.device} has no memory left for one chunk of {ids.shape[1]} tokens"
                    f" ({error}). End other programs that use this device, or use the CPU (--device"
                    " cpu), a smaller encoder or a smaller chunk_size."
                ) from error

        half = len(ids) // 2
        self._most_tokens = half * ids.shape[1]
        logger.warning(
            "%s has no memory left for %d chunks at once; reading %d at once.",
            self.device,
            len(ids),
            half,
        )
        masks: list[Tensor | None] = [None, None]
        if mask is not None:
            masks = [mask[:half], mask[half:]]

        first = self._run(ids[:half], masks[0], unpooled)
        return torch.cat([first, self._run(ids[half:], masks[1], unpooled)])

    def fingerprint(self) -> str:
        """Returns a SHA-256 over weights, pooling, normalisation and further steps.

        For the usual encoder (mean pooling, normalised, without further steps) the result is the
        hash of the weights.
        """
        digest = weights_fingerprint(self.model)
        steps = sentence_steps(self.model.config)
        if steps:
            dense = weights_fingerprint(self.dense)
            digest = _sha256(f"{digest} {dense} {json.dumps(steps, sort_keys=True)}")
        if self.pooling == "mean" and self.normalize:
            return digest
        return _sha256(f"{digest} {self.pooling} {self.normalize}")


class _ChunkIds:
    """Holds the token ids of many chunks on a device, and lays them out in batches.

    Args:
        input_ids: token ids ``[T]``, see `ChunkEncoder.encode`.
        boundaries: boundaries of the chunks, ``[N + 1]``.
        rule: chunking rule, which holds the special tokens around each chunk.
        pad_id: id at padding.
        device: device of the batches.
    """

    def __init__(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        *,
        pad_id: int,
        device: torch.device,
    ) -> None:
        # Special tokens and padding come after the ids of the text: every id has a place.
        special_ids = [*rule.head_ids, *rule.suffix_ids, pad_id]
        table = np.concatenate([input_ids, special_ids]).astype(np.int64)
        self._ids = copy_to(device, table)
        self._starts = copy_to(device, np.ascontiguousarray(boundaries[:-1], np.int64))
        self._sizes = copy_to(device, np.diff(boundaries).astype(np.int64))
        self._head = len(rule.head_ids)
        self._suffix = len(rule.suffix_ids)
        self._first_special = len(input_ids)

    def batch(self, chunks: Tensor, width: int, is_padded: bool) -> tuple[Tensor, Tensor | None]:
        """Lays out chunks with their special tokens.

        Args:
            chunks: indices of the chunks, ``[N]``.
            width: number of ids in the longest chunk, C.
            is_padded: true if a chunk has fewer ids.

        Returns:
            Ids ``[N, C]``, and the mask of the ids; None without padding, because kernels without a
            mask are faster on an accelerator.
        """
        column = torch.arange(width, device=chunks.device)
        behind_head = column - self._head
        behind_text = behind_head - self._sizes[chunks, None]  # [N, C], 0 at the first suffix
        in_text = self._starts[chunks, None] + behind_head
        in_suffix = self._first_special + self._head + behind_text.clamp(max=self._suffix)
        place = torch.where(behind_text < 0, in_text, in_suffix)
        place = torch.where(behind_head < 0, self._first_special + column, place)
        mask = None
        if is_padded:
            mask = (behind_text < self._suffix).long()

        return self._ids[place], mask


def encode_documents(
    encoder: ChunkEncoder,
    ids: Sequence[np.ndarray],
    boundaries: Sequence[np.ndarray],
    rule: ChunkingRule,
    tokens_per_batch: int | None = None,
    bar: tqdm | None = None,
) -> list[Tensor]:
    """Encodes the chunks of several documents together.

    Args:
        encoder: the chunk encoder.
        ids: token ids of each document.
        boundaries: boundaries of the chunks in each document.
        rule: chunking rule, see `ChunkEncoder.encode`.
        tokens_per_batch: token positions of one forward pass, see `ChunkEncoder.encode`.
        bar: progress bar that counts chunks.

    Returns:
        The chunk vectors of each document, ``[n, D]`` float32 on the encoder's device.
    """
    starts = np.cumsum([0, *map(len, ids)])
    shifted = []
    for start, borders in zip(starts[:-1], boundaries, strict=True):
        shifted.append(borders[:-1] + start)

    vectors = encoder.encode(
        np.concatenate(ids),
        boundaries=np.concatenate([*shifted, starts[-1:]]),
        rule=rule,
        tokens_per_batch=tokens_per_batch,
        bar=bar,
    )
    return list(vectors.split([len(borders) for borders in shifted]))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
