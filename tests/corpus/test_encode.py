"""Making a corpus: what every engine writes is what one process writes, whatever stops it."""

import fcntl
import io
import multiprocessing
import os
import pickle
import shutil
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nextlevelbert import (
    ChunkingRule,
    ChunkVectors,
    Document,
    NextLevelBertModel,
    VectorCorpus,
    encode_corpus,
    static_checkpoint,
)
from tests.faults.harness import forked

from ..toys.corpora import DOCUMENTS, SMALL, all_equal, parts
from ..toys.vectors import close


def test_its_vectors_are_the_model_s(source, corpus):
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16, num_hidden_layers=0)
    corpus.check_model(model.config)

    assert corpus.document_ids == ["whale", "short", "tale", "family"]

    encodings = model.encode([document.text for document in DOCUMENTS if document.text.strip()])
    for stored, encoded in zip(corpus, encodings, strict=True):
        assert stored.spans.tolist() == encoded.spans.tolist()
        close(stored.plain.float(), encoded.plain.float(), atol=1e-3)
    model.config.chunk_size = 32
    with pytest.raises(ValueError, match=r"chunking\.chunk_size: 16, 32"):
        corpus.check_model(model.config)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_bars_are_for_terminals(source, rule, tmp_path, monkeypatch, is_terminal):
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16, num_hidden_layers=0)
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", stderr)

    encode_corpus(DOCUMENTS, source, rule, tmp_path)
    bars_of_corpus = stderr.getvalue()
    model.encode("The sea was calm.", show_progress_bar=True)

    assert ("chunk" in bars_of_corpus) == is_terminal
    assert ("encoding" in stderr.getvalue()) == is_terminal


@pytest.mark.parametrize(
    ("how", "step"),
    [
        ("kill", 5),
        ("full", 7),
        pytest.param("kill", 1, marks=pytest.mark.faults),
        pytest.param("opened", 1, marks=pytest.mark.faults),
        pytest.param("full", 1, marks=pytest.mark.faults),
    ],
)
def test_a_kill_or_a_full_disk_at_every_file_operation(source, rule, corpus, tmp_path, how, step):
    def encode(folder):
        return repr(encode_corpus(DOCUMENTS, source, rule, folder, **SMALL))

    straight = forked(lambda: encode(tmp_path / "straight"), tmp_path)
    assert straight.operations >= 9, straight.error
    assert parts(tmp_path / "straight") == parts(corpus.path)
    for at in range(0, straight.operations, step):
        folder = tmp_path / f"{how}-{at}" / "corpus"
        first = forked(lambda folder=folder: encode(folder), tmp_path, at, how)
        assert first.killed == (how != "full"), (at, first)
        is_named = "No space left on device" in str(first.error)
        # The last operations only remove the lock of a corpus that is whole.
        is_whole = first.error is None and (folder / "_SUCCESS").exists()
        assert first.killed or is_named or is_whole, (at, first)
        if folder.exists() and not (folder / "_SUCCESS").exists():
            with pytest.raises((ValueError, FileNotFoundError), match=r"incomplete|no corpus in"):
                VectorCorpus(folder)
        again = forked(lambda folder=folder: encode(folder), tmp_path)
        assert again.error is None, (at, again)
        assert parts(folder) == parts(corpus.path), at


def test_a_folder_belongs_to_its_documents_and_its_recipe(corpus, source, rule, tmp_path):
    folder = shutil.copytree(corpus.path, tmp_path / "corpus")

    def stamps():
        return {file: file.stat().st_mtime_ns for file in folder.glob("*")}

    before = stamps()
    elsewhere = replace(source, name="the same weights elsewhere")
    encode_corpus(DOCUMENTS, elsewhere, rule, folder, **SMALL)
    assert stamps() == before
    changed = [Document("whale", DOCUMENTS[0].text[:-1] + "!"), *DOCUMENTS[1:]]
    other = ChunkingRule.from_tokenizer(source.tokenizer, 32)
    for documents, new_rule, message in (
        (changed, rule, "part-000000-.* holds other documents"),
        ([*DOCUMENTS, ("new", "text")], rule, "part-000002-.* holds other documents"),
        (DOCUMENTS[:3], rule, r"more documents than were given \(part-000001"),
        (DOCUMENTS, other, r"chunking\.chunk_size: 16, 32"),
        ([*DOCUMENTS, DOCUMENTS[0]], rule, "Two documents have the id 'whale'"),
    ):
        with pytest.raises(ValueError, match=message):
            encode_corpus(documents, source, new_rule, folder, **SMALL)
        assert parts(folder) == parts(corpus.path)


def test_documents_that_make_no_corpus(source, rule, tmp_path):
    for documents, message in (([], "No document"), ([" ", "\n"], "from '0' to '1' has a token")):
        with pytest.raises(ValueError, match=message):
            encode_corpus(documents, source, rule, tmp_path / "none", progress=False)
    with pytest.raises(FileNotFoundError, match="no corpus in"):
        VectorCorpus(tmp_path / "none")


