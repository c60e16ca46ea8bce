"""Models that several test files share."""

import pytest
import torch

from nextlevelbert import NextLevelBertModel

from ..toys.vectors import toy_config


@pytest.fixture
def toy(small_tokenizer):
    torch.manual_seed(3)
    model = NextLevelBertModel(toy_config()).eval()
    # Weights large enough that a wrong step shows.
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3) if parameter.ndim > 1 else parameter.data.add_(0.1)
    model.tokenizer = small_tokenizer
    return model
