"""Searching and embedding a folder of documents; `nextlevelbert_command` has the options."""

from .library import open_library
from .reading import ReadingOptions

__all__ = ["ReadingOptions", "open_library"]
