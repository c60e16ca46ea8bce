"""What `nextlevelbert search` keeps when it is killed, starved or damaged: it answers as before."""

import io
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

from nextlevelbert.command import main
from nextlevelbert.search import store

from ..toys.finetuning import write
from .harness import Outcome, forked

TEXTS = [
    "The whale swims under the ship. " * 9,
    "The baker lights the oven. " * 9,
    "The jury leaves. " * 9,
]
INSTRUCTIONS = 5  # of SQLite's machine between two places at which a process may be killed
faults = pytest.mark.faults


@pytest.fixture
def books(tmp_path) -> Path:
    """Three texts, each encoded alone, and a table."""
    folder = tmp_path / "books"
    folder.mkdir()
    for index, text in enumerate(TEXTS):
        (folder / f"{index}.txt").write_text(text + " " * 200_000)
    rows = [{"id": index, "text": text * 2} for index, text in enumerate(TEXTS)]
    write(folder / "table.jsonl", rows)
    return folder


@pytest.fixture
def search(toy_checkpoint, tmp_path, books) -> Callable[..., tuple[int, str, str]]:
    """Exit status, answer and errors of the command."""

    def run(source: Path = books) -> tuple[int, str, str]:
        out = io.StringIO()
        errors = io.StringIO()
        argv = ["search", source, "Who hunts?", "--json", "--model", toy_checkpoint]
        with redirect_stdout(out), redirect_stderr(errors):
            status = main([*map(str, argv), "--cache_dir", str(tmp_path / "cache")])
        return status, out.getvalue(), errors.getvalue()

    run()  # its forks have loaded everything
    shutil.rmtree(tmp_path / "cache")
    return run


def fork(call: Callable[[], int]) -> int:
    """Starts a fork that ends with what `call` returns; its number."""
    child = os.fork()
    if child == 0:
        # The threads of the parent did not come along, and would be waited for.
        torch.set_num_threads(1)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        status = 99
        try:
            status = call()
        finally:
            os._exit(status)
    return child


def answer(outcome: Outcome) -> tuple[int, str]:
    assert outcome.error is None
    status, out, _ = outcome.value
    return status, out


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=faults)])
def test_a_kill_within_the_database(search, tmp_path, monkeypatch, rounds):
    """At any instruction of SQLite's machine: in a transaction, between two, while it opens."""
    count = 0
    kill_at = -1
    open_database = store.open_database

    def watch() -> None:
        nonlocal count
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    def open_and_watch(*arguments):
        database = open_database(*arguments)
        database.set_progress_handler(watch, INSTRUCTIONS)
        return database

    monkeypatch.setattr(store, "open_database", open_and_watch)
    straight = forked(lambda: [*search(), count], tmp_path)
    instructions = straight.value.pop()
    assert instructions > rounds
    expected = answer(straight)
    for number in range(rounds):
        shutil.rmtree(tmp_path / "cache")
        kill_at = instructions * number // rounds
        assert forked(search, tmp_path).killed

        kill_at = -1

        assert answer(forked(search, tmp_path)) == expected, number


@pytest.mark.parametrize("rounds", [2, pytest.param(40, marks=faults)])
def test_a_kill_at_any_time(search, books, tmp_path, rounds):
    """Also while the folder changes: what is left is brought up to date by the next command."""
    generator = random.Random(0)
    start = time.monotonic()
    forked(search, tmp_path)
    seconds = time.monotonic() - start
    ends = set()
    for number in range(rounds):
        (books / "new.txt").write_text(f"Note {number}. {TEXTS[number % 3]}")
        child = fork(lambda: search()[0])
        time.sleep(generator.uniform(0, 1.5 * seconds))
        os.kill(child, signal.SIGKILL)
        ends.add(os.waitpid(child, 0)[1])

        killed = answer(forked(search, tmp_path))
        if number % 5 == 0:
            shutil.rmtree(tmp_path / "cache")

        assert answer(forked(search, tmp_path)) == killed, number
    assert rounds < 10 or ends == {0, signal.SIGKILL}  # some had ended


