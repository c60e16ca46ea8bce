"""The contracts of a document model: any length, any batch, both ways in, saved and loaded without a change."""

from __future__ import annotations

import shutil
import warnings

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)

from nextlevelbert import NextLevelBertConfig, NextLevelBertForMaskedVectorModeling, NextLevelBertModel
from nextlevelbert.models.configuration_nextlevelbert import PAD

from ..conftest import toy_config
from ..vector_toys import TEXTS, close, packed_batch

CLASSES = [NextLevelBertModel, NextLevelBertForMaskedVectorModeling]


# --- saving and loading


def settings_of(config):
    """A configuration without the dtype that saving writes into it and into what is nested in it."""
    values = {key: value for key, value in config.to_diff_dict().items() if key not in ("dtype", "architectures")}
    return {k: {a: b for a, b in v.items() if a != "dtype"} if isinstance(v, dict) else v for k, v in values.items()}


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("include", [True, False])
def test_save_and_load_change_nothing(cls, include, tmp_path):
    model = cls(toy_config(include_chunk_encoder=include))
    for tensor in model.state_dict().values():
        tensor.copy_(torch.randn(tensor.shape))  # also what no initialisation gives, such as a nonzero [PAD] row
    model.save_pretrained(tmp_path)
    again, info = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    state = model.state_dict()
    assert state.keys() == again.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.state_dict().items())
    assert settings_of(again.config) == settings_of(model.config)
    frozen = {name for name, parameter in again.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name in state if "chunk_encoder." in name and name in dict(again.named_parameters())}


def test_the_auto_classes(tmp_path):
    model = NextLevelBertForMaskedVectorModeling(toy_config())
    model.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), NextLevelBertConfig)
    assert isinstance(AutoModelForPreTraining.from_pretrained(tmp_path), NextLevelBertForMaskedVectorModeling)
    base, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(base, NextLevelBertModel)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]  # the head is dropped without a word
    assert all(torch.equal(base.state_dict()[name], tensor) for name, tensor in model.model.state_dict().items())


def test_a_loaded_model_without_a_head_gets_a_new_one_only(tmp_path):
    model = NextLevelBertModel(toy_config())
    model.save_pretrained(tmp_path)
    again, info = NextLevelBertForMaskedVectorModeling.from_pretrained(tmp_path, output_loading_info=True)
    assert {name.split(".")[0] for name in info["missing_keys"]} == {"head"}
    assert all(torch.equal(again.model.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    assert all(torch.isfinite(parameter).all() for parameter in again.parameters())


def test_new_special_vectors_have_length_one_and_padding_is_zero():
    table = NextLevelBertModel(toy_config()).special_embeddings.weight
    assert (table[PAD] == 0).all()
    assert 0.5 < table[1:].norm(dim=-1).mean() < 1.5


def test_half_precision_round_trip(tmp_path):
    NextLevelBertModel(toy_config()).to(torch.bfloat16).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path)
    assert model.dtype == torch.bfloat16
    output = model(inputs_embeds=torch.randn(1, 3, 32))
    assert output.pooler_output.dtype == torch.bfloat16
    assert (
        AutoModel.from_pretrained(tmp_path, dtype=torch.float32)(
            inputs_embeds=torch.randn(1, 3, 32)
        ).pooler_output.dtype
        == torch.float32
    )


def test_it_starts_from_the_encoders_own_layers(minilm):
    model = NextLevelBertModel.from_chunk_encoder(minilm)
    source = minilm.encoder.model.state_dict()
    ours = model.encoder.state_dict()
    assert set(source) - set(ours) == {"embeddings.word_embeddings.weight"}
    assert all(torch.equal(tensor, source[name]) for name, tensor in ours.items())
    assert model.config.max_chunks == 510
    with pytest.raises(ValueError, match="no weights for 16 tensors of encoder_config"):
        NextLevelBertModel.from_chunk_encoder(
            minilm, encoder_config={**minilm.encoder.model.config.to_dict(), "num_hidden_layers": 7}
        )
    shorter = NextLevelBertModel.from_chunk_encoder(
        minilm, encoder_config={**minilm.encoder.model.config.to_dict(), "max_position_embeddings": 34}
    )
    assert shorter.config.max_chunks == 32
    name = "embeddings.position_embeddings.weight"
    assert torch.equal(shorter.encoder.state_dict()[name], source[name][:34])


SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SPECIALS = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}


@pytest.mark.parametrize(
    "config",
    [
        BertConfig(**SIZE, max_position_embeddings=12),
        RobertaConfig(**SIZE, max_position_embeddings=14, pad_token_id=1),
        MPNetConfig(**SIZE, max_position_embeddings=14, pad_token_id=1),
        DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=12),
        ModernBertConfig(**SIZE, **SPECIALS, max_position_embeddings=12, vocab_size=99),
    ],
    ids=lambda config: config.model_type,
)
def test_any_backbone_that_takes_vectors(config, tmp_path):
    model = NextLevelBertModel(toy_config(encoder_config=config.to_dict())).eval()
    assert model.config.max_chunks == 10
    vectors = torch.randn(2, 25, 32)
    with torch.no_grad():
        expected = model(inputs_embeds=vectors).pooler_output
        model.save_pretrained(tmp_path)
        close(AutoModel.from_pretrained(tmp_path)(inputs_embeds=vectors).pooler_output, expected)
        close(model(inputs_embeds=vectors[:1]).pooler_output, expected[:1])


def test_gradients_reach_everything_but_the_frozen_encoder():
    model = NextLevelBertForMaskedVectorModeling(toy_config()).train()
    model(**packed_batch()).loss.backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {name for name, _ in model.named_parameters() if "chunk_encoder" in name}


def test_a_batch_in_which_nothing_is_selected_has_loss_zero():
    model = NextLevelBertForMaskedVectorModeling(toy_config())
    output = model(**{**packed_batch(), "mask_positions": torch.zeros(2, 10, dtype=torch.bool)})
    assert output.loss == 0
    output.loss.backward()


def test_a_model_whose_folder_is_gone_can_still_be_saved(minilm, tmp_path):
    NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=16).save_pretrained(tmp_path / "first")
    model = NextLevelBertModel.from_pretrained(tmp_path / "first")
    shutil.rmtree(tmp_path / "first")
    with pytest.warns(UserWarning, match="Saved without a tokenizer"):
        model.save_pretrained(tmp_path / "second")
    NextLevelBertModel.from_pretrained(tmp_path / "second").save_pretrained(tmp_path / "third")  # vectors only


def test_no_tokenizer_and_no_word_embeddings(tmp_path):
    model = NextLevelBertModel(toy_config())
    with pytest.raises(ValueError, match="Found no tokenizer"):
        model.encode("text")
    with pytest.raises(ValueError, match="no word embeddings"):
        model.resize_token_embeddings(10)


def test_ordinary_use_warns_of_nothing(toy, tmp_path, transformers_log):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        toy.encode(TEXTS)
        toy.save_pretrained(tmp_path)
        NextLevelBertModel.from_pretrained(tmp_path).encode(TEXTS)
    assert not [record for record in transformers_log.records if record.levelname == "WARNING"]
