"""Fixtures of the tests of CDLM's scripts."""

import pytest

from nextlevelbert import CdlmModel, CdlmProcessor


@pytest.fixture(scope="package")
def processor(encoder) -> CdlmProcessor:
    return CdlmProcessor.from_model(
        CdlmModel.from_encoder(encoder, max_length=128, attention_window=32)
    )
