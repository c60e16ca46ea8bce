"""The pages: how few blocks do not run, what their runner notices, whether the API has all names;
and the site."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sybil import Document
from sybil.example import SybilFailure
from sybil.parsers.markdown import SkipParser

import nextlevelbert
from nextlevelbert import data, evaluation

from .runner import ROOT, BlocksAndOutput, provide

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SKIPS = re.compile(
    r'<!-- skip: next (?:if\(missing\("\w+"\), reason=)?"(?P<reason>[^"]{10,})"\)?'
    r" -->\n\n```python\n"
)


def test_few_blocks_do_not_run():
    """Each says why, in the form that `SKIPS` knows, and stands directly above its block."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    reasons = SKIPS.findall(text)

    assert len(reasons) == len(re.findall(r"<!--.*skip", text))
    assert len(reasons) <= 12, reasons
    assert text.count("```python\n") >= 3 * len(reasons)


def test_every_public_name_is_in_the_reference():
    described = set()
    for page in (ROOT / "docs" / "api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        described.update(re.findall(r"^::: (?:[\w.]+\.)?(\w+)$", text, re.MULTILINE))
    public = {*nextlevelbert.__all__, *data.__all__, *evaluation.__all__}

    assert public - described == set()


def run(page: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page, encoding="utf-8")
    document = Document.parse(str(path), SkipParser(), BlocksAndOutput())
    provide(document.namespace)
    for example in document.examples():
        example.evaluate()


def test_what_is_shown_is_compared(tmp_path):
    page = (
        "```python\nx = 3\n```\n\nA"
        " tree:\n\n```text\na/b\n```\n\n```python\nprint(x)\n```\n\n```text\n{}\n```\n"
    )
    run(page.format("3"), tmp_path)
    with pytest.raises(SybilFailure, match="Shown:\n4\n\nPrinted:\n3"):
        run(page.format("4"), tmp_path)


def test_shown_numbers_may_differ_a_little(tmp_path):
    page = "```python\nprint('score', 0.547, 12)\n```\n{}\n```text\nscore {} {}\n```\n"

    run(page.format("", "0.55", "12"), tmp_path)
    run(page.format("", "0.540", "12"), tmp_path)
    run(page.format("\n<!-- digits vary -->\n", "0.3", "12"), tmp_path)

    for wrong in (
        ("", "0.3", "12"),
        ("\n<!-- digits vary -->\n", "0.2", "12"),
        ("", "0.547", "13"),
    ):
        with pytest.raises(SybilFailure, match="Printed:"):
            run(page.format(*wrong), tmp_path)


def test_numbers_after_those_that_are_not_shown_may_differ(tmp_path):
    block = "```python\nprint('loss', 0.021, 3.5)\nprint('score', 0.547)\n```\n\n"

    run(f"{block}```text\n...\nscore 0.55\n```\n", tmp_path)

    with pytest.raises(SybilFailure, match="Printed:"):
        run(f"{block}```text\n...\nscore 0.3\n```\n", tmp_path)


def test_an_error_must_be_shown(tmp_path):
    block = "```python\nraise ValueError('too long')\n```\n"
    with pytest.raises(ValueError, match="too long"):
        run(block, tmp_path)
    run(block + "\n```text\nValueError: too ...\n```\n", tmp_path)
    with pytest.raises(SybilFailure, match="too long"):
        run(block + "\n```text\nTypeError: too long\n```\n", tmp_path)


@pytest.mark.long
def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path):
    """mkdocs warns of links and anchors that lead nowhere; the index of the search knows a name of
    the API."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert built.returncode == 0, built.stderr

    index = (tmp_path / "search" / "search_index.json").read_text(encoding="utf-8")

    assert '#nextlevelbert.encode_corpus"' in index

    pages = list(tmp_path.rglob("*.html"))

    assert len(pages) > 25

    moved = (tmp_path / "jobs" / "classifier.html").read_text(encoding="utf-8")

    assert "../guides/classification.html" in moved

    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text
        assert "fonts.googleapis" not in text
