"""Several processes that write one corpus: which parts each writes, and what each waits for."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

from fsspec.utils import tokenize

from ..data.documents import File, FileDocuments, as_documents
from .folder import CorpusFolder

_LONGEST_WAIT = 3_600.0  # seconds; a part takes minutes even of a large encoder on a CPU
_SECONDS_BETWEEN_LOOKS = 1.0
_LEAST_BYTES = 64  # of a file that surely holds a token
Group = dict[str, list[str]]  # ids and texts of some documents


class SharedWork(NamedTuple):
    """The share of one process.

    Attributes:
        folder: folder of the corpus.
        rank: index of this process.
        processes: number of processes.
    """

    folder: CorpusFolder
    rank: int
    processes: int

    @classmethod
    def of_this_process(cls, folder: CorpusFolder) -> "SharedWork":
        """Returns the share that the environment names, as `torchrun` sets it."""
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        return cls(folder, rank=int(os.environ.get("RANK", "0")), processes=processes)

    def divided(self, groups: Iterable[Group]) -> Iterator[tuple[int, Group]]:
        """Yields each group with the process that writes it: every n-th one."""
        for index, group in enumerate(groups):
            yield index % self.processes, group

    def wait_for(self, names: Mapping[str, int]) -> None:
        """Waits until other processes have written files.

        Args:
            names: how the names of the files begin, each with the process that writes the file.

        Raises:
            OSError: the process has ended without the file, or no further file was written for an
                hour; the message names the process and the first file that is missing.
        """
        missing = dict(names)
        last_change = time.monotonic()
        while True:
            for name in self.folder.stamps():
                if missing.pop(name, missing.pop(name[:11], None)) is not None:
                    last_change = time.monotonic()
            if not missing:
                return
            name, rank = next(iter(missing.items()))
            what = f"Process {rank} of {self.processes} was to write {name} in {self.folder}"
            remedy = (
                "Look at its output, and run the same encoding again, which writes only what is"
                " missing."
            )
            if self.folder.is_abandoned(rank):
                raise OSError(f"{what}, but has ended. {remedy}")
            if time.monotonic() - last_change > _LONGEST_WAIT:
                minutes = _LONGEST_WAIT / 60
                raise TimeoutError(
                    f"{what}, and no further file appeared within {minutes:.0f} minutes. {remedy}"
                )
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def file_groups(
    documents: FileDocuments, characters: int, work: SharedWork, held: ExitStack
) -> Iterator[tuple[int, Group | None]]:
    """Yields the documents of each part of files, with the process that writes the part.

    A part ends with its files: those that reach `characters` bytes together. If no such files are
    too large for an equal share, each process reads only its own, and counts their parts before,
    which the others need to number theirs.

    Args:
        documents: the documents.
        characters: number of characters after which a part ends.
        work: the share of this process.
        held: holds the folder until the process ends.

    Yields:
        The process, and its documents, or None if this process does not read them.
    """
    shards = _shards(documents.files, characters)
    sizes = [size for _, size in shards]
    if work.processes == 1 or max(sizes) * work.processes > 2 * sum(sizes):
        groups = (
            group for files, _ in shards for group in _groups_of(documents, files, characters)
        )
        yield from work.divided(groups)
        return

    held.enter_context(work.folder.hold(work.rank))
    names = {}
    for index, shard in enumerate(shards):
        rank = index % work.processes
        name = f".count-{tokenize(index, shard, characters)}"
        names[name] = rank
        if rank == work.rank:
            documents.row_count = 0
            count = sum(1 for _ in _groups_of(documents, shard[0], characters))
            work.folder.write(name, json.dumps([count, documents.row_count]).encode())
    work.wait_for(names)
    documents.row_count = 0
    for (files, _), (name, rank) in zip(shards, names.items(), strict=True):
        if rank == work.rank:
            for group in _groups_of(documents, files, characters):
                yield rank, group
        else:
            count, rows = json.loads(work.folder.read(name))
            documents.row_count += rows
            yield from [(rank, None)] * count


def _shards(files: Iterable[File], characters: int) -> list[tuple[list[File], int]]:
    """Divides files, in their order, into lists that reach `characters` bytes, with their sizes."""
    shards: list[tuple[list[File], int]] = []
    shard: list[File] = []
    size = 0
    for path, name in files:
        file_size = characters
        if path.is_file():
            file_size = path.stat().st_size
        if size >= characters and file_size >= _LEAST_BYTES:
            shards.append((shard, size))
            shard = []
            size = 0
        shard.append((path, name))
        size += file_size
    return [*shards, (shard, size)]


def _groups_of(documents: FileDocuments, files: Iterable[File], characters: int) -> Iterator[Group]:
    return document_groups(documents.read(files), characters)


def document_groups(documents: Iterable[Any], characters: int) -> Iterator[Group]:
    """Yields the documents of each part. No part begins with a blank document."""
    size = 0
    group = Group(id=[], text=[])
    for document in as_documents(documents):
        if size >= characters and document.text.strip():
            yield group
            size = 0
            group = Group(id=[], text=[])
        group["id"].append(document.id)
        group["text"].append(document.text)
        size += len(document.text)
    if group["id"]:
        yield group
