"""HATE against its paper worked by hand, pieces of transformers and torch, and the contracts of the
house."""

import math

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from scipy.stats import norm
from torch.nn import functional as F
from transformers import BertConfig, BertModel, DistilBertConfig, LongformerConfig, ModernBertConfig
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings

from nextlevelbert import HateConfig, HateForMaskedSentencePrediction, HateModel
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD
from nextlevelbert.models.modeling_hate import sinusoids

from ..toys.vectors import TINY, close


def toy_config(hidden_size=32, **overrides) -> HateConfig:
    """Sentence vectors of 32 dimensions, a document model of 32 or less, 8 sentences in a
    window."""
    size = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 9}
    upper = BertConfig(
        hidden_size=hidden_size, intermediate_size=2 * hidden_size, hidden_dropout_prob=0.0, **size
    )
    values = {
        "encoder_config": upper.to_dict(),
        "chunk_encoder_config": BertConfig(**TINY, max_position_embeddings=64).to_dict(),
        "chunk_size": 8,
        "chunking": "fixed",
        **overrides,
    }
    return HateConfig(**values)


def toy(cls=HateModel, seed=3, **overrides):
    torch.manual_seed(seed)
    return cls(toy_config(**overrides)).eval()


def unit(*shape):
    return F.normalize(torch.randn(*shape), dim=-1)


@pytest.mark.parametrize(
    ("narrow", "reduction", "decoder"),  # step = floor((128 - H) / 2) is 32, 48, 0.
    [
        (64, "128-128 GELU 128-96 GELU 96-64", "64-96 GELU 96-128 GELU 128-128"),
        (32, "128-128 GELU 128-80 GELU 80-32", "32-80 GELU 80-128 GELU 128-128"),
        (127, "128-127 GELU 127-127 GELU 127-127", "127-127 GELU 127-127 GELU 127-128"),
        (128, "", ""),
    ],
)
def test_the_widths_of_the_autoencoder(narrow, reduction, decoder):
    size = {"num_hidden_layers": 1, "num_attention_heads": 1}
    config = HateConfig(
        encoder_config=BertConfig(hidden_size=narrow, **size).to_dict(),
        chunk_encoder_config=BertConfig(hidden_size=128, **size).to_dict(),
        include_chunk_encoder=False,
    )

    model = HateForMaskedSentencePrediction(config)

    assert layers_of(model.model.encoder.reduction) == reduction
    assert layers_of(model.head[0]) == decoder


def layers_of(modules):
    """Returns the widths of linear layers, and the names of other layers."""
    names = []
    for module in modules:
        if isinstance(module, torch.nn.Linear):
            names.append(f"{module.in_features}-{module.out_features}")
        else:
            names.append(type(module).__name__)
    return " ".join(names)


def gelu(values):
    """x times the normal distribution function of x."""
    return values * norm.cdf(values)


def chain(modules, vectors):
    """Linear layers with GELU between them, in numpy."""
    linear = [module for module in modules if isinstance(module, torch.nn.Linear)]
    for index, layer in enumerate(linear):
        if index > 0:
            vectors = gelu(vectors)
        vectors = vectors @ layer.weight.double().numpy().T + layer.bias.double().numpy()
    return vectors


@torch.no_grad()
def test_the_autoencoder_is_what_numpy_computes():
    """The decoder is followed by a linear layer and a LayerNorm of the sentence vectors' size."""
    model = toy(HateForMaskedSentencePrediction, hidden_size=16)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    sentences = torch.randn(4, 32)
    states = torch.randn(4, 16)
    decoder, last, layer_norm = model.head

    reduced = model.model.encoder.reduction(sentences)
    predicted = model.head(states)

    close(
        reduced.double(), torch.from_numpy(chain(model.model.encoder.reduction, sentences.numpy()))
    )
    decoded = chain([last], chain(decoder, states.numpy()))
    centred = decoded - decoded.mean(axis=1, keepdims=True)
    normalised = centred / np.sqrt(decoded.var(axis=1, keepdims=True) + 1e-5)
    expected = normalised * layer_norm.weight.numpy() + layer_norm.bias.numpy()
    close(predicted.double(), torch.from_numpy(expected))


def test_the_document_model_is_transformers_bert_with_sinusoids_in_its_table():
    model = toy()
    bert = BertModel(model.config.encoder_config, add_pooling_layer=False).eval()

    missing, unexpected = bert.load_state_dict(model.encoder.layers.state_dict(), strict=False)

    assert not unexpected
    assert set(missing) == {
        "embeddings.word_embeddings.weight",
        "embeddings.position_embeddings.weight",
    }
    table = torch.empty(9, 32)
    create_sinusoidal_embeddings(n_pos=9, dim=32, out=table)
    bert.embeddings.position_embeddings.weight.data.copy_(table)
    sentences = unit(1, 5, 32)
    fixed = model.special_embeddings.weight[CLS].expand(1, 1, 32)
    expected = bert(
        inputs_embeds=math.sqrt(32) * torch.cat([fixed, sentences], dim=1)
    ).last_hidden_state
    close(model(inputs_embeds=sentences).last_hidden_state, expected[:, 1:])
    close(toy(pooling="cls")(inputs_embeds=sentences).pooler_output, expected[:, 0])


