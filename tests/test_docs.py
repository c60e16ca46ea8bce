"""README, docs and cards: what their blocks import, the files they link to, and the options of their commands."""

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
from transformers import HfArgumentParser

from nextlevelbert import tasks
from nextlevelbert.pretraining import vectors

ROOT = Path(__file__).parent.parent
CARDS = [*ROOT.glob("model_cards/*/README.md"), *ROOT.glob("checkpoints/*/README.md")]
CARDS.append(ROOT / "nextlevelbert" / "static" / "README.md")
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *CARDS])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_imports_and_links(page):
    """Each name that a block takes from the package is there; links lead somewhere."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nextlevelbert"):
                module = importlib.import_module(node.module or "")
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []
    named = re.findall(r"`((?:benchmarks|checkpoints|docs|examples|tests|nextlevelbert)/[\w./-]*\w)`", text)
    named += [
        f"nextlevelbert/{path}" for path in re.findall(r"`((?:models|pretraining|tasks|evaluation)/\w+\.py)`", text)
    ]
    assert [path for path in named if not (ROOT / path).exists()] == []


class Understood(Exception):
    """The options of a command were read; nothing is run."""


def commands(page: Path) -> Iterator[list[str]]:
    """The calls of the two scripts in a page's shell blocks, word by word."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = ["chunkbert" if word == "$kind" else word for word in shlex.split(line, comments=True)]
            words = words[1:] if words[:1] in (["python"], ["nextlevelbert"]) else words
            scripts = {"pretrain": "run_pretraining.py", "finetune": "run_finetune.py"}
            words[:1] = [scripts.get(word, word) for word in words[:1]]
            if words[:1] and words[0] in scripts.values():
                yield words


COMMANDS = [(page, words) for page in PAGES for words in commands(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[page.stem for page, _ in COMMANDS])
def test_commands(page, words, monkeypatch, tmp_path):
    """Each option exists, belongs to the task and the model, and has a value that is allowed."""
    read = HfArgumentParser.parse_args_into_dataclasses

    def read_only(self, *args, **kwargs):
        read(self, *args, **kwargs)
        raise Understood

    monkeypatch.setattr(HfArgumentParser, "parse_args_into_dataclasses", read_only)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.chdir(tmp_path)
    for option, value in pairwise(words):
        if option == "--train_file" and not Path(value).suffix:
            Path(value).mkdir()  # splits are for folders and the Hub, which is checked at once
    with pytest.raises(Understood):
        (vectors if words[0] == "run_pretraining.py" else tasks).main()


def test_the_papers_are_answered():
    """`--recipe paper` stands in a command of every family, and no cell of the table is empty."""
    page = ROOT / "docs" / "papers.md"
    recipes = [words for words in commands(page) if "--recipe" in words]
    assert len(recipes) >= 10
    lines = page.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("| ")]
    body = [row for row in rows if not set("".join(row)) <= set("-: ") and row[0]]
    assert len(body) > 60
    assert [row[0] for row in body if not all(row)] == []
