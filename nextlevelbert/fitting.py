"""Encoders that are fitted to text in closed form: hashed TF-IDF, and hybrids."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm.auto import tqdm

from .models.checkpoints import NO_LENGTH_LIMIT, with_limit
from .models.chunk_encoder import LoadedChunkEncoder
from .models.chunking import ChunkingRule
from .models.configuration_nextlevelbert import HashedTfidfConfig, HybridConfig, sentence_steps
from .models.files import local_path, whole_folder
from .models.from_encoder import load_chunk_encoder
from .models.prompts import tokenize_documents
from .models.static_encoders import HashedTfidfModel, HybridModel, StaticModel
from .models.tokenizing import groups_by_length, special_token_ids
from .whitening import fit_whitening


def static_checkpoint() -> str:
    """Returns the folder of nextlevelbert-static (26 MB), which is installed with the package.

    Pass the folder to `from_pretrained`, `SentenceTransformer` or ``--model``.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> import nextlevelbert
        >>> model = SentenceTransformer(nextlevelbert.static_checkpoint())
        >>> model.encode(["the text of a whole book", "and of another one"]).shape
        (2, 384)
    """
    return str(Path(__file__).with_name("static"))


def fit_tfidf_encoder(
    loaded: LoadedChunkEncoder,
    texts: Iterable[str],
    folder: str | PathLike,
    hidden_size: int = 2_048,
    chunk_size: int = 256,
) -> LoadedChunkEncoder:
    """Makes a chunk encoder that compares words alone: TF-IDF over hashed tokens.

    The weight of a token is log((1 + N) / (1 + n)), if n of the N chunks of the texts contain the
    token. If it occurs k times in a chunk, it counts 1 + ln k times. Tokens without a letter have
    the weight 0, because punctuation differs between editions of the same text.

    Args:
        loaded: the encoder whose tokenizer is used.
        texts: documents in which tokens are counted.
        folder: folder to write the encoder to; `load_chunk_encoder(folder)` opens it.
        hidden_size: dimensions; similarities have an error of about 1 / sqrt(hidden_size).
        chunk_size: most tokens in a chunk in which tokens are counted.

    Returns:
        The encoder, opened from the folder.

    Raises:
        ValueError: the texts hold no tokens.
    """
    words = loaded.tokenizer.get_vocab()
    rows = max(words.values()) + 1
    weights = _inverse_frequencies(loaded, texts, rows=rows, chunk_size=chunk_size)
    special = set(loaded.tokenizer.all_special_tokens)
    for word, row in words.items():
        if word in special or not any(letter.isalpha() for letter in word):
            weights[row] = 0.0

    config = HashedTfidfConfig(
        vocab_size=rows,
        hidden_size=hidden_size,
        pad_token_id=loaded.tokenizer.pad_token_id,
        unk_token_id=loaded.tokenizer.unk_token_id,
    )
    model = HashedTfidfModel(config)
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], rows)
    places = rng.integers(hidden_size, size=rows, dtype=np.int32)
    weight = torch.from_numpy(signs * weights).float()
    model.load_state_dict({"places": torch.from_numpy(places), "weight": weight})
    return _save(model, loaded, folder=folder)


def _inverse_frequencies(
    loaded: LoadedChunkEncoder, texts: Iterable[str], rows: int, chunk_size: int
) -> np.ndarray:
    """Returns the weight of each token, by the share of chunks that contain it."""
    rule = ChunkingRule.from_tokenizer(loaded.tokenizer, chunk_size)
    chunks = 0
    containing = np.zeros(rows, np.int64)
    # Bars are hidden (None) if stderr is a file.
    counted = tqdm(texts, desc="counting", unit="document", disable=None)
    for group in groups_by_length(counted):
        for document in tokenize_documents(loaded.tokenizer, group, rule):
            ids = document.input_ids
            boundaries = rule.boundaries(ids)
            chunk = np.repeat(np.arange(len(boundaries) - 1), np.diff(boundaries))
            pairs = np.unique(chunk * rows + ids)  # each chunk with each of its tokens, once
            containing += np.bincount(pairs % rows, minlength=rows)
            chunks += len(boundaries) - 1

    if chunks == 0:
        raise ValueError("The texts hold no tokens to count. Give documents like those to search.")

    return np.log((1 + chunks) / (1 + containing))


def combine_chunk_encoders(
    parts: Sequence[LoadedChunkEncoder],
    texts: Iterable[str],
    folder: str | PathLike,
    weights: Sequence[float],
    whiten: Sequence[bool] | None = None,
    chunk_size: int = 256,
    name: str | None = None,
) -> LoadedChunkEncoder:
    """Joins several chunk encoders into one, which centres or whitens, weights and joins vectors.

    The cosine of two joined vectors is the mean of the parts' cosines, weighted by the squares of
    the weights.

    Args:
        parts: encoders over one vocabulary, such as a transformer and the static one distilled from
            it.
        texts: documents to fit the centring and whitening to, at least two; 15 novels are nearly as
            good as 200.
        folder: folder to write the encoder to; `load_chunk_encoder(folder)` opens it.
        weights: weight of each part. Weights are scaled so that vectors have length 1.
        whiten: true for each part to whiten (default: all parts). The other parts are only centred,
            which is better for TF-IDF.
        chunk_size: most tokens in a chunk of the texts.
        name: the public name of the encoder (default: the name of the folder).

    Returns:
        The encoder, opened from the folder.

    Raises:
        ValueError: the parts have different tokens, or the texts hold none.
        WhiteningError: no text has chunks that differ; the parts can only be centred.
    """
    if whiten is None:
        whiten = [True] * len(parts)

    _check_tokens(parts)

    # A transformer's tokenizer knows the special tokens.
    loaded = max(parts, key=lambda part: part.encoder.has_layers)
    limits = [part.max_chunk_size for part in parts if part.max_chunk_size is not None]
    limit = min(limits, default=None)
    rule = ChunkingRule.from_tokenizer(loaded.tokenizer, chunk_size, max_chunk_size=limit)
    rule = loaded.with_prompt(rule, loaded.prompts.passage)

    documents: list[tuple[np.ndarray, np.ndarray]] = []
    for group in groups_by_length(texts):
        ids = [tokens.input_ids for tokens in tokenize_documents(loaded.tokenizer, group, rule)]
        documents += zip(ids, map(rule.boundaries, ids), strict=True)

    if all(len(ids) == 0 for ids, _ in documents):
        raise ValueError(
            "The texts hold no tokens, so there is nothing to fit. Give documents like those to"
            " search."
        )

    described = []
    for part, is_whitened in zip(parts, whiten, strict=True):
        encoder = part.encoder
        values = {
            "config": {**encoder.model.config.to_dict(), "_name_or_path": ""},  # not published
            "pooling": encoder.pooling,
            "normalize": encoder.normalize,
            "whiten": is_whitened,
            "size": encoder.hidden_size,
        }
        described.append(values)

    config = HybridConfig(
        parts=described,
        max_position_embeddings=limit,
        pad_token_id=loaded.tokenizer.pad_token_id,
    )
    if "include_prompt" in sentence_steps(loaded.encoder.model.config):
        config.sentence_steps = {"include_prompt": False}

    model = HybridModel(config)
    for index, part in enumerate(parts):
        model.parts[index].load_state_dict(part.encoder.state_dict())
        bar = tqdm(documents, desc=f"fitting {part.name}", unit="document", disable=None)
        # Not every GPU computes in float64, as the whitening does.
        vectors = (part.encoder.encode(ids, boundaries, rule).cpu() for ids, boundaries in bar)
        if whiten[index]:
            mean, weight = fit_whitening(vectors)
            fitted = {"mean": mean, "weight": weight}
        else:
            fitted = {"mean": _mean(vectors)}

        model.whitenings[index].load_state_dict(fitted)

    model.weights.copy_(F.normalize(torch.tensor(weights, dtype=torch.float32), dim=0))
    return _save(model, loaded, folder=folder, name=name)


def _mean(documents: Iterable[Tensor]) -> Tensor:
    """Returns the mean ``[D]`` of the chunk vectors of all documents."""
    total = torch.zeros(())
    chunks = 0
    for vectors in documents:
        total = total + vectors.sum(dim=0)
        chunks += len(vectors)
    return total / chunks


def _check_tokens(parts: Sequence[LoadedChunkEncoder]) -> None:
    """Raises a ValueError for encoders with different tokens, or different special tokens."""
    vocabularies = {frozenset(part.tokenizer.get_vocab().items()) for part in parts}
    special = {special_token_ids(part.tokenizer) for part in parts if part.encoder.has_layers}
    if len(vocabularies) > 1 or len(special) > 1:
        names = ", ".join(part.name for part in parts)
        raise ValueError(
            f"{names} have different vocabularies or special tokens. Give encoders with the same"
            " tokenizer."
        )


def _save(
    model: StaticModel,
    loaded: LoadedChunkEncoder,
    folder: str | PathLike,
    name: str | None = None,
) -> LoadedChunkEncoder:
    """Saves an encoder with a tokenizer that reads whole documents, and opens it again.

    The encoder keeps the prompts of the one that it was made from.
    """
    for part, value in model.state_dict().items():
        if value.is_floating_point() and not value.isfinite().all():
            raise ValueError(f"The fitted {part} holds values that are not finite.")

    if loaded.prompts.texts:
        model.config.prompts = dict(loaded.prompts.texts)
        model.config.default_prompt_name = loaded.prompts.default_name

    with whole_folder(local_path(folder)) as temporary:
        model.save_pretrained(temporary)
        with_limit(loaded.tokenizer, NO_LENGTH_LIMIT).save_pretrained(temporary)

    return load_chunk_encoder(folder, name or Path(folder).name)
