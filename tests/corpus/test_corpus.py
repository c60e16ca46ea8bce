"""Encoded corpora: what is written is read back, a kill loses nothing, and nothing wrong is used in silence."""

from __future__ import annotations

import copy
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader

from nextlevelbert import (
    ChunkingRule,
    Document,
    NextLevelBertConfig,
    NextLevelBertModel,
    PackedVectorDataset,
    VectorCorpus,
    encode_corpus,
)
from nextlevelbert.corpus.layout import MANIFEST
from nextlevelbert.corpus.writer import _write_atomically, finish_corpus, write_shards
from nextlevelbert.data.documents import documents_from_rows, read_documents

DOCUMENTS = [
    Document("whale", "Call me Ishmael. Some years ago I went to sea. " * 8),
    Document("short", "One line."),
    Document("tale", "It was the best of times, it was the worst of times; we had everything before us. " * 12),
    Document("family", "All happy families are alike. " * 5),
]

WORKER = """
import sys
from nextlevelbert import ChunkingRule, Document, encode_corpus, load_chunk_encoder
source = load_chunk_encoder(sys.argv[1])
rule = ChunkingRule.from_tokenizer(source.tokenizer, 32, max_chunk_size=512)
documents = (Document(f"d{i}", f"Document {i} tells of the sea, the ship and the whale. " * 40) for i in range(24))
print("ready", flush=True)
encode_corpus(documents, source, rule, sys.argv[2], characters_per_shard=4_000, progress=False)
"""


@pytest.fixture(scope="module")
def rule(minilm):
    return ChunkingRule.from_tokenizer(minilm.tokenizer, 16, max_chunk_size=512)


@pytest.fixture(scope="module")
def corpus(minilm, rule, tmp_path_factory):
    return encode_corpus(
        DOCUMENTS, minilm, rule, tmp_path_factory.mktemp("corpus"), characters_per_shard=380, progress=False
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_vectors_and_spans_are_those_of_the_model(minilm, corpus):
    model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=16)
    corpus.check_model(model.config)
    assert len(list(corpus.path.glob("shard-*"))) == 3
    for document, expected in zip(DOCUMENTS, model.encode([document.text for document in DOCUMENTS]), strict=True):
        encoded = corpus[document.id]
        assert encoded.vectors.dtype == torch.float16
        torch.testing.assert_close(encoded.vectors.float(), expected.plain, atol=1e-3, rtol=0)
        assert encoded.spans.numpy().tolist() == expected.spans.tolist()


def test_random_access_across_documents_and_shards(corpus):
    everything = torch.cat([document.vectors for document in corpus])
    assert len(everything) == corpus.num_chunks == corpus.manifest["chunks"]
    for start in range(0, corpus.num_chunks + 1, 3):
        for stop in range(start, corpus.num_chunks + 1, 5):
            assert torch.equal(corpus.vectors(start, stop), everything[start:stop])
    assert [document.id for document in corpus] == [document.id for document in DOCUMENTS]
    assert corpus[-1].id == "family"
    with pytest.raises(IndexError, match="Chunks 0:100000"):
        corpus.vectors(0, 100_000)
    with pytest.raises(IndexError, match="Document 4"):
        corpus[4]
    with pytest.raises(KeyError, match="No document 'nobody'"):
        corpus["nobody"]


def test_a_worker_process_reads_the_same(corpus):
    corpus.vectors(0, 1)  # open a map, which must not travel
    dataset = PackedVectorDataset(corpus, 8)
    workers = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    for ours, theirs in zip((dataset[i] for i in range(len(dataset))), workers, strict=True):
        assert torch.equal(ours["inputs_embeds"], theirs["inputs_embeds"])


