"""More or fewer layers than an encoder has: what its configuration says of single layers follows."""

import pytest
import torch
from transformers import AlbertConfig, AutoModel, Gemma3nTextConfig, GPTNeoConfig, LongformerConfig

from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.models.backbones import select_states, with_layers

from ..toys.encoders import CONFIGS, TEXT, save_encoder
from ..toys.vectors import close


@pytest.mark.parametrize(
    ("name", "norm"), [("bert", None), ("modernbert", "final_norm"), ("qwen3", "norm")]
)
def test_fewer_layers_are_the_first_ones_of_the_encoder(name, norm):
    """transformers' own states after two of three layers."""
    torch.manual_seed(0)
    network = AutoModel.from_config(CONFIGS[name]).eval()
    short = AutoModel.from_config(type(network.config)(**with_layers(network.config, 2))).eval()
    weights = network.state_dict()
    short.load_state_dict({key: weights[key] for key in short.state_dict()})
    vectors = torch.randn(2, 9, 32)

    with torch.no_grad():
        states = network(inputs_embeds=vectors, output_hidden_states=True).hidden_states[2]
        output = short(inputs_embeds=vectors).last_hidden_state
        if norm is not None:
            states = getattr(network, norm)(states)

    close(output, states)


def test_groups_of_albert_s_layers_are_cut_with_the_layers():
    """Layers 0 to 3 share one set of weights, layers 4 to 7 another."""
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    config = AlbertConfig(**sizes, num_hidden_layers=8, num_hidden_groups=2, vocab_size=9)

    assert with_layers(config, 4)["num_hidden_groups"] == 1
    assert with_layers(config, 0)["num_hidden_groups"] == 1
    assert with_layers(config, 12)["num_hidden_groups"] == 3
    with pytest.raises(ValueError, match="Give a multiple of 4"):
        with_layers(config, 6)


def test_all_that_a_configuration_says_about_single_layers_is_cut():
    longformer = LongformerConfig(num_hidden_layers=3, attention_window=[8, 16, 32])
    neo = GPTNeoConfig(num_layers=4, attention_types=[[["global", "local"], 2]])
    gemma = Gemma3nTextConfig(num_hidden_layers=10, num_kv_shared_layers=4)

    assert with_layers(longformer, 2)["attention_window"] == [8, 16]
    assert GPTNeoConfig(**with_layers(neo, 3)).attention_layers == ["global", "local", "global"]
    eight = with_layers(gemma, 8)
    assert eight["num_kv_shared_layers"] == 2  # layers 6 to 9 have none of their own
    assert with_layers(gemma, 5)["num_kv_shared_layers"] == 0
    lists = ("layer_types", "activation_sparsity_pattern", "intermediate_size")
    assert {len(eight[name]) for name in lists} == {8}


def test_more_layers_than_the_encoder_has_repeat_its_pattern(tmp_path):
    """With random layers; copied ones would lack weights."""
    source = load_chunk_encoder(save_encoder(tmp_path, CONFIGS["modernbert"]))
    model = NextLevelBertModel.from_chunk_encoder(
        source, chunk_size=10, num_hidden_layers=5, random_layers=True
    )

    kinds = model.config.encoder_config.layer_types
    assert kinds == [*source.encoder.model.config.layer_types, *kinds[:2]]
    assert model.encode(TEXT).document.isfinite().all()
    with pytest.raises(ValueError, match="fewer num_hidden_layers"):
        NextLevelBertModel.from_chunk_encoder(source, chunk_size=10, num_hidden_layers=5)


def test_hidden_states_of_an_encoder_that_returns_all_of_them():
    network = AutoModel.from_config(CONFIGS["bert"])
    states = tuple(torch.full((1,), float(index)) for index in range(4))

    assert select_states(network, states, selection=True) is states
    assert select_states(network, states, selection=[0, -1]) == (states[0], None, None, states[3])
    assert select_states(network, states, selection=2) == (None, None, states[2], None)
    assert select_states(network, None, selection=[0]) is None
