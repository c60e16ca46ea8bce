"""Models that are fitted to a folder."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from nextlevelbert import NextLevelBertModel

from .conftest import COURT, KITCHEN, SEA

TEXTS = {"far/court.txt": COURT, "kitchen.txt": KITCHEN, "sea.txt": SEA}


def test_fit(command, books, tmp_path):
    for place, text in TEXTS.items():
        (books / place).write_text(text * 10)  # several chunks each
    folder = tmp_path / "my-model"
    said = command("fit", books, "-o", folder)
    wrote = f"Wrote {folder}: fitted to 3 documents, vectors of 4,480 values.\n"

    assert said.out == wrote, said.err

    plain = NextLevelBertModel.from_pretrained(folder).encode(SEA * 10).plain
    np.testing.assert_allclose(plain.norm(dim=1), 1, atol=1e-3)
    np.testing.assert_allclose(plain[:, :384].norm(dim=1) ** 2, 0.2, atol=1e-3)
    opened = SentenceTransformer(str(folder))
    vectors = opened.encode([*TEXTS.values(), "Yeast, flour, a crust: the baker is at it."])

    assert list(TEXTS)[opened.similarity(vectors[3:], vectors[:3])[0].argmax()] == "kitchen.txt"

    card = ModelCard.load(folder / "README.md")

    assert card.data.pipeline_tag == "sentence-similarity"
    assert "| documents | `3` |" in card.text
    assert "exists already" in command("fit", books, "-o", folder).err
    assert (
        "two different documents" in command("fit", books / "sea.txt", "-o", tmp_path / "alone").err
    )


def test_a_fit_to_few_documents_is_named_noise(command, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(25):
        (notes / f"{number}.txt").write_text(f"{SEA} The tide came {number} times.")
    many = command("fit", notes, "-o", tmp_path / "of-25")
    (notes / "0.txt").unlink()

    few = command("fit", notes, "-o", tmp_path / "of-24")

    assert few.status == many.status == 0
    assert "fewer than 25 documents is mostly noise" in few.err
    assert "mostly noise" not in many.err


def test_fit_to_short_notes(command, tmp_path):
    """No note has two chunks to whiten by; vectors are centred, and words tell notes apart."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for number, text in enumerate(("The heron waits by the pond.", "Bread rests.", "The ferry.")):
        (notes / f"{number}.txt").write_text(text)
    folder = tmp_path / "my-model"

    said = command("fit", notes, "-o", folder)

    assert said.status == 0, said.err
    assert said.err.startswith("note: every document is one chunk")
    assert (
        "| first 384 dimensions | all-MiniLM-L6-v2-static, centred |"
        in (folder / "README.md").read_text()
    )
    rows = command("search", notes, "heron", "--json", "--model", folder).json["documents"]
    assert rows[0]["place"] == "0.txt"
    assert rows[0]["score"] > rows[1]["score"]


@pytest.mark.parametrize(
    "texts", [["The heron. " * 400, "\U0001f426"], ["The heron. " * 400, "The heron. " * 401]]
)
def test_what_is_fitted_is_finite(command, tmp_path, texts):
    """Chunks that hardly differ make a whitening that float16 cannot hold."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for number, text in enumerate(texts):
        (notes / f"{number}.txt").write_text(text)

    assert command("fit", notes, "-o", tmp_path / "my-model").status == 0

    out = tmp_path / "out.parquet"
    words = ("--rows", "documents", "--model", tmp_path / "my-model")
    said = command("embed", notes, "-o", out, *words)
    assert said.out == f"Wrote {out}: 2 rows with vectors of 4,480 values.\n"
    vectors = pq.read_table(out)["vector"].to_pylist()
    assert np.isfinite(vectors).all()


def test_fit_refuses_documents_that_are_all_equal(command, tmp_path):
    (tmp_path / "a.txt").write_text("The heron.")
    (tmp_path / "b.txt").write_text("The heron.\n")
    said = command("fit", tmp_path, "-o", tmp_path / "my-model")

    assert (said.status, said.out) == (1, "")
    assert "fit needs at least two different documents, but" in said.err
