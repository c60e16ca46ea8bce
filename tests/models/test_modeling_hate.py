"""HATE against its paper worked by hand, pieces of transformers and torch, and the contracts of the
house."""

from __future__ import annotations

import math

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch.nn import functional as F
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    LongformerConfig,
    ModernBertConfig,
)
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings

from nextlevelbert import HateConfig, HateForMaskedSentencePrediction, HateModel
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD
from nextlevelbert.models.modeling_hate import sinusoids

from ..vector_toys import close


def toy_config(hidden_size=32, **overrides) -> HateConfig:
    """Sentence vectors of 32 dimensions, a document model of 32 or less, 8 sentences in a
    window."""
    size = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 9}
    upper = BertConfig(
        hidden_size=hidden_size, intermediate_size=2 * hidden_size, hidden_dropout_prob=0.0, **size
    )
    lower = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    values = {
        "encoder_config": upper.to_dict(),
        "chunk_encoder_config": BertConfig(**lower, max_position_embeddings=64).to_dict(),
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
    ("narrow", "widths"),  # step = floor((128 - H) / 2) is 32, 48.
    [(64, [128, 128, 96, 64]), (32, [128, 128, 80, 32]), (128, [128]), (127, [128, 127, 127, 127])],
)
def test_the_widths_of_the_autoencoder(narrow, widths):
    size = {"num_hidden_layers": 1, "num_attention_heads": 1}
    config = HateConfig(
        encoder_config=BertConfig(hidden_size=narrow, **size).to_dict(),
        chunk_encoder_config=BertConfig(hidden_size=128, **size).to_dict(),
        include_chunk_encoder=False,
    )
    model = HateForMaskedSentencePrediction(config)
    layers = [m for m in model.model.encoder.reduction if isinstance(m, torch.nn.Linear)]
    assert [layer.in_features for layer in layers] == widths[:-1]
    assert [layer.out_features for layer in layers] == widths[1:]
    decoder = [m for m in model.head[0] if isinstance(m, torch.nn.Linear)]
    assert [layer.out_features for layer in decoder] == widths[::-1][1:]
    # GELU between the layers, none at the end.
    kinds = [type(m).__name__ for m in model.head[0]]
    assert kinds == (["HateBottleneckLinear", "GELU"] * 3)[:5] * (len(widths) > 1)


def test_sinusoids_by_hand_and_as_a_library_makes_them():
    rows = sinusoids(torch.tensor([0, 1, 50]), 4)
    close(rows[0], torch.tensor([0.0, 1.0, 0.0, 1.0]))
    close(rows[1], torch.tensor([math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]))
    close(rows[2], torch.tensor([math.sin(50), math.cos(50), math.sin(0.5), math.cos(0.5)]))
    table = torch.empty(600, 32)
    create_sinusoidal_embeddings(n_pos=600, dim=32, out=table)
    close(sinusoids(torch.arange(600), 32), table, atol=1e-4)
    assert sinusoids(torch.arange(3), 7).shape == (3, 7)


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
    if pooling != "cls":
        rows = output.last_hidden_state[1, :3]
        close(output.pooler_output[1], rows.sum(0) if pooling == "sum" else rows.mean(0))
    assert (output.last_hidden_state[1, 3:] == 0).all()
    assert output.last_hidden_state.shape == (2, 6, 16)
    assert output.chunk_vectors.shape == (2, 6, 32)
    special_ids = torch.tensor([[CLS, *[NOT_SPECIAL] * 6], [CLS, *[NOT_SPECIAL] * 3, *[PAD] * 3]])
    packed = model(
        inputs_embeds=F.pad(vectors, (0, 0, 1, 0), value=float("nan")), special_ids=special_ids
    )
    close(
        packed.pooler_output, output.pooler_output
    )  # what stands at special positions does not matter


def test_fixed_vectors_are_random_saved_and_never_trained(tmp_path):
    model = toy(HateForMaskedSentencePrediction, hidden_size=8)
    table = model.model.special_embeddings.weight
    assert (table[PAD] == 0).all()
    assert (
        0.5 < table[[CLS, MASK]].norm(dim=-1).mean() < 1.5
    )  # as long as the vectors that they stand among
    assert not torch.equal(table[CLS], table[MASK])
    assert "special_embeddings.weight" not in dict(model.model.named_parameters())
    model.save_pretrained(tmp_path)
    close(AutoModel.from_pretrained(tmp_path).special_embeddings.weight, table, atol=0)


def batch_of():
    torch.manual_seed(5)
    special_ids, vectors = torch.full((3, 6), NOT_SPECIAL), unit(3, 6, 32)
    special_ids[:, 0], special_ids[0, [1, 5]] = CLS, MASK
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
    other = dict(
        batch,
        inputs_embeds=torch.where(
            batch["mask_positions"].unsqueeze(-1), 9.0, batch["inputs_embeds"]
        ),
    )
    close(model(**other).predictions, output.predictions)  # what stood at a [MASK] is not seen
    model.train()
    model(**batch).loss.backward()
    untouched = {name for name, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert not untouched


def test_positions_suffice_for_longer_documents(toy_encoder_path):
    model = HateModel.from_chunk_encoder(toy_encoder_path, num_hidden_layers=1, max_chunks=600)
    assert model.config.encoder_config.max_position_embeddings == 601  # one more for [CLS]


def test_what_it_refuses(minilm):
    with pytest.raises(ValueError, match="at most"):
        HateModel.from_chunk_encoder(minilm, hidden_size=512)
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    distil = DistilBertConfig(
        dim=32, hidden_dim=32, n_layers=1, n_heads=2, sinusoidal_pos_embds=True
    )
    for upper in (ModernBertConfig(**size), LongformerConfig(**size), distil):
        config = toy_config(encoder_config=upper.to_dict())
        with pytest.raises(ValueError, match=upper.model_type):
            HateModel(config)
    with pytest.raises(StrictDataclassError, match="loss"):
        toy_config(loss="smooth_l1")
