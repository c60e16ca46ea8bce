"""``nextlevelbert fit``: a model whose vectors are fitted to documents in closed form."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from ..encoders import LoadedChunkEncoder, load_chunk_encoder
from ..fitting import combine_chunk_encoders, fit_tfidf_encoder
from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..models.pretrained import store_weights_as
from ..static_checkpoint import static_checkpoint
from ..training.cards import SIMILARITY_WIDGET, CardFacts, safe_name, write_card
from .opening import quiet
from .printing import Printer, print_json, print_unreadable
from .shelf import Unreadable, list_files, read_file

PLACES = 4_096  # that tokens are hashed to
STATIC_SHARE = 0.2  # the squared weight of the token vectors; both are chosen in docs/results.md


def hybrid_encoder(
    encoder: LoadedChunkEncoder,
    texts: list[str],
    folder: Path,
    places: int = PLACES,
    share: float = STATIC_SHARE,
    seed: int = 0,
    third: LoadedChunkEncoder | None = None,
    third_share: float = 0.3,
) -> LoadedChunkEncoder:
    """A chunk encoder, whitened, and hashed TF-IDF, centred, side by side; both fitted to texts.

    Args:
        encoder: usually static; a transformer reads all texts once.
        texts: documents like those to compare.
        folder: where the parts and the whole are written.
        places: dimensions of the TF-IDF.
        share: the squared weight of `encoder`.
        seed: of the hashing.
        third: a third part over the same vocabulary, whitened too.
        third_share: its squared weight; the others keep their proportion.

    Raises:
        ValueError: for texts without tokens, too few of them, or an encoder that is a hybrid already.
    """
    words = fit_tfidf_encoder(encoder, texts, folder / "words", hidden_size=places, seed=seed)
    parts, squared, whiten, name = [encoder, words], [share, 1 - share], [True, False], f"{encoder.name}-and-words"
    if third is not None:
        parts, whiten, name = [*parts, third], [*whiten, True], f"{name}-and-{Path(third.name).name}"
        squared = [*((1 - third_share) * value for value in squared), third_share]
    weights = [value**0.5 for value in squared]
    return combine_chunk_encoders(parts, texts, folder / "both", weights, whiten=whiten, name=name)


def save_model(encoder: LoadedChunkEncoder, folder: Path) -> NextLevelBertModel:
    """Writes a checkpoint whose document vectors are means of these chunk vectors, in float16; the model."""
    model = NextLevelBertModel.from_chunk_encoder(encoder, pooling="plain")
    model.save_pretrained(folder)
    store_weights_as(folder, torch.float16)
    return model


def _write_card(folder: Path, model: NextLevelBertModel, documents: int, encoder: str) -> None:
    own = model.config.hidden_size - PLACES
    name = safe_name(folder.resolve().name)
    facts = CardFacts(
        name=name,
        summary="A NextLevelBERT without an encoder over chunks. A document of any length is cut into chunks. Its "
        "vector is the mean of their vectors, which hold token vectors beside word counts. Nothing was trained: "
        "everything is fitted to documents in closed form.",
        snippet="import nextlevelbert  # registers the architecture\nfrom sentence_transformers import "
        f'SentenceTransformer\n\nmodel = SentenceTransformer("{name}")\n'
        'vectors = model.encode(["one text", "another"])',
        model={
            f"first {own:,} dimensions": f"chunk vectors of {encoder}, centred and whitened within documents",
            f"other {PLACES:,} dimensions": "TF-IDF, each token hashed to one of these places; centred",
            "weights": f"squared: {STATIC_SHARE} and {1 - STATIC_SHARE:g}",
        },
        training={"command": "nextlevelbert fit", "documents": documents},
        measured="Nothing was measured on these documents.",
        limits=[
            "It sees words and style, not meaning.",
            "What is rare and what is common was counted in the documents that it was fitted to.",
            "Nothing sees a chunk's neighbours.",
        ],
        pipeline_tag="sentence-similarity",
        tags=["nextlevelbert", "long-documents", "sentence-transformers", "feature-extraction"],
        widget=SIMILARITY_WIDGET,
    )
    write_card(folder, facts)


def run(arguments: argparse.Namespace) -> None:
    if arguments.output.exists() and (not arguments.output.is_dir() or any(arguments.output.iterdir())):
        raise SystemExit(f"error: {arguments.output} is there already; name a new or an empty folder.")
    quiet()
    unreadable: list[Unreadable] = []
    texts: list[str] = []
    for file in list_files(arguments.source):
        documents = read_file(file)
        if isinstance(documents, Unreadable):
            unreadable.append(documents)
        else:
            texts += [document.text for document in documents]
    print_unreadable([] if arguments.json else unreadable)
    if len(texts) < 2:
        raise SystemExit(f"error: vectors are fitted to two documents or more, better to many; found {len(texts)}.")
    try:
        encoder = load_chunk_encoder(arguments.chunk_encoder or static_checkpoint())
        with tempfile.TemporaryDirectory() as folder:
            model = save_model(hybrid_encoder(encoder, texts, Path(folder)), arguments.output)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from error
    _write_card(arguments.output, model, len(texts), safe_name(Path(encoder.name).name))
    size = model.config.hidden_size
    if arguments.json:
        answer = {"output": str(arguments.output), "documents": len(texts), "vector_size": size}
        print_json(answer, unreadable)
    else:
        line = f"Wrote {arguments.output}: fitted to {len(texts):,} documents, vectors of {size:,} values."
        Printer().line(line)
