"""``nextlevelbert fit``: a model whose vectors are fitted to documents in closed form."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from ..fitting import combine_chunk_encoders, fit_tfidf_encoder, static_checkpoint
from ..models.from_encoder import load_chunk_encoder
from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..training.trainer import SIMILARITY_WIDGET, model_card, safe_name
from .shelf import read_files

PLACES = 4_096  # that tokens are hashed to
# the squared weight of the token vectors; both were chosen on held-out stories (docs/results.md)
STATIC_SHARE = 0.2


def run(arguments: argparse.Namespace) -> None:
    output: Path = arguments.output
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{output} is there already; name a new or an empty folder.")
    encoder = load_chunk_encoder(arguments.chunk_encoder or static_checkpoint())
    documents = read_files(arguments.source, arguments.text_column, encoder.tokenizer)
    texts = [document.text for _, document in documents]
    if len(texts) < 2:
        raise ValueError(
            f"Vectors are fitted to two documents or more; {arguments.source} has {len(texts)}."
        )
    with tempfile.TemporaryDirectory() as folder:
        words = fit_tfidf_encoder(encoder, texts, f"{folder}/words", hidden_size=PLACES)
        weights = [STATIC_SHARE**0.5, (1 - STATIC_SHARE) ** 0.5]
        parts = [encoder, words]
        name = f"{encoder.name}-and-words"
        both = combine_chunk_encoders(
            parts, texts, f"{folder}/both", weights, whiten=[True, False], name=name
        )
        model = NextLevelBertModel.from_chunk_encoder(both, pooling="plain")
        tensors = model.state_dict().items()
        halves = {
            key: value.half() if value.is_floating_point() else value for key, value in tensors
        }
        model.save_pretrained(output, state_dict=halves)  # half the room; it still opens in float32
    size = model.config.hidden_size
    name = safe_name(output.resolve().name)
    model_card(
        name=name,
        widget=SIMILARITY_WIDGET,
        training={"command": "nextlevelbert fit", "documents": len(texts)},
        pipeline_tag="sentence-similarity",
        measured="Nothing was measured on these documents.",
        tags=["nextlevelbert", "long-documents", "sentence-transformers", "feature-extraction"],
        summary=(
            "A NextLevelBERT without an encoder over chunks: the vector of a document is the mean"
            " of its chunks', which hold token vectors beside word counts. Nothing was trained: all"
            " is fitted to documents in closed form."
        ),
        snippet=(
            "import nextlevelbert  # registers the architecture\nfrom sentence_transformers import "
            f'SentenceTransformer\n\nmodel = SentenceTransformer("{name}")\nvectors ='
            ' model.encode(["a text"])'
        ),
        model={
            f"first {size - PLACES:,} dimensions": (
                f"{safe_name(Path(encoder.name).name)}, centred and whitened"
            ),
            f"other {PLACES:,} dimensions": (
                "TF-IDF, each token hashed to one of these places; centred"
            ),
            "weights": f"squared: {STATIC_SHARE} and {1 - STATIC_SHARE:g}",
        },
        limits=["It sees words and style, not meaning.", "Nothing sees a chunk's neighbours."],
    ).save(output / "README.md")
    print(f"Wrote {output}: fitted to {len(texts):,} documents, vectors of {size:,} values.")
