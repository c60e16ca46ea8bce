"""Files that are written whole or not at all, JSON that is named, and paths of this machine."""

import errno
import os
from pathlib import Path

import pytest
from safetensors.torch import save_file

from nextlevelbert.models.files import (
    WritingError,
    load_json,
    local_path,
    read_json,
    whole_folder,
    write_whole,
)


def fail(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    write_whole(path, '{"ä": 1}')
    assert path.read_bytes() == '{"ä": 1}\n'.encode()
    os.utime(path, ns=(0, 0))
    write_whole(path, '{"ä": 1}')
    assert path.stat().st_mtime_ns == 0  # it was left alone
    monkeypatch.setattr("os.fsync", fail)

    with pytest.raises(WritingError) as caught:
        write_whole(path, "{}")

    assert str(caught.value) == (
        f"{path} cannot be written: No space left on device. Make room on its disk, or write to"
        " another folder."
    )
    assert read_json(path) == {"ä": 1}
    assert list(tmp_path.iterdir()) == [path]


def save_model(folder, config="{}", weights=b"new"):
    with whole_folder(folder) as temporary:
        (temporary / "config.json").write_text(config)
        (temporary / "1_Dense").mkdir()
        (temporary / "1_Dense" / "model.safetensors").write_bytes(weights)


def test_a_folder_gets_all_files_at_once(tmp_path, monkeypatch):
    folder = tmp_path / "new" / "model"
    moved = []
    replace = os.replace

    def watch(source, target):
        assert (folder / "config.json").exists() == ("config.json" in moved)
        moved.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr("os.replace", watch)
    save_model(folder)
    (folder / "notes.txt").write_text("mine")

    save_model(folder, config="[]")

    assert moved == ["model.safetensors", "config.json"] * 2
    assert read_json(folder / "config.json") == []
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "1_Dense" / "model.safetensors").read_bytes() == b"new"
    assert not list(folder.glob(".tmp*"))


def save_in_vain(folder):
    with whole_folder(folder) as temporary:
        (temporary / "config.json").write_text("[]")
        save_file({}, temporary / "nowhere" / "model.safetensors")


def test_an_error_leaves_the_old_files(tmp_path):
    save_model(tmp_path, weights=b"old")

    with pytest.raises(WritingError, match=f"^{tmp_path} cannot be written: .*No such file"):
        save_in_vain(tmp_path)

    assert read_json(tmp_path / "config.json") == {}
    assert not list(tmp_path.glob(".tmp*"))


def test_json_that_is_incomplete_is_named(tmp_path):
    path = tmp_path / "results.json"
    assert read_json(path) is None
    path.write_text('{"cut')
    assert read_json(path) is None

    with pytest.raises(
        ValueError, match=rf"{path} is no valid JSON \(.*write or download it again"
    ):
        load_json(path)


@pytest.mark.parametrize("address", ["s3://bucket/corpus", Path("hf://datasets/me/corpus")])
def test_an_address_is_no_path(address):
    with pytest.raises(ValueError, match=rf"{address}' is an address, not a path on this machine"):
        local_path(address)


@pytest.mark.parametrize("name", ["books", "/a/b:c/d", "c:/books", "chapter: one"])
def test_a_path_stays_as_it_is(name):
    assert local_path(name) == Path(name)
