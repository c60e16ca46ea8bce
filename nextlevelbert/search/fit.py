"""``nextlevelbert fit``: a model whose vectors are fitted to documents in closed form."""

import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import torch
import transformers

from ..fitting import combine_chunk_encoders, fit_tfidf_encoder
from ..messages import readable_name
from ..models.files import write_whole
from ..models.from_encoder import load_chunk_encoder
from ..models.model_names import STATIC
from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..training.cards import (
    CITATIONS,
    SIMILARITY_WIDGET,
    VECTOR_SNIPPET,
    VECTOR_TAGS,
    CardText,
    RunReport,
    model_card,
)
from ..training.runs import safe_name
from ..whitening import WhiteningError
from .encoders.torch import choose_device
from .reading import ReadingOptions, read_files

PLACES = 4_096  # that tokens are hashed to
# The squared weight of the token vectors. Both numbers were chosen on training stories of SQuALITY.
STATIC_SHARE = 0.2
# Fitted to so many excerpts of novels (10,000 characters each), vectors found chapters of other
# novels about as well as fitted to 190 (MAP 0.77 and 0.79); fitted to six, worse (0.68).
_FEW_DOCUMENTS = 25
_CARD = CardText(
    summary=(
        "This model is a NextLevelBERT without an encoder over chunks. The vector of a document is"
        " the mean of the vectors of its chunks, which join token vectors and word counts. The"
        " model was not trained, but fitted to documents in closed form."
    ),
    intended_use="Use its vectors to find similar documents in these and in similar folders.",
    measured="The model was not measured on these documents.",
    limits=(
        "It compares words and style, not meaning.",
        "The vector of a chunk does not depend on its neighbours.",
    ),
    snippet=VECTOR_SNIPPET,
    pipeline_tag="sentence-similarity",
    tags=("nextlevelbert", *VECTOR_TAGS),
    widget=SIMILARITY_WIDGET,
)


def run(
    source: str,
    output: Path,
    *,
    text_column: str = "text",
    id_column: str = "id",
    model: str | None = None,
    device: str = "auto",
) -> None:
    """Writes a model that is fitted to the documents of a source.

    Args:
        source: a file, a folder or a pattern.
        output: folder to write the model to, new or empty.
        text_column: the column of the text in tables.
        id_column: the column of the id in tables.
        model: folder or name of the sentence encoder (default: the installed checkpoint).
        device: device that the encoder runs on, in float32; see `open_model`.

    Raises:
        ValueError: if there are fewer than two different documents.
    """
    transformers.utils.logging.disable_progress_bar()
    encoder = load_chunk_encoder(model or STATIC)
    encoder.encoder.to(choose_device(device, encoder.encoder))
    reading = ReadingOptions(text_column=text_column, id_column=id_column)
    texts = [document.text for document in read_files(source, reading, encoder.tokenizer)]
    different = len({text.strip() for text in texts})
    if different < 2:
        raise ValueError(
            f"fit needs at least two different documents, but {source} has {different}."
        )

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # `read_files` has named the files.
        warnings.filterwarnings("ignore", ".* unknown tokens only")
        words = fit_tfidf_encoder(encoder, texts, f"{folder}/words", hidden_size=PLACES)
        combine = partial(
            combine_chunk_encoders,
            [encoder, words],
            texts,
            f"{folder}/both",
            weights=[STATIC_SHARE**0.5, (1 - STATIC_SHARE) ** 0.5],
            name=f"{encoder.name}-and-words",
        )
        fitted = "centred and whitened"
        try:
            both = combine(whiten=[True, False])
        except WhiteningError:
            fitted = "centred"
            both = combine(whiten=[False, False])
            print(
                "note: every document is one chunk, or its chunks are alike, so that the token"
                " vectors are centred, but not whitened. Longer documents give better vectors.",
                file=sys.stderr,
            )
        fitted_model = NextLevelBertModel.from_chunk_encoder(both, pooling="plain")
    fitted_model.save_pretrained(output, state_dict=halved(fitted_model.state_dict()))

    size = fitted_model.config.hidden_size
    token_vectors = safe_name(Path(encoder.name).name)
    report = RunReport(
        training={"command": "nextlevelbert fit", "documents": len(texts)},
        model_rows={
            f"first {size - PLACES:,} dimensions": f"{token_vectors}, {fitted}",
            f"other {PLACES:,} dimensions": (
                "TF-IDF, each token hashed to one of these dimensions; centred"
            ),
            "weights": f"squared: {STATIC_SHARE} and {1 - STATIC_SHARE:g}",
        },
        citation=CITATIONS["nextlevelbert"],
    )
    card = model_card(_CARD, report, name=safe_name(output.resolve().name))
    write_whole(output / "README.md", str(card).encode())
    print(
        f"Wrote {readable_name(output)}: fitted to {len(texts):,} documents, vectors of {size:,}"
        " values."
    )
    if different < _FEW_DOCUMENTS:
        print(
            f"note: a fit to fewer than {_FEW_DOCUMENTS} documents is mostly noise. Compare it with"
            " the model without fitting, or fit to more documents of this kind.",
            file=sys.stderr,
        )


def halved(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns weights in float16, which take half the room; the model still opens in float32.

    Weights that float16 cannot hold are kept: whitening by very small differences makes large ones.
    """
    halves = dict(weights)
    for name, value in weights.items():
        half = value.half()
        if value.is_floating_point() and half.isfinite().all():
            halves[name] = half
    return halves
