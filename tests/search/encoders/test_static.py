"""A static model that is computed without torch, against the model itself."""

import json
from pathlib import Path

import numpy as np
import pytest

from nextlevelbert import NextLevelBertModel, static_checkpoint
from nextlevelbert.search.encoders import torch as torch_encoders
from nextlevelbert.search.encoders.choice import SearchModel
from nextlevelbert.search.encoders.static import StaticEncoder, is_static
from nextlevelbert.search.encoders.torch import TorchEncoder

from ..conftest import COURT, KITCHEN, SEA

INSTALLED = Path(static_checkpoint())
# Of the last text, whose chunks have nine tokens, 600 chunks need three windows of 250.
TEXTS = [SEA, "", f"Où est l'œuf? 渡渡 [SEP] [UNK]\n{COURT}", "\u200b", KITCHEN * 100]
OTHER_VALUES = [
    {},
    {"whiten_chunks": False, "chunk_encoder_normalize": False, "chunk_size": 9},
    {"chunk_size": 9, "max_chunks": 250, "window_overlap": 130},
]


@pytest.fixture(params=OTHER_VALUES, scope="module")
def folder(request, tmp_path_factory) -> Path:
    """The installed model with other values in its configuration."""
    folder = tmp_path_factory.mktemp("static")
    config = json.loads((INSTALLED / "config.json").read_text()) | request.param
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).symlink_to(INSTALLED / name)
    return folder


@pytest.fixture(scope="module")
def expected(folder) -> TorchEncoder:
    return TorchEncoder(NextLevelBertModel.from_pretrained(folder))


@pytest.mark.parametrize(
    "question",
    [
        "Who hunts the white whale?",
        "whale " * 700 + "Several chunks, the last of which is short.",
        "Où est l'œuf? 渡渡 [SEP] [UNK]",
    ],
)
def test_a_question_has_the_vector_of_the_model(folder, expected, question):
    vector = StaticEncoder(folder).question_vector(question)

    np.testing.assert_allclose(vector, expected.question_vector(question), atol=1e-6)
    assert np.linalg.norm(vector) == pytest.approx(1)


def test_a_question_without_a_token_has_no_vector(folder):
    assert StaticEncoder(folder).question_vector("\u200b") is None


@pytest.mark.filterwarnings("ignore:.* contain no token")
@pytest.mark.parametrize("texts", [TEXTS, ["\u200b"]])
def test_documents_have_the_vectors_of_the_model(folder, expected, texts):
    encoded = StaticEncoder(folder).encode(texts)

    by_model = expected.encode(texts)
    for spans, spans_by_model in zip(encoded.spans, by_model.spans, strict=True):
        np.testing.assert_array_equal(spans, spans_by_model)
    np.testing.assert_allclose(encoded.plain, by_model.plain, atol=1e-6)
    np.testing.assert_allclose(encoded.documents, by_model.documents, atol=2e-6)
    search_vectors = StaticEncoder(folder).search_vectors(encoded.plain)
    np.testing.assert_allclose(search_vectors, expected.search_vectors(by_model.plain), atol=2e-6)


def test_vectors_have_the_recipe_of_the_model(folder, expected):
    vectors = StaticEncoder(folder)

    assert vectors.encoder_recipe == expected.encoder_recipe
    assert vectors.rule == expected.rule


def test_a_token_without_a_vector_is_an_error(tmp_path):
    for path in INSTALLED.iterdir():
        (tmp_path / path.name).symlink_to(path)
    model = StaticEncoder(tmp_path)
    model.tokenizer.backend_tokenizer.add_tokens(["narwhalish"])

    with pytest.raises(ValueError, match="30522"):
        model.encode(["the narwhalish"])


MORE_THAN_A_TABLE = {
    "prompts": ("config.json", lambda config: config.update(prompts={"query": "query: "})),
    "sentence_steps": (
        "config.json",
        lambda config: config["chunk_encoder_config"].update(sentence_steps={"truncate_dim": 8}),
    ),
    "split_special_tokens": (
        "tokenizer_config.json",
        lambda config: config.update(split_special_tokens=True),
    ),
}


@pytest.mark.parametrize("case", MORE_THAN_A_TABLE)
def test_models_with_more_than_a_table_are_opened(case, tmp_path):
    for path in INSTALLED.iterdir():
        (tmp_path / path.name).symlink_to(path)
    name, change = MORE_THAN_A_TABLE[case]
    config = json.loads((INSTALLED / name).read_text())
    assert is_static(tmp_path)

    change(config)
    (tmp_path / name).unlink()
    (tmp_path / name).write_text(json.dumps(config))

    assert not is_static(tmp_path)


def refuse(*_, **__):
    raise AssertionError("the model is opened")


def test_other_models_are_opened(toy_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(torch_encoders, "open_model", refuse)

    assert is_static(INSTALLED)
    assert SearchModel(str(INSTALLED)).vectors.has_layers is False
    assert not is_static(Path(toy_checkpoint))
    assert not is_static(tmp_path)
    with pytest.raises(AssertionError, match="is opened"):
        SearchModel(toy_checkpoint).vectors  # noqa: B018
