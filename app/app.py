"""The page of `nextlevelbert app` as a Space: it shows the folder `documents` beside this file, or
Python's manual."""

from pathlib import Path

from nextlevelbert.search.app.layout import run


def documents() -> str:
    """The folder `documents`, or else the manual that comes with Python."""
    folder = Path(__file__).with_name("documents")
    if folder.is_dir():
        return str(folder)
    return "python-manual"


if __name__ == "__main__":
    run(documents(), host=None)
