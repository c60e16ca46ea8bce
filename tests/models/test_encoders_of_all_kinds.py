"""Chunk encoders of many architectures, against sentence-transformers and transformers."""

from typing import NamedTuple

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, BartConfig

from nextlevelbert import NextLevelBertConfig, NextLevelBertModel, load_chunk_encoder
from nextlevelbert.models.chunk_encoder import LoadedChunkEncoder

from ..toys.encoders import CONFIGS, DECODERS, TEXT, save_encoder, word_tokenizer
from ..toys.vectors import TINY, close


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


def test_a_model_supports_the_attention_that_all_of_its_encoders_support(encoder):
    model = NextLevelBertModel.from_chunk_encoder(
        encoder.source, chunk_size=10, num_hidden_layers=1
    )
    encoders = [model.encoder, model.chunk_encoder.model]

    for flag in ("_supports_sdpa", "_supports_flash_attn", "_supports_flex_attn"):
        assert getattr(model, flag) == all(getattr(each, flag) for each in encoders), flag


def model_over_t5(**fields):
    t5 = CONFIGS["t5"].to_dict()
    return NextLevelBertModel(
        NextLevelBertConfig(encoder_config=TINY, chunk_encoder_config=t5, **fields)
    )


def dtypes_of_t5(model) -> dict[bool, set[torch.dtype]]:
    """The dtypes of a chunk encoder's weights, by whether float16 is too narrow for them."""
    dtypes = {True: set(), False: set()}
    for name, weight in model.get_chunk_encoder().named_parameters():
        dtypes[".wo." in name].add(weight.dtype)
    return dtypes


def test_a_t5_keeps_the_weights_in_float32_that_overflow_in_float16(tmp_path):
    model_over_t5().save_pretrained(tmp_path)

    opened = NextLevelBertModel.from_pretrained(tmp_path, dtype=torch.float16)

    assert opened._keep_in_fp32_modules == {"wo"}
    assert dtypes_of_t5(opened) == {True: {torch.float32}, False: {torch.float16}}


def test_a_t5_that_is_cast_to_float16_keeps_the_same_weights_in_float32():
    model = model_over_t5()
    before = model.chunk_encoder.model.block[0].layer[1].DenseReluDense.wo.weight.clone()

    model.chunk_encoder.to(torch.float16)

    assert dtypes_of_t5(model) == {True: {torch.float32}, False: {torch.float16}}
    close(model.chunk_encoder.model.block[0].layer[1].DenseReluDense.wo.weight, before, atol=0)
    model.chunk_encoder.to(torch.float32)
    assert dtypes_of_t5(model) == {True: {torch.float32}, False: {torch.float32}}


def test_a_hybrid_of_a_t5_keeps_them_too():
    part = {"config": CONFIGS["t5"].to_dict(), "pooling": "mean", "normalize": True, "size": 32}
    hybrid = {"model_type": "hybrid-chunk-encoder", "parts": [{**part, "whiten": False}]}
    config = NextLevelBertConfig(encoder_config=TINY, chunk_encoder_config=hybrid)

    assert NextLevelBertModel(config)._keep_in_fp32_modules == {"wo"}


def test_weights_that_a_chunk_encoder_ties_are_known_above_it():
    bart = BartConfig(
        vocab_size=99,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
    )

    tied = NextLevelBertModel(
        NextLevelBertConfig(encoder_config=TINY, chunk_encoder_config=bart.to_dict())
    ).all_tied_weights_keys

    shared = "chunk_encoder.model.shared.weight"
    assert tied["chunk_encoder.model.encoder.embed_tokens.weight"] == shared
