"""Imports the scripts of `examples`, which are no packages."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_script(name: str) -> ModuleType:
    """The module of a script such as ``bert_al/summarize.py``, beside which it may import others."""
    path = EXAMPLES / name
    before = sys.path
    sys.path = [str(path.parent), *before]
    try:
        return importlib.import_module(path.stem)
    finally:
        sys.path = before
