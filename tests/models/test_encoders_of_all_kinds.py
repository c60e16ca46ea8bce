"""Chunk encoders of many architectures, against sentence-transformers and transformers."""

from typing import NamedTuple

import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.models.chunk_encoder import LoadedChunkEncoder

from ..toys.encoders import CONFIGS, DECODERS, TEXT, save_encoder, word_tokenizer
from ..toys.vectors import close


class Encoder(NamedTuple):
    """A saved encoder, opened by both packages."""

    name: str
    original: SentenceTransformer
    source: LoadedChunkEncoder


@pytest.fixture(scope="module", params=list(CONFIGS))
def encoder(request, tmp_path_factory) -> Encoder:
    name = request.param
    pooling = "mean"
    if name in DECODERS:
        pooling = "lasttoken"
    path = save_encoder(
        tmp_path_factory.mktemp(name),
        CONFIGS[name],
        word_tokenizer(is_decoder=name in DECODERS),
        pooling=pooling,
    )
    return Encoder(name, SentenceTransformer(path, device="cpu"), load_chunk_encoder(path))


@pytest.mark.parametrize(
    "making",
    [{}, {"num_hidden_layers": 1}, {"num_hidden_layers": 0}, {"pooling": "plain"}],
    ids=["own layers", "fewer", "none", "plain"],
)
def test_plain_chunk_vectors_are_those_of_sentence_transformers(encoder, making):
    model = NextLevelBertModel.from_chunk_encoder(encoder.source, chunk_size=10, **making)
    book = model.encode(TEXT)

    chunks = [TEXT[start:end] for start, end in book.spans.tolist()]
    assert len(chunks) > 3
    close(book.plain, encoder.original.encode(chunks, convert_to_tensor=True))
    assert book.document.isfinite().all()


def test_a_saved_model_opens_with_the_same_vectors(encoder, tmp_path):
    model = NextLevelBertModel.from_chunk_encoder(
        encoder.source, chunk_size=10, num_hidden_layers=1
    )
    book = model.encode(TEXT)
    model.save_pretrained(tmp_path)

    again = AutoModel.from_pretrained(tmp_path).encode(TEXT)
    vector = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXT, convert_to_tensor=True)
    close(again.plain, book.plain)
    close(again.chunks, book.chunks)
    close(again.document, book.document)
    close(vector, book.document)
    assert load_chunk_encoder(tmp_path).fingerprint == encoder.source.fingerprint
