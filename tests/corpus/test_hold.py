"""A folder that one process writes into: what stays after an error, and what the next run removes."""

import subprocess
import sys

import pytest

from nextlevelbert.corpus.hold import forget_abandoned, hold_folder, is_abandoned


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_nothing_stays_after_a_run(tmp_path):
    with hold_folder(tmp_path):
        assert names(tmp_path) == [".holder-0", ".lock-0"]
        assert not is_abandoned(tmp_path, 0)

    assert names(tmp_path) == []


def test_a_run_that_failed_is_known_until_the_next(tmp_path):
    with pytest.raises(OSError, match="no space"), hold_folder(tmp_path, 2, is_shared=True):
        raise OSError("no space")

    assert is_abandoned(tmp_path, 2)

    forget_abandoned(tmp_path)

    assert not is_abandoned(tmp_path, 2)
    assert names(tmp_path) == []


def test_nothing_stays_after_the_error_of_a_run_alone(tmp_path):
    with pytest.raises(OSError, match="no space"), hold_folder(tmp_path):
        raise OSError("no space")

    assert names(tmp_path) == []


@pytest.mark.parametrize("left", [".holder-0", ".lock-0"])
def test_either_file_of_a_killed_run_is_removed(tmp_path, left):
    (tmp_path / left).touch()

    forget_abandoned(tmp_path)

    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_left_as_it_is(tmp_path, monkeypatch):
    (tmp_path / ".holder-0").touch()

    def refuse(*_, **__):
        raise PermissionError("read-only")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    forget_abandoned(tmp_path)

    assert names(tmp_path) == [".holder-0"]


def test_the_files_of_a_run_that_goes_on_stay(tmp_path):
    other = (
        "import sys; from pathlib import Path; from nextlevelbert.corpus.hold import *;"
        "forget_abandoned(Path(sys.argv[1])); print(is_abandoned(Path(sys.argv[1]), 0))"
    )

    with hold_folder(tmp_path):
        said = subprocess.run(
            [sys.executable, "-c", other, tmp_path], capture_output=True, text=True, check=True
        )

        assert said.stdout.split() == ["False"]
        assert names(tmp_path) == [".holder-0", ".lock-0"]
