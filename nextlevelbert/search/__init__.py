"""Searching and embedding a folder of documents; `nextlevelbert.command` has the options."""

from .library import open_library
from .reading import ReadingOptions
from .rerank import Reranker

__all__ = ["ReadingOptions", "Reranker", "open_library"]
