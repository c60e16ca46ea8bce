"""Fixtures of the tests of tasks."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer, LongformerConfig, LongformerModel

from nextlevelbert import CdlmModel, CdlmProcessor


@pytest.fixture(scope="package")
def processor(encoder) -> CdlmProcessor:
    return CdlmProcessor.from_model(CdlmModel.from_encoder(encoder, max_length=128, attention_window=32))


@pytest.fixture(scope="package")
def longformer(toy_encoder_path, tmp_path_factory):
    """A plain transformers folder of another kind, with room for 60 tokens."""
    folder = tmp_path_factory.mktemp("longformer")
    tokenizer = AutoTokenizer.from_pretrained(toy_encoder_path, model_max_length=60)
    torch.manual_seed(0)
    config = LongformerConfig(
        vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        attention_window=8, max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LongformerModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
