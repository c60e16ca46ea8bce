"""The plan of the house, held: how many lines a folder may have, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nextlevelbert"
# Lines of Python, all of them counted: what each folder has reached. A budget may go down, never up.
BUDGETS = {
    "nextlevelbert/models": 4_146,
    "nextlevelbert/data": 471,
    "nextlevelbert/evaluation": 649,
    "nextlevelbert/training": 438,
    "nextlevelbert/pretraining": 1_305,
    "nextlevelbert/finetuning": 507,
    "nextlevelbert/tasks": 2_444,
    "nextlevelbert/commands": 848,
    "nextlevelbert": 12_323,
    "tests": 12_800,
    "benchmarks": 1_999,
    "checkpoints": 0,
}
CHECKPOINT = 2_000  # lines in a NextLevelBERT's checkpoint, of eight files
# A part imports only what stands before it; parts of one row may import each other.
ORDER = (
    ("models",),
    ("data",),
    ("encoders", "word_lookup", "hub_card", "vector_cache", "fitting", "corpus", "chunk_vectors"),
    ("evaluation",),
    ("training",),
    ("pretraining",),
    ("finetuning",),
    ("tasks",),
    ("commands",),
    ("convert", "__main__", "__init__"),
)


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


@pytest.mark.parametrize("folder", BUDGETS)
def test_a_folder_keeps_its_budget(folder):
    assert lines(ROOT / folder) <= BUDGETS[folder]


def test_a_file_can_be_read():
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {p.name: n for p, n in sizes.items() if n > (870 if p.name.startswith("modeling_") else 470)} == {}


def test_docs_keep_their_budget():
    pages = list((ROOT / "docs").rglob("*.md"))
    assert sum(len(page.read_text(encoding="utf-8").splitlines()) for page in pages) <= 2_500
    assert not list((ROOT / "docs").rglob("*.json"))


def names_bound(path: Path) -> Iterator[str]:
    """The names of variables, arguments, functions and classes that a file makes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


@pytest.mark.parametrize("folder", ["nextlevelbert", "tests", "benchmarks", "examples", "app"])
def test_a_name_says_what_it_holds(folder):
    empty = {"found", "given", "wanted", "own", "told", "each", "ours", "theirs", "there", "others"}
    names = {
        (path.name, name) for path in (ROOT / folder).rglob("*.py") for name in empty.intersection(names_bound(path))
    }
    assert names == set()


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The modules of this package that a file imports, wherever in it, as parts of their path below the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.relative_to(PACKAGE).parts[:-1]
            base = folder[: len(folder) + 1 - node.level]
            yield from [(*base, *node.module.split("."))] if node.module else [(*base, a.name) for a in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "nextlevelbert":
            yield tuple((node.module or "").split(".")[1:])
        elif isinstance(node, ast.Import):
            yield from (tuple(a.name.split(".")[1:]) for a in node.names if a.name.startswith("nextlevelbert."))


def row(part: str) -> int:
    return next((number for number, parts in enumerate(ORDER) if part in parts), -1)


def test_no_import_points_up():
    """But for those that models try to import, where the package is there: transformers follows no import in `try`."""
    tried = {("models", part) for part in ("encoders", "hub_card", "word_lookup")}
    upward = []
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert row(part) >= 0, f"{path}: where does it belong?"
        upward += [
            (path.name, module)
            for module in imports(path)
            if module and row(module[0]) > row(part) and (part, module[0]) not in tried
        ]
    assert upward == []


def test_opening_a_model_loads_no_trainer():
    """`import nextlevelbert` costs what torch and transformers cost: no datasets, peft or sentence-transformers."""
    heavy = {"transformers.trainer", "datasets", "peft", "sentence_transformers", "matplotlib", "sklearn"}
    code = f"import sys, nextlevelbert\nprint(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "[]\n"


def test_what_a_checkpoint_carries_imports_its_siblings_only():
    """transformers copies what `from .name import` names, and nothing else."""
    siblings = {path.stem for path in (PACKAGE / "models").glob("*.py")}
    for path in (PACKAGE / "models").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1, f"{path.name}: {ast.unparse(node)}"
                assert node.module in siblings, f"{path.name}: {ast.unparse(node)}"


def test_a_checkpoint_carries_eight_files():
    from transformers.dynamic_module_utils import get_relative_import_files

    source = PACKAGE / "models" / "modeling_nextlevelbert.py"
    files = {source, *map(Path, get_relative_import_files(source))}
    assert len(files) <= 8
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= CHECKPOINT
