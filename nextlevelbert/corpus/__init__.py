"""Corpora of chunk vectors: making the vectors, storing them as Parquet parts, and reading them."""

import importlib
from typing import TYPE_CHECKING, Any

from ..models.files import whole_file
from .recipe import corpus_schema, find_splitter

if TYPE_CHECKING:
    from .encode import ChunkVectors, encode_corpus
    from .parts import chunk_table, write_part
    from .store import EncodedDocument, VectorCorpus

__all__ = [
    "ChunkVectors",
    "EncodedDocument",
    "VectorCorpus",
    "chunk_table",
    "corpus_schema",
    "encode_corpus",
    "find_splitter",
    "whole_file",
    "write_part",
]


# The modules of names that need torch or pyarrow. A search needs the recipe alone.
_MODULES = {
    "ChunkVectors": "encode",
    "EncodedDocument": "store",
    "VectorCorpus": "store",
    "chunk_table": "parts",
    "encode_corpus": "encode",
    "write_part": "parts",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # a class or a function
    """Imports what takes long to import when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
