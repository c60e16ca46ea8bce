"""The int8 form of the chunk encoder: near float32, the same wherever it is opened, refused where it is wrong."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from nextlevelbert import ChunkingRule, Document, NextLevelBertModel, encode_corpus, read_documents
from nextlevelbert.corpus.int8_encoder import load_int8_chunk_encoder, quantize_chunk_encoder
from nextlevelbert.models.chunking import tokenize_document


@pytest.fixture(scope="module")
def rule(minilm):
    return ChunkingRule.from_tokenizer(minilm.tokenizer, 64)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    documents = (document.text for document in read_documents("python-manual") if len(document.text) > 8_000)
    return [text[:8_000] for text, _ in zip(documents, range(6), strict=False)]


@pytest.fixture(scope="module")
def folder(minilm, rule, texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8")
    quantize_chunk_encoder(minilm, texts[:3], rule, folder, chunks=32)
    return folder


@pytest.fixture(scope="module")
def int8(minilm, folder):
    return load_int8_chunk_encoder(minilm, folder)


def test_vectors_of_other_texts_are_near_those_in_float32(minilm, int8, rule, texts):
    ids = tokenize_document(minilm.tokenizer, texts[4]).input_ids
    boundaries = rule.boundaries(ids)  # the last chunk is shorter: it is padded and masked
    exact = minilm.encoder.encode(ids, boundaries, rule)
    near = int8.encoder.encode(ids, boundaries, rule)
    assert torch.cosine_similarity(exact, near).min() > 0.99
    assert not torch.equal(exact, near)
    torch.testing.assert_close(near.norm(dim=1), torch.ones(len(near)))


def test_it_stands_for_the_weights_it_was_made_from_but_not_in_a_cache(minilm, int8):
    assert int8.encoder.fingerprint() == int8.fingerprint == minilm.encoder.fingerprint()
    assert int8.encoder.identity() != minilm.encoder.identity()


def test_padding_does_not_count(minilm, int8):
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(1_000, 30_000, (5, 40)))
    mask = torch.ones_like(ids)
    mask[2, 25:] = 0
    other = ids.masked_fill(mask == 0, 999)
    padded = int8.encoder(ids, mask)
    assert torch.equal(padded, int8.encoder(other, mask))
    assert torch.cosine_similarity(padded, minilm.encoder(ids, mask)).min() > 0.98
    assert torch.cosine_similarity(padded[2], int8.encoder(ids)[2], dim=0) < 0.98  # without the mask it is another


def test_a_model_and_a_corpus_use_it(minilm, int8, folder, rule, texts, tmp_path):
    model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=64)
    expected = model.encode(texts[4])
    near = model.encode(texts[4], chunk_encoder=int8)
    assert torch.cosine_similarity(near.plain, expected.plain).min() > 0.99
    documents = [Document("four", texts[4]), Document("five", texts[5])]
    corpus = encode_corpus(documents, int8, rule, tmp_path / "corpus", progress=False)
    corpus.check_model(model.config)
    torch.testing.assert_close(corpus["four"].vectors.float(), near.plain, atol=0.02, rtol=0)
    assert corpus.manifest["encoder"]["dtype"].startswith("int8 ")
    encode_corpus(documents, load_int8_chunk_encoder(minilm, folder), rule, tmp_path / "corpus", progress=False)
    with pytest.raises(ValueError, match=r"encoder.dtype: 'int8 \w+', 'float32'"):
        encode_corpus(documents, minilm, rule, tmp_path / "corpus", progress=False)


def test_nobody_is_told(toy_encoder_path, tmp_path):
    """The packages beneath would leave an identity in the home folder and report to an analytics service."""
    script = (
        "import sys\n"
        "from nextlevelbert import ChunkingRule, load_chunk_encoder\n"
        "from nextlevelbert.corpus.int8_encoder import quantize_chunk_encoder\n"
        "source = load_chunk_encoder(sys.argv[1])\n"
        "rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)\n"
        "quantize_chunk_encoder(source, ['The whale swam on and on. ' * 50], rule, sys.argv[2], chunks=4)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "CI"}  # which would keep them quiet, too
    (tmp_path / "home").mkdir()
    subprocess.run(
        [sys.executable, "-c", script, toy_encoder_path, str(tmp_path / "int8")],
        check=True,
        capture_output=True,
        env={**environment, "HOME": str(tmp_path / "home")},
    )
    assert (tmp_path / "int8" / "chunk_encoder_int8.bin").exists()
    assert not (tmp_path / "home" / "intel").exists()


def test_what_it_refuses(minilm, int8, folder, rule, texts, tmp_path):
    model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=64)
    with pytest.raises(ValueError, match="runs on the CPU, not compiled"):
        model.encode(texts[0], chunk_encoder=int8, compile=True)
    with pytest.raises(FileNotFoundError, match="make one with quantize_chunk_encoder"):
        load_int8_chunk_encoder(minilm, tmp_path)
    with pytest.raises(ValueError, match="no chunk of 62 tokens"):
        quantize_chunk_encoder(minilm, ["Too short."], rule, tmp_path)
    stranger = dataclasses.replace(minilm, fingerprint="0" * 64)
    with pytest.raises(ValueError, match="was made from weights"):
        load_int8_chunk_encoder(stranger, folder)
    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        model.encode(texts[0], chunk_encoder=dataclasses.replace(int8, fingerprint="0" * 64))
