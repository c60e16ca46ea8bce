"""README, docs and cards: what their Python blocks import is there, and so are the files that they name."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("model_cards/*/README.md")])
FOLDERS = ("benchmarks", "checkpoints", "docs", "examples", "model_cards", "nextlevelbert", "tests")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_imports(page: Path) -> None:
    """Each name that a block takes from the package is there."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nextlevelbert"):
                module = importlib.import_module(node.module or "")
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files(page: Path) -> None:
    """Links lead somewhere, and a path or a script in backticks exists."""
    text = page.read_text()
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []
    named = re.findall(rf"\b(?:{'|'.join(FOLDERS)})/[\w./-]*[\w/]", re.sub(r"\]\([^)]+\)", "", text))
    assert [path for path in named if not (ROOT / path).exists()] == []
    scripts = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    scripts |= {path.name for path in ROOT.glob("*.py")}
    assert set(re.findall(r"`(\w+\.py)`", text)) - scripts == set()
