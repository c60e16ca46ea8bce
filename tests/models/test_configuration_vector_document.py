"""What a configuration of a model over chunk vectors allows, and the windows of a long document."""

from __future__ import annotations

import itertools

import pytest
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given
from hypothesis import strategies as st
from transformers import AlbertConfig, BertConfig

from nextlevelbert import (
    BertAlConfig,
    CdlmConfig,
    ChunkBertConfig,
    HateConfig,
    NextLevelBertConfig,
    NextLevelBertModel,
)
from nextlevelbert.models.configuration_nextlevelbert import windows

from ..conftest import toy_config


@pytest.mark.parametrize("overlap", [-1, 4, 9])
def test_windows_that_would_leave_gaps(overlap):
    with pytest.raises(ValueError, match="from 0 to 3"):
        windows(10, 4, overlap)


@given(chunks=st.integers(0, 200), size=st.integers(1, 30), data=st.data())
def test_windows_cover_every_chunk(chunks, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    found = windows(chunks, size, overlap)
    covered = {chunk for start, end in found for chunk in range(start, end)}
    assert covered == set(range(chunks))
    assert all(end - start == min(size, chunks) for start, end in found)
    assert all(left[0] < right[0] <= left[1] - overlap for left, right in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"chunk_size": 2}, "leaves no room"),
        ({"chunk_size": 65}, "limit of 64"),
        ({"max_chunks": 9}, "give 1 to 8"),
        ({"max_chunks": 0}, "give 1 to 8"),
        ({"window_overlap": 8}, "from 0 to max_chunks - 1 = 7"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"encoder_config": AlbertConfig(hidden_size=32, num_attention_heads=4).to_dict()}, "embedding_size of 128"),
        ({"chunk_encoder_config": BertConfig(hidden_size=64).to_dict()}, "hidden sizes must be equal"),
    ],
)
def test_configurations_that_cannot_be(values, message):
    with pytest.raises(ValueError, match=message):
        toy_config(**values)


def test_choices_are_checked_when_set():
    with pytest.raises(StrictDataclassError, match="long_documents"):
        toy_config().long_documents = "cut"
    with pytest.raises(StrictDataclassError, match="chunk_size"):
        toy_config(chunk_size="many")


@pytest.mark.parametrize("kind", [BertAlConfig, CdlmConfig, ChunkBertConfig, HateConfig, NextLevelBertConfig])
def test_an_argument_that_is_no_field(kind):
    """It is refused where someone gives it, and kept where a file of another release holds it."""
    with pytest.raises(ValueError, match=rf"{kind.__name__} has no field chunk_sise. Its fields are .*initial"):
        kind(chunk_sise=128)
    every = {"num_labels": 3, "attn_implementation": "eager", "name_or_path": "x", "output_attentions": False}
    config = kind(**every, torch_dtype="float32", id2label={0: "a", 1: "b", 2: "c"})
    assert config.num_labels == 3
    assert kind.from_dict({**config.to_dict(), "of_later": 1}).of_later == 1
    assert kind(**config.to_dict()).to_dict() == config.to_dict()


def test_an_argument_of_saving_that_no_one_takes(tmp_path):
    with pytest.raises(TypeError, match="not safe_serialisation"):
        NextLevelBertModel(toy_config()).save_pretrained(tmp_path / "model", safe_serialisation=True)
    assert not (tmp_path / "model").exists()
    NextLevelBertModel(toy_config()).save_pretrained(tmp_path / "model", safe_serialization=True)
    assert (tmp_path / "model" / "model.safetensors").exists()
