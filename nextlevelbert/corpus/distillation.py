"""Static chunk encoders: distilled from sentence encoders, every token once through the network; and word counts.

The method of distilling is model2vec's (Tulkens and van Dongen 2024, github.com/MinishLab/model2vec), and its library
does the work: each token's vector is the mean of the encoder's outputs for it, then come principal components, and
weights that make frequent tokens small. The tokenizer stays that of the sentence encoder, so both see the same chunks.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tqdm.auto import tqdm

from ..models.chunking import ChunkingRule, tokenize_document
from ..models.encoder_loading import LoadedChunkEncoder, load_chunk_encoder
from ..models.static_encoder import HashedTfidfConfig, HashedTfidfModel


def distill_chunk_encoder(
    chunk_encoder: str | os.PathLike[str] | LoadedChunkEncoder,
    folder: str | os.PathLike[str],
    hidden_size: int | None = None,
    name: str | None = None,
) -> LoadedChunkEncoder:
    """Makes a static chunk encoder from a sentence encoder, saves it as a sentence-transformers model, and opens it.

    For all-MiniLM-L6-v2 it takes four minutes of one core. Calibration text is not needed.

    Args:
        chunk_encoder: name or folder of a sentence-transformers model, or one already loaded.
        folder: where it is written: `SentenceTransformer(folder)` and `load_chunk_encoder(folder)` open it.
        hidden_size: dimensions of the table, at most those of the encoder, which is the default.
        name: where others find the result; by default the name of the folder.

    Raises:
        ImportError: without model2vec and skeletoken.
        ValueError: for an encoder that is no transformer, or more dimensions than it has.
    """
    try:
        from model2vec.distill.distillation import distill_from_model
    except ImportError as error:
        raise ImportError("Distilling needs model2vec and skeletoken: pip install nextlevelbert[static]") from error
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    source = chunk_encoder if isinstance(chunk_encoder, LoadedChunkEncoder) else load_chunk_encoder(chunk_encoder)
    size = source.encoder.hidden_size
    if not source.encoder.has_layers:
        raise ValueError(f"The chunk encoder {source.name!r} is no transformer; distil one of those.")
    if len(source.encoder.dense):
        raise ValueError(
            f"The chunk encoder {source.name!r} has a Dense layer after pooling, which distilling would leave out; "
            "distil an encoder without."
        )
    if hidden_size is not None and not 1 <= hidden_size <= size:
        raise ValueError(f"hidden_size must be from 1 to {size}, that of {source.name!r}, got {hidden_size}.")
    distilled = distill_from_model(
        source.encoder.model, source.tokenizer, device="cpu", pca_dims=hidden_size or size, quantize_to="float32"
    )
    backend = Tokenizer.from_str(source.tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    rows = torch.from_numpy(distilled.embedding)
    # model2vec drops unused and special tokens and numbers the rest anew; here the encoder's own ids stay.
    table = torch.zeros(max(backend.get_vocab().values()) + 1, rows.shape[1])
    places = distilled.tokenizer.get_vocab()
    for token, number in backend.get_vocab().items():
        if token in places:
            table[number] = rows[places[token]]
    static = SentenceTransformer(modules=[StaticEmbedding(backend, table), Normalize()], device="cpu")
    static.save(str(folder), create_model_card=False)
    return load_chunk_encoder(folder, name or Path(folder).name)


def fit_tfidf_encoder(
    chunk_encoder: str | os.PathLike[str] | LoadedChunkEncoder,
    texts: Iterable[str],
    folder: str | os.PathLike[str],
    hidden_size: int = 2_048,
    chunk_size: int = 256,
    seed: int = 0,
    sublinear_tf: bool = True,
    name: str | None = None,
) -> LoadedChunkEncoder:
    """Makes a chunk encoder that sees words and nothing else: TF-IDF over tokens, hashed to `hidden_size` places.

    A token weighs log((1 + N) / (1 + n)), where n of the N chunks of the texts contain it. Tokens without a letter
    weigh nothing: punctuation tells editions apart, not what they say. The folder is small (400 kB without the
    tokenizer). Put beside a static encoder by `combine_chunk_encoders`, it adds what dense vectors blur.

    Args:
        chunk_encoder: name, folder or loaded encoder whose tokenizer is used.
        texts: documents to count tokens in.
        folder: where it is written; `load_chunk_encoder(folder)` opens it.
        hidden_size: places; similarities have an error of about 1 / sqrt(hidden_size).
        chunk_size: most tokens of a chunk.
        seed: of places and signs.
        sublinear_tf: a token that stands n times in a chunk counts 1 + ln n times, not n times: what a text is about
            it says in several chunks, not in one.
        name: where others find the result; by default the name of the folder.

    Raises:
        ValueError: for texts without tokens, or a size that is not positive.
    """
    if hidden_size < 1:
        raise ValueError(f"hidden_size must be at least 1, got {hidden_size}; 2048 suits whole books.")
    source = chunk_encoder if isinstance(chunk_encoder, LoadedChunkEncoder) else load_chunk_encoder(chunk_encoder)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, chunk_size)
    words = source.tokenizer.get_vocab()
    rows = max(words.values()) + 1
    chunks, containing = 0, np.zeros(rows, np.int64)
    for text in tqdm(texts, desc="counting", unit="document"):
        ids = tokenize_document(source.tokenizer, text).input_ids
        boundaries = rule.boundaries(ids)
        number = np.repeat(np.arange(len(boundaries) - 1), np.diff(boundaries))
        pairs = np.unique(number * rows + ids)  # each chunk with each of its tokens, once
        containing += np.bincount(pairs % rows, minlength=rows)
        chunks += len(boundaries) - 1
    if not chunks:
        raise ValueError(
            "The texts hold no tokens, so there is nothing to count; give documents like those to search."
        )
    weights = np.log((1 + chunks) / (1 + containing))
    special = set(source.tokenizer.all_special_tokens)
    for word, row in words.items():
        if word in special or not any(letter.isalpha() for letter in word):
            weights[row] = 0.0
    ids_of = {"pad_token_id": source.tokenizer.pad_token_id, "unk_token_id": source.tokenizer.unk_token_id}
    model = HashedTfidfModel(
        HashedTfidfConfig(vocab_size=rows, hidden_size=hidden_size, sublinear_tf=sublinear_tf, **ids_of)
    )
    draw = np.random.default_rng(seed)
    signs = draw.choice([-1.0, 1.0], rows)
    model.load_state_dict(
        {
            "places": torch.from_numpy(draw.integers(hidden_size, size=rows, dtype=np.int32)),
            "weight": torch.from_numpy(signs * weights).float(),
        }
    )
    model.save_pretrained(folder)
    tokenizer = copy.deepcopy(source.tokenizer)
    tokenizer.model_max_length = int(1e30)  # documents are tokenised whole
    tokenizer.save_pretrained(folder)
    return load_chunk_encoder(folder, name or Path(folder).name)
