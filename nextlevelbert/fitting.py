"""What is fitted to text in closed form: whitening of chunk vectors, hashed TF-IDF, and encoders
side by side.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from .models.chunk_encoder import LoadedChunkEncoder
from .models.chunking import ChunkingRule, special_token_ids, tokenize_document
from .models.configuration_nextlevelbert import HashedTfidfConfig, HybridConfig
from .models.from_encoder import as_loaded_encoder, load_chunk_encoder
from .models.pretrained import without_limit
from .models.static_encoders import HashedTfidfModel, HybridModel

_ROWS_PER_PRODUCT = (
    4_096  # of chunk vectors: many documents in one product, since each takes D x D sums
)


def static_checkpoint() -> str:
    """Returns the folder of nextlevelbert-static (26 MB), which comes with the package.

    It can be given to every `from_pretrained` and `--model`.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> import nextlevelbert
        >>> model = SentenceTransformer(nextlevelbert.static_checkpoint())
        >>> model.encode(["the text of a whole book", "and of another one"]).shape
        (2, 384)
    """
    return str(Path(__file__).with_name("static"))


def fit_whitening(
    documents: Iterable[torch.Tensor], shrinkage: float = 0.1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean m ``[D]`` and symmetric matrix W ``[D, D]`` of chunk vectors, in one pass over them and
    closed form.

    W = (S + shrinkage * mean variance * I)^(-1/2), where S is the covariance of chunk vectors ``[n,
    D]`` around the mean of their own document: within-class covariance normalisation (Hatch,
    Kajarekar and Stolcke 2006). It needs two documents, one of them with two chunks.
    """
    chunks = 0
    filled = 0
    total = torch.zeros((), dtype=torch.float64)
    scatter = torch.zeros((), dtype=torch.float64)
    for block in _blocks(documents):
        counts = torch.tensor([len(vectors) for vectors in block], device=block[0].device)
        means = torch.stack([vectors.mean(dim=0) for vectors in block])  # [B, D]
        around = torch.cat(block) - means.repeat_interleave(counts, dim=0)  # [n, D]
        total = total + counts.double() @ means
        scatter = scatter + around.T @ around
        chunks += int(counts.sum())
        filled += len(block)
    if filled < 2 or chunks == filled or not scatter.trace() > 0:  # NaN, too
        what = f"got {chunks} chunk(s) in {filled} document(s), which do not differ"
        raise ValueError(f"Whitening: {what}. Give at least two documents, of more than one chunk.")
    values, axes = torch.linalg.eigh(scatter / chunks)
    scales = (values + shrinkage * values.mean()).rsqrt()
    weight = axes * scales @ axes.T
    mean = total / chunks
    return mean.float(), weight.float()


