"""What `nextlevelbert search` keeps when it is killed at any file operation: its answer and parts
stay the same."""

import io
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import nextlevelbert_command

from ..toys.finetuning import write
from .harness import forked

TEXTS = [
    "The whale swims under the ship. " * 9,
    "The baker lights the oven. " * 9,
    "The jury leaves. " * 9,
]


def search(books: Path, cache: Path, model: str) -> tuple[int, str, dict[str, bytes]]:
    """Exit status and answer of the command, and the parts that it keeps."""
    out = io.StringIO()
    argv = [
        "search",
        str(books),
        "Who hunts?",
        "--json",
        "--cache_dir",
        str(cache),
        "--model",
        model,
    ]
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        status = nextlevelbert_command.main(argv)
    return (
        status,
        out.getvalue(),
        {path.name: path.read_bytes().hex() for path in sorted(cache.rglob("*.parquet"))},
    )


@pytest.mark.parametrize(
    ("how", "step"),
    [
        ("kill", 25),
        pytest.param("kill", 1, marks=pytest.mark.faults),
        pytest.param("opened", 1, marks=pytest.mark.faults),
        pytest.param("full", 1, marks=pytest.mark.faults),
    ],
)
def test_every_operation(toy_checkpoint, tmp_path, how, step):
    books = tmp_path / "books"
    books.mkdir()
    for index, text in enumerate(TEXTS):
        (books / f"{index}.txt").write_text(text + " " * 200_000)  # enough to be encoded alone
    rows = [{"id": index, "text": text * 2} for index, text in enumerate(TEXTS)]
    write(books / "table.jsonl", rows)
    search(books, tmp_path / "first", toy_checkpoint)  # its forks have loaded everything
    cache = tmp_path / "cache"
    straight = forked(lambda: search(books, cache, toy_checkpoint), tmp_path)
    assert straight.error is None
    assert straight.value[0] == 0
    assert straight.operations > 10
    shutil.rmtree(cache)
    for at in range(0, straight.operations, step):
        first = forked(lambda: search(books, cache, toy_checkpoint), tmp_path, at, how)
        assert first.killed == (how != "full"), (at, first)
        if first.value is not None:
            assert first.value[0] in (0, 1), (at, first)
        again = forked(lambda: search(books, cache, toy_checkpoint), tmp_path)
        assert again.value == straight.value, at
        assert not list(cache.rglob("*.tmp*")), at
        shutil.rmtree(cache)
