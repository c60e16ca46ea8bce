"""Files written by several processes at once: each whole, nobody's removed, leftovers gone."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch

from nextlevelbert import ChunkingRule, encode_corpus, load_chunk_encoder
from nextlevelbert.data._files import remove_leftovers, write_atomically

from ..faults.harness import tree
from ..golden.inputs import DOCUMENTS, FOLDER


def test_of_two_that_begin_at_once_the_first_decides(tmp_path):
    for content in (b"first", b"second"):
        write_atomically(tmp_path / "manifest", content, only_if_missing=True)
    assert tree(tmp_path) == {"manifest": b"first"}
    write_atomically(tmp_path / "manifest", b"third")
    assert tree(tmp_path) == {"manifest": b"third"}


def test_without_hard_links_the_last_one_is_whole(tmp_path, monkeypatch):
    def refused(*names):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    for content in (b"first", b"second"):
        write_atomically(tmp_path / "manifest", content, only_if_missing=True)
    assert tree(tmp_path) == {"manifest": b"second"}


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "shard", b"content")
    assert tree(tmp_path) == {}


def test_leftovers_of_the_dead_go_and_files_of_the_living_stay(tmp_path):
    """A child is stopped while it writes, once it lives, once it was killed."""
    inner, outer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.fsync = lambda number: (os.write(outer, b"x"), time.sleep(60))  # written and locked, but not renamed
            write_atomically(tmp_path / "shard", b"content")
        finally:
            os._exit(1)
    os.read(inner, 1)
    [temporary] = tmp_path.iterdir()
    remove_leftovers(tmp_path)
    kept = tree(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert kept == {temporary.name: b"content"}
    remove_leftovers(tmp_path)
    assert tree(tmp_path) == {}


def test_old_leftovers_of_the_library_go_and_new_ones_stay(tmp_path):
    for name, age in ((".tmpAbC123", 7_200), (".tmpDeF456", 10), (".tmpGhI789", -(10**6))):
        (tmp_path / name).write_bytes(b"half a shard")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    remove_leftovers(tmp_path)
    assert sorted(tree(tmp_path)) == [".tmpDeF456", ".tmpGhI789"]  # of a clock that was set back, too


def test_a_file_removed_before_it_was_locked_is_written_again(tmp_path, monkeypatch):
    exists = type(tmp_path).exists
    removed = []

    def meanwhile(path, **options):
        if path.suffix == ".tmp" and not removed:
            removed.append(path)
            path.unlink()
        return exists(path, **options)

    monkeypatch.setattr(type(tmp_path), "exists", meanwhile)
    write_atomically(tmp_path / "shard", b"content")
    assert len(removed) == 1
    assert tree(tmp_path) == {"shard": b"content"}


def test_many_runs_on_one_folder_at_once(tmp_path):
    """Each encodes all it finds missing and ends as if it were alone."""
    source = load_chunk_encoder(str(FOLDER / "encoder" / "sentences"), "golden/encoder")
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=40)

    def encode(folder):
        return encode_corpus(DOCUMENTS, source, rule, folder, characters_per_shard=200, progress=False)

    encode(tmp_path / "straight")
    for attempt in range(3):
        folder = tmp_path / f"shared-{attempt}"
        children = []
        for number in range(6):
            child = os.fork()
            if child == 0:
                torch.set_num_threads(1)  # the parent's threads did not come along, and would be waited for
                code = 1
                try:
                    time.sleep(0.01 * number * attempt)
                    encode(folder)
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
        assert tree(folder) == tree(tmp_path / "straight")
