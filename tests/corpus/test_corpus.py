"""Reading a corpus: its vectors are the model's, any run of them is found, and what is damaged is refused."""

from __future__ import annotations

import copy
import json
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch.utils.data import DataLoader

from nextlevelbert import (
    NextLevelBertConfig,
    NextLevelBertModel,
    PackedVectorDataset,
    VectorCorpus,
)
from nextlevelbert.corpus.layout import MANIFEST, extend_chain, read_manifest, shard_name

from ..golden.inputs import FOLDER
from .conftest import DOCUMENTS


@pytest.fixture(scope="module")
def golden():
    """A corpus of format version 2."""
    return VectorCorpus(FOLDER / "corpus")


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
    with pytest.raises(ValueError, match=r"shard-00001\.safetensors is missing"):
        VectorCorpus(lost)
    cut = shutil.copytree(corpus.path, tmp_path / "cut")
    shard = cut / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not a whole shard"):
        VectorCorpus(cut)
    foreign = shutil.copytree(corpus.path, tmp_path / "foreign")
    shutil.copy(foreign / "shard-00001.safetensors", foreign / "shard-00000.safetensors")
    with pytest.raises(ValueError, match=r"shard-00000\.safetensors is not the shard that manifest\.json names"):
        VectorCorpus(foreign)
    for content in ("", "{", "[]", "{}"):
        (foreign / MANIFEST).write_text(content)
        with pytest.raises(ValueError, match="is damaged"):
            VectorCorpus(foreign)
    future = shutil.copytree(corpus.path, tmp_path / "future")
    (future / MANIFEST).write_text(json.dumps({**corpus.manifest, "format_version": 9}))
    with pytest.raises(ValueError, match="format_version 9"):
        VectorCorpus(future)


def test_verify_names_every_bad_shard(corpus, tmp_path, capsys):
    corpus.verify()
    assert "checking" in capsys.readouterr().err
    bad = shutil.copytree(corpus.path, tmp_path / "bad")
    opened = VectorCorpus(bad)
    flip(bad / "shard-00000.safetensors", -1)
    (bad / "shard-00002.safetensors").unlink()
    with pytest.raises(
        ValueError, match=r"2 shard\(s\).*shard-00000\.safetensors is damaged.*shard-00002.* is missing"
    ):
        opened.verify(progress=False)


def flip(file, at, bit=1):
    content = bytearray(file.read_bytes())
    content[at] ^= bit
    file.write_bytes(content)


def test_a_shard_is_checked_when_it_is_first_read(corpus, tmp_path):
    """Vectors come last in a file, spans before them."""
    chunks = int(corpus.document_offsets[2])
    for place, name in ((-1, "vectors"), (-1 - 2 * 384 * chunks, "spans")):
        bad = shutil.copytree(corpus.path, tmp_path / name)
        flip(bad / "shard-00000.safetensors", place, 64)
        opened = VectorCorpus(bad)
        with pytest.raises(
            ValueError, match=rf"shard-00000\.safetensors is damaged: its {name} do not.*repair_corpus"
        ):
            opened[0]
        assert torch.equal(opened[2].vectors, corpus[2].vectors)


def rewritten(corpus, folder, number, change):
    """A copy of the corpus, one shard of which holds other tensors or another head."""
    shutil.copytree(corpus.path, folder)
    path = folder / shard_name(number)
    with safe_open(path, framework="pt") as file:
        head = json.loads(file.metadata()["shard"])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    change(head, tensors)
    path.write_bytes(save(tensors, {"shard": json.dumps(head)}))
    return folder


def test_heads_that_contradict_themselves(golden, tmp_path):
    """In a corpus without check sums, which has nothing else to show it."""

    def cut(name):
        return lambda head, tensors: tensors.update({name: tensors[name][:-1].contiguous()})

    def falling(head, tensors):
        tensors["document_offsets"][1] += 10_000

    def wide(head, tensors):
        tensors["vectors"] = tensors["vectors"].float()

    cases = {
        "spans": (cut("spans"), "but vectors .*, spans "),
        "vectors": (cut("vectors"), "but vectors "),
        "offsets": (cut("document_offsets"), "documents, but vectors"),
        "falling": (falling, "document_offsets do not rise from 0 to"),
        "dtype": (wide, "F32"),
        "fields": (lambda head, tensors: head["documents"][0].pop("tokens"), "described by other fields"),
        "order": (lambda head, tensors: head["documents"].reverse(), "given different documents"),
    }
    for name, (change, message) in cases.items():
        folder = rewritten(golden, tmp_path / name, 0, change)
        with pytest.raises(ValueError, match=message):
            VectorCorpus(folder)


def test_what_is_read_without_check_sums(golden, tmp_path, caplog):
    def not_a_number(head, tensors):
        tensors["vectors"][3, 1] = float("nan")

    def backwards(head, tensors):
        tensors["spans"][1] = torch.tensor([9, 3])

    VectorCorpus(golden.path)
    assert "has no check sums (format version 2)" in caplog.text
    golden.verify(progress=False)
    for name, change, message in (
        ("nan", not_a_number, r"shard-00001\.safetensors has vectors that are not finite"),
        ("spans", backwards, r"shard-00001\.safetensors has spans that run backwards"),
    ):
        bad = VectorCorpus(rewritten(golden, tmp_path / name, 1, change))
        with pytest.raises(ValueError, match=message):
            list(bad)
        with pytest.raises(ValueError, match=message):
            bad.verify(progress=False)


def test_two_documents_of_one_id(golden, tmp_path):
    """The second shard repeats a document of the first, and the chain is that of the repetition."""
    folder = shutil.copytree(golden.path, tmp_path / "twice")
    manifest = json.loads((folder / MANIFEST).read_text())
    chain = ""
    for number in (0, 1):
        with safe_open(folder / shard_name(0), framework="pt") as file:
            head = json.loads(file.metadata()["shard"])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
        for entry in head["documents"]:
            entry["id"] += " again" if number and entry is not head["documents"][0] else ""
            chain = extend_chain(chain, entry["id"], entry["characters"], "")
        content = save(tensors, {"shard": json.dumps({**head, "chain": chain})})
        (folder / f"new-{number}").write_bytes(content)
    for number in (0, 1):
        (folder / f"new-{number}").replace(folder / shard_name(number))
    totals = {"documents": 2 * len(head["documents"]), "chunks": 2 * len(tensors["vectors"])}
    (folder / MANIFEST).write_text(json.dumps({**manifest, **totals, "shards": 2}))
    with pytest.raises(ValueError, match=f"two documents with the id {head['documents'][0]['id']!r}; encode"):
        VectorCorpus(folder)


def test_every_changed_bit_of_a_manifest_is_seen(corpus, tmp_path):
    folder = shutil.copytree(corpus.path, tmp_path / "bad")
    content = (folder / MANIFEST).read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            (folder / MANIFEST).write_bytes(
                content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
            )
            with pytest.raises(ValueError, match=r"is damaged|has format_version"):
                read_manifest(folder)
