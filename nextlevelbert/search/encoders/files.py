"""Encodes texts from the files of an encoder, without torch, whose import takes longer.

Notation for shapes: N chunks and n documents in a group, T tokens, D size of a vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from ...models.chunking import ChunkingRule, chunk_spans
from ...models.prompts import SplitDocument, tokenize_and_split
from ...models.sentences import Splitter
from ...models.tokenizing import default_threads, groups_by_length, iter_texts, prepare_ahead


class EncodedTexts(NamedTuple):
    """The vectors of some documents, in float32.

    Attributes:
        spans: the characters of each document's chunks, ``[chunks, 2]`` each.
        plain: chunk vectors of all documents, ``[N, D]``.
        documents: the vector of each document, ``[n, D]``.
    """

    spans: list[np.ndarray]
    plain: np.ndarray
    documents: np.ndarray


class FileTokenizer:
    """Gives a tokenizer the attributes of transformers' tokenizers that chunking needs."""

    is_fast = True

    def __init__(
        self, path: Path, unk_token_id: int | None, split_special_tokens: bool = False
    ) -> None:
        self.backend_tokenizer: Any = Tokenizer.from_file(str(path))
        self.backend_tokenizer.no_padding()
        self.backend_tokenizer.no_truncation()
        self.unk_token_id = unk_token_id
        self.split_special_tokens = split_special_tokens


class FileEncoder(ABC):
    """Encodes documents as `TorchEncoder` does.

    Attributes:
        tokenizer: the tokenizer.
        rule: the rule that splits documents into chunks.
    """

    tokenizer: Any
    rule: ChunkingRule

    @abstractmethod
    def chunk_vectors(self, group: Sequence[SplitDocument]) -> np.ndarray:
        """Encodes the chunks of documents, ``[N, D]``."""

    def document_vectors(self, plain: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Averages the vectors of each document's chunks, ``[n, D]``.

        Args:
            plain: chunk vectors of all documents, ``[N, D]``.
            counts: number of chunks in each document, 1 or more, ``[n]``.
        """
        return unit(means(plain, counts))

    def search_vectors(self, plain: np.ndarray) -> np.ndarray:
        """Prepares chunk vectors ``[..., D]`` for comparison, in float32."""
        return unit(plain)

    def encode(self, texts: Sequence[str], splitter: Splitter | None = None) -> EncodedTexts:
        """Encodes documents, see `TorchEncoder.encode`."""
        prepare = partial(tokenize_and_split, self.tokenizer, rule=self.rule, splitter=splitter)
        groups = groups_by_length(iter_texts(texts))
        spans = []
        vectors = []
        for group in prepare_ahead(prepare, groups, threads=default_threads()):
            vectors.append(self.chunk_vectors(group))
            spans += [chunk_spans(document, boundaries) for document, boundaries in group]
        plain = np.concatenate(vectors)
        counts = np.array(list(map(len, spans)))
        documents = np.zeros((len(counts), plain.shape[1]), np.float32)
        documents[counts > 0] = self.document_vectors(plain, counts[counts > 0])
        return EncodedTexts(spans, plain=plain, documents=documents)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scales rows to length 1; zero rows stay zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, np.float32(1e-12))  # as torch's `normalize`


def means(vectors: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Averages runs of rows, each of which has at least one row."""
    return np.add.reduceat(vectors, np.cumsum(counts) - counts) / counts[:, None].astype(np.float32)
