"""The page of `nextlevelbert app` as a Space: it shows the folder `documents` beside this file, or
Python's manual."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nextlevelbert
from nextlevelbert.search.app.layout import run
from nextlevelbert.search.open_model import open_model
from nextlevelbert.search.reading import ReadingOptions
from nextlevelbert_command.options import default_cache_dir


def documents() -> Path:
    """The folder `documents`; without one, a folder with the manual that comes with Python."""
    folder = Path(__file__).with_name("documents")
    if folder.is_dir():
        return folder
    manual = Path(tempfile.mkdtemp()) / "python-manual"
    for document in nextlevelbert.read_documents("python-manual"):
        path = manual / f"{document.id}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document.text, encoding="utf-8")
    return manual


if __name__ == "__main__":
    run(
        str(documents()),
        open_model(),
        ReadingOptions(cache_dir=default_cache_dir()),
        public=True,
    )
