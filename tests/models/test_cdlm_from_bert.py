"""CDLM from and to checkpoints: Longformer's, any BERT's or RoBERTa's, its own, elsewhere and on
two processes."""

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
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
)

from nextlevelbert import CdlmForMaskedLM, CdlmModel

from ..toys.cdlm import GLOBALS, SIZE, batch, draw, globals_of
from ..toys.vectors import TINY, close
from .test_processing_cdlm import byte_level_tokenizer

# Checkpoints of transformers' Longformer.


@pytest.mark.parametrize(
    ("kind", "cls"), [(LongformerForMaskedLM, CdlmForMaskedLM), (LongformerModel, CdlmModel)]
)
@torch.no_grad()
def test_a_longformer_opens_and_gives_the_same(kind, cls, tmp_path):
    config = LongformerConfig(
        **SIZE, max_position_embeddings=66, attention_window=[4, 8, 4], layer_norm_eps=1e-5
    )
    source = draw(kind(config))
    source.save_pretrained(tmp_path)
    model, info = cls.from_pretrained(tmp_path, output_loading_info=True)

    assert not info["missing_keys"]
    assert not info["unexpected_keys"]  # LongformerModel has a pooler, which is not wanted
    assert model.config.attention_window == [4, 8, 4]

    ids, mask = batch()
    real = mask.bool()
    for places in ("none", "many", "different"):
        wide = globals_of(GLOBALS[places], ids.shape[1])
        expected = source(ids, attention_mask=mask, global_attention_mask=wide)[0]
        close(model(ids, mask, wide)[0][real], expected[real])


# Made of an encoder.


def save_encoder(model, tokenizer, folder):
    draw(model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def encoders(toy_encoder_path, tmp_path_factory):
    """Folders of a toy BERT and a toy RoBERTa with heads over words, and of both without."""
    folder = tmp_path_factory.mktemp("encoders")
    byte_level = byte_level_tokenizer()
    pieces = AutoTokenizer.from_pretrained(toy_encoder_path)
    bert = BertConfig(**TINY, vocab_size=len(pieces), max_position_embeddings=40)
    roberta = RobertaConfig(
        **TINY,
        vocab_size=len(byte_level),
        max_position_embeddings=42,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        type_vocab_size=1,
    )
    return {
        "bert": save_encoder(BertForMaskedLM(bert), pieces, folder / "bert"),
        "roberta": save_encoder(RobertaForMaskedLM(roberta), byte_level, folder / "roberta"),
        "bert without head": save_encoder(BertModel(bert), pieces, folder / "plain_bert"),
        "roberta without head": save_encoder(
            RobertaModel(roberta), byte_level, folder / "plain_roberta"
        ),
    }


def read(tokenizer):
    texts = ["The storm cut power to thousands.", "Power was cut.", "No."]
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    return tokens["input_ids"], tokens["attention_mask"]


@pytest.mark.parametrize("name", ["bert", "roberta", "minilm"])
@torch.no_grad()
def test_with_a_wide_window_it_is_the_encoder(encoders, minilm_path, name):
    folder = {**encoders, "minilm": minilm_path}[name]
    model = CdlmModel.from_encoder(folder, max_length=80, attention_window=80)
    encoder = AutoModel.from_pretrained(folder)
    ids, mask = read(model.tokenizer)
    expected = encoder.eval()(ids, mask).last_hidden_state[mask.bool()]
    wide = torch.zeros_like(mask)
    wide[:, [0, 3]] = 1  # global ones see as others do
    close(model(ids, mask).last_hidden_state[mask.bool()], expected)
    close(model(ids, mask, wide).last_hidden_state[mask.bool()], expected)
    for layer, source in zip(model.encoder.layer, encoder.encoder.layer, strict=True):
        attention = layer.attention.self
        for part in ("query", "key", "value"):
            weight = getattr(source.attention.self, part).weight
            assert torch.equal(getattr(attention, part).weight, weight)
            assert torch.equal(getattr(attention, f"{part}_global").weight, weight)

    assert model.config.mask_token_id == model.tokenizer.mask_token_id
    assert model.config.pad_token_id == model.tokenizer.pad_token_id


@pytest.mark.parametrize(("name", "pad", "offset"), [("bert", 0, 0), ("roberta", 1, 2)])
def test_the_position_table_is_the_encoder_s_again_and_again(encoders, name, pad, offset):
    model = CdlmModel.from_encoder(encoders[name], max_length=100)
    source = AutoModel.from_pretrained(encoders[name]).embeddings.position_embeddings.weight[
        offset:
    ]
    table = model.embeddings.position_embeddings.weight

    assert (len(source), len(table)) == (40, pad + 1 + 100)
    assert not table[: pad + 1].any()
    assert torch.equal(table[pad + 1 :], torch.cat([source, source, source[:20]]))
    assert model.config.max_sequence_length == 100

    model(torch.full((1, 100), 5))


@pytest.mark.parametrize(
    ("name", "kind"), [("bert", BertForMaskedLM), ("roberta", RobertaForMaskedLM)]
)
@torch.no_grad()
def test_the_head_over_words_is_kept_or_new_and_tied(encoders, name, kind):
    model = CdlmForMaskedLM.from_encoder(encoders[name], max_length=40, attention_window=80)
    ids, mask = read(model.tokenizer)
    ids[0, 3] = model.tokenizer.mask_token_id  # gets global attention
    expected = kind.from_pretrained(encoders[name]).eval()(ids, attention_mask=mask).logits
    close(model(ids, mask).logits[mask.bool()], expected[mask.bool()], atol=1e-4)
    new = CdlmForMaskedLM.from_encoder(encoders[f"{name} without head"], max_length=40)

    assert not new.lm_head.bias.any()

    for cdlm in (model, new):
        assert cdlm.lm_head.decoder.weight is cdlm.longformer.embeddings.word_embeddings.weight

    assert torch.isfinite(new(ids, mask).logits).all()


def test_other_encoders_are_refused_by_name(toy_encoder_path, tmp_path):
    other = DistilBertModel(DistilBertConfig(dim=32, n_layers=1, n_heads=4, hidden_dim=48))
    folder = save_encoder(other, AutoTokenizer.from_pretrained(toy_encoder_path), tmp_path)
    with pytest.raises(
        ValueError, match=r"is a distilbert; a CDLM starts from one of bert, roberta"
    ):
        CdlmModel.from_encoder(folder)
