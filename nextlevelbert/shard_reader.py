"""Documents grouped into shards, checked against those already written, and tokenised, in worker processes or not."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from .chunking import ChunkingRule, check_texts, chunk_spans, flatten_chunks, tokenize_document
from .documents import Document
from .vector_corpus import read_manifest, read_shard_head, shard_name


@dataclass
class TokenizedShard:
    """The chunks of one shard's documents, ready to be encoded; a written shard comes without them.

    Attributes:
        number: of the shard.
        entries: what its head says of each document: id, hash of the text, number of tokens.
        input_ids: ``[T]`` int32, all documents one behind the other.
        boundaries: ``[N + 1]`` int64 chunk boundaries in them.
        spans: ``[N, 2]`` int64 characters of each chunk in its document.
        document_offsets: ``[d + 1]`` int64 first chunk of each document.
        written: whether the shard is on disk already.
    """

    number: int
    entries: list[dict[str, Any]]
    input_ids: torch.Tensor
    boundaries: torch.Tensor
    spans: torch.Tensor
    document_offsets: torch.Tensor
    written: bool = False


@dataclass
class EndOfDocuments:
    """Behind the last shard: how many shards and documents there were, over all processes."""

    shards: int
    documents: int


def group_documents(documents: Iterable[Document], characters_per_shard: int) -> Iterator[list[Document]]:
    """Documents in runs; a run ends with the document that reaches this many characters.

    Raises:
        TypeError, ValueError: for a document without a proper text, or two of one id (named).
    """
    seen: set[str] = set()
    group: list[Document] = []
    characters = 0
    for document in documents:
        check_texts([document.text], [document.id])
        if document.id in seen:
            raise ValueError(f"Two documents have the id {document.id!r}; ids must be unique in a corpus.")
        seen.add(document.id)
        group.append(document)
        characters += len(document.text)
        if characters >= characters_per_shard:
            yield group
            group, characters = [], 0
    if group:
        yield group


class TokenizedShards(IterableDataset):
    """The shards of one process in order, then an `EndOfDocuments`; DataLoader workers share them by turns.

    Every worker reads all documents, but hashes and tokenises only those of its own shards. The turns are
    those in which a `DataLoader` asks its workers, so the order is the same for any number of them.

    Args:
        documents: all documents of the corpus. With workers it is handed to other processes.
        folder: the corpus folder; shards found in it are checked and not tokenised again.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        tokenizer: Any,
        rule: ChunkingRule,
        folder: Path,
        characters_per_shard: int,
        process_index: int = 0,
        num_processes: int = 1,
    ) -> None:
        self.documents, self.tokenizer, self.rule, self.folder = documents, tokenizer, rule, folder
        self.characters_per_shard = characters_per_shard
        self.process_index, self.num_processes = process_index, num_processes
        self._complete = read_manifest(folder)["complete"]

    def __iter__(self) -> Iterator[TokenizedShard | EndOfDocuments]:
        worker = get_worker_info()
        worker_index, num_workers = (worker.id, worker.num_workers) if worker else (0, 1)
        if worker:  # each worker is one thread; and the tokenizer's own threads do not survive a fork
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
        number, total = -1, 0
        for number, group in enumerate(group_documents(self.documents, self.characters_per_shard)):
            total += len(group)
            turn, process = divmod(number, self.num_processes)
            if process == self.process_index and turn % num_workers == worker_index:
                yield self._read(number, group)
        yield EndOfDocuments(number + 1, total)

    def _read(self, number: int, group: list[Document]) -> TokenizedShard:
        digests = [hashlib.sha256(document.text.encode("utf-8")).hexdigest()[:32] for document in group]
        path = self.folder / shard_name(number)
        if path.exists():
            entries = read_shard_head(path)["documents"]
            self._check_same_documents(path, entries, group, digests)
            nothing = torch.zeros(0, dtype=torch.long)
            return TokenizedShard(number, entries, nothing, nothing, nothing, nothing, written=True)
        if self._complete:
            raise ValueError(
                f"{self.folder} holds a finished corpus, but more documents are given, the first {group[0].id!r} "
                f"in {path.name}, which is not there. Encode into another folder, or delete this one."
            )
        entries, ids, boundaries, spans = [], [], [], []
        for document, digest in zip(group, digests, strict=True):
            tokens = tokenize_document(self.tokenizer, document.text)
            if len(tokens) == 0:
                warnings.warn(f"Document {document.id!r} contains no token: it has no vector.", stacklevel=2)
            entries.append({"id": document.id, "sha256": digest, "tokens": len(tokens)})
            ids.append(tokens.input_ids)
            boundaries.append(self.rule.boundaries(tokens.input_ids))
            spans.append(chunk_spans(tokens, boundaries[-1]))
        flat_ids, flat_boundaries, offsets = flatten_chunks(ids, boundaries)
        return TokenizedShard(
            number,
            entries,
            torch.from_numpy(flat_ids),
            torch.from_numpy(flat_boundaries),
            torch.from_numpy(np.concatenate(spans)),
            torch.from_numpy(offsets.astype(np.int64)),
        )

    def _check_same_documents(
        self, path: Path, entries: list[dict[str, Any]], group: list[Document], digests: list[str]
    ) -> None:
        """Refuses documents that are not those of a shard which is on disk."""
        advice = "Encode into another folder, or delete this one."
        for entry, document, digest in zip(entries, group, digests, strict=False):
            if entry["id"] != document.id:
                raise ValueError(
                    f"Cannot go on with {path.parent}: {path.name} has {entry['id']!r} where {document.id!r} is "
                    f"given. {advice}"
                )
            if entry["sha256"] != digest:
                raise ValueError(
                    f"Cannot go on with {path.parent}: the text of document {document.id!r} has changed. {advice}"
                )
        if len(entries) != len(group):
            raise ValueError(
                f"Cannot go on with {path.parent}: {path.name} holds {len(entries)} documents, but {len(group)} are "
                f"given. {advice}"
            )
