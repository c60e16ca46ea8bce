"""The page of `nextlevelbert app`, without a browser: what it needs, and its Space."""

import runpy
import sys
from pathlib import Path

import yaml

import nextlevelbert

ROOT = Path(__file__).parents[3]


def test_without_gradio(command, books, encoded, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    said = command("app", books)
    assert said.status == 1
    assert "pip install 'gradio>=6.31,<7'" in said.err
    assert encoded == []


def test_the_space(monkeypatch, tmp_path):
    """Its header names the release of Gradio that the tests run with; it shows `documents`, or
    Python's manual."""
    header = yaml.safe_load(
        (ROOT / "app" / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    )
    assert f"gradio=={header['sdk_version']}" in (ROOT / "constraints.txt").read_text().split()
    assert (header["sdk"], header["app_file"]) == ("gradio", "app.py")
    assert (ROOT / "app" / "requirements.txt").read_text() == "nextlevelbert[app]\n"
    assert len(header["short_description"]) <= 60  # the Hub refuses more
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    monkeypatch.setattr(
        nextlevelbert, "read_documents", lambda _: [nextlevelbert.Document("module/json", "JSON")]
    )
    manual = runpy.run_path(str(ROOT / "app" / "app.py"))["documents"]()
    assert (manual / "module" / "json.txt").read_text() == "JSON"
