"""What `nextlevelbert search` keeps: killed, starved, damaged and shared by processes; the answer stays the same."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import nextlevelbert_command
from nextlevelbert.commands import shelf as shelves
from tests.golden.inputs import DOCUMENTS, FOLDER

from .damage import Tally, damages
from .harness import at_once, forked
from .runs import tell


@pytest.fixture(scope="module")
def books(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("books")
    for number, document in enumerate(DOCUMENTS[:3]):
        (folder / f"{number}.txt").write_text(document.text)
    rows = [{"id": document.id, "text": document.text} for document in DOCUMENTS[3:6]]
    (folder / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(autouse=True)
def _each_document_for_itself(monkeypatch):
    """So that more is written between the first operation and the last."""
    monkeypatch.setattr(shelves, "_CHARACTERS_OF_SLOW_ENCODERS", 1)


def search(books: Path, cache: Path) -> list[object]:
    """Exit status, answer and messages of the command; scores to four places, as the order of sums may change."""
    out, err = io.StringIO(), io.StringIO()
    words = ["search", str(books), "Who hunts?", "--json", "--passages", "9", "--cache_dir", str(cache)]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = nextlevelbert_command.main([*words, "--model", str(FOLDER / "nextlevelbert")])
        except SystemExit as ended:
            return [1, None, str(ended.code)]
    found = json.loads(out.getvalue()) if status == 0 else {}
    for each in [*found.get("documents", []), *found.get("passages", [])]:
        each["score"] = round(each["score"], 4)
    return [status, found, err.getvalue() if status else ""]


@pytest.fixture(scope="module")
def straight(books, tmp_path_factory):
    """The answer of a run that nothing stops, and what it keeps."""
    cache = tmp_path_factory.mktemp("straight") / "cache"
    answer = search(books, cache)
    assert answer[0] == 0
    assert len(answer[1]["documents"]) == 5
    return answer, cache


@pytest.mark.parametrize(
    "how", ["kill", *(pytest.param(each, marks=pytest.mark.faults) for each in ("full", "SIGINT", "SIGTERM"))]
)
def test_every_operation(books, straight, how, tmp_path):
    answer, _ = straight
    operations = forked(lambda: search(books, tmp_path / "count"), tmp_path).operations
    assert operations > 10
    told = []
    for at in range(operations):
        cache = tmp_path / f"{at}"
        first = forked(lambda cache=cache: search(books, cache), tmp_path, at, how)
        if how in ("kill", "SIGTERM"):
            assert first.killed, (at, first)
        elif how == "SIGINT":
            assert first.value[0] == 130, (at, first)
        elif first.value != answer:  # nothing is opened after the last renaming
            assert first.value[0] == 1, (at, first)
            assert "No space left on device" in first.value[2], (at, first)
        again = forked(lambda cache=cache: search(books, cache), tmp_path)
        told.append("stuck" if again.stuck else "same" if again.value == answer else f"silent or raw: {again}")
        assert not list(cache.rglob("*.tmp")), at
        shutil.rmtree(cache)
    assert tell(told) == {"same": operations}


def damage_shelf(books, straight, work, flips, cuts):
    """A record that is damaged is made again; of the file of chunk vectors the message says what to do."""
    answer, whole = straight
    tally = Tally(answer)
    for path in sorted(
        each for each in whole.rglob("*") if each.is_file() and not each.name.endswith(("-shm", "-wal"))
    ):
        name = path.relative_to(whole)
        for what, damaged in damages(path.read_bytes(), flips, cuts):
            cache = shutil.copytree(whole, work / "copy")
            (cache / name).unlink()
            if damaged is not None:
                (cache / name).write_bytes(damaged)
            outcome = forked(lambda cache=cache: search(books, cache), work)
            if outcome.value and outcome.value[0] == 1 and str(outcome.value[2]).startswith("error: "):
                assert path.suffix == ".sqlite3", outcome
                tally.counts.setdefault(path.suffix, {}).setdefault("clear", 0)
                tally.counts[path.suffix]["clear"] += 1
            else:
                tally.note(path.suffix, f"{name} {what}", outcome)
            shutil.rmtree(cache)
    print(tally)
    assert tally.bad == [], str(tally)
    assert tally.counts[".safetensors"].keys() == {"same"}


@pytest.mark.long
def test_some_damages(books, straight, tmp_path):
    damage_shelf(books, straight, tmp_path, 4, 1)


@pytest.mark.faults
def test_many_damages(books, straight, tmp_path):
    damage_shelf(books, straight, tmp_path, 20, 3)


@pytest.mark.faults
def test_processes_that_share_a_shelf_and_are_killed(books, straight, tmp_path):
    """Eight processes search; two of them are killed when the first record is there; files come, change and go."""
    changing = shutil.copytree(books, tmp_path / "changing")
    (changing / "0.txt").rename(tmp_path / "0.txt")

    def work(number):
        def run():
            if number < 2:
                write = shelves.write_atomically

                def written(path, content):
                    write(path, content)
                    os.kill(os.getpid(), signal.SIGKILL)

                shelves.write_atomically = written
            if number == 5:
                (tmp_path / "0.txt").replace(changing / "0.txt")
            return search(changing, tmp_path / "cache")[0]

        return run

    outcomes = at_once([work(number) for number in range(8)], tmp_path)
    assert all(outcome.killed or outcome.value == 0 for outcome in outcomes), outcomes
    assert [outcome.value for outcome in outcomes[2:]] == [0] * 6, outcomes
    found = search(changing, tmp_path / "cache")
    assert found[1]["passages"] == straight[0][1]["passages"]