def test_documents_are_appended_in_further_parts(corpus, source, rule, tmp_path):
    folder = shutil.copytree(corpus.path, tmp_path / "corpus")
    new = [("new", "A new one. " * 60), ("last", "The last one.")]
    for _ in range(2):  # the second time, they are there
        longer = encode_corpus(new, source, rule, folder, append=True, **SMALL)
        assert longer.document_ids == [*corpus.document_ids, "new", "last"]
    before = parts(corpus.path)
    del before["_SUCCESS"]

    assert parts(folder) == parts(folder) | before
    assert longer.fingerprint() != corpus.fingerprint()

    with pytest.raises(ValueError, match="Two documents have the id 'whale'"):
        encode_corpus(DOCUMENTS[:1], source, rule, folder, append=True, **SMALL)


def test_vectors_that_are_not_finite_are_named(source, rule, monkeypatch):
    encode = type(source.encoder).encode

    def broken(*arguments, **options):
        vectors = encode(*arguments, **options)
        vectors[-1, 5] = 1e6  # infinite in float16
        return vectors

    monkeypatch.setattr(type(source.encoder), "encode", broken)
    with pytest.raises(ValueError, match="not finite, first in document 'family'"):
        ChunkVectors(source, rule)(
            {"id": ["tale", "family"], "text": [DOCUMENTS[3].text, DOCUMENTS[4].text]}
        )


def test_two_processes_write_what_one_writes(corpus, source, rule, tmp_path):
    def encode(rank):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", TOKENIZERS_PARALLELISM="false")
        torch.set_num_threads(1)  # the parent's threads did not come along
        encode_corpus(DOCUMENTS, source, rule, tmp_path / "both", **SMALL)

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=encode, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    assert parts(tmp_path / "both") == parts(corpus.path)


def test_a_process_that_never_writes_its_part_is_not_waited_for_without_end(
    source, rule, monkeypatch, tmp_path
):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("nextlevelbert.corpus.sharing._LONGEST_WAIT", 0.5)

    with pytest.raises(
        TimeoutError, match=r"Process 1 of 2 was to write part-000001 .* no further file"
    ):
        encode_corpus(["A whale.", "A ship."], source, rule, tmp_path, characters_per_part=1)

    assert [path.name[:11] for path in tmp_path.glob("*.parquet")] == ["part-000000"]


def test_dataset_map_and_arrow_batches_make_the_same_vectors(corpus, source, rule, tmp_path):
    from datasets import Dataset

    vectors = ChunkVectors(source, rule)
    texts = Dataset.from_list(
        [{"id": document.id, "text": document.text} for document in DOCUMENTS]
    )
    rows = texts.map(
        vectors, batched=True, batch_size=2, num_proc=2, remove_columns=texts.column_names
    )
    (tmp_path / "mapped").mkdir()
    rows.to_parquet(str(tmp_path / "mapped" / "rows.parquet"))
    assert all_equal(VectorCorpus(tmp_path / "mapped", vectors.recipe), corpus)
    # Spark's `mapInArrow` hands over record batches, and has no float16.
    (tmp_path / "spark").mkdir()
    wide = pa.schema([*list(vectors.schema)[:-1], pa.field("vector", pa.list_(pa.float32()))])
    for number, batch in enumerate(texts.data.table.to_batches(max_chunksize=2)):
        pq.write_table(
            vectors(batch).cast(wide), tmp_path / "spark" / f"part-{number:05d}-c000.snappy.parquet"
        )
    assert all_equal(VectorCorpus(tmp_path / "spark", vectors.recipe), corpus)


def test_a_forked_process_computes_in_one_thread(source, rule, monkeypatch):
    """OpenMP's threads do not survive a fork, and two threads would wait for them for ever."""
    monkeypatch.setattr("nextlevelbert.corpus.encode._IMPORTED_BY", os.getppid())
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ChunkVectors(source, rule)({"id": ["sea"], "text": ["The sea was calm."]})
        threads_of_fork = torch.get_num_threads()
    finally:
        torch.set_num_threads(threads)

    assert threads_of_fork == 1


def test_the_encoder_travels_by_name_or_whole(source, rule):
    by_name = ChunkVectors(static_checkpoint(), rule)
    whole = ChunkVectors(source, rule)

    assert by_name.schema == whole.schema

    small = pickle.dumps(by_name)
    large = pickle.dumps(whole)

    assert len(small) < 10_000 < len(large)

    batch = {"id": ["tale"], "text": [DOCUMENTS[3].text]}

    assert pickle.loads(small)(batch).equals(pickle.loads(large)(batch))


def test_a_corpus_that_another_run_encodes_is_left_alone(source, rule, tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / ".holder-0").write_text("4711")
    (folder / ".tmp-of-the-other").mkdir()
    descriptor = os.open(folder / ".lock-0", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    with pytest.raises(ValueError, match=rf"Another run writes into {folder} \(process 4711\)"):
        encode_corpus(DOCUMENTS, source, rule, folder, **SMALL)

    os.close(descriptor)
    assert (folder / ".tmp-of-the-other").exists()
    assert len(list(folder.iterdir())) == 3
    encode_corpus(DOCUMENTS, source, rule, folder, **SMALL)
    assert list(folder.glob(".*")) == []
