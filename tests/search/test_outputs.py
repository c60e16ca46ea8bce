"""Files of vectors, and models fitted to a folder."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from nextlevelbert import NextLevelBertModel, read_documents

from ..toys.books import write_pdf
from .conftest import COURT, KITCHEN, SEA

TEXTS = {"far/court.txt": COURT, "kitchen.txt": KITCHEN, "sea.txt": SEA}


def test_embed_chunks(command, books, toy_checkpoint, tmp_path):
    out = tmp_path / "out.parquet"
    said = command("embed", books, "-o", out, "--rows", "chunks", "--dtype", "float32")
    assert "vectors of 32 values" in said.out
    table = pq.read_table(out)
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 32)
    assert list(tmp_path.glob("out*")) == [out]
    rows = iter(table.to_pylist())
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    for place, text in TEXTS.items():
        embedding = model.encode(text)
        for number, (start, end) in enumerate(embedding.spans.tolist()):
            row = next(rows)
            np.testing.assert_allclose(row.pop("vector"), embedding.plain[number], atol=1e-3)
            assert list(row.values())[:4] == [place, number, start, end]
    assert next(rows, None) is None
    assert "".join(table["text"].to_pylist()) == "".join(TEXTS.values())


def test_embed_documents(command, books, toy_checkpoint, tmp_path):
    words = ("-o", tmp_path / "out.parquet", "--rows", "documents", "--dtype", "float32")
    assert "vectors of 32 values" in command("embed", books, *words).out
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["document"].to_pylist() == list(TEXTS)
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    for vector, text in zip(table["vector"].to_pylist(), TEXTS.values(), strict=True):
        np.testing.assert_allclose(vector, model.encode(text).document, atol=1e-3)


def test_embed_names_the_first_page_of_each_chunk(command, tmp_path):
    path = write_pdf(tmp_path / "a.pdf", [SEA[:200], COURT[:200]])
    [document] = read_documents(path)
    command("embed", path, "-o", tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    starts = table["start"].to_numpy()
    pages = np.searchsorted(document.metadata["pages"], starts, side="right")
    assert set(pages) == {1, 2}
    assert table["page"].to_pylist() == pages.tolist()


def test_embed_keeps_metadata(command, tmp_path):
    (tmp_path / "in.jsonl").write_text(
        json.dumps({"id": "x", "body": SEA, "tags": ["é"], "year": 1851})
    )
    words = ("-o", tmp_path / "out.parquet", "--rows", "documents", "--text_column", "body")
    assert command("embed", tmp_path / "in.jsonl", *words).status == 0
    [row] = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert (row["document"], json.loads(row["metadata"])) == (
        "in.jsonl#x",
        {"tags": ["é"], "year": 1851},
    )


def test_a_document_is_not_written_over(command, tmp_path):
    table = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [SEA]}), table)
    before = table.read_bytes()

    for source in (tmp_path, table, tmp_path / "a.*"):
        assert "is a document" in command("embed", source, "-o", table).err

    assert table.read_bytes() == before


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
    assert command("embed", notes, "-o", out, *words).status == 0
    vectors = pq.read_table(out)["vector"].to_pylist()
    assert np.isfinite(vectors).all()


def test_fit_refuses_documents_that_are_all_equal(command, tmp_path):
    (tmp_path / "a.txt").write_text("The heron.")
    (tmp_path / "b.txt").write_text("The heron.\n")
    said = command("fit", tmp_path, "-o", tmp_path / "my-model")
    assert (said.status, said.out) == (1, "")
    assert "fit needs at least two different documents, but" in said.err
