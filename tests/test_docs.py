"""README, docs and cards: what their Python blocks import, the files they name, and the options of their commands."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from nextlevelbert import tasks
from nextlevelbert.pretraining import run as pretraining
from nextlevelbert.training.command_line import OptionParser

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("model_cards/*/README.md")])
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


class Understood(Exception):
    """The options of a command were read; nothing is run."""


def commands(page: Path) -> Iterator[list[str]]:
    """The calls of the two scripts in a page's shell blocks, word by word."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
        looped = {"$kind": "chunkbert"}  # the variable of a loop
        for line in block.replace("\\\n", " ").splitlines():
            words = [looped.get(word, word) for word in shlex.split(line, comments=True)]
            words = words[1:] if words[:1] == ["python"] else words
            if words[:1] in (["run_pretraining.py"], ["run_finetune.py"]):
                yield words


COMMANDS = [(page, words) for page in PAGES for words in commands(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[page.stem for page, _ in COMMANDS])
def test_commands(page: Path, words: list[str], monkeypatch, tmp_path) -> None:
    """Each option exists, belongs to the task and the model, and has a value that is allowed."""
    read = OptionParser.read

    def read_only(self, *args, **kwargs):
        read(self, *args, **kwargs)
        raise Understood

    monkeypatch.setattr(OptionParser, "read", read_only)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.chdir(tmp_path)
    for option, value in pairwise(words):
        if option == "--train_file" and not Path(value).suffix:
            Path(value).mkdir()  # splits are for folders and the Hub, which is checked at once
    main = pretraining.main if words[0] == "run_pretraining.py" else tasks.main
    with pytest.raises(Understood):
        main()


def test_there_are_commands() -> None:
    assert {page.stem for page, _ in COMMANDS} >= {"README", "papers"}


def test_every_row_of_the_papers_is_answered() -> None:
    """What each table of a paper takes, and what came of it or is missing: no cell is empty."""
    lines = (ROOT / "docs" / "papers.md").read_text().splitlines()
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("| ")]
    body = [row for row in rows if not set("".join(row)) <= set("-: ") and row[0]]
    assert len(body) > 60
    assert [row[0] for row in body if not all(row)] == []
    assert [row[0] for row in body if len(row) == 3 and row[2].rstrip(".").lower() in ("not run", "not built")] == []
