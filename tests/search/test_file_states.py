"""Files are remembered until they change, even if size and time stamp stay."""

import os

import pytest

from nextlevelbert.search.file_states import FileStates, state_of


@pytest.fixture
def states(tmp_path) -> FileStates:
    return FileStates(tmp_path / "states")


def test_a_file_is_known_until_it_changes(settled, states, tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("The falcon.")
    states.remember("note", state_of([note]), ["falcon"])
    states.save(["note"])

    reopened = FileStates(tmp_path / "states")

    assert reopened.content("note", state_of([note])) == ["falcon"]
    assert reopened.content("another", state_of([note])) is None
    status = note.stat()
    note.write_text("The badger.")
    os.utime(note, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert note.stat().st_mtime_ns == status.st_mtime_ns
    assert reopened.content("note", state_of([note])) is None


def test_a_file_that_was_changed_just_now_is_not_remembered(states, tmp_path):
    """Its next change might have the same time stamp."""
    (tmp_path / "note.txt").write_text("The falcon.")
    state = state_of([tmp_path / "note.txt"])

    states.remember("note", state, "falcon")

    assert not state.is_settled
    assert states.content("note", state) is None


def test_files_that_are_not_named_are_forgotten(settled, states, tmp_path):
    state = state_of([])
    states.remember("one", state, 1)
    states.remember("two", state, 2)

    states.save(["two"])

    reopened = FileStates(tmp_path / "states")
    assert reopened.content("one", state) is None
    assert reopened.content("two", state) == 2


def test_damage_makes_all_files_unknown(settled, states, tmp_path):
    states.remember("one", state_of([]), "content")
    states.save(["one"])
    path = tmp_path / "states"

    path.write_bytes(path.read_bytes().replace(b"content", b"contexts"))

    assert FileStates(path).content("one", state_of([])) is None


def test_states_in_a_folder_that_cannot_be_written_are_not_kept(settled, tmp_path):
    (tmp_path / "file").write_text("")
    states = FileStates(tmp_path / "file" / "states")
    states.remember("one", state_of([]), 1)

    states.save(["one"])

    assert states.content("one", state_of([])) == 1
    assert FileStates(tmp_path / "file" / "states").content("one", state_of([])) is None
