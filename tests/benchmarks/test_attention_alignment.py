"""Ranks of mentions by attention, by hand and by transformers' Longformer."""

import numpy as np
import pytest
import torch
from transformers import LongformerConfig, LongformerModel

from benchmarks.studies import attention_alignment
from nextlevelbert import CdlmModel, CdlmProcessor

from ..toys.vectors import close

SEA = "The ship sailed out of the harbour into the storm. The captain watched the waves. "


@torch.no_grad()
def test_attention_between_a_token_and_the_source_in_both_directions():
    """Against plain Longformer with one global token, where both directions can be read off its
    definition."""
    torch.manual_seed(0)
    config = LongformerConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        attention_window=4,
        max_position_embeddings=40,
        pad_token_id=1,
    )
    model = LongformerModel(config, add_pooling_layer=False).eval()
    ids = torch.randint(3, 30, (1, 12))
    wide = torch.zeros_like(ids)
    wide[0, 3] = 1
    output = model(ids, global_attention_mask=wide, output_attentions=True)
    states = model.embeddings(ids)
    layer = model.encoder.layer[0].attention.self

    def heads(projection):
        return projection(states)[0].view(12, 2, 8).transpose(0, 1)  # [heads, tokens, size]

    query = heads(layer.query_global)[:, 3:4] / 8**0.5
    from_source = (query @ heads(layer.key_global).mT).softmax(-1)[:, 0]  # to every token
    products = heads(layer.query) / 8**0.5 @ heads(layer.key).mT
    near = (torch.arange(12)[:, None] - torch.arange(12)).abs() <= 2
    near[:, 3] = True
    to_source = products.masked_fill(~near, -torch.inf).softmax(-1)[:, :, 3]
    scores = attention_alignment.scores_of(output.attentions[-1], output.global_attentions[-1])
    expected = (from_source + to_source).sum(dim=0)
    rest = torch.arange(12) != 3
    close(scores[rest], expected[rest], atol=1e-6)


def test_percentile_ranks():
    inside = np.array([0, 1, 1, 1, 1, 1, 0], dtype=bool)
    scores = np.array([9.0, 0.0, 1.0, 2.0, 2.0, 3.0, 9.0])
    rank = attention_alignment.percentile_rank(scores, inside, np.arange(7) == 3)

    assert rank == pytest.approx(100 * 2.5 / 4)

    # Of 0 and 3, e^0 and e^3 have a mean of 10.5, which is above e^2; 1.5 would be below 2.
    scores = np.array([0.0, 3.0, 1.6, 2.0, 2.5])
    for scores_or_large in (scores, scores + 900):  # the same without an overflow
        rank = attention_alignment.percentile_rank(
            scores_or_large, np.ones(5, dtype=bool), np.arange(5) < 2
        )
        assert rank == pytest.approx(100 * 2 / 3)


def test_pairs_of_mentions_are_ranked(encoder):
    model = CdlmModel.from_encoder(encoder, max_length=128, attention_window=16).eval()
    processor = CdlmProcessor.from_model(model)
    new_document = attention_alignment.ECBPLUS["CoreferenceDocument"]
    mention = [attention_alignment.ECBPLUS["CoreferenceMention"](4, 8, "ship", 0)]
    documents = []
    for number, text in enumerate([SEA, "The ship came home."]):
        sentences = [(0, len(text))]
        documents.append(
            new_document(f"1_{number}ecb", 1, "1_ecb", text, sentences, mentions=mention)
        )
    [pair] = attention_alignment.draw_pairs(documents, 5, 0)

    assert pair.positive
    assert pair[1:3] == ((4, 8), (4, 8))
    assert 0 <= attention_alignment.rank(model, processor, pair) <= 100

    long = pair._replace(texts=(pair.texts[0], pair.texts[1] + " again" * 200))

    assert attention_alignment.rank(model, processor, long) is None
