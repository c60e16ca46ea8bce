"""Questions that are encoded without torch, against the model itself."""

import json
from pathlib import Path

import numpy as np
import pytest

from nextlevelbert import NextLevelBertModel, static_checkpoint
from nextlevelbert.search.model_vectors import question_vector
from nextlevelbert.search.static_question import StaticQuestions, is_static


@pytest.fixture(scope="module")
def model() -> NextLevelBertModel:
    return NextLevelBertModel.from_pretrained(static_checkpoint())


@pytest.fixture(scope="module")
def questions() -> StaticQuestions:
    return StaticQuestions(Path(static_checkpoint()))


@pytest.mark.parametrize(
    "question",
    [
        "Who hunts the white whale?",
        "whale " * 700 + "Several chunks, the last of which is short.",
        "Où est l'œuf? 渡渡 [SEP] [UNK]",
    ],
)
def test_a_question_has_the_vector_of_the_model(model, questions, question):
    vector = questions.vector(question)

    np.testing.assert_allclose(vector, question_vector(model, question), atol=1e-6)
    assert np.linalg.norm(vector) == pytest.approx(1)


def test_a_model_may_neither_whiten_nor_normalise(tmp_path):
    installed = Path(static_checkpoint())
    config = json.loads((installed / "config.json").read_text())
    config |= {"whiten_chunks": False, "chunk_encoder_normalize": False, "chunk_size": 9}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).symlink_to(installed / name)
    question = "What does the harbour master of the northern port write into the log?"

    vector = StaticQuestions(tmp_path).vector(question)

    expected = question_vector(NextLevelBertModel.from_pretrained(tmp_path), question)
    np.testing.assert_allclose(vector, expected, atol=1e-6)


def test_a_question_without_a_token_has_no_vector(questions):
    assert questions.vector("\u200b") is None


def test_other_models_are_opened(toy_checkpoint, tmp_path):
    assert is_static(Path(static_checkpoint()))
    assert not is_static(Path(toy_checkpoint))
    assert not is_static(tmp_path)
