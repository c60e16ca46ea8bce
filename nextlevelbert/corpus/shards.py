"""Documents grouped into shards, compared with the shards on disk, and tokenised, in worker processes or not."""

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
from torch.utils.data import Dataset, get_worker_info

from ..data.documents import Document
from ..models.chunking import ChunkingRule, check_texts, chunk_spans, flatten_chunks, tokenize_document
from .layout import DocumentEntry, extend_chain, read_manifest, read_shard_head, shard_name


@dataclass(frozen=True)
class PlannedShard:
    """The documents of one shard that has to be written, and the chain of all documents up to its end."""

    number: int
    documents: list[Document]
    chain: str


@dataclass(frozen=True)
class TokenizedShard:
    """The chunks of one shard's documents, ready to be encoded.

    Attributes:
        number: of the shard.
        chain: the hash of all documents up to the end of the shard.
        documents: what is stored of each document.
        input_ids: ``[T]`` int32, all documents one after the other.
        boundaries: ``[N + 1]`` int64 chunk boundaries in them.
        spans: ``[N, 2]`` int64 characters of each chunk in its document.
        document_offsets: ``[d + 1]`` int64 first chunk of each document.
    """

    number: int
    chain: str
    documents: list[DocumentEntry]
    input_ids: torch.Tensor
    boundaries: torch.Tensor
    spans: torch.Tensor
    document_offsets: torch.Tensor


class ShardPlan:
    """Reads all documents once and yields the shards that one process has to write.

    A shard ends with the document that reaches `characters_per_shard`. Shards that are in the folder already are
    compared with the documents and left out.

    Attributes:
        shards, documents: how many all processes have together; final once the plan has been read to its end.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        folder: Path,
        characters_per_shard: int,
        process_index: int = 0,
        num_processes: int = 1,
    ) -> None:
        self._source, self._folder, self._characters_per_shard = documents, folder, characters_per_shard
        self._process_index, self._num_processes = process_index, num_processes
        self._complete = read_manifest(folder)["complete"]
        self.shards = self.documents = 0

    def __iter__(self) -> Iterator[PlannedShard]:
        """Raises TypeError or ValueError, with the id, for a document without text, or two documents of one id."""
        seen: set[str] = set()
        group: list[Document] = []
        characters, chain = 0, ""
        for document in self._source:
            check_texts([document.text], [document.id])
            if document.id in seen:
                raise ValueError(f"Two documents have the id {document.id!r}; ids must be unique in a corpus.")
            seen.add(document.id)
            group.append(document)
            self.documents += 1
            characters += len(document.text)
            chain = extend_chain(chain, document.id, len(document.text))
            if characters >= self._characters_per_shard:
                yield from self._planned(group, chain)
                group, characters = [], 0
        if group:
            yield from self._planned(group, chain)

    def _planned(self, group: list[Document], chain: str) -> Iterator[PlannedShard]:
        number = self.shards
        self.shards += 1
        if number % self._num_processes != self._process_index:
            return
        path = self._folder / shard_name(number)
        if path.exists():
            _check_same_documents(path, read_shard_head(path).documents, group)
        elif self._complete:
            raise ValueError(
                f"{self._folder} holds a finished corpus, but more documents are given, the first {group[0].id!r} in "
                f"{path.name}, which does not exist. Encode into another folder, or delete this one."
            )
        else:
            yield PlannedShard(number, group, chain)


class ShardTokenizer(Dataset):
    """Tokenises planned shards, in workers if it is the dataset of a `DataLoader` whose sampler is the plan.

    The plan is then read in one process, the results come in its order, and the workers end with their parent.
    """

    def __init__(self, tokenizer: Any, rule: ChunkingRule) -> None:
        self._tokenizer, self._rule = tokenizer, rule

    def __getitem__(self, shard: PlannedShard) -> TokenizedShard:
        if get_worker_info():  # each worker is one thread; and the tokenizer's own threads do not survive a fork
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
        entries, ids, boundaries, spans = [], [], [], []
        for document in shard.documents:
            tokens = tokenize_document(self._tokenizer, document.text)
            if len(tokens) == 0:
                warnings.warn(f"Document {document.id!r} contains no tokens, so it has no vectors.", stacklevel=2)
            entries.append(DocumentEntry(id=document.id, sha256=_digest(document), characters=len(document.text),
                                         tokens=len(tokens)))  # fmt: skip
            ids.append(tokens.input_ids)
            boundaries.append(self._rule.boundaries(tokens.input_ids))
            spans.append(chunk_spans(tokens, boundaries[-1]))
        flat_ids, flat_boundaries, offsets = flatten_chunks(ids, boundaries)
        return TokenizedShard(
            shard.number,
            shard.chain,
            entries,
            torch.from_numpy(flat_ids),
            torch.from_numpy(flat_boundaries),
            torch.from_numpy(np.concatenate(spans)),
            torch.from_numpy(offsets.astype(np.int64)),
        )


def _digest(document: Document) -> str:
    return hashlib.sha256(document.text.encode("utf-8")).hexdigest()[:32]


def _check_same_documents(path: Path, entries: list[DocumentEntry], group: list[Document]) -> None:
    """Refuses documents that are not those of a shard on disk."""
    advice = "Encode into another folder, or delete this one."
    for entry, document in zip(entries, group, strict=False):
        if entry["id"] != document.id:
            raise ValueError(
                f"Cannot resume {path.parent}: {path.name} has {entry['id']!r} where {document.id!r} is given. "
                + advice
            )
        if entry["sha256"] != _digest(document):
            raise ValueError(
                f"Cannot resume {path.parent}: the text of document {document.id!r} has changed. {advice}"
            )
    if len(entries) != len(group):
        raise ValueError(
            f"Cannot resume {path.parent}: {path.name} holds {len(entries)} documents, but {len(group)} are "
            f"given. {advice}"
        )
