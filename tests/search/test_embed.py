"""Files of vectors."""

import json
import weakref

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModel

from nextlevelbert import NextLevelBertModel, read_documents, static_checkpoint
from nextlevelbert.search import embed, open_library

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
        vectors = model.search_vectors(embedding.plain)
        for index, (start, end) in enumerate(embedding.spans.tolist()):
            row = next(rows)
            np.testing.assert_allclose(row.pop("vector"), vectors[index], atol=1e-3)
            assert list(row.values())[:4] == [place, index, start, end]

    assert next(rows, None) is None
    assert "".join(table["text"].to_pylist()) == "".join(TEXTS.values())


def test_embedded_chunks_and_questions_compare_as_in_a_search(command, books, reading, tmp_path):
    """The model whitens, so that plain vectors would have other cosines."""
    out = tmp_path / "out.parquet"
    model = AutoModel.from_pretrained(static_checkpoint())
    question = "Who hunts the whale?"

    command("embed", books, "-o", out, "--rows", "chunks", "--model", static_checkpoint())

    answer = open_library(str(books), model, reading).ask(question)
    vectors = torch.tensor(pq.read_table(out)["vector"].to_pylist())
    cosines = vectors @ model.encode_query(question)
    np.testing.assert_allclose(cosines, answer.cosine, atol=1e-3)
    assert int(cosines.argmax()) == int(answer.cosine.argmax())
    plain = model.encode(SEA).plain @ model.encode(question).plain[0]
    assert float(abs(plain[0] - answer.cosine[-1])) > 0.02


def test_embed_documents(command, books, toy_checkpoint, tmp_path):
    argv = ("-o", tmp_path / "out.parquet", "--rows", "documents", "--dtype", "float32")

    assert "vectors of 32 values" in command("embed", books, *argv).out

    table = pq.read_table(tmp_path / "out.parquet")

    assert table["document"].to_pylist() == list(TEXTS)

    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    for vector, text in zip(table["vector"].to_pylist(), TEXTS.values(), strict=True):
        np.testing.assert_allclose(vector, model.encode(text).document, atol=1e-3)


def test_the_same_rows_in_other_formats(command, books, tmp_path, monkeypatch):
    """Writes the rows of three files one after the other."""
    monkeypatch.setattr(embed, "_BYTES_AT_ONCE", 1)
    for kind in ("parquet", "csv", "jsonl", "npy"):
        command("embed", books, "-o", tmp_path / f"out.{kind}")
    table = pq.read_table(tmp_path / "out.parquet")
    rows = table.to_pylist()
    vectors = np.array(table["vector"].to_pylist(), np.float32)

    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    frame = pandas.read_csv(tmp_path / "out.csv")

    assert list(map(json.loads, lines)) == rows
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), vectors)
    np.testing.assert_allclose(frame.filter(like="vector_"), vectors, rtol=1e-6)
    assert frame["text"].tolist() == table["text"].to_pylist()
    assert frame["end"].tolist() == table["end"].to_pylist()


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "npy"])
def test_embed_holds_no_more_rows_of_more_files(command, tmp_path, suffix, monkeypatch):
    """Counts the tables of rows that are in memory when the next file is read."""
    make_rows = embed._chunk_rows
    tables = []
    alive = []

    def make_and_count(store, run):
        alive.append(sum(table() is not None for table in tables))
        table = make_rows(store, run)
        tables.append(weakref.ref(table))
        return table

    monkeypatch.setattr(embed, "_chunk_rows", make_and_count)
    monkeypatch.setattr(embed, "_BYTES_AT_ONCE", 1)
    for index in range(20):
        (tmp_path / f"{index:02d}.txt").write_text(f"{index} {SEA}", encoding="utf-8")

    said = command("embed", tmp_path / "*.txt", "-o", tmp_path / f"rows.{suffix}")

    assert said.status == 0
    assert len(tables) == 20
    assert max(alive) <= 2


def test_embed_passes_over_a_file_without_a_word(command, books, tmp_path):
    (books / "a.txt").write_text("\u200b\x07", encoding="utf-8")

    said = command("embed", books, "-o", tmp_path / "out.parquet")

    assert "a.txt: it holds no word that the model can read" in said.err
    assert said.status == 0


def test_embed_writes_no_table_among_the_documents(command, books):
    said = command("embed", books, "-o", books / "vectors.csv")

    assert said.status == 1
    assert "would be read as a document" in said.err


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
