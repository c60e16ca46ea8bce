"""A model that is fitted to a folder without training."""

from __future__ import annotations

import numpy as np
import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from nextlevelbert import NextLevelBertModel

from .conftest import COURT, KITCHEN, SEA

TEXTS = {"far/court.txt": COURT * 8, "kitchen.txt": KITCHEN * 9, "sea.txt": SEA * 10}  # several chunks each


@pytest.fixture
def books(books):
    for place, text in TEXTS.items():
        (books / place).write_text(text)
    return books


@pytest.fixture
def model(command, books, tmp_path) -> str:
    said = command("fit", books, "-o", tmp_path / "my-model")
    assert said.status == 0, said.err
    assert said.out == f"Wrote {tmp_path / 'my-model'}: fitted to 3 documents, vectors of 4,480 values.\n"
    return str(tmp_path / "my-model")


def test_both_parts_have_their_weights_and_find_the_nearest(model):
    chunks = [book.plain.numpy() for book in NextLevelBertModel.from_pretrained(model).encode(list(TEXTS.values()))]
    every = np.concatenate(chunks)
    np.testing.assert_allclose(np.linalg.norm(every, axis=1), 1, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(every[:, :384], axis=1) ** 2, 0.2, atol=1e-3)
    opened = SentenceTransformer(model)
    vectors = opened.encode([*TEXTS.values(), "Yeast, flour, a crust: the baker is at it."])
    assert vectors.shape == (4, 4_480)
    assert list(TEXTS)[opened.similarity(vectors[3:], vectors[:3])[0].argmax()] == "kitchen.txt"


def test_the_card_says_how_it_was_made(model):
    card = ModelCard.load(f"{model}/README.md")
    assert card.data.pipeline_tag == "sentence-similarity"
    assert "| documents | `3` |" in card.text
    assert "chunk vectors of all-MiniLM-L6-v2-static, centred" in card.text


def test_another_encoder_and_json(command, books, toy_checkpoint, tmp_path):
    (books / "broken.pdf").write_bytes(b"no pdf")
    said = command("fit", books, "-o", tmp_path / "toy", "--chunk_encoder", toy_checkpoint, "--json")
    assert said.json["documents"] == 3
    assert said.json["vector_size"] == 4_096 + 32
    assert [left_out["place"] for left_out in said.json["unreadable"]] == ["broken.pdf"]


def test_what_cannot_be_fitted(command, books, model, tmp_path):
    again = command("fit", books, "-o", model)
    assert (again.status, again.err) == (1, f"error: {model} is there already; name a new or an empty folder.")
    alone = command("fit", books / "sea.txt", "-o", tmp_path / "alone")
    assert "fitted to two documents or more, better to many; found 1" in alone.err
    nested = command("fit", books, "-o", tmp_path / "nested", "--chunk_encoder", model)
    assert nested.status == 1
    assert "is a hybrid already; give its parts" in nested.err
    missing = command("fit", books, "-o", tmp_path / "missing", "--chunk_encoder", tmp_path / "nothing")
    assert missing.err.startswith("error: ")
    assert not [folder for folder in ("alone", "nested", "missing") if (tmp_path / folder).exists()]
