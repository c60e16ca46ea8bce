"""The plan of the house: who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nextlevelbert"
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


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The modules of this package that a file imports, wherever in it, as parts of their path below
    the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.relative_to(PACKAGE).parts[:-1]
            base = folder[: len(folder) + 1 - node.level]
            yield from (
                [(*base, *node.module.split("."))]
                if node.module
                else [(*base, a.name) for a in node.names]
            )
        elif (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == "nextlevelbert"
        ):
            yield tuple((node.module or "").split(".")[1:])
        elif isinstance(node, ast.Import):
            yield from (
                tuple(a.name.split(".")[1:])
                for a in node.names
                if a.name.startswith("nextlevelbert.")
            )


def row(part: str) -> int:
    return next((number for number, parts in enumerate(ORDER) if part in parts), -1)


def test_no_import_points_up():
    """But for those that models try to import, where the package is there: transformers follows no
    import in `try`."""
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
    """`import nextlevelbert` costs what torch and transformers cost: no datasets, peft or
    sentence-transformers."""
    heavy = {
        "transformers.trainer",
        "datasets",
        "peft",
        "sentence_transformers",
        "matplotlib",
        "sklearn",
    }
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


def test_a_checkpoint_carries_at_most_ten_files():
    from transformers.dynamic_module_utils import get_relative_import_files

    source = PACKAGE / "models" / "modeling_nextlevelbert.py"
    files = {source, *map(Path, get_relative_import_files(source))}
    assert len(files) <= 10
