"""A corpus whose files are changed, cut, emptied, removed or exchanged: named when it is read, and repaired."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from nextlevelbert import ChunkingRule, VectorCorpus, encode_corpus, load_chunk_encoder, repair_corpus
from tests.golden.inputs import DOCUMENTS, FOLDER

from .damage import Tally, each_damage
from .harness import at_once, forked, tree

SHARDS = [f"shard-{number:05d}.safetensors" for number in range(3)]
OPTIONS = {"characters_per_shard": 1_500, "progress": False}


@pytest.fixture(scope="module")
def encoder():
    source = load_chunk_encoder(str(FOLDER / "encoder" / "sentences"), "golden/encoder")
    return source, ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=40)


@pytest.fixture(scope="module")
def whole(encoder, tmp_path_factory):
    return encode_corpus(DOCUMENTS, *encoder, tmp_path_factory.mktemp("whole") / "corpus", **OPTIONS).path


def read(folder: Path) -> str:
    """A hash of all that a reader of the corpus gets."""
    corpus = VectorCorpus(folder)
    parts = [repr((corpus.manifest, corpus.document_ids, corpus.document_offsets.tolist())).encode()]
    for document in corpus:
        parts += [document.vectors.numpy().tobytes(), document.spans.numpy().tobytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def mended(folder: Path, encoder) -> None:
    """As the messages say: a manifest that is damaged is deleted, and bad shards are encoded again."""
    try:
        repair_corpus(DOCUMENTS, *encoder, folder, progress=False)
    except (FileNotFoundError, ValueError) as error:
        if "manifest.json" not in str(error):
            raise
        (folder / "manifest.json").unlink(missing_ok=True)
        encode_corpus(DOCUMENTS, *encoder, folder, **OPTIONS)


def damage_corpus(encoder, whole, work, flips, cuts):
    tally = Tally(read(whole))
    straight = tree(whole)
    for name, what, folder in each_damage(whole, work, ["manifest.json", *SHARDS], flips, cuts):
        tally.note(name, what, forked(lambda folder=folder: read(folder), work))
        outcome = forked(lambda folder=folder: mended(folder, encoder), work)
        assert outcome.error is None, (name, what, outcome)
        assert tree(folder) == straight, (name, what)
    print(tally)
    assert tally.bad == [], str(tally)
    return tally


@pytest.mark.long
def test_some_damages_of_every_file(encoder, whole, tmp_path):
    tally = damage_corpus(encoder, whole, tmp_path, 4, 1)
    assert all(count["clear"] >= 6 for count in tally.counts.values()), str(tally)


@pytest.mark.faults
def test_many_damages_of_every_file(encoder, whole, tmp_path):
    damage_corpus(encoder, whole, tmp_path, 30, 4)


def test_exchanged_files(encoder, whole, tmp_path):
    """Any shard in the place of any other, of its own corpus or of one whose encoder computed in another precision."""
    other = encode_corpus(DOCUMENTS, *encoder, tmp_path / "other", dtype=torch.bfloat16, **OPTIONS).path
    tally = Tally(read(whole))
    for source, name, place in itertools.product((whole, other), SHARDS, SHARDS):
        if (source, name) == (whole, place):
            continue
        folder = shutil.copytree(whole, tmp_path / "copy")
        shutil.copy(source / name, folder / place)
        result = tally.note(place, f"{name} of {source}", forked(lambda folder=folder: read(folder), tmp_path))
        assert result == "clear", str(tally)
        shutil.rmtree(folder)
    shutil.copy(other / "manifest.json", shutil.copytree(whole, tmp_path / "copy"))
    assert tally.note("manifest", "of the other", forked(lambda: read(tmp_path / "copy"), tmp_path)) == "clear"


@pytest.mark.parametrize("how", ["kill", pytest.param("full", marks=pytest.mark.faults)])
def test_repair_is_interrupted_at_every_operation(encoder, whole, tmp_path, how):
    def harmed(name):
        folder = shutil.copytree(whole, tmp_path / name)
        (folder / SHARDS[0]).write_bytes((folder / SHARDS[0]).read_bytes()[:-1] + b"x")
        (folder / SHARDS[2]).unlink()
        return folder

    def repair(folder):
        repair_corpus(DOCUMENTS, *encoder, folder, progress=False)

    straight = harmed("straight")
    operations = forked(lambda: repair(straight), tmp_path).operations
    assert operations >= 6
    assert tree(straight) == tree(whole)
    for at in range(operations):
        folder = harmed(f"at-{at}")
        first = forked(lambda folder=folder: repair(folder), tmp_path, at, how)
        if how == "kill":
            assert first.killed, (at, first)
        elif first.error is not None:  # nothing is written after the last renaming
            assert "No space left" in first.error, (at, first)
            assert at < operations - 2
        again = forked(lambda folder=folder: repair(folder), tmp_path)
        assert again.error is None, (at, again)
        assert tree(folder) == tree(whole), at


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals(encoder, whole, tmp_path, number):
    """A run is told to end after each shard that it has written."""

    def told(shards):
        def run(folder=tmp_path / f"{number}-{shards}"):
            def documents():
                for document in DOCUMENTS:
                    if len(list(folder.glob("shard-*.safetensors"))) >= shards:
                        os.kill(os.getpid(), number)
                        time.sleep(10)
                    yield document

            encode_corpus(documents(), *encoder, folder, **OPTIONS)

        return run

    for shards in range(2):
        folder = tmp_path / f"{number}-{shards}"
        outcome = forked(told(shards), tmp_path)
        if number == signal.SIGINT:
            assert outcome.error == "KeyboardInterrupt: ", outcome
        else:
            assert outcome.killed, outcome
        encode_corpus(DOCUMENTS, *encoder, folder, **OPTIONS)
        assert tree(folder) == tree(whole)


@pytest.mark.faults
def test_several_repairs_and_readers_at_once(encoder, whole, tmp_path):
    """Eight processes repair one corpus, and each reads it when it has done so."""
    for attempt in range(4):
        folder = shutil.copytree(whole, tmp_path / str(attempt))
        for name in SHARDS[: attempt % 3 + 1]:
            (folder / name).unlink()

        def work(folder=folder):
            repair_corpus(DOCUMENTS, *encoder, folder, progress=False)
            return read(folder)

        outcomes = at_once([work] * 8, tmp_path)
        assert {(outcome.error, outcome.value) for outcome in outcomes} == {(None, read(whole))}
        assert tree(folder) == tree(whole)
