"""Corpora of chunk vectors: making the vectors, storing them as Parquet parts, and reading them."""

from .encode import ChunkVectors, chunk_table, encode_corpus
from .parts import whole_file, write_part
from .recipe import corpus_schema, find_splitter
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
