"""Reading a corpus: its vectors are the model's, any run of them is found, and what is damaged is refused."""

from __future__ import annotations

import copy
import json
import shutil

import pytest
import torch
from torch.utils.data import DataLoader

from nextlevelbert import (
    NextLevelBertConfig,
    NextLevelBertModel,
    PackedVectorDataset,
    VectorCorpus,
)
from nextlevelbert.corpus.layout import MANIFEST

from .conftest import DOCUMENTS


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
    assert [corpus[-1].id, corpus[-4].id] == ["family", "whale"]
    with pytest.raises(IndexError, match="Chunks 0:100000"):
        corpus.vectors(0, 100_000)
    for place in (4, -5):
        with pytest.raises(IndexError, match=f"Document {place}"):
            corpus[place]
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


def test_a_corpus_that_does_not_fit_the_model_is_refused_by_field(corpus, minilm):
    config = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=16).config
    changed = copy.deepcopy(config)
    changed.chunk_size, changed.chunk_encoder_fingerprint = 64, "0" * 64
    with pytest.raises(ValueError, match=r"chunking.chunk_size: 16, 64.*encoder.fingerprint: '.*', '0000"):
        corpus.check_model(changed)
    with pytest.raises(ValueError, match=r"encoder.hidden_size: 384, 768"):
        corpus.check_model(NextLevelBertConfig())


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
