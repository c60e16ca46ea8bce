"""README, docs and cards: what their Python blocks import exists, as do the files they name; their commands parse."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import nextlevelbert.tasks
from nextlevelbert.pretraining import run as pretraining
from nextlevelbert.tasks.retrieval.task import Retrieval

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
    parts = re.findall(r"`((?:models|data|corpus|evaluation|training|pretraining|finetuning|tasks)/[\w/]*\.py)`", text)
    assert [path for path in parts if not (ROOT / "nextlevelbert" / path).exists()] == []
    scripts = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    scripts |= {path.name for path in ROOT.glob("*.py")}
    assert set(re.findall(r"`(\w+\.py)`", text)) - scripts == set()


def commands(page: Path) -> list[list[str]]:
    """The calls of both scripts in a page: the name of the script, and its options."""
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)).replace("\\\n", " ")
    lines = [re.search(r"\brun_(?:pretraining|finetune)\.py .*", line) for line in blocks.splitlines()]
    return [shlex.split(found.group().replace("$kind", "random"), comments=True) for found in lines if found]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, minilm_path: str) -> None:
    """Every command has options that exist and fit together; what would run then is left out."""
    started: list[object] = []
    monkeypatch.chdir(tmp_path)
    for folder in ("ECB+_LREC2014", "msmarco"):  # splits are those of a folder
        Path(folder).mkdir()
    monkeypatch.setattr(nextlevelbert.tasks, "run", started.append)
    monkeypatch.setattr(Retrieval, "search", lambda task: started.append(task))
    for name, each in pretraining.PRETRAINING.items():
        monkeypatch.setitem(pretraining.PRETRAINING, name, replace(each, run=lambda *options: started.append(options)))
    for command in commands(page):
        here = [minilm_path if word == "sentence-transformers/all-MiniLM-L6-v2" else word for word in command]
        monkeypatch.setattr(sys, "argv", here)
        (pretraining.main if command[0] == "run_pretraining.py" else nextlevelbert.tasks.main)()
    assert len(started) == len(commands(page))
