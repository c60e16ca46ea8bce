"""The plan of the house, held: who may import whom, and how large a folder and a file may be."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "nextlevelbert"
# A folder imports only what stands before it.
FOLDERS = ("models", "data", "corpus", "evaluation", "training", "pretraining", "finetuning", "tasks", "commands")
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The modules of this package that a file imports, wherever in it, as parts of their path below the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.relative_to(PACKAGE).parts[:-1]
            base = folder[: len(folder) + 1 - node.level]
            if node.module:
                yield (*base, *node.module.split("."))
            else:
                yield from ((*base, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "nextlevelbert":
            yield tuple((node.module or "").split(".")[1:])
        elif isinstance(node, ast.Import):
            yield from (
                tuple(name.name.split(".")[1:]) for name in node.names if name.name.startswith("nextlevelbert")
            )


def upward(path: Path, allowed: tuple[str, ...]) -> list[str]:
    return [
        ".".join(module) for module in imports(path) if module and module[0] in FOLDERS and module[0] not in allowed
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_import_points_up(folder):
    below = FOLDERS[: FOLDERS.index(folder) + 1]
    found = {str(path.relative_to(PACKAGE)): upward(path, below) for path in (PACKAGE / folder).rglob("*.py")}
    assert {path: modules for path, modules in found.items() if modules} == {}


def test_what_a_checkpoint_carries_imports_its_siblings_only():
    """transformers copies what `from .name import` names, and nothing else."""
    siblings = {path.stem for path in (PACKAGE / "models").glob("*.py")}
    for path in (PACKAGE / "models").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1, f"{path.name}: {ast.unparse(node)}"
                assert node.module in siblings, f"{path.name}: {ast.unparse(node)}"
        assert all(len(module) == 2 for module in imports(path)), path.name


def test_an_import_that_points_up_would_be_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_house.PACKAGE", tmp_path)
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "x.py"
    path.write_text(
        "def f():\n    from ..tasks.ranking import data\n    from .rows import y\n    from .. import convert\n"
    )
    assert upward(path, ("models", "data")) == ["tasks.ranking"]


def test_every_folder_has_its_place():
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(FOLDERS)


def test_what_a_run_leaves_is_written_whole():
    """By `write_whole` or `write_atomically`: a kill must not leave half a file under its own name."""
    for folder in ("evaluation", "training", "pretraining", "finetuning", "tasks"):
        for path in (PACKAGE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    call = ast.unparse(node)
                    opened = node.func.attr == "open" and "'w" in call
                    drawn = node.func.attr == "savefig" and "io.BytesIO()" not in call
                    assert node.func.attr != "write_text", f"{path.name}: {call}"
                    assert not opened, f"{path.name}: {call}"
                    assert not drawn, f"{path.name}: {call}"


def test_files_and_folders_can_be_read():
    for path in FILES:
        limit = 450 if path.relative_to(PACKAGE).parts[0] == "models" else 300
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= limit, f"{path.relative_to(PACKAGE)} has {lines} lines; at most {limit} here"
    folders = Counter(path.parent.relative_to(PACKAGE) for path in FILES)
    assert max(folders.values()) <= 40, folders.most_common(1)
