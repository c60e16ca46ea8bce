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
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .backbones import backbone_from_config, check_claims, usable_positions
from .chunking import ChunkingRule
from .input_checks import check_weights
from .pooling import PoolingMode, masked_mean, pool
from .static_encoder import StaticEmbeddingConfig, StaticEmbeddingModel

# Token positions of one forward pass. On a CPU small batches stay in the cache (measured best on two
# cores: 8 chunks of 256); a GPU needs enough work to be busy.
_TOKENS_PER_BATCH, _TOKENS_PER_BATCH_ACCELERATOR = 2_048, 131_072

# Chunks of at least this share of the longest one's length cost little padding beside it.
_SIMILAR = 15 / 16

# Fields of a configuration that depend on how it was loaded, not on what it describes.
INCIDENTAL = {"_name_or_path", "transformers_version", "architectures", "dtype"}


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
        config: configuration of the backbone, any `AutoModel` over token ids, or of a table of token vectors.
        pooling: how token vectors become the chunk's vector.
        normalize: whether that vector is scaled to unit length.
    """

    def __init__(self, config: PreTrainedConfig, pooling: PoolingMode = "mean", normalize: bool = True) -> None:
        super().__init__()
        self.model = backbone_from_config(config)
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
        return self.model.config.hidden_size

    @property
    def is_static(self) -> bool:
        """Whether it looks vectors up, and runs no network."""
        return isinstance(self.model, StaticEmbeddingModel)

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
        if self.is_static:  # a bag of tokens needs no micro-batches
            means = self.model.means(input_ids, boundaries)
            if bar is not None:
                bar.update(len(means))
            return nn.functional.normalize(means, dim=-1) if self.normalize else means
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

    def fingerprint(self) -> str:
        """SHA-256 over names, shapes and float32 values of all weights, pooling and normalisation."""
        return with_pooling(weights_fingerprint(self.model), self.pooling, self.normalize)

    def identity(self) -> str:
        """A hash of all that determines a chunk's vector besides its ids: weights with dtype, configuration, pooling.

        Computed again when a weight was replaced or changed in place (not through ``.data``, which leaves no trace).
        """
        config = {key: value for key, value in self.model.config.to_dict().items() if key not in INCIDENTAL}
        facts = json.dumps(
            [self.pooling, self.normalize, self.model.config._attn_implementation, config], sort_keys=True, default=str
        )
        weights = sorted(self.model.state_dict().items())
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


@dataclass
class LoadedChunkEncoder:
    """A sentence encoder read from disk or the Hub, with what a document model has to know about it.

    Attributes:
        encoder: in float32 on the CPU.
        tokenizer: that of the encoder.
        name: where others find it; never a path of this machine.
        fingerprint: see `ChunkEncoder.fingerprint`.
    """

    encoder: ChunkEncoder
    tokenizer: PreTrainedTokenizerBase
    name: str
    fingerprint: str

    @property
    def max_chunk_size(self) -> int | None:
        return usable_positions(self.encoder.model.config)


def load_chunk_encoder(
    name_or_path: str | os.PathLike[str], name: str | None = None, pooling: PoolingMode | None = None
) -> LoadedChunkEncoder:
    """Loads a sentence-transformers model: a transformer with pooling, or a `StaticEmbedding`; normalised or not.

    Args:
        name_or_path: a Hub name or a folder.
        name: where others find this encoder, if `name_or_path` is a folder of this machine.
        pooling: how a vector is made of token vectors, in place of the encoder's own way; ``"cls"`` is HATE's.

    Raises:
        ImportError: without sentence-transformers.
        ValueError: if there is no such model, it does not say how it pools, or it has a step that is not supported
            (named).
    """
    name_or_path = os.fspath(name_or_path)
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.util import load_file_path
    except ImportError as error:
        raise ImportError(
            "Reading a sentence encoder needs sentence-transformers: pip install nextlevelbert"
        ) from error
    modules, plain = (load_file_path(name_or_path, file) for file in ("modules.json", "config.json"))
    if modules is None and plain is not None:
        raise ValueError(
            f"The chunk encoder {name_or_path!r} has no modules.json, which says how it pools and whether it "
            "normalises. Give a sentence-transformers model; a plain transformers model becomes one by "
            "SentenceTransformer(modules=[Transformer(path), Pooling(hidden_size, 'mean'), Normalize()]).save(folder)."
        )
    try:
        if modules is not None and not _is_static(modules):
            check_claims(_transformer_config(name_or_path, modules))
        source = SentenceTransformer(name_or_path, device="cpu", model_kwargs={"dtype": torch.float32})
    except (OSError, ValueError) as error:
        if modules is not None:  # there it is, but it cannot be read
            raise ValueError(
                f"Cannot load the chunk encoder {name_or_path!r}: {error} Code that comes with a model "
                "(trust_remote_code) is never run; give a sentence-transformers model of an architecture that "
                "transformers has."
            ) from error
        raise ValueError(
            f"Cannot load the chunk encoder {name_or_path!r}: no such folder, and not on the Hub or in its cache. "
            "Give the path of a saved sentence-transformers model, or a name such as "
            "'sentence-transformers/all-MiniLM-L6-v2'."
        ) from error
    own, normalize = _read_modules(source, name_or_path)
    if own is None:
        config, tokenizer = _static_parts(source[0], name_or_path, pooling)
        backbone, own = source[0], "mean"
    else:
        config, tokenizer = source[0].auto_model.config, source[0].tokenizer
        backbone = source[0].auto_model
    encoder = ChunkEncoder(config, pooling or own, normalize)
    wanted = encoder.model.state_dict().keys()
    encoder.model.load_state_dict({key: value for key, value in backbone.state_dict().items() if key in wanted})
    check_weights(encoder.model, name_or_path)
    fingerprint = encoder.fingerprint()
    public_name = name or (Path(name_or_path).name if Path(name_or_path).is_dir() else name_or_path)
    return LoadedChunkEncoder(encoder, tokenizer, public_name, fingerprint)


def _is_static(modules: str) -> bool:
    """Whether a ``modules.json`` begins with a table of token vectors."""
    try:
        return str(json.loads(Path(modules).read_text(encoding="utf-8"))[0]["type"]).endswith(".StaticEmbedding")
    except (ValueError, LookupError, TypeError):
        return False  # what is wrong with the file is said by those who need more of it


def _static_parts(
    module: Any, name: str, pooling: PoolingMode | None
) -> tuple[StaticEmbeddingConfig, PreTrainedTokenizerBase]:
    """Configuration and tokenizer of a `StaticEmbedding`; the tokenizer adds no special tokens, as there.

    Raises:
        ValueError: for another pooling than the mean, or a table that does not fit the tokenizer.
    """
    if pooling not in (None, "mean"):
        raise ValueError(f"The static chunk encoder {name!r} has no token order to pool by {pooling!r}; use 'mean'.")
    rows, size = module.embedding.weight.shape
    highest = max(module.tokenizer.get_vocab().values(), default=-1)
    if highest < 0 or rows <= highest or size == 0:
        raise ValueError(
            f"The static chunk encoder {name!r} has a table of {rows} x {size}, but its tokenizer has ids up to "
            f"{highest}. Its tokenizer.json is that of another model: save the two together."
        )
    plain = Tokenizer.from_str(module.tokenizer.to_str())
    plain.post_processor = TemplateProcessing(single="$A", pair="$A $B")
    plain.no_truncation()
    special = {"unk_token": ("[UNK]", "<unk>"), "pad_token": ("[PAD]", "<pad>")}
    words = plain.get_vocab()
    known = {key: token for key, tokens in special.items() for token in tokens if token in words}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=int(1e30), **known)
    ids = {"pad_token_id": tokenizer.pad_token_id, "unk_token_id": tokenizer.unk_token_id}
    return StaticEmbeddingConfig(vocab_size=rows, hidden_size=size, **ids), tokenizer


def _transformer_config(name: str, modules: str) -> PreTrainedConfig:
    """The configuration of the transformer within a sentence-transformers model, where its ``modules.json`` says."""
    try:
        folder = str(json.loads(Path(modules).read_text(encoding="utf-8"))[0].get("path") or "")
    except (ValueError, LookupError, AttributeError) as error:
        raise ValueError("Its modules.json is not a list of modules.") from error
    # Without the last argument transformers would ask on the terminal whether to run code that comes with the model.
    return AutoConfig.from_pretrained(name, subfolder=folder, trust_remote_code=False)


def _read_modules(source: Any, name: str) -> tuple[PoolingMode | None, bool]:
    """Pooling mode (None for a static encoder) and normalisation; a ValueError names what is not supported."""
    kinds = [type(module).__name__ for module in source]
    static = kinds[:1] == ["StaticEmbedding"]
    if not (static or kinds[:2] == ["Transformer", "Pooling"]) or kinds[2 - static :] not in ([], ["Normalize"]):
        raise ValueError(
            f"The chunk encoder {name!r} consists of {' → '.join(kinds)}; supported are Transformer → Pooling and "
            "StaticEmbedding, with or without Normalize. Choose such a model, or encode with it yourself and give "
            "inputs_embeds."
        )
    mode = None if static else source[1].pooling_mode
    if mode not in (None, *get_args(PoolingMode)):
        raise ValueError(
            f"The chunk encoder {name!r} pools by {mode!r}; supported are {', '.join(get_args(PoolingMode))}."
        )
    if source.default_prompt_name is not None:
        raise ValueError(
            f"The chunk encoder {name!r} puts the prompt {source.default_prompt_name!r} before every text, which "
            "cannot be added to chunks of token ids. To use it without the prompt, set its default_prompt_name to "
            "None and save it."
        )
    return mode, kinds[-1] == "Normalize"
