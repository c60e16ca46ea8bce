"""Hybrid chunk encoders, made of several encoders and fitted to text."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from tqdm.auto import tqdm

from ..models.chunking import ChunkingRule, special_token_ids, tokenize_document
from ..models.encoder_loading import LoadedChunkEncoder, load_chunk_encoder
from ..models.hybrid_encoder import HybridConfig, HybridModel
from ..models.pooling import fit_whitening


def combine_chunk_encoders(
    parts: Sequence[LoadedChunkEncoder],
    texts: Iterable[str],
    folder: str | os.PathLike[str],
    weights: Sequence[float] | None = None,
    sizes: Sequence[int | None] | None = None,
    whiten: Sequence[bool] | None = None,
    chunk_size: int = 256,
    name: str | None = None,
) -> LoadedChunkEncoder:
    """Makes one chunk encoder of several: centred, whitened within documents or not, weighted, and put side by side.

    Cosines between its vectors are the weighted means of the parts' cosines, with the squared weights.

    Args:
        parts: encoders over one vocabulary, such as a transformer and the static one distilled from it.
        texts: documents to fit the centring and whitening to, at least two; 15 novels are nearly as good as 200.
        folder: where it is written; `load_chunk_encoder(folder)` opens it.
        weights: how much each part counts; equal by default. Scaled so that vectors have length 1.
        sizes: dimensions of each part's share, fewer than its vectors have or None for all (see `fit_whitening`).
        whiten: which parts are whitened, by default all; the others are only centred. That is better for hashed
            TF-IDF, and takes no matrix, however many the places.
        chunk_size: most tokens in a chunk that it is fitted to.
        name: where others find it; by default the name of the folder.

    Raises:
        ValueError: for parts with different tokens, hybrids as parts, numbers that do not fit, or too few texts.
    """
    weights = [1.0] * len(parts) if weights is None else list(weights)
    sizes = [None] * len(parts) if sizes is None else list(sizes)
    whiten = [True] * len(parts) if whiten is None else list(whiten)
    whole = _check_parts(parts, weights, sizes, whiten)
    rule = ChunkingRule.from_tokenizer(whole.tokenizer, chunk_size, max_chunk_size=_shortest(parts))
    vectors: list[list[torch.Tensor]] = [[] for _ in parts]
    count = 0
    for text in tqdm(texts, desc="fitting", unit="document"):
        ids = tokenize_document(whole.tokenizer, text).input_ids
        boundaries = rule.boundaries(ids)
        if len(boundaries) > 1:
            count += len(boundaries) - 1
            for found, part, wanted in zip(vectors, parts, whiten, strict=True):
                chunks = part.encoder.encode(ids, boundaries, rule)
                found.append(chunks if wanted else chunks.sum(dim=0))
    if not count:
        raise ValueError("The texts hold no tokens, so there is nothing to fit; give documents like those to search.")
    fitted: list[dict[str, torch.Tensor]] = [
        dict(zip(("mean", "weight"), fit_whitening(found, size=size), strict=True))
        if wanted
        else {"mean": torch.stack(found).sum(dim=0) / count}
        for found, size, wanted in zip(vectors, sizes, whiten, strict=True)
    ]
    model = HybridModel(
        HybridConfig(
            parts=[
                {
                    "config": {**part.encoder.model.config.to_dict(), "_name_or_path": ""},  # no path is published
                    "pooling": part.encoder.pooling,
                    "normalize": part.encoder.normalize,
                    "size": len(values["weight"] if wanted else values["mean"]),
                    "whiten": wanted,
                }
                for part, values, wanted in zip(parts, fitted, whiten, strict=True)
            ],
            prefix_ids=list(rule.prefix_ids),
            suffix_ids=list(rule.suffix_ids),
            vocab_size=min(part.encoder.model.config.vocab_size for part in parts),
            max_position_embeddings=_shortest(parts),
            pad_token_id=whole.tokenizer.pad_token_id,
        )
    )
    for own, part in zip(model.parts, parts, strict=True):
        own.load_state_dict(part.encoder.state_dict())
    for whitening, values in zip(model.whitenings, fitted, strict=True):
        whitening.load_state_dict(values)
    model.weights.copy_(torch.nn.functional.normalize(torch.tensor(weights, dtype=torch.float32), dim=0))
    model.save_pretrained(folder)
    tokenizer = copy.deepcopy(whole.tokenizer)
    tokenizer.model_max_length = int(1e30)  # documents are tokenised whole
    tokenizer.save_pretrained(folder)
    return load_chunk_encoder(folder, name or Path(folder).name)


def _check_parts(
    parts: Sequence[LoadedChunkEncoder],
    weights: Sequence[float],
    sizes: Sequence[int | None],
    whiten: Sequence[bool],
) -> LoadedChunkEncoder:
    """The part whose tokenizer is that of the whole: a transformer's, which knows the special tokens."""
    if len(parts) < 2 or {len(weights), len(sizes), len(whiten)} != {len(parts)}:
        raise ValueError(
            f"A hybrid needs two encoders or more, with a weight, a size and a whiten for each; got {len(parts)} "
            f"encoders, {len(weights)} weights, {len(sizes)} sizes and {len(whiten)} of whiten."
        )
    for part, size, wanted in zip(parts, sizes, whiten, strict=True):
        if size is not None and not wanted:
            raise ValueError(
                f"{part.name!r} is not whitened, so it keeps its {part.encoder.hidden_size} dimensions, got a size of "
                f"{size}; leave out its size, or whiten it."
            )
    if not all(0 < weight < float("inf") for weight in weights):
        raise ValueError(f"weights must be positive and finite, got {list(weights)}; leave out what should not count.")
    if nested := [part.name for part in parts if part.encoder.model.config.model_type == HybridConfig.model_type]:
        raise ValueError(f"{nested[0]!r} is a hybrid already; give its parts.")
    whole = max(parts, key=lambda part: part.encoder.has_layers)
    words = whole.tokenizer.get_vocab()
    for part in parts:
        if part.tokenizer.get_vocab() != words:
            raise ValueError(
                f"{part.name!r} and {whole.name!r} have different tokens, so they cannot read the same chunks. Give "
                "encoders over one vocabulary; distill_chunk_encoder keeps that of its encoder."
            )
    around = {part.name: special_token_ids(part.tokenizer) for part in parts if part.encoder.has_layers}
    if len(set(around.values())) > 1:
        raise ValueError(
            f"{' and '.join(map(repr, around))} put different tokens around a text, such as a prompt, so they cannot "
            "read the same chunks. Give transformers with the same prompt, or none."
        )
    return whole


def _shortest(parts: Sequence[LoadedChunkEncoder]) -> int | None:
    limits: Iterator[int | None] = (part.max_chunk_size for part in parts)
    return min((limit for limit in limits if limit is not None), default=None)
