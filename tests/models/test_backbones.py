"""The pretrained encoders that models are built around."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from transformers import BertConfig, DistilBertConfig, MPNetConfig, RobertaConfig

from nextlevelbert import ChunkingRule
from nextlevelbert.models.chunk_encoder import ChunkEncoder
from nextlevelbert.models.pretrained import usable_positions


@pytest.mark.parametrize(
    ("config_class", "extra", "positions"),
    [
        (BertConfig, {}, 64),
        (DistilBertConfig, {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}, 64),
        (RobertaConfig, {"pad_token_id": 1}, 62),
        (MPNetConfig, {"pad_token_id": 1}, 62),
    ],
)
def test_other_architectures_fill_their_position_table(config_class, extra, positions):
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    values = {**({} if "dim" in extra else size), "vocab_size": 200, "max_position_embeddings": 64, **extra}
    torch.manual_seed(1)
    encoder = ChunkEncoder(config_class(**values))
    assert usable_positions(encoder.model.config) == positions
    rule = ChunkingRule(positions, prefix_ids=(3,), suffix_ids=(4,), max_chunk_size=positions)
    ids = np.random.default_rng(0).integers(5, 200, 3 * rule.capacity - 20)
    boundaries = rule.boundaries(ids)
    together = encoder.encode(ids, boundaries, rule)
    alone = torch.cat(
        [encoder.encode(ids[a:b], np.array([0, b - a]), rule) for a, b in itertools.pairwise(boundaries)]
    )
    assert together.shape == (3, 32)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
