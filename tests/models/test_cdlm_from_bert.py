"""CDLM from and to checkpoints: Longformer's, any BERT's or RoBERTa's, its own, elsewhere and on two processes."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    LongformerConfig,
    LongformerForMaskedLM,
    LongformerModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
)

from nextlevelbert import (
    CdlmForDocumentMatching,
    CdlmForMaskedLM,
    CdlmModel,
)

from ..cdlm_toys import GLOBALS, SIZE, batch, draw, globals_of
from .test_processing_cdlm import byte_level_tokenizer

# Checkpoints of transformers' Longformer.


@pytest.fixture(scope="module", params=[LongformerForMaskedLM, LongformerModel])
def longformer(request, tmp_path_factory):
    """A random Longformer of transformers, and the folder where it is saved."""
    config = LongformerConfig(**SIZE, max_position_embeddings=66, attention_window=[4, 8, 4], layer_norm_eps=1e-5)
    model = draw(request.param(config))
    folder = tmp_path_factory.mktemp("longformer")
    model.save_pretrained(folder)
    return model, str(folder)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("places", ["none", "many", "different"])
@torch.no_grad()
def test_a_longformer_opens_and_gives_the_same(longformer, attention, places):
    theirs, folder = longformer
    cls = CdlmForMaskedLM if isinstance(theirs, LongformerForMaskedLM) else CdlmModel
    ours, info = cls.from_pretrained(folder, attn_implementation=attention, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]  # LongformerModel has a pooler, which is not wanted
    assert ours.config._attn_implementation == attention
    assert ours.config.windows() == [4, 8, 4]
    ids, mask = batch()
    wide = globals_of(GLOBALS[places], ids.shape[1])
    found = ours(ids, mask, wide)[0]
    expected = theirs(ids, attention_mask=mask, global_attention_mask=wide)[0]
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=0)
    assert (expected[mask.bool()] - theirs(ids, attention_mask=mask)[0][mask.bool()]).abs().max() > (
        0.01 if places != "none" else -1
    )


@torch.no_grad()
def test_a_longformer_opens_with_fields_and_any_dtype(longformer):
    _, folder = longformer
    model = CdlmForDocumentMatching.from_pretrained(folder, num_labels=3, dtype="auto", attention_window=8)
    assert model(batch()[0]).logits.shape == (4, 3)
    assert model.config.windows() == [8, 8, 8]


# Made of an encoder.


def save_encoder(model, tokenizer, folder):
    draw(model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


ENCODER_SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@pytest.fixture(scope="module")
def encoders(toy_encoder_path, tmp_path_factory):
    """Folders of a toy BERT and a toy RoBERTa with heads over words, and of both without."""
    folder = tmp_path_factory.mktemp("encoders")
    byte_level = byte_level_tokenizer()
    pieces = AutoTokenizer.from_pretrained(toy_encoder_path)
    bert = BertConfig(**ENCODER_SIZE, vocab_size=len(pieces), max_position_embeddings=40)
    roberta = RobertaConfig(
        **ENCODER_SIZE, vocab_size=len(byte_level), max_position_embeddings=42, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, type_vocab_size=1,
    )  # fmt: skip
    return {
        "bert": save_encoder(BertForMaskedLM(bert), pieces, folder / "bert"),
        "roberta": save_encoder(RobertaForMaskedLM(roberta), byte_level, folder / "roberta"),
        "bert without head": save_encoder(BertModel(bert), pieces, folder / "plain_bert"),
        "roberta without head": save_encoder(RobertaModel(roberta), byte_level, folder / "plain_roberta"),
    }


def read(tokenizer):
    texts = ["The storm cut power to thousands.", "Power was cut.", "No."]
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    return tokens["input_ids"], tokens["attention_mask"]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "roberta", "minilm"])
@torch.no_grad()
def test_with_a_wide_window_it_is_the_encoder(encoders, minilm_path, name, attention):
    folder = {**encoders, "minilm": minilm_path}[name]
    model = CdlmModel.from_encoder(folder, max_length=80, attention_window=80)
    model.set_attn_implementation(attention)
    ids, mask = read(model.tokenizer)
    assert 2 * ids.shape[1] <= 80
    expected = AutoModel.from_pretrained(folder).eval()(ids, mask).last_hidden_state
    for wide in (None, torch.zeros_like(mask).index_fill(1, torch.tensor([0, 3]), 1)):  # global ones see as others do
        found = model(ids, mask, wide).last_hidden_state
        torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("name", "pad", "offset"), [("bert", 0, 0), ("roberta", 1, 2)])
def test_the_position_table_is_the_encoder_s_again_and_again(encoders, name, pad, offset):
    model = CdlmModel.from_encoder(encoders[name], max_length=100)
    theirs = AutoModel.from_pretrained(encoders[name]).embeddings.position_embeddings.weight[offset:]
    ours = model.embeddings.position_embeddings.weight
    assert theirs.shape[0] == 40
    assert ours.shape[0] == pad + 1 + 100
    assert not ours[: pad + 1].any()
    for position, learnt in ((0, 0), (1, 1), (39, 39), (40, 0), (41, 1), (79, 39), (80, 0), (99, 19)):
        assert torch.equal(ours[pad + 1 + position], theirs[learnt])
    assert model.config.max_sequence_length == 100
    model(torch.full((1, 100), 5))


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_projections_of_global_attention_start_as_copies(encoders, name):
    model = CdlmForMaskedLM.from_encoder(encoders[name], max_length=40)
    theirs = AutoModel.from_pretrained(encoders[name]).encoder.layer
    for ours, layer in zip(model.longformer.encoder.layer, theirs, strict=True):
        for part in ("query", "key", "value"):
            local = getattr(layer.attention.self, part)
            for found in (getattr(ours.attention.self, part), getattr(ours.attention.self, f"{part}_global")):
                assert torch.equal(found.weight, local.weight)
                assert torch.equal(found.bias, local.bias)
    tokenizer = model.tokenizer
    assert model.config.mask_token_id == tokenizer.mask_token_id
    assert model.config.pad_token_id == tokenizer.pad_token_id


@pytest.mark.parametrize(("name", "theirs"), [("bert", BertForMaskedLM), ("roberta", RobertaForMaskedLM)])
@torch.no_grad()
def test_the_head_over_words_is_kept(encoders, name, theirs):
    model = CdlmForMaskedLM.from_encoder(encoders[name], max_length=40, attention_window=80)
    ids, mask = read(model.tokenizer)
    ids[0, 3] = model.tokenizer.mask_token_id  # gets global attention
    expected = theirs.from_pretrained(encoders[name]).eval()(ids, attention_mask=mask).logits
    found = model(ids, mask).logits
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-4, rtol=0)
    assert model.lm_head.decoder.weight is model.longformer.embeddings.word_embeddings.weight


@pytest.mark.parametrize("name", ["bert without head", "roberta without head"])
@torch.no_grad()
def test_a_head_that_is_not_there_is_new_and_tied(encoders, name):
    model = CdlmForMaskedLM.from_encoder(encoders[name], max_length=40)
    theirs = AutoModel.from_pretrained(encoders[name]).embeddings.word_embeddings.weight
    assert model.lm_head.decoder.weight is model.longformer.embeddings.word_embeddings.weight
    assert torch.equal(model.lm_head.decoder.weight, theirs)
    assert not model.lm_head.bias.any()
    assert torch.isfinite(model(*read(model.tokenizer)).logits).all()


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (DistilBertModel, DistilBertConfig(dim=32, n_layers=1, n_heads=4, hidden_dim=48)),
        (MPNetModel, MPNetConfig(**{**ENCODER_SIZE, "num_hidden_layers": 1})),
    ],
)
def test_other_encoders_are_refused_by_name(kind, config, toy_encoder_path, tmp_path):
    folder = save_encoder(kind(config), AutoTokenizer.from_pretrained(toy_encoder_path), tmp_path)
    with pytest.raises(ValueError, match=rf"is a {config.model_type}; a CDLM starts from one of bert, roberta"):
        CdlmModel.from_encoder(folder)
