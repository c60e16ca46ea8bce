"""The page of `nextlevelbert app`, without a browser: what it needs, and its Space."""

import runpy
import shutil
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_without_gradio(command, books, encoded, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    said = command("app", books)
    assert said.status == 1
    assert "pip install 'gradio>=6.31,<7'" in said.err
    assert encoded == []


def test_the_space(tmp_path):
    """Its header names the release of Gradio that the tests run with; it shows `documents`, or
    Python's manual."""
    header = yaml.safe_load(
        (ROOT / "app" / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    )
    assert f"gradio=={header['sdk_version']}" in (ROOT / "constraints.txt").read_text().split()
    assert (header["sdk"], header["app_file"]) == ("gradio", "app.py")
    assert (ROOT / "app" / "requirements.txt").read_text() == "nextlevelbert[app]\n"
    assert len(header["short_description"]) <= 60  # the Hub refuses more
    shutil.copytree(ROOT / "app", tmp_path / "app")
    documents = runpy.run_path(str(tmp_path / "app" / "app.py"))["documents"]

    assert documents() == "python-manual"
    (tmp_path / "app" / "documents").mkdir()
    assert documents() == str(tmp_path / "app" / "documents")
