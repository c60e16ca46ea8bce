"""The page of `nextlevelbert app`, served by a process of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXTS = {
    "sea": (
        "The whale swims under the ship. The captain hunts it over the waves, far from the"
        " harbour. "
    ),
    "kitchen": (
        "The baker lights the oven. Flour and yeast become a crust of bread, and the kitchen is"
        " warm. "
    ),
    "court": "The judge reads the law aloud. The lawyers argue, and the jury leaves the court. ",
    "<i>garden ${1}": (
        "Roses ${1} {{x}} grow <b>along</b> the wall. The gardener waters lilies & prunes the"
        " hedge. "
    ),
}
# Every address that Python's sockets connect to or look up is written to a file.
LOG_CONNECTIONS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
log = open(sys.argv.pop(1), "a", buffering=1)
def hook(event, arguments):
    if event == "socket.connect": print(arguments[1], file=log)
    if event == "socket.getaddrinfo": print(arguments[:2], file=log)
sys.addaudithook(hook)
"""
COMMAND = """
sys.argv[0] = "nextlevelbert"  # so that the package knows that a command starts
from nextlevelbert.command import main
sys.exit(main())
"""


@contextmanager
def served(tmp_path: Path, *options: str) -> Iterator[str]:
    """Serves the page of `tmp_path / "books"`.

    It must connect to nothing but this machine, and write no file but the index.
    """
    log = tmp_path / "connections"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    cache = ["--cache_dir", tmp_path / "cache"]
    arguments = [log, "app", tmp_path / "books", *cache, *options]
    process = subprocess.Popen(
        [sys.executable, "-c", LOG_CONNECTIONS + COMMAND, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = process.stdout.readline()
        assert "The page is at http://" in said, said
        yield re.search(r"http://\S+", said)[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    seen = log.read_text().splitlines()
    assert [line for line in seen if "127.0.0.1" not in line and "localhost" not in line] == []
    assert list(temporary.rglob("*")) == []


@pytest.fixture(scope="package")
def address(tmp_path_factory) -> Iterator[str]:
    """The address of a page of four short books."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "books").mkdir()
    for name, text in TEXTS.items():
        chapters = (f"CHAPTER {number}\n\n{text * 12}\n\n" for number in ("I", "II", "III"))
        (folder / "books" / f"{name}.txt").write_text("".join(chapters), encoding="utf-8")
    with served(folder) as address:
        assert address.startswith("http://127.0.0.1:")
        yield address
