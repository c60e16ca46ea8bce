"""Documents grouped into shards, compared with the shards on disk, and tokenised, in worker processes or not."""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch.utils.data import Dataset, get_worker_info

from ..data.documents import Document
from ..models.chunking import (
    ChunkingRule,
    Splitter,
    TokenizedDocument,
    check_texts,
    chunk_spans,
    flatten_chunks,
    tokenize_document,
)
from .layout import extend_chain, first_link, has_sums, read_manifest, shard_name
from .shard_files import DocumentEntry, ShardHead, check_shards

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedShard:
    """The documents of one shard that has to be written.

    Attributes:
        number: of the shard.
        documents: its documents, in order.
        digests: the hash of the text of each.
        chain: the hash of all documents up to the end of the shard.
    """

    number: int
    documents: list[Document]
    digests: list[str]
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
    compared with the documents and left out. With `repair` they are read whole, and those that are missing or damaged
    are written again.

    Args:
        documents, folder, characters_per_shard, process_index, num_processes, repair: as in `write_shards`.
        tokenizer: if it has a splitter, it cuts the first document of every shard in the folder again, to compare.

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
        repair: bool = False,
        tokenizer: ShardTokenizer | None = None,
    ) -> None:
        self._source, self._folder, self._characters_per_shard = documents, folder, characters_per_shard
        self._process_index, self._num_processes, self._repair = process_index, num_processes, repair
        self._tokenizer, self._manifest = tokenizer, read_manifest(folder)
        self.shards = self.documents = 0

    def __iter__(self) -> Iterator[PlannedShard]:
        """Raises TypeError or ValueError, with the id, for a document without text, or two documents of one id."""
        seen: set[str] = set()
        group: list[Document] = []
        digests: list[str] = []
        characters, chain = 0, first_link(self._manifest)
        for document in self._source:
            check_texts([document.text], [document.id])
            if document.id in seen:
                raise ValueError(f"Two documents have the id {document.id!r}; ids must be unique in a corpus.")
            seen.add(document.id)
            group.append(document)
            digests.append(_digest(document))
            self.documents += 1
            characters += len(document.text)
            covered = digests[-1] if has_sums(self._manifest) else ""
            chain = extend_chain(chain, document.id, len(document.text), covered)
            if characters >= self._characters_per_shard:
                yield from self._planned(group, digests, chain)
                group, digests, characters = [], [], 0
        if group:
            yield from self._planned(group, digests, chain)

    def _planned(self, group: list[Document], digests: list[str], chain: str) -> Iterator[PlannedShard]:
        number = self.shards
        self.shards += 1
        if number % self._num_processes != self._process_index:
            return
        path = self._folder / shard_name(number)
        complete = self._manifest["complete"]
        if complete and number >= self._manifest["shards"]:
            raise ValueError(
                f"{self._folder} holds a finished corpus, but more documents are given, the first {group[0].id!r} in "
                f"{path.name}, which does not exist. Encode into another folder, or delete this one."
            )
        if complete or path.exists():
            try:
                [head] = check_shards(self._folder, self._manifest, [number], tensors=self._repair)
            except ValueError:
                if not self._repair:
                    raise
                if complete and chain != self._manifest["shard_chains"][number]:
                    raise ValueError(
                        f"Cannot repair {self._folder}: the documents that are given, up to {group[-1].id!r}, are not "
                        f"those that it holds up to the end of {path.name}. Give the same ones."
                    ) from None
                logger.warning("Encoding %s again, which is missing or damaged.", path)
            else:
                _check_same_documents(path, head, group, digests, chain)
                if self._tokenizer and self._tokenizer.splitter:
                    _check_same_cut(path, head, PlannedShard(number, group, digests, chain), self._tokenizer)
                return
        yield PlannedShard(number, group, digests, chain)


class ShardTokenizer(Dataset):
    """Tokenises planned shards, in workers if it is the dataset of a `DataLoader` whose sampler is the plan.

    The plan is then read in one process, the results come in its order, and the workers end with their parent.
    """

    def __init__(self, tokenizer: Any, rule: ChunkingRule, splitter: Splitter | None = None) -> None:
        self._tokenizer, self._rule, self.splitter = tokenizer, rule, splitter

    def __getitem__(self, shard: PlannedShard) -> TokenizedShard:
        if get_worker_info():  # each worker is one thread; and the tokenizer's own threads do not survive a fork
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
        entries, ids, boundaries, spans = [], [], [], []
        for document, digest in zip(shard.documents, shard.digests, strict=True):
            tokens = tokenize_document(self._tokenizer, document.text)
            if len(tokens) == 0:
                warnings.warn(f"Document {document.id!r} contains no tokens, so it has no vectors.", stacklevel=2)
            entries.append(DocumentEntry(id=document.id, sha256=digest, characters=len(document.text),
                                         tokens=len(tokens)))  # fmt: skip
            ids.append(tokens.input_ids)
            boundaries.append(self._cut(document, tokens))
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

    def _cut(self, document: Document, tokens: TokenizedDocument) -> np.ndarray:
        try:
            return self._rule.text_boundaries(document.text, tokens, self.splitter)
        except (TypeError, ValueError) as error:
            raise type(error)(f"Document {document.id!r}: {error}") from error


def _digest(document: Document) -> str:
    return hashlib.sha256(document.text.encode("utf-8")).hexdigest()[:32]


def _check_same_documents(path: Path, head: ShardHead, group: list[Document], digests: list[str], chain: str) -> None:
    """Refuses documents that are not those of a shard on disk."""
    advice = "Encode into another folder, or delete this one."
    for entry, document, digest in zip(head.documents, group, digests, strict=False):
        if entry["id"] != document.id:
            raise ValueError(
                f"Cannot resume {path.parent}: {path.name} has {entry['id']!r} where {document.id!r} is given. "
                + advice
            )
        if entry["sha256"] != digest:
            raise ValueError(
                f"Cannot resume {path.parent}: the text of document {document.id!r} has changed. {advice}"
            )
    if len(head.documents) != len(group):
        raise ValueError(
            f"Cannot resume {path.parent}: {path.name} holds {len(head.documents)} documents, but {len(group)} are "
            f"given. {advice}"
        )
    if head.chain != chain:
        raise ValueError(
            f"Cannot resume {path.parent}: {path.name} was written after other documents than those that are given, "
            f"or with another encoder or chunking. {advice}"
        )


def _check_same_cut(path: Path, head: ShardHead, shard: PlannedShard, tokenizer: ShardTokenizer) -> None:
    """Refuses a splitter of the same name that cuts the first document of a shard in another way."""
    first = next((number for number, entry in enumerate(head.documents) if entry["tokens"]), None)
    if first is None:
        return
    cut = tokenizer[replace(shard, documents=[shard.documents[first]], digests=[shard.digests[first]])]
    start, stop = (int(offset) for offset in head.offsets[first : first + 2])
    with safe_open(path, framework="pt") as file:
        stored = file.get_slice("spans")[start:stop]
    if not torch.equal(stored, cut.spans):
        raise ValueError(
            f"Cannot resume {path.parent}: in {path.name}, document {shard.documents[first].id!r} was cut by another "
            f"splitter of the same name: {len(stored)} chunks there, {len(cut.spans)} here. Encode into another "
            "folder, or delete this one."
        )