@pytest.mark.parametrize("pooling", ["cls", "mean", "sum"])
def test_cls_mean_and_sum_with_padding(pooling):
    model = toy(pooling=pooling, hidden_size=16)
    torch.manual_seed(0)
    vectors = unit(2, 6, 32)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])

    output = model(inputs_embeds=vectors, attention_mask=mask)

    close(model(inputs_embeds=vectors[1:, :3]).pooler_output[0], output.pooler_output[1])
    rows = output.last_hidden_state[1, :3]
    if pooling == "mean":
        close(output.pooler_output[1], rows.mean(0))
    elif pooling == "sum":
        close(output.pooler_output[1], rows.sum(0))
    assert (output.last_hidden_state[1, 3:] == 0).all()
    assert output.last_hidden_state.shape == (2, 6, 16)
    assert output.chunk_vectors.shape == (2, 6, 32)
    special_ids = torch.tensor([[CLS, *[NOT_SPECIAL] * 6], [CLS, *[NOT_SPECIAL] * 3, *[PAD] * 3]])
    # What stands at special positions does not matter.
    packed = F.pad(vectors, (0, 0, 1, 0), value=float("nan"))
    close(model(inputs_embeds=packed, special_ids=special_ids).pooler_output, output.pooler_output)


def test_fixed_vectors_are_random_saved_and_never_trained():
    model = toy(HateForMaskedSentencePrediction, hidden_size=8)

    table = model.model.special_embeddings.weight

    assert (table[PAD] == 0).all()
    # As long as the vectors that they stand among.
    assert 0.5 < table[[CLS, MASK]].norm(dim=-1).mean() < 1.5
    assert not torch.equal(table[CLS], table[MASK])
    assert "special_embeddings.weight" not in dict(model.model.named_parameters())
    assert "special_embeddings.weight" in model.model.state_dict()


def batch_of():
    torch.manual_seed(5)
    special_ids = torch.full((3, 6), NOT_SPECIAL)
    vectors = unit(3, 6, 32)
    special_ids[:, 0] = CLS
    special_ids[0, [1, 5]] = MASK
    positions = special_ids == MASK
    return {
        "inputs_embeds": vectors,
        "special_ids": special_ids,
        "mask_positions": positions,
        "labels": vectors,
    }


@pytest.mark.parametrize("hidden_size", [32, 8])
@pytest.mark.parametrize("loss", ["p_norm", "cross_entropy"])
def test_masked_sentences_are_predicted_in_their_own_space(loss, hidden_size):
    model = toy(HateForMaskedSentencePrediction, loss=loss, hidden_size=hidden_size)
    batch = batch_of()

    output = model(**batch)

    assert output.predictions.shape == output.targets.shape == (2, 32)
    close(output.predictions.mean(-1), torch.zeros(2))  # as a LayerNorm leaves them
    if loss == "p_norm":
        chosen = (output.predictions @ output.targets.T).softmax(-1)
        close(output.loss, F.pairwise_distance(chosen, torch.eye(2), eps=0.0).mean())
        model.config.norm_order = 1.0
        close(model(**batch).loss, (chosen - torch.eye(2)).abs().sum(-1).mean())
    batch["inputs_embeds"] = batch["labels"].clone()
    batch["inputs_embeds"][batch["mask_positions"]] = 9.0
    close(model(**batch).predictions, output.predictions)  # what stood at a [MASK] is not seen
    model.train()
    model(**batch).loss.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name


def test_positions_suffice_for_longer_documents(toy_encoder_path):
    model = HateModel.from_chunk_encoder(toy_encoder_path, num_hidden_layers=1, max_chunks=600)

    assert model.config.encoder_config.max_position_embeddings == 601  # one more for [CLS]


@pytest.mark.parametrize(
    "upper",
    [
        ModernBertConfig(**TINY),
        LongformerConfig(**TINY),
        DistilBertConfig(dim=32, hidden_dim=32, n_layers=1, n_heads=2, sinusoidal_pos_embds=True),
    ],
    ids=lambda upper: upper.model_type,
)
def test_other_models_over_sentences_are_refused(upper):
    config = toy_config(encoder_config=upper.to_dict())
    with pytest.raises(ValueError, match=upper.model_type):
        HateModel(config)


def test_what_it_refuses(minilm):
    with pytest.raises(ValueError, match="at most"):
        HateModel.from_chunk_encoder(minilm, hidden_size=512)
    with pytest.raises(StrictDataclassError, match="loss"):
        toy_config(loss="smooth_l1")


def test_sinusoids_by_hand_and_as_a_library_makes_them():
    rows = sinusoids(torch.tensor([0, 1, 50]), 4)

    close(rows[0], torch.tensor([0.0, 1.0, 0.0, 1.0]))
    close(rows[1], torch.tensor([math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]))
    close(rows[2], torch.tensor([math.sin(50), math.cos(50), math.sin(0.5), math.cos(0.5)]))
    table = torch.empty(600, 32)
    create_sinusoidal_embeddings(n_pos=600, dim=32, out=table)
    close(sinusoids(torch.arange(600), 32), table, atol=1e-4)
    assert sinusoids(torch.arange(3), 7).shape == (3, 7)
