"""The built site: mkdocs finds nothing to warn of, and every link of the pages leads somewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from .runner import ROOT

pytestmark = pytest.mark.long


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        self.links |= {value for name in ("href", "src") if (value := values.get(name))}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_links(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}  # its links are absolute
    assert len(pages) > 25
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            lost = parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors
            if not target.exists() or (lost and parts.fragment != "__top"):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_search_and_offline(site):
    """The index knows a name of the API; nothing is fetched from elsewhere."""
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    assert any(entry["location"].endswith("#nextlevelbert.encode_corpus") for entry in entries)
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert 'src="http' not in text, path
        assert "fonts.googleapis" not in text, path
