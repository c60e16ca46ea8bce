"""A model that encodes between steps of its training trains on as before."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from nextlevelbert import BertAlForExtractiveSummarization, NextLevelBertModel
from nextlevelbert.models.backbones import evaluation_mode

TEXT = "The keeper wrote every evening. He noted the wind. He noted the height of the sea. "


def modes(model):
    return {name: module.training for name, module in model.named_modules()}


@pytest.fixture
def model(toy_encoder_path):
    """A model in training whose last layer stays in evaluation mode, as when it is frozen."""
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16).train()
    model.encoder.encoder.layer[-1].eval()
    return model


def test_encode_in_several_threads_leaves_every_module_in_its_mode(model):
    before = modes(model)
    documents = [TEXT * count for count in range(1, 13)]
    expected = list(map(model.encode, documents))

    with ThreadPoolExecutor(4) as pool:
        embeddings = list(pool.map(model.encode, documents))

    assert before[""]
    assert not before["encoder.encoder.layer.1"]
    assert modes(model) == before
    for embedding, other in zip(embeddings, expected, strict=True):
        torch.testing.assert_close(embedding.document, other.document, atol=1e-5, rtol=0)


def test_the_last_of_two_overlapping_blocks_ends_evaluation_mode(model):
    before = modes(model)
    first = evaluation_mode(model)
    second = evaluation_mode(model)

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    within_second = set(modes(model).values())
    second.__exit__(None, None, None)

    assert within_second == {False}
    assert modes(model) == before


def test_an_error_ends_evaluation_mode(model):
    before = modes(model)

    with pytest.raises(KeyError, match="a failed pass"), evaluation_mode(model):
        raise KeyError("a failed pass")

    assert modes(model) == before


def test_summarize_leaves_the_model_in_training(toy_encoder_path):
    model = BertAlForExtractiveSummarization.from_encoder(toy_encoder_path, segment_length=16)
    model.train()
    before = modes(model)

    model.summarize(TEXT, sentences=2)

    assert modes(model) == before
    assert set(before.values()) == {True}
