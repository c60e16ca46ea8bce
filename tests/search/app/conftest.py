"""The page over the toy documents."""

import pytest
import torch

from nextlevelbert import NextLevelBertModel
from nextlevelbert.search.app.page import Page


@pytest.fixture
def page(toy_encoder_path, books, open_library) -> Page:
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    return Page(open_library(model, books))
