"""Several processes that write one corpus: which parts each writes, and what each waits for."""

import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from fsspec.utils import tokenize

from ..data.documents import File, FileDocuments, as_documents
from .folder import CorpusFolder
from .hold import forget_abandoned, hold_folder, is_abandoned

_LONGEST_WAIT = 3_600.0  # seconds; a part takes minutes even of a large encoder on a CPU
_LEAST_BYTES = 64  # of a file that surely holds a token
Group = dict[str, list[str]]  # ids and texts of some documents
Item = TypeVar("Item")


class SharedWork(ExitStack):
    """The share of one process, which the environment names, as `torchrun` sets it.

    Attributes:
        folder: folder of the corpus.
        rank: index of this process.
        processes: number of processes.
        writers: the process that writes each part, by the part's number.
    """

    def __init__(self, folder: CorpusFolder) -> None:
        super().__init__()
        self.folder = folder
        self.rank = int(os.environ.get("RANK", "0"))
        self.processes = int(os.environ.get("WORLD_SIZE", "1"))
        self.writers: dict[int, int] = {}
        # An address is no folder of this machine: nothing is found there.
        forget_abandoned(Path(folder.path))

    def hold(self) -> None:
        """Keeps other runs out of a folder until the work ends; at an address, they may write."""
        if isinstance(self.folder.path, Path):
            self.enter_context(hold_folder(self.folder.path, self.rank, is_shared=True))

    def divided(self, items: Iterable[Item]) -> Iterator[tuple[int, Item]]:
        """Yields items, of which each process takes every n-th one, with the process."""
        return zip(itertools.cycle(range(self.processes)), items, strict=False)

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
            if is_abandoned(Path(self.folder.path), rank):
                raise OSError(f"{what}, but has ended. {remedy}")
            if time.monotonic() - last_change > _LONGEST_WAIT:
                raise TimeoutError(f"{what}, and no further file appeared in an hour. {remedy}")
            time.sleep(1)  # second until the next look


def file_groups(
    documents: FileDocuments, characters: int, work: SharedWork
) -> Iterator[tuple[int, Group | None]]:
    """Yields the documents of each part of files, with the process that writes the part.

    A part ends with its files: those that reach `characters` bytes together. If no such files are
    too large for an equal share, each process reads only its own, and counts their parts before,
    which the others need to number theirs.

    Args:
        documents: the documents.
        characters: number of characters after which a part ends.
        work: the share of this process.

    Yields:
        The process, and its documents, or None if this process does not read them.
    """

    def groups_of(files: Iterable[File]) -> Iterator[Group]:
        return document_groups(documents.read(files), characters)

    shards, sizes = _shards(documents.files, characters)
    if work.processes == 1 or max(sizes) * work.processes > 2 * sum(sizes):
        yield from work.divided(itertools.chain.from_iterable(map(groups_of, shards)))
        return

    work.hold()
    names = {}
    for rank, files in work.divided(shards):
        name = f".count-{tokenize(files, sizes, characters)}"
        names[name] = rank
        if rank == work.rank:
            documents.row_count = 0
            count = sum(1 for _ in groups_of(files))
            work.folder.write(name, json.dumps([count, documents.row_count]).encode())
    work.wait_for(names)
    documents.row_count = 0
    for files, (name, rank) in zip(shards, names.items(), strict=True):
        if rank == work.rank:
            for group in groups_of(files):
                yield rank, group
        else:
            with work.folder.open(name) as file:
                content = file.read()
            count, rows = json.loads(content)  # outside: a damaged file can be reached
            documents.row_count += rows
            yield from [(rank, None)] * count


def _shards(files: Iterable[File], characters: int) -> tuple[list[list[File]], list[int]]:
    """Divides files, in their order, into lists that reach `characters` bytes, with their sizes."""
    shards: list[list[File]] = [[]]
    sizes = [0]
    for path, name in files:
        size = characters  # of a folder, which is a saved data set
        if path.is_file():
            size = path.stat().st_size
        if sizes[-1] >= characters and size >= _LEAST_BYTES:
            shards.append([])
            sizes.append(0)
        shards[-1].append((path, name))
        sizes[-1] += size
    return shards, sizes


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
