"""From text to vectors: `encode`, `plan`, and the chunk encoder that may not be in the checkpoint."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification

from nextlevelbert import NextLevelBertForSequenceClassification, NextLevelBertModel

from ..vector_toys import TEXTS, close


def test_sentences_are_the_same_from_text_and_from_ids(toy_encoder_path, tmp_path):
    text = 'Mr. Brown came. "Go away!" It cost 3.50 dollars. ' * 30
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunking="sentences", chunk_size=16)
    embedding = model.encode(text)
    assert [text[a:b] for a, b in embedding.spans[:3]] == ["Mr. Brown came.", '"Go away!"', "It cost 3.50 dollars."]
    assert len(embedding.chunks) == 90
    model.save_pretrained(tmp_path)
    for other in (model, AutoModel.from_pretrained(tmp_path)):
        with torch.no_grad():
            output = other(**model.tokenizer(text, return_tensors="pt", verbose=False))
        close(output.pooler_output[0], embedding.document)
        close(output.chunk_vectors[0], embedding.plain)


def test_the_plan_counts_what_encoding_will_do(toy):
    text = "word " * 60 + "tail"
    plan = toy.plan(text)
    embedding = toy.encode(text)
    assert (plan.tokens, plan.chunks, plan.windows) == (61, 11, 2)
    assert len(embedding.chunks) == plan.chunks
    beyond = plan.beyond_first_window
    assert (beyond.chunks, beyond.tokens) == (3, 61 - 8 * 6)
    assert text[-beyond.characters :] == "word " * 12 + "tail"
    assert toy.plan(["short", ""])[1].windows == 0


def test_an_embedding_prints_shapes(toy):
    embedding = toy.encode("word " * 60 + "tail")
    assert repr(embedding) == "DocumentEmbedding(document=[32], chunks=[11, 32], plain=[11, 32], spans=[11, 2])"


def test_a_checkpoint_without_its_encoder_borrows_it_when_text_arrives(minilm, minilm_path, tmp_path, monkeypatch):
    whole = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=16)
    small = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=16, include_chunk_encoder=False)
    small.special_embeddings.load_state_dict(whole.special_embeddings.state_dict())
    small.config.chunk_encoder_name = minilm_path
    small.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size < 50e6
    again = NextLevelBertModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"names '.*model', a path on this machine\. Say which encoder"):
        again.encode(TEXTS[2])
    close(again.encode(TEXTS[2], chunk_encoder=minilm).document, whole.encode(TEXTS[2]).document)
    again.config.chunk_encoder_fingerprint = ""
    again.config.chunk_encoder_name = "someone/encoder"
    with pytest.raises(ValueError, match="has no chunk_encoder_fingerprint to know it by"):
        again.encode(TEXTS[2])
    on_hub = {"someone/encoder": minilm_path}
    load = AutoModel.from_pretrained
    monkeypatch.setattr(AutoModel, "from_pretrained", lambda name, **kwargs: load(on_hub.get(name, name), **kwargs))
    small.config.chunk_encoder_name = "someone/encoder"
    small.save_pretrained(tmp_path)
    again = NextLevelBertModel.from_pretrained(tmp_path)
    close(again.encode(TEXTS[2]).document, whole.encode(TEXTS[2]).document)
    assert not any("chunk_encoder" in name for name in again.state_dict())
    rough = NextLevelBertModel.from_pretrained(tmp_path, dtype=torch.bfloat16).encode(TEXTS[2]).document
    assert torch.cosine_similarity(rough, whole.encode(TEXTS[2]).document, dim=0) > 0.999
    again.config.chunk_encoder_name = "no/such-model"
    again._borrowed_chunk_encoder = None
    with pytest.raises(ValueError, match="holds no chunk encoder, and 'no/such-model'"):
        again.encode(TEXTS[2])


def test_another_encoder_than_the_models_is_refused(minilm):
    model = NextLevelBertModel.from_chunk_encoder(minilm, include_chunk_encoder=False)
    other = copy.copy(minilm)
    other.fingerprint = "0" * 64
    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        model.attach_chunk_encoder(other)
    model.attach_chunk_encoder(minilm)
    assert model.config.include_chunk_encoder
    assert model.chunk_encoder.fingerprint() == minilm.fingerprint


def test_blank_text_has_the_zero_vector_and_a_warning(toy):
    with pytest.warns(UserWarning, match=r"Document\(s\) 1, 3 contain no token"):
        found = toy.encode(["words", "", "more words", " \n\t"])
    assert (found[1].document == 0).all()
    assert found[1].chunks.shape == found[3].plain.shape == (0, 32)
    assert found[1].spans.shape == (0, 2)
    batch = toy.tokenizer(["words", ""], padding=True, return_tensors="pt")
    with pytest.warns(UserWarning, match=r"Document\(s\) 1 contain"), torch.no_grad():
        output = toy(**batch)
    assert (output.pooler_output[1] == 0).all()
    close(output.pooler_output[0], found[0].document)


@pytest.mark.parametrize("texts", [["a", None], 7, {"a": "b"}, {"a", "b"}, pd.DataFrame({"a": ["b"]}), np.array("a")])
def test_encode_refuses_what_is_not_text(toy, texts):
    with pytest.raises(TypeError):
        toy.encode(texts)
    with pytest.raises(TypeError):
        toy.plan(texts)


def test_no_text_gives_no_embedding(toy, toy_encoder_path):
    """As in sentence-transformers, where one text gives one vector, and no text none."""
    theirs = SentenceTransformer(toy_encoder_path, device="cpu").encode([], convert_to_numpy=False)
    assert toy.encode([]) == toy.plan([]) == theirs == []


@pytest.mark.parametrize(
    "made", [iter, tuple, np.array, pd.Series, lambda texts: pd.Series(texts, index=[7, 3, 5, 1])]
)
def test_texts_come_in_any_order_that_can_be_gone_through(toy, made):
    assert toy.plan(made(TEXTS)) == toy.plan(TEXTS)
    texts = TEXTS[1:2] * 4
    expected = toy.encode(texts[0]).document
    found = toy.encode(made(texts))
    assert len(found) == 4
    for embedding in found:
        close(embedding.document, expected)


def test_messages_count_documents_across_groups(toy, monkeypatch, caplog):
    monkeypatch.setattr("nextlevelbert.models.document_encoding._CHUNKS_PER_GROUP", 1)
    texts = ["short", "short", "word " * 60]
    toy.config.long_documents = "truncate"
    toy.encode(texts)
    assert "2 chunks of document(s) [2] are cut off" in caplog.text
    toy.config.long_documents = "error"
    with pytest.raises(ValueError, match=r"Documents \[2\] have \[10\] chunks"):
        toy.encode(texts)


def test_the_frozen_encoder_goes_out_and_comes_back(minilm, tmp_path):
    model = NextLevelBertForSequenceClassification.from_chunk_encoder(minilm, chunk_size=16)
    inputs = minilm.tokenizer([TEXTS[2]], return_tensors="pt")
    before = model(**inputs).logits
    source = model.base_model.detach_chunk_encoder()
    model.save_pretrained(tmp_path)
    assert not any("chunk_encoder" in name for name in model.state_dict())
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    loaded.base_model.attach_chunk_encoder(source)
    torch.testing.assert_close(loaded(**inputs).logits, before, atol=1e-6, rtol=1e-5)
