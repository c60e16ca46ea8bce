"""The store of chunk vectors: what every engine writes is what one process writes, and anybody's
tools read it."""

import json
import multiprocessing
import os
import pickle
import shutil
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nextlevelbert import (
    ChunkingRule,
    ChunkVectors,
    DataCollatorForLabelledVectors,
    Document,
    NextLevelBertModel,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
    read_documents,
    static_checkpoint,
)
from nextlevelbert.corpus import write_part
from tests.faults.harness import forked, tree

from ..toys.vectors import close

STATIC = static_checkpoint()
DOCUMENTS = [
    Document("whale", "Call me Ishmael. Some years ago I went to sea. " * 8),
    Document("short", "One line."),
    Document("blank", " \n"),
    Document(
        "tale",
        "It was the best of times, it was the worst of times; we had everything before us. " * 12,
    ),
    Document("family", "All happy families are alike. " * 5),
]
SMALL = {"characters_per_part": 387, "progress": False}  # the first three together


@pytest.fixture(scope="module")
def source():
    return load_chunk_encoder(STATIC)


@pytest.fixture(scope="module")
def rule(source):
    return ChunkingRule.from_tokenizer(source.tokenizer, 16)


@pytest.fixture(scope="module")
def corpus(source, rule, tmp_path_factory):
    return encode_corpus(
        DOCUMENTS, source, rule, tmp_path_factory.mktemp("corpora") / "straight", **SMALL
    )


def parts(folder):
    return {name: content for name, content in tree(folder).items() if not name.startswith(".")}


def all_equal(one, other):
    """In any order: engines write their blocks as they come."""
    if set(one.document_ids) != set(other.document_ids):
        return False
    for document in one:
        same = other[document.id]
        if not torch.equal(document.vectors, same.vectors):
            return False
        if not torch.equal(document.spans, same.spans):
            return False
    return True


def every_vector(corpus):
    return corpus.vectors(0, corpus.num_chunks)


def test_its_vectors_are_the_model_s(source, corpus):
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16, num_hidden_layers=0)
    corpus.check_model(model.config)
    assert corpus.document_ids == ["whale", "short", "tale", "family"]
    encodings = model.encode([document.text for document in DOCUMENTS if document.text.strip()])
    for stored, encoded in zip(corpus, encodings, strict=True):
        assert stored.spans.tolist() == encoded.spans.tolist()
        close(stored.vectors.float(), encoded.plain.float(), atol=1e-3)
    model.config.chunk_size = 32
    with pytest.raises(ValueError, match=r"chunking\.chunk_size: 16, 32"):
        corpus.check_model(model.config)


def test_any_run_of_vectors_across_documents_and_parts(corpus):
    assert len(list(corpus.path.glob("part-*"))) == 3
    every = torch.cat([document.vectors for document in corpus])
    assert every.shape == (corpus.num_chunks, corpus.hidden_size)
    for start in range(corpus.num_chunks + 1):
        for stop in range(start, corpus.num_chunks + 1):
            assert torch.equal(corpus.vectors(start, stop), every[start:stop])
    for number, document in enumerate(corpus):
        start, stop = corpus.document_offsets[number : number + 2]
        assert torch.equal(document.vectors, every[start:stop])
    assert (corpus[-1].id, corpus[1].id, corpus.empty) == ("family", "short", {"blank"})
    assert corpus["blank"].vectors.shape == (0, corpus.hidden_size)
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
    assert all_equal(VectorCorpus(folder), corpus)


def copied(corpus, folder):
    """A copy without the vectors for memory mapping."""
    ignored = shutil.ignore_patterns(".vectors")
    return shutil.copytree(corpus.path, folder / "copy", ignore=ignored)


@pytest.mark.parametrize(("how", "step"), [("kill", 1), ("full", 3)])
def test_a_kill_or_a_full_disk_at_every_file_operation(source, rule, corpus, tmp_path, how, step):
    def encode(folder):
        return repr(encode_corpus(DOCUMENTS, source, rule, folder, **SMALL))

    straight = forked(lambda: encode(tmp_path / "straight"), tmp_path)
    assert straight.operations >= 9, straight.error
    assert parts(tmp_path / "straight") == parts(corpus.path)
    for at in range(0, straight.operations, step):
        folder = tmp_path / f"{how}-{at}" / "corpus"
        first = forked(lambda folder=folder: encode(folder), tmp_path, at, how)
        assert first.killed == (how == "kill"), (at, first)
        assert first.killed or "No space left on device" in str(first.error), (at, first)
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
        write_part(tmp_path / name / "part.parquet", pa.Table.from_pylist(rows, schema))
        fingerprints.add(VectorCorpus(tmp_path / name).fingerprint())
    assert len(fingerprints) == 2


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
        write_part(tmp_path / name / "a.parquet", table)
        with pytest.raises(ValueError, match=message):
            VectorCorpus(tmp_path / name)
    assert all_equal(VectorCorpus(tmp_path / "bare", corpus.recipe), corpus)


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


