"""A model holds its chunk encoder or borrows it."""

import copy

import pytest
import torch

from nextlevelbert import NextLevelBertModel, load_chunk_encoder

from ..toys.vectors import TEXTS, close


def test_a_checkpoint_without_its_encoder_borrows_it_when_text_arrives(
    toy_encoder_path, tmp_path, monkeypatch
):
    source = load_chunk_encoder(toy_encoder_path, "someone/encoder")
    whole = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16)
    expected = whole.encode(TEXTS[2]).document
    whole.detach_chunk_encoder()
    whole.save_pretrained(tmp_path)

    again = NextLevelBertModel.from_pretrained(tmp_path)

    close(again.encode(TEXTS[2], chunk_encoder=source).document, expected)
    for field, value in (
        ("chunk_encoder_fingerprint", ""),
        ("chunk_encoder_name", toy_encoder_path),
    ):
        other = copy.deepcopy(again)
        setattr(other.config, field, value)
        with pytest.raises(ValueError, match="holds no chunk encoder"):
            other.encode(TEXTS[2])
    monkeypatch.setattr(
        "nextlevelbert.models.encoder_slot.load_chunk_encoder",
        lambda name, pooling: {source.name: source}[name],
    )
    close(again.encode(TEXTS[2]).document, expected)
    assert "chunk_encoder" not in str(again.state_dict().keys())
    rough = NextLevelBertModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    rough_document = rough.encode(TEXTS[2]).document
    assert torch.cosine_similarity(rough_document, expected, dim=0) > 0.999


def test_a_model_holds_its_encoder_or_borrows_it_but_never_both(toy_encoder_path, monkeypatch):
    source = load_chunk_encoder(toy_encoder_path, "someone/encoder")
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16)
    monkeypatch.setattr(
        "nextlevelbert.models.encoder_slot.load_chunk_encoder",
        lambda name, pooling: {source.name: source}[name],
    )

    removed = model.detach_chunk_encoder()
    model.encode(TEXTS[2])
    borrowed = model.borrowed_encoder
    model.attach_chunk_encoder(removed)

    assert borrowed is source
    assert model.borrowed_encoder is None
    assert model.get_chunk_encoder() is model.chunk_encoder