@faults
def test_a_disk_that_is_full_at_any_page(search, tmp_path, monkeypatch):
    """One sentence with the file and what to do; what was stored before is still there."""
    expected = answer(forked(search, tmp_path))
    [path] = tmp_path.rglob("store.sqlite3")
    with sqlite3.connect(path) as database:
        [(pages,)] = database.execute("PRAGMA page_count")
    open_database = store.open_database

    def open_small(*arguments):
        database = open_database(*arguments)
        database.execute(f"PRAGMA max_page_count = {room}")
        return database

    for room in range(12, pages):
        shutil.rmtree(tmp_path / "cache")
        monkeypatch.setattr(store, "open_database", open_small)
        status, out, errors = forked(search, tmp_path).value
        assert (status, out) == (1, ""), room
        assert "store.sqlite3 cannot be used: database or disk is full. Make room" in errors
        monkeypatch.setattr(store, "open_database", open_database)
        assert answer(forked(search, tmp_path)) == expected, room


@faults
def test_eight_first_readers(search, tmp_path):
    """One reads the folder, and the others wait, or read another part of it."""
    expected = answer(forked(search, tmp_path))
    shutil.rmtree(tmp_path / "cache")
    for _ in range(4):
        children = [fork(lambda: int(search()[:2] != expected)) for _ in range(8)]

        for child in children:
            assert os.waitpid(child, 0)[1] == 0

        assert answer(forked(search, tmp_path)) == expected
        shutil.rmtree(tmp_path / "cache")


@faults
def test_without_the_right_to_write(search, books, tmp_path, toy_checkpoint):
    """Another user's store is read, and a new file is refused by name."""
    if os.getuid() != 0:
        pytest.fail("Run this test as root, who can become another user.")
    expected = answer(forked(search, tmp_path))
    model = Path(toy_checkpoint)
    for path in [tmp_path, *tmp_path.rglob("*"), *model.parents[:3], model, *model.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o555)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)

    def search_as_nobody() -> tuple[int, str, str]:
        os.setuid(65534)
        return search()

    unchanged = forked(search_as_nobody, tmp_path)
    assert answer(unchanged) == expected, unchanged
    (books / "new.txt").write_text("A new one.")
    status, _, errors = forked(search_as_nobody, tmp_path).value
    assert status == 1
    assert "store.sqlite3 cannot be used: attempt to write a readonly database" in errors


@faults
def test_a_cache_that_is_removed_meanwhile(search, tmp_path):
    generator = random.Random(0)
    expected = answer(forked(search, tmp_path))
    for _ in range(20):
        shutil.rmtree(tmp_path / "cache")
        delay = generator.uniform(0, 0.5)
        remover = threading.Timer(delay, shutil.rmtree, [tmp_path / "cache"], {"ignore_errors": 1})
        remover.start()
        outcome = forked(search, tmp_path)
        remover.join()

        assert outcome.error is None
        status, out, errors = outcome.value
        if status == 0:
            assert (status, out) == expected
        else:
            assert "cannot be used" in errors
        assert answer(forked(search, tmp_path)) == expected


@faults
def test_damage_at_random_bytes(search, tmp_path):
    """What a search shows is never what was damaged: the file is made again, said in one line."""
    generator = random.Random(0)
    expected = answer(forked(search, tmp_path))
    [path] = tmp_path.rglob("store.sqlite3")
    content = path.read_bytes()
    made_again = 0
    for _ in range(60):
        damaged = bytearray(content)
        for place in generator.sample(range(len(content)), 20):
            damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)

        status, out, errors = forked(search, tmp_path).value

        assert (status, out) == expected, errors
        made_again += "is made again" in errors
    assert made_again > 30


@faults
def test_a_folder_that_is_renamed(search, books, tmp_path):
    """It is another source; its documents have other paths."""
    expected = answer(forked(search, tmp_path))
    renamed = books.with_name("renamed")
    books.rename(renamed)

    assert answer(forked(lambda: search(renamed), tmp_path)) == expected

    assert len(list(tmp_path.rglob("store.sqlite3"))) == 2
