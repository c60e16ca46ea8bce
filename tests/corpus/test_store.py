"""Reading a corpus: any run of vectors, its fingerprint, and copies for memory mapping."""

import json
import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nextlevelbert import VectorCorpus
from nextlevelbert.corpus.parts import part_content, read_part
from tests.faults.harness import tree

from ..toys.corpora import all_equal, copied


def test_any_run_of_vectors_across_documents_and_parts(corpus):
    assert len(list(corpus.path.glob("part-*"))) == 3

    every = torch.cat([document.plain for document in corpus])

    assert every.shape == (corpus.num_chunks, corpus.hidden_size)

    for start in range(corpus.num_chunks + 1):
        for stop in range(start, corpus.num_chunks + 1):
            assert torch.equal(corpus.vectors(start, stop), every[start:stop])
    for number, document in enumerate(corpus):
        start, stop = corpus.document_offsets[number : number + 2]
        assert torch.equal(document.plain, every[start:stop])

    assert (corpus[-1].id, corpus[1].id, corpus.empty) == ("family", "short", {"blank"})
    assert corpus["blank"].plain.shape == (0, corpus.hidden_size)

    for missing in ("nobody", 4, -5):
        with pytest.raises(LookupError, match=str(missing)):
            corpus[missing]
    with pytest.raises(IndexError, match="3:999"):
        corpus.vectors(3, 999)


def test_a_run_of_vectors_is_a_view_also_in_another_process(corpus, fresh_process, tmp_path):
    whole = corpus.vectors(0, 5)

    assert corpus.vectors(2, 4).data_ptr() == whole[2:].data_ptr()

    (tmp_path / "corpus").write_bytes(pickle.dumps(corpus))
    script = (
        "import pickle, sys\nprint(pickle.load(open(sys.argv[1], 'rb')).vectors(2, 9).tolist())"
    )

    assert json.loads(fresh_process(script, tmp_path / "corpus")) == corpus.vectors(2, 9).tolist()

    folder = copied(corpus, tmp_path)
    (folder / ".vectors").write_text("no folder: the vectors stay in memory")

    assert all_equal(corpus, VectorCorpus(folder))


@pytest.mark.parametrize("spans", [{"a": [1, 2], "b": [1]}, {"b": [1, 2], "a": [1]}])
def test_the_fingerprint_depends_on_order_and_lengths(corpus, tmp_path, spans):
    """Two corpora with equal names of parts and the same ids."""
    schema = pq.read_schema(next(corpus.path.glob("*.parquet")))
    fingerprints = set()
    for name, chunks in (("one", {"a": [1], "b": [1, 2]}), ("other", spans)):
        rows = []
        for document, ends in chunks.items():
            for number, end in enumerate(ends):
                row = {"document": document, "chunk": number, "start": 0, "end": end}
                rows.append({**row, "vector": np.zeros(384, np.float16)})
        (tmp_path / name).mkdir()
        content = part_content(pa.Table.from_pylist(rows, schema))
        (tmp_path / name / "part.parquet").write_bytes(content)
        fingerprints.add(VectorCorpus(tmp_path / name).fingerprint())

    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[:-1], lambda data: b""],
    ids=["flipped", "cut", "empty"],
)
def test_a_damaged_copy_of_vectors_is_made_anew(corpus, tmp_path, damage):
    folder = copied(corpus, tmp_path)

    assert all_equal(corpus, VectorCorpus(folder))

    copies = tree(folder / ".vectors")
    for name, data in copies.items():
        (folder / ".vectors" / name).write_bytes(damage(data))

    assert all_equal(corpus, VectorCorpus(folder))
    assert tree(folder / ".vectors") == copies


def test_a_part_that_was_written_again_within_a_step_of_the_clock_is_decoded_again(
    corpus, tmp_path
):
    """Some file systems count time in steps of two seconds. The new part has the same size."""
    table = pq.read_table(next(corpus.path.glob("part-000000-*")))
    path = tmp_path / "from-spark.parquet"
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, path, **plain)
    before = path.stat()
    first = VectorCorpus(tmp_path)["whale"].plain.clone()
    size = corpus.hidden_size
    zeros = pa.array(np.zeros(len(table) * size, np.float16))
    vectors = pa.FixedSizeListArray.from_arrays(zeros, size)
    pq.write_table(table.set_column(4, "vector", vectors), path, **plain)
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))

    second = VectorCorpus(tmp_path)["whale"].plain

    assert path.stat().st_size == before.st_size
    assert first.any()
    assert not second.any()


def test_a_loop_reads_each_part_once_if_documents_end_in_the_next_part(
    corpus, tmp_path, monkeypatch
):
    paths = sorted(corpus.path.glob("part-*"))
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    for name, rows in (("a", table[:5]), ("b", table[5:16]), ("c", table[16:])):
        (tmp_path / f"{name}.parquet").write_bytes(part_content(rows))
    opened = VectorCorpus(tmp_path)
    reads = []

    def read_and_note(folder, name, *columns):
        reads.append((name, columns))
        return read_part(folder, name, *columns)

    monkeypatch.setattr("nextlevelbert.corpus.store.read_part", read_and_note)
    documents = [*opened]

    assert len(reads) == len({*reads}) == 2 * 3
    for document, whole in zip(documents, corpus, strict=True):
        assert document.plain.equal(whole.plain)
        assert document.spans.equal(whole.spans)


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("prefix", ["", "of-spark-"])
def test_a_part_of_ours_and_an_older_part_are_decoded_once(corpus, tmp_path, prefix):
    folder = copied(corpus, tmp_path)
    for path in folder.glob("part-*"):
        renamed = path.rename(folder / f"{prefix}{path.name}")
        if prefix:
            os.utime(renamed, (0, 0))
    assert all_equal(corpus, VectorCorpus(folder))
    before = stamps(folder)

    assert all_equal(corpus, VectorCorpus(folder))

    assert stamps(folder) == before


def test_a_folder_that_another_machine_mounts_elsewhere_is_decoded_once(corpus, tmp_path):
    folder = copied(corpus, tmp_path)
    assert all_equal(corpus, VectorCorpus(folder))
    before = tree(folder / ".vectors")
    elsewhere = folder.rename(tmp_path / "elsewhere")

    assert all_equal(corpus, VectorCorpus(elsewhere))

    assert tree(elsewhere / ".vectors") == before
