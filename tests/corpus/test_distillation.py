"""A static chunk encoder made from a sentence encoder: model2vec's rows under the encoder's own ids."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from model2vec.distill.distillation import distill_from_model
from sentence_transformers import SentenceTransformer

from nextlevelbert import distill_chunk_encoder, load_chunk_encoder
from tests.golden.inputs import DOCUMENTS, FOLDER

ENCODER = FOLDER / "encoder" / "sentences"


@pytest.fixture(scope="module")
def source():
    return load_chunk_encoder(ENCODER, "golden/encoder")


@pytest.fixture(scope="module")
def static(source, tmp_path_factory):
    return distill_chunk_encoder(source, tmp_path_factory.mktemp("static") / "golden-static")


def test_rows_are_those_of_model2vec(source, static):
    size = source.encoder.hidden_size
    theirs = distill_from_model(
        source.encoder.model, source.tokenizer, device="cpu", pca_dims=size, quantize_to="float32"
    )
    numbers, table = theirs.tokenizer.get_vocab(), static.encoder.model.embedding.weight
    ours = static.tokenizer.get_vocab()
    assert ours == source.tokenizer.get_vocab()
    kept = [token for token in ours if token in numbers]
    assert len(kept) > 0.9 * len(ours)
    for token in kept:
        np.testing.assert_allclose(table[ours[token]].detach(), theirs.embedding[numbers[token]], atol=1e-5)
    for token in ours.keys() - numbers.keys():
        assert not table[ours[token]].any(), token


def test_saved_as_sentence_transformer(source, tmp_path):
    static = distill_chunk_encoder(source, tmp_path / "eight", hidden_size=8, name="me/eight")
    assert (static.name, static.encoder.hidden_size) == ("me/eight", 8)
    model = SentenceTransformer(str(tmp_path / "eight"), device="cpu")
    theirs = distill_from_model(
        source.encoder.model, source.tokenizer, device="cpu", pca_dims=8, quantize_to="float32"
    )
    texts = [document.text for document in DOCUMENTS]
    # model2vec would leave unknown tokens out of its mean, which sentence-transformers counts; here are none.
    assert all(source.tokenizer.unk_token_id not in source.tokenizer(text)["input_ids"] for text in texts)
    np.testing.assert_allclose(model.encode(texts), theirs.encode(texts, max_length=None), atol=1e-5)
    assert load_chunk_encoder(tmp_path / "eight").fingerprint == static.fingerprint
    torch.testing.assert_close(static.encoder.model.embedding.weight.shape, torch.Size([len(source.tokenizer), 8]))


def test_refused(source, static, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"from 1 to .*, got 1000"):
        distill_chunk_encoder(source, tmp_path, hidden_size=1_000)
    with pytest.raises(ValueError, match="is no transformer"):
        distill_chunk_encoder(static, tmp_path)
    monkeypatch.setitem(sys.modules, "model2vec.distill.distillation", None)
    with pytest.raises(ImportError, match=r"pip install nextlevelbert\[static\]"):
        distill_chunk_encoder(source, tmp_path)
    assert list(tmp_path.iterdir()) == []
