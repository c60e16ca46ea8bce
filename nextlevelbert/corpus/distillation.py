"""Static chunk encoders made from sentence encoders: every token once through the network, and never again.

The method is model2vec's (Tulkens and van Dongen 2024, github.com/MinishLab/model2vec), and its library does the work:
each token's vector is the mean of the encoder's outputs for it, then come principal components, and weights that make
frequent tokens small. The tokenizer stays that of the sentence encoder, so both see the same chunks.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from tokenizers import Tokenizer

from ..models.encoder_loading import LoadedChunkEncoder, load_chunk_encoder
from ..models.saved_files import begin_sums, write_sums


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
    begin_sums(folder)
    static.save(str(folder), create_model_card=False)
    write_sums(folder)
    return load_chunk_encoder(folder, name or Path(folder).name)
