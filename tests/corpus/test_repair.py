"""Shards that are missing or damaged are encoded again, to the bytes that they had; nothing else is touched."""

from __future__ import annotations

import shutil

import pytest
import torch

from nextlevelbert import ChunkingRule, Document, VectorCorpus, encode_corpus, repair_corpus
from nextlevelbert.corpus.layout import MANIFEST, shard_name
from nextlevelbert.corpus.writer import finish_corpus, write_shards
from nextlevelbert.models.chunk_encoder import ChunkEncoder

from ..golden.inputs import FOLDER
from .conftest import DOCUMENTS, contents


def flip(file, at=-1):
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


@pytest.fixture
def copy(corpus, tmp_path):
    return shutil.copytree(corpus.path, tmp_path / "copy")


def missing(folder):
    (folder / shard_name(2)).unlink()


def flipped(folder):
    flip(folder / shard_name(0))


def cut(folder):
    (folder / shard_name(1)).write_bytes((folder / shard_name(1)).read_bytes()[:500])


def swapped(folder):
    first, second = (folder / shard_name(number) for number in (0, 1))
    shutil.move(first, folder / "kept")
    shutil.move(second, first)
    shutil.move(folder / "kept", second)


def all_of_them(folder):
    for number in range(3):
        (folder / shard_name(number)).unlink()


@pytest.mark.parametrize(
    ("harm", "bad"), [(missing, [2]), (flipped, [0]), (cut, [1]), (swapped, [0, 1]), (all_of_them, [0, 1, 2])]
)
def test_the_bytes_are_what_they_were(corpus, copy, minilm, rule, harm, bad):
    harm(copy)
    sound = {number: (copy / shard_name(number)).stat().st_mtime_ns for number in {0, 1, 2} - set(bad)}
    repaired = repair_corpus(iter(DOCUMENTS), minilm, rule, copy, progress=False)
    repaired.verify(progress=False)
    assert contents(copy) == contents(corpus.path)
    assert {number: (copy / shard_name(number)).stat().st_mtime_ns for number in sound} == sound


def test_encoding_again_tells_how_to_repair(copy, minilm, rule):
    missing(copy)
    with pytest.raises(ValueError, match=r"shard-00002\.safetensors is missing.*repair_corpus"):
        encode_corpus(DOCUMENTS, minilm, rule, copy, characters_per_shard=380, progress=False)


def test_an_incomplete_corpus_is_checked_and_completed(corpus, minilm, rule, tmp_path):
    options = {"characters_per_shard": 380, "progress": False}
    write_shards(DOCUMENTS, minilm, rule, tmp_path, process_index=0, num_processes=2, **options)
    flip(tmp_path / shard_name(2))
    repair_corpus(DOCUMENTS, minilm, rule, tmp_path, progress=False)
    assert contents(tmp_path) == contents(corpus.path)


def test_each_process_repairs_its_share(corpus, copy, minilm, rule):
    flip(copy / shard_name(0))
    flip(copy / shard_name(1))
    for process_index in (1, 0):
        shards = write_shards(
            DOCUMENTS, minilm, rule, copy, characters_per_shard=380, progress=False, repair=True,
            process_index=process_index, num_processes=2,
        )  # fmt: skip
    finish_corpus(copy, shards, repair=True)
    assert contents(copy) == contents(corpus.path)


@pytest.mark.parametrize("harm", [missing, flipped, cut])
def test_other_documents_are_refused_and_nothing_is_written(copy, minilm, rule, harm):
    harm(copy)
    before = contents(copy)
    other = [Document(each.id, each.text.swapcase()) for each in DOCUMENTS]  # as long, with the same ids
    for documents in (other, DOCUMENTS[::-1]):
        with pytest.raises(ValueError, match="Cannot re"):
            repair_corpus(documents, minilm, rule, copy, progress=False)
        assert contents(copy) == before


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (DOCUMENTS[:3], "holds 4 documents, but 3 are given"),
        ([*DOCUMENTS, Document("more", "more")], "holds 1 documents, but 2 are given"),
        ([*DOCUMENTS[:3], Document("family", "x" * 155)], "text of document 'family' has changed"),
    ],
)
def test_documents_that_are_others_after_the_bad_shard(copy, minilm, rule, documents, message):
    flipped(copy)
    with pytest.raises(ValueError, match=message):
        repair_corpus(documents, minilm, rule, copy, progress=False)


def test_another_encoder_or_rule_is_refused(copy, minilm, rule):
    flipped(copy)
    before = contents(copy)
    wider = ChunkingRule.from_tokenizer(minilm.tokenizer, 32, max_chunk_size=512)
    with pytest.raises(ValueError, match=r"chunking\.chunk_size: 16, 32"):
        repair_corpus(DOCUMENTS, minilm, wider, copy, progress=False)
    with pytest.raises(ValueError, match=r"encoder\.dtype: 'float32', 'bfloat16'"):
        repair_corpus(DOCUMENTS, minilm, rule, copy, dtype=torch.bfloat16, progress=False)
    assert contents(copy) == before


def test_other_bits_are_told(copy, minilm, rule, monkeypatch, caplog):
    flipped(copy)
    encode = ChunkEncoder.encode
    monkeypatch.setattr(ChunkEncoder, "encode", lambda *args, **kwargs: encode(*args, **kwargs) + 1e-3)
    repair_corpus(DOCUMENTS, minilm, rule, copy, progress=False).verify(progress=False)
    assert "The last bits of shard-00000.safetensors are new" in caplog.text
    assert len(VectorCorpus(copy)) == 4


def test_without_check_sums_there_is_nothing_to_repair_by(golden_encoder, tmp_path):
    source, rule = golden_encoder
    folder = shutil.copytree(FOLDER / "corpus", tmp_path / "corpus")
    with pytest.raises(ValueError, match=r"no check sums \(format version 2\) to repair it by"):
        repair_corpus(DOCUMENTS, source, rule, folder, progress=False)
    with pytest.raises(FileNotFoundError, match="No encoded corpus"):
        repair_corpus(DOCUMENTS, source, rule, tmp_path / "nothing", progress=False)
    assert MANIFEST in contents(folder)
