"""Parquet parts: anybody's tools read them, and what is missing, damaged or foreign is named."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nextlevelbert import VectorCorpus, encode_corpus
from nextlevelbert.corpus.parts import part_content

from ..toys.corpora import DOCUMENTS, SMALL, all_equal, copied, parts


def every_vector(corpus):
    return corpus.vectors(0, corpus.num_chunks)


def test_an_unreadable_number_of_parts_is_named_and_written_again(corpus, source, rule, tmp_path):
    """Spark, for one, marks its folders with an empty file of this name."""
    folder = shutil.copytree(corpus.path, tmp_path / "copy")
    number = (folder / "_SUCCESS").read_text()
    (folder / "_SUCCESS").write_text("")
    with pytest.raises(ValueError, match="must hold the number of parts"):
        VectorCorpus(folder)

    (folder / "_SUCCESS").unlink()
    again = encode_corpus(DOCUMENTS, source, rule, folder, **SMALL)

    assert (folder / "_SUCCESS").read_text() == number
    assert all_equal(again, corpus)


def test_a_missing_part_is_named_and_a_deleted_one_is_written_again(corpus, source, rule, tmp_path):
    folder = shutil.copytree(corpus.path, tmp_path / "copy")
    for number in range(3):
        next(folder.glob(f"part-00000{number}-*")).unlink()
        with pytest.raises(ValueError, match=f"lacks part {number}"):
            VectorCorpus(folder)
        encode_corpus(DOCUMENTS, source, rule, folder, **SMALL)
        assert parts(folder) == parts(corpus.path)


def test_every_flipped_bit_of_a_part_changes_nothing_or_is_named(corpus, tmp_path):
    """In one byte of 17; what is left is in statistics and padding, where nobody reads."""
    folder = copied(corpus, tmp_path)
    part = sorted(folder.glob("part-*"))[0]
    whole = part.read_bytes()
    silent = 0
    places = range(0, len(whole), 17)
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        part.write_bytes(damaged)
        try:
            opened = VectorCorpus(folder)
            assert all_equal(corpus, opened), place
            assert opened.recipe == corpus.recipe, place
            silent += 1
        except ValueError as error:
            assert str(folder) in str(error), (place, error)  # noqa: PT017

    assert silent < len(places) / 5


def test_rows_that_are_no_corpus(corpus, rule, tmp_path):
    rows = pa.concat_tables([pq.read_table(path) for path in sorted(corpus.path.glob("*.parquet"))])
    for name, table, message in (
        (
            "shuffled",
            rows.take(np.random.default_rng(0).permutation(len(rows))),
            "are not consecutive",
        ),
        ("twice", pa.concat_tables([rows, rows]), "two documents with the id 'whale'"),
        ("bare", rows.replace_schema_metadata(None), "contains no recipe"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.parquet").write_bytes(part_content(table))
        with pytest.raises(ValueError, match=message):
            VectorCorpus(tmp_path / name)

    assert all_equal(VectorCorpus(tmp_path / "bare", corpus.recipe), corpus)


def test_plain_tools_read_it(corpus):
    """`datasets`, DuckDB and Polars, without this package; in memory map, the vectors are float16
    and not copied."""
    import duckdb
    import polars
    from datasets import load_dataset

    files = str(corpus.path / "*.parquet")
    cache = str(corpus.path.parent / "cache")
    rows = load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    window = rows.with_format("arrow")[3:9]["vector"].combine_chunks().flatten().to_numpy()
    assert np.array_equal(window.reshape(6, -1), corpus.vectors(3, 9).numpy())
    assert window.dtype == np.float16
    streamed = load_dataset(str(corpus.path), split="train", streaming=True, cache_dir=cache)
    assert [row["document"] for row in streamed if row["chunk"] == 0] == corpus.document_ids
    query = f"SELECT document, count(*), max(vector[1]) FROM '{files}' GROUP BY document"
    for name, count, highest in duckdb.sql(query).fetchall():
        assert count == len(corpus[name].plain)
        assert highest == corpus[name].plain[:, 0].max().item()
    table = polars.read_parquet(files)
    assert np.array_equal(table["vector"].to_numpy(), every_vector(corpus).numpy())
