"""Encoding a corpus, killed at every file operation, on a full disk, and repeated: the bytes of a straight run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nextlevelbert import ChunkingRule, VectorCorpus, encode_corpus, load_chunk_encoder
from tests.golden.inputs import DOCUMENTS, FOLDER

from .harness import forked, tree


@pytest.fixture(scope="module")
def encode():
    source = load_chunk_encoder(str(FOLDER / "encoder" / "sentences"), "golden/encoder")
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=40)

    def call(folder: Path) -> str:
        return repr(encode_corpus(DOCUMENTS, source, rule, folder, characters_per_part=1_500, progress=False))

    return call


@pytest.mark.parametrize("how", ["kill", "full"])
def test_every_operation(encode, how, tmp_path):
    straight = forked(lambda: encode(tmp_path / "straight"), tmp_path)
    assert straight.error is None
    assert straight.operations >= 9
    for at in range(straight.operations):
        folder = tmp_path / f"{how}-{at}" / "corpus"
        first = forked(lambda folder=folder: encode(folder), tmp_path, at, how)
        assert first.killed if how == "kill" else "No space left on device" in str(first.error), (at, first)
        again = forked(lambda folder=folder: encode(folder), tmp_path)
        assert again.error is None, (at, again)
        assert tree(folder) == tree(tmp_path / "straight"), at
        shutil.rmtree(folder)
    assert len(VectorCorpus(tmp_path / "straight")) == len(DOCUMENTS)