def test_the_manifest_says_what_made_it(corpus, minilm):
    manifest = json.loads((corpus.path / MANIFEST).read_text())
    assert manifest["encoder"]["name"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert manifest["encoder"]["fingerprint"] == minilm.fingerprint
    assert manifest["chunking"]["chunk_size"] == 16
    assert (manifest["documents"], manifest["complete"], manifest["encoder"]["dtype"]) == (4, True, "float32")
    assert str(corpus.path) not in json.dumps(manifest)


def test_to_dataset_and_back(corpus):
    dataset = corpus.to_dataset()
    assert dataset.column_names == ["id", "vectors", "spans"]
    assert dataset["id"][:] == corpus.document_ids
    for row, document in zip(dataset.with_format("numpy"), corpus, strict=True):
        assert torch.equal(torch.tensor(row["vectors"].tolist()).half(), document.vectors)
        assert row["spans"].tolist() == document.spans.tolist()


@pytest.mark.parametrize("kept", [0, 1])
def test_going_on_from_any_shard_gives_the_same_bytes(corpus, minilm, rule, tmp_path, kept):
    straight = contents(corpus.path)
    manifest = json.loads(straight[MANIFEST])
    unfinished = {k: v for k, v in manifest.items() if k not in ("shards", "documents", "chunks", "tokens")}
    (tmp_path / MANIFEST).write_text(json.dumps({**unfinished, "complete": False}))
    if kept:
        shutil.copy(corpus.path / "shard-00000.safetensors", tmp_path)
    (tmp_path / "shard-00001.safetensors.tmp").write_bytes(b"half a shard")
    encode_corpus(DOCUMENTS, minilm, rule, tmp_path, characters_per_shard=380, progress=False)
    assert contents(tmp_path) == straight


def test_kill_9_and_go_on(minilm_path, tmp_path):
    arguments = [sys.executable, "-c", WORKER, minilm_path]
    subprocess.run([*arguments, str(tmp_path / "straight")], check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([*arguments, str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
    while len(list((tmp_path / "killed").glob("shard-*.safetensors"))) < 2:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(ValueError, match="is incomplete; run the same encoding"):
        VectorCorpus(tmp_path / "killed")
    subprocess.run([*arguments, str(tmp_path / "killed")], check=True, stdout=subprocess.DEVNULL)
    assert contents(tmp_path / "killed") == contents(tmp_path / "straight")


def write_share(documents, minilm, rule, folder, process_index, num_processes, **options):
    return write_shards(
        documents, minilm, rule, folder, characters_per_shard=380, progress=False,
        process_index=process_index, num_processes=num_processes, **options,
    )  # fmt: skip


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_processes_write_what_one_writes(corpus, minilm, rule, tmp_path, order):
    for process_index in order:
        shards = write_share(iter(DOCUMENTS), minilm, rule, tmp_path, process_index, 2)
        assert shards == 3
        with pytest.raises(ValueError, match="is incomplete; run the same encoding"):
            VectorCorpus(tmp_path)
    finish_corpus(tmp_path, shards)
    assert contents(tmp_path) == contents(corpus.path)


def test_any_number_of_processes_and_workers_can_go_on_with_what_another_left(corpus, minilm, rule, tmp_path):
    write_share(DOCUMENTS, minilm, rule, tmp_path, 2, 3)
    assert [file.name for file in tmp_path.glob("shard-*")] == ["shard-00002.safetensors"]
    with pytest.raises(ValueError, match=r"lacks 2 of 3 shards, the first shard-00000.safetensors"):
        finish_corpus(tmp_path, 3)
    assert write_share(iter(DOCUMENTS), minilm, rule, tmp_path, 0, 1, num_workers=2) == 3
    finish_corpus(tmp_path, 3)
    assert contents(tmp_path) == contents(corpus.path)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_tokenise_in_order_and_report_what_is_wrong(corpus, minilm, rule, tmp_path, workers):
    arguments = {"characters_per_shard": 380, "num_workers": workers, "progress": False}
    encode_corpus(iter(DOCUMENTS), minilm, rule, tmp_path / "good", **arguments)
    assert contents(tmp_path / "good") == contents(corpus.path)
    with pytest.raises(TypeError, match=r"'empty'.*NoneType"):
        encode_corpus([*DOCUMENTS, Document("empty", None)], minilm, rule, tmp_path / "bad", **arguments)


def test_workers_share_files_and_datasets_without_losing_a_document(corpus, minilm, rule, tmp_path):
    """`datasets` splits its files among the workers of a DataLoader by itself; a file that is open is shared."""
    rows = [json.dumps({"id": document.id, "text": document.text}) for document in DOCUMENTS]
    (tmp_path / "a.jsonl").write_text("\n".join(rows[:2]))
    (tmp_path / "b.jsonl").write_text("\n".join(rows[2:]))
    (tmp_path / "all.jsonl").write_text("\n".join(rows))
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    arguments = {"characters_per_shard": 380, "num_workers": 2, "progress": False}
    sources = {
        "file": read_documents(tmp_path / "all.jsonl"),
        "dataset": documents_from_rows(
            load_dataset("json", data_files=files, split="train", streaming=True), "text", "id"
        ),
        "open": (Document(**json.loads(line)) for line in (tmp_path / "all.jsonl").open()),
    }
    for name, documents in sources.items():
        encode_corpus(documents, minilm, rule, tmp_path / name, **arguments)
        assert contents(tmp_path / name) == contents(corpus.path)


def test_processes_with_different_documents_are_found_out(minilm, rule, tmp_path):
    other = [DOCUMENTS[1], DOCUMENTS[0], *DOCUMENTS[2:]]
    write_share(DOCUMENTS, minilm, rule, tmp_path / "order", 0, 2)
    shards = write_share(other, minilm, rule, tmp_path / "order", 1, 2)
    with pytest.raises(
        ValueError, match=r"shard-00001.safetensors was written by a process that was given different documents"
    ):
        finish_corpus(tmp_path / "order", shards)
    shards = write_share(DOCUMENTS[:2], minilm, rule, tmp_path / "more", 0, 2)
    write_share(DOCUMENTS, minilm, rule, tmp_path / "more", 1, 2)
    with pytest.raises(ValueError, match=r"shard-00001.safetensors is left over after the last of 1"):
        finish_corpus(tmp_path / "more", shards)


def test_of_two_that_begin_at_once_the_first_decides(tmp_path):
    for text in ("first", "second"):
        _write_atomically(tmp_path / "manifest", lambda file, text=text: file.write_text(text), only_if_missing=True)
    assert contents(tmp_path) == {"manifest": b"first"}


def test_encoding_leaves_the_random_state_alone(minilm, rule, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    encode_corpus(DOCUMENTS, minilm, rule, tmp_path, num_workers=1, progress=False)
    assert torch.rand(1) == expected


def test_a_process_that_does_not_exist(minilm, rule, tmp_path):
    with pytest.raises(ValueError, match="from 0 to num_processes - 1 = 1: 2"):
        write_share(DOCUMENTS, minilm, rule, tmp_path, 2, 2)


def test_a_finished_corpus_is_checked_not_written_again(corpus, minilm, rule):
    before = {file: file.stat().st_mtime_ns for file in corpus.path.iterdir()}
    encode_corpus(DOCUMENTS, minilm, rule, corpus.path, characters_per_shard=380, progress=False)
    assert {file: file.stat().st_mtime_ns for file in corpus.path.iterdir()} == before


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([DOCUMENTS[0], Document("other", "One line."), *DOCUMENTS[2:]], "has 'short' where 'other' is given"),
        ([DOCUMENTS[0], Document("short", "Another line."), *DOCUMENTS[2:]], "text of document 'short' has changed"),
        ([*DOCUMENTS, Document("more", "more")], "shard-00002.safetensors holds 1 documents, but 2 are given"),
        (DOCUMENTS[:2], "holds 4 documents, but 2 are given"),
        (DOCUMENTS[:1], "shard-00000.safetensors holds 2 documents, but 1 are given"),
    ],
)
def test_other_documents_than_those_in_the_corpus(corpus, minilm, rule, documents, message):
    with pytest.raises(ValueError, match=message):
        encode_corpus(documents, minilm, rule, corpus.path, characters_per_shard=380, progress=False)


def test_more_documents_than_a_finished_corpus_has_shards_for(minilm, rule, tmp_path):
    encode_corpus(DOCUMENTS[:3], minilm, rule, tmp_path, characters_per_shard=380, progress=False)
    with pytest.raises(ValueError, match=r"finished corpus.*the first 'family' in shard-00002.safetensors"):
        encode_corpus(DOCUMENTS, minilm, rule, tmp_path, characters_per_shard=380, progress=False)


def test_a_corpus_made_otherwise_is_refused_by_field(corpus, minilm):
    other = ChunkingRule.from_tokenizer(minilm.tokenizer, 32, max_chunk_size=512)
    with pytest.raises(ValueError, match=r"chunking.chunk_size: 16, 32"):
        encode_corpus(DOCUMENTS, minilm, other, corpus.path, characters_per_shard=380, progress=False)


def test_a_corpus_that_does_not_fit_the_model_is_refused_by_field(corpus, minilm):
    config = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=16).config
    changed = copy.deepcopy(config)
    changed.chunk_size, changed.chunk_encoder_fingerprint = 64, "0" * 64
    with pytest.raises(ValueError, match=r"chunking.chunk_size: 16, 64.*encoder.fingerprint: '.*', '0000"):
        corpus.check_model(changed)
    with pytest.raises(ValueError, match=r"encoder.hidden_size: 384, 768"):
        corpus.check_model(NextLevelBertConfig())


def test_bad_documents(minilm, rule, tmp_path):
    with pytest.raises(ValueError, match="No document was given"):
        encode_corpus([], minilm, rule, tmp_path / "none", progress=False)
    with pytest.raises(ValueError, match="Two documents have the id 'whale'"):
        encode_corpus([DOCUMENTS[0], DOCUMENTS[0]], minilm, rule, tmp_path / "twice", progress=False)
    with pytest.raises(TypeError, match=r"'empty'.*NoneType"):
        encode_corpus([Document("empty", None)], minilm, rule, tmp_path / "none", progress=False)
    with pytest.warns(UserWarning, match="'blank'"):
        corpus = encode_corpus(
            [Document("blank", "  \n"), DOCUMENTS[1]], minilm, rule, tmp_path / "blank", progress=False
        )
    assert len(corpus["blank"].vectors) == 0
    assert len(corpus["short"].vectors) == 1
    assert corpus.to_dataset()[0]["vectors"] == []


def test_vectors_that_are_not_finite(minilm, rule, tmp_path):
    broken = copy.copy(minilm)
    broken.encoder = copy.deepcopy(minilm.encoder)
    broken.encoder.model.embeddings.LayerNorm.weight.data[0] = float("nan")
    with pytest.raises(ValueError, match="not finite, the first in document 'whale'"):
        encode_corpus(DOCUMENTS, broken, rule, tmp_path, progress=False)


def test_missing_and_damaged_corpora(corpus, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"manifest.json is missing"):
        VectorCorpus(tmp_path / "nowhere")
    lost = shutil.copytree(corpus.path, tmp_path / "lost")
    (lost / "shard-00001.safetensors").unlink()
    with pytest.raises(ValueError, match="is missing shard-00001"):
        VectorCorpus(lost)
    cut = shutil.copytree(corpus.path, tmp_path / "cut")
    shard = cut / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not a whole shard"):
        VectorCorpus(cut)
    foreign = shutil.copytree(corpus.path, tmp_path / "foreign")
    shutil.copy(foreign / "shard-00001.safetensors", foreign / "shard-00000.safetensors")
    with pytest.raises(ValueError, match="not those of its manifest"):
        VectorCorpus(foreign)
    for content in ("", "{", "[]", "{}"):
        (foreign / MANIFEST).write_text(content)
        with pytest.raises(ValueError, match="is damaged"):
            VectorCorpus(foreign)
    future = shutil.copytree(corpus.path, tmp_path / "future")
    (future / MANIFEST).write_text(json.dumps({**corpus.manifest, "format_version": 9}))
    with pytest.raises(ValueError, match="format_version 9"):
        VectorCorpus(future)