def shouting(text):
    return [text.upper()]


def in_halves(text):
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def test_a_splitter_is_noted_by_its_name(source, rule, tmp_path):
    by_sentences = ChunkingRule.from_tokenizer(source.tokenizer, 16, "sentences")
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16, chunking="sentences")
    corpus = encode_corpus(
        DOCUMENTS, source, by_sentences, tmp_path / "halves", splitter=in_halves, **SMALL
    )
    assert (
        corpus["tale"].spans.tolist()
        == model.encode(DOCUMENTS[3].text, splitter=in_halves).spans.tolist()
    )
    corpus.check_model(model.config, in_halves)
    with pytest.raises(ValueError, match=f"splitter: '{__name__}.in_halves', None"):
        corpus.check_model(model.config)


@pytest.mark.parametrize(
    ("splitter", "mode", "message"),
    [
        (lambda text: [text], "sentences", "lambda"),
        (in_halves, "fixed", "fixed"),
        (shouting, "sentences", r"'whale'.*must return parts of the text"),
    ],
)
def test_splitters_that_are_refused(source, tmp_path, splitter, mode, message):
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16, mode)
    with pytest.raises(ValueError, match=message):
        encode_corpus(DOCUMENTS, source, rule, tmp_path / "none", splitter=splitter, **SMALL)


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
        assert count == len(corpus[name].vectors)
        assert highest == corpus[name].vectors[:, 0].max().item()
    table = polars.read_parquet(files)
    assert np.array_equal(table["vector"].to_numpy(), every_vector(corpus).numpy())


def test_two_processes_write_what_one_writes(corpus, source, rule, tmp_path):
    def encode(rank):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2")
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
    monkeypatch.setattr("nextlevelbert.corpus.encode._LONGEST_WAIT", 0.5)

    with pytest.raises(TimeoutError, match=r"part-000001-.* no further part appeared within"):
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


def test_the_encoder_travels_by_name_or_whole(source, rule):
    by_name = ChunkVectors(STATIC, rule)
    whole = ChunkVectors(source, rule)
    assert by_name.schema == whole.schema
    small = pickle.dumps(by_name)
    large = pickle.dumps(whole)
    assert len(small) < 10_000 < len(large)
    batch = {"id": ["tale"], "text": [DOCUMENTS[3].text]}
    assert pickle.loads(small)(batch).equals(pickle.loads(large)(batch))


@pytest.mark.long
def test_a_ray_cluster_with_a_killed_worker_makes_the_same_vectors(shared, source, tmp_path):
    """Eight novels, two workers, one of which dies once."""
    import ray  # `make test-long` installs it

    rule = ChunkingRule.from_tokenizer(source.tokenizer, 256)
    mark = tmp_path / "killed"
    novels = list(islice(read_documents(shared / "data/novels/validation.jsonl.gz"), 8))
    straight = encode_corpus(novels, source, rule, tmp_path / "straight", progress=False)

    class OnceKilled(ChunkVectors):
        def __call__(self, batch):
            if not mark.exists():
                mark.touch()
                os._exit(1)
            return super().__call__(batch)

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        rows = ray.data.from_items(
            [{"id": novel.id, "text": novel.text} for novel in novels], override_num_blocks=4
        )
        options = {
            "fn_constructor_args": (STATIC, rule),
            "batch_size": 2,
            "batch_format": "pyarrow",
        }
        rows.map_batches(OnceKilled, concurrency=2, **options).write_parquet(str(tmp_path / "ray"))
    finally:
        ray.shutdown()
    assert mark.exists()
    corpus = VectorCorpus(tmp_path / "ray")
    assert all_equal(corpus, straight)
    assert corpus.recipe["encoder"]["fingerprint"] == source.fingerprint


def test_batches_of_labelled_vectors():
    rows = [
        {"label": 1, "inputs_embeds": torch.ones(3, 2, dtype=torch.float16)},
        {"label": 0, "inputs_embeds": torch.full((1, 2), 2, dtype=torch.float16)},
    ]
    batch = DataCollatorForLabelledVectors()(rows)
    assert batch["labels"].tolist() == [1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["inputs_embeds"].dtype == torch.float32
    assert batch["inputs_embeds"].tolist() == [[[1, 1]] * 3, [[2, 2], [0, 0], [0, 0]]]
