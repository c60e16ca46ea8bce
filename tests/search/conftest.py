"""The command in this process, with a toy model, on a folder of small documents."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nextlevelbert import NextLevelBertModel
from nextlevelbert.command import main
from nextlevelbert.search import reading as reading_of_files
from nextlevelbert.search.encoders import onnx
from nextlevelbert.search.library import Library
from nextlevelbert.search.reading import ReadingOptions
from nextlevelbert.search.store import open_store

SEA = (
    "The whale swims under the ship. The captain hunts it over the sea, and the harbour is far"
    " away. " * 4
)
KITCHEN = "The baker lights the oven. Flour and yeast become a crust, and the kitchen is warm. " * 5
COURT = "The judge reads the law aloud. The lawyers argue, and the jury leaves the court. " * 6


class Said(NamedTuple):
    """What a command printed, and its exit status."""

    out: str
    err: str
    status: int

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def settled(monkeypatch) -> None:
    """Files count as written long before, so that their states are remembered."""
    monkeypatch.setattr(reading_of_files, "_COARSEST_TIME", -(10**9))


def write_books(folder: Path) -> Path:
    """Writes three short books, and returns their folder."""
    books = folder / "books"
    (books / "far").mkdir(parents=True)
    for name, text in (("sea", SEA), ("kitchen", KITCHEN), ("far/court", COURT)):
        (books / f"{name}.txt").write_text(text)
    return books


@pytest.fixture
def books(tmp_path) -> Path:
    return write_books(tmp_path)


@pytest.fixture
def reading(tmp_path) -> ReadingOptions:
    return ReadingOptions(cache_dir=tmp_path / "cache")


@pytest.fixture
def open_library(reading) -> Callable[..., Library]:
    """Opens a folder with a model; its vectors are stored in `tmp_path`."""

    def opened(model: NextLevelBertModel, folder: Path) -> Library:
        return Library(open_store(str(folder), model, reading))

    return opened


@pytest.fixture
def toy(toy_checkpoint) -> NextLevelBertModel:
    return NextLevelBertModel.from_pretrained(toy_checkpoint)


@pytest.fixture(scope="session")
def exports(tmp_path_factory) -> Path:
    """A cache in which encoders are exported, which takes seconds for each."""
    return tmp_path_factory.mktemp("exports")


@pytest.fixture
def command(toy_checkpoint, exports, tmp_path, monkeypatch, capsys) -> Callable[..., Said]:
    """Runs `nextlevelbert` with these arguments. Its model is a toy, its cache is in `tmp_path`."""
    monkeypatch.setattr(onnx, "EXPORTS", str(exports / onnx.EXPORTS))
    monkeypatch.setenv("NEXTLEVELBERT_MODEL", toy_checkpoint)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*argv: object) -> Said:
        capsys.readouterr()
        try:
            status = main([*map(str, argv)])
        except SystemExit as exit:
            status = exit.code if isinstance(exit.code, int) else 1
            if isinstance(exit.code, str):  # as the interpreter does
                return Said(*(capsys.readouterr().out, exit.code), status)
        return Said(*capsys.readouterr(), status)

    return run


@pytest.fixture
def encoded(monkeypatch) -> list[str]:
    """The texts that were encoded, in order."""
    texts: list[str] = []
    encode = NextLevelBertModel.iter_encode

    def spy(self, documents, *args, **kwargs):
        texts.extend([documents] if isinstance(documents, str) else documents)
        return encode(self, documents, *args, **kwargs)

    monkeypatch.setattr(NextLevelBertModel, "iter_encode", spy)
    return texts
