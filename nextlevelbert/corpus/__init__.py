"""Corpora of chunk vectors: making the vectors, storing them as Parquet parts, and reading them."""

import importlib
from typing import TYPE_CHECKING, Any

from ..models.files import whole_file
from .parts import chunk_table, write_part
from .recipe import corpus_schema, find_splitter

if TYPE_CHECKING:
    from .encode import ChunkVectors, encode_corpus
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


def __getattr__(name: str) -> Any:  # noqa: ANN401  # a class or a function
    """Imports what needs torch when it is first used: search writes parts without torch."""
    if name in ("ChunkVectors", "encode_corpus"):
        return getattr(importlib.import_module(f"{__name__}.encode"), name)
    if name in ("EncodedDocument", "VectorCorpus"):
        return getattr(importlib.import_module(f"{__name__}.store"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