def _blocks(documents: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Documents that have chunks, in float64, so many at a time that their products are worth
    it.
    """
    block = []
    rows = 0
    for vectors in documents:
        if len(vectors) > 0:
            block.append(vectors.double())
        rows += len(vectors)
        if rows >= _ROWS_PER_PRODUCT:
            yield block
            block = []
            rows = 0
    if block:
        yield block


def fit_tfidf_encoder(
    chunk_encoder: str | os.PathLike[str] | LoadedChunkEncoder,
    texts: Iterable[str],
    folder: str | os.PathLike[str],
    hidden_size: int = 2_048,
    chunk_size: int = 256,
    seed: int = 0,
    name: str | None = None,
) -> LoadedChunkEncoder:
    """Makes a chunk encoder that sees words and nothing else: TF-IDF over tokens, hashed to
    `hidden_size` places.

    A token weighs log((1 + N) / (1 + n)), where n of the N chunks of the texts contain it; k of
    them in a chunk count 1 + ln k times. Tokens without a letter weigh nothing: punctuation tells
    editions apart, not what they say.

    Args:
        chunk_encoder: name, folder or loaded encoder whose tokenizer is used.
        texts: documents to count tokens in, in chunks of at most `chunk_size` tokens.
        folder: where it is written; `load_chunk_encoder(folder)` opens it. Others find it as
            `name`.
        hidden_size: places; similarities have an error of about 1 / sqrt(hidden_size). `seed` is
            that of the hashing.
    """
    source = as_loaded_encoder(chunk_encoder)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, chunk_size)
    words = source.tokenizer.get_vocab()
    rows = max(words.values()) + 1
    chunks = 0
    containing = np.zeros(rows, np.int64)
    for text in tqdm(texts, desc="counting", unit="document"):
        ids = tokenize_document(source.tokenizer, text).input_ids
        boundaries = rule.boundaries(ids)
        number = np.repeat(np.arange(len(boundaries) - 1), np.diff(boundaries))
        pairs = np.unique(number * rows + ids)  # each chunk with each of its tokens, once
        containing += np.bincount(pairs % rows, minlength=rows)
        chunks += len(boundaries) - 1
    if not chunks:
        raise ValueError("The texts hold no tokens to count; give documents like those to search.")
    weights = np.log((1 + chunks) / (1 + containing))
    special = set(source.tokenizer.all_special_tokens)
    for word, row in words.items():
        if word in special or not any(letter.isalpha() for letter in word):
            weights[row] = 0.0
    ids_of = {
        "pad_token_id": source.tokenizer.pad_token_id,
        "unk_token_id": source.tokenizer.unk_token_id,
    }
    config = HashedTfidfConfig(vocab_size=rows, hidden_size=hidden_size, **ids_of)
    model = HashedTfidfModel(config)
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], rows)
    places = torch.from_numpy(rng.integers(hidden_size, size=rows, dtype=np.int32))
    model.load_state_dict({"places": places, "weight": torch.from_numpy(signs * weights).float()})
    return _saved(model, source, folder, name)


def combine_chunk_encoders(
    parts: Sequence[LoadedChunkEncoder],
    texts: Iterable[str],
    folder: str | os.PathLike[str],
    weights: Sequence[float] | None = None,
    whiten: Sequence[bool] | None = None,
    chunk_size: int = 256,
    name: str | None = None,
) -> LoadedChunkEncoder:
    """Makes one chunk encoder of several: centred, whitened within documents or not, weighted, and
    put side by side.

    Cosines between its vectors are the weighted means of the parts' cosines, with the squared
    weights.

    Args:
        parts: encoders over one vocabulary, such as a transformer and the static one distilled from
            it.
        texts: documents to fit the centring and whitening to, at least two; 15 novels are nearly as
            good as 200.
        folder, name, chunk_size: as in `fit_tfidf_encoder`.
        weights: how much each part counts; equal by default. Scaled so that vectors have length 1.
        whiten: which parts are whitened, by default all; the others are only centred, which is
            better for TF-IDF.
    """
    weights = [1.0] * len(parts) if weights is None else weights
    whiten = [True] * len(parts) if whiten is None else whiten
    whole = max(
        parts, key=lambda part: part.encoder.has_layers
    )  # a transformer's tokenizer knows the special tokens
    vocabularies = {frozenset(part.tokenizer.get_vocab().items()) for part in parts}
    around = {special_token_ids(part.tokenizer) for part in parts if part.encoder.has_layers}
    if len(vocabularies) > 1 or len(around) > 1:
        names = ", ".join(part.name for part in parts)
        raise ValueError(
            f"{names} have different tokens, or put different ones around a text; give ones that"
            " agree."
        )
    limit = min(
        (part.max_chunk_size for part in parts if part.max_chunk_size is not None), default=None
    )
    rule = ChunkingRule.from_tokenizer(whole.tokenizer, chunk_size, max_chunk_size=limit)
    vectors: list[list[torch.Tensor]] = [[] for _ in parts]
    count = 0
    for text in tqdm(texts, desc="fitting", unit="document"):
        ids = tokenize_document(whole.tokenizer, text).input_ids
        boundaries = rule.boundaries(ids)
        count += len(boundaries) - 1
        for rows, part, white in zip(vectors, parts, whiten, strict=True):
            chunks = part.encoder.encode(ids, boundaries, rule)
            rows.append(chunks if white else chunks.sum(dim=0))
    if not count:
        raise ValueError(
            "The texts hold no tokens, so there is nothing to fit; give documents like those to"
            " search."
        )
    fitted: list[dict[str, torch.Tensor]] = [
        (
            dict(zip(("mean", "weight"), fit_whitening(rows), strict=True))
            if white
            else {"mean": torch.stack(rows).sum(dim=0) / count}
        )
        for rows, white in zip(vectors, whiten, strict=True)
    ]
    described = [
        {
            "config": {
                **part.encoder.model.config.to_dict(),
                "_name_or_path": "",
            },  # no path is published
            "pooling": part.encoder.pooling,
            "normalize": part.encoder.normalize,
            "whiten": white,
            "size": part.encoder.hidden_size,
        }
        for part, white in zip(parts, whiten, strict=True)
    ]
    pad_id = whole.tokenizer.pad_token_id
    config = HybridConfig(parts=described, max_position_embeddings=limit, pad_token_id=pad_id)
    model = HybridModel(config)
    for encoder, part in zip(model.parts, parts, strict=True):
        encoder.load_state_dict(part.encoder.state_dict())
    for whitening, values in zip(model.whitenings, fitted, strict=True):
        whitening.load_state_dict(values)
    model.weights.copy_(
        torch.nn.functional.normalize(torch.tensor(weights, dtype=torch.float32), dim=0)
    )
    return _saved(model, whole, folder, name)


def _saved(
    model: Any, source: LoadedChunkEncoder, folder: str | os.PathLike[str], name: str | None
) -> LoadedChunkEncoder:
    """The fitted encoder, saved with a tokenizer that reads whole documents, and opened again."""
    model.save_pretrained(folder)
    without_limit(source.tokenizer).save_pretrained(folder)
    return load_chunk_encoder(folder, name or Path(folder).name)
