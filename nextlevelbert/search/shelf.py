"""A shelf: the passages and vectors of a folder's files, kept in the cache and brought up to date.

A shelf is a folder of Parquet parts as `corpus` writes them, see `part_writer`. A part is named by
a hash of its file's bytes, and by a checksum of its own: a renamed file is not encoded again, a
changed file is, a command that is killed keeps the parts that it has written, and a part that is
damaged is made again. The parts of files that are gone are removed when no other process has the
shelf open. A file whose size, times and inode are the same as before is not read again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import uuid
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from ..data.documents import PYTHON_MANUAL, resolve_source
from ..data.files import reason
from .cache_files import is_whole, writing
from .file_states import FileStates, state_of
from .notes import Note, Notes
from .part_writer import PartWriter
from .parts import (
    FileContent,
    Part,
    exists,
    hash_of,
    parts_of,
    paths_of,
    written_parts,
)
from .reading import ReadingOptions, SourceFile, check_text, list_files, notes_on_words
from .search_model import SearchModel, search_model

if TYPE_CHECKING:
    from ..models.modeling_nextlevelbert import NextLevelBertModel

_MODULES_OF_READERS = ("pypdfium2", "mammoth")  # without which some files cannot be read


def open_shelf(
    source: str, model: SearchModel | NextLevelBertModel | None, reading: ReadingOptions
) -> Shelf:
    """Opens the shelf of a source: encodes new and changed files, removes parts of deleted ones.

    Args:
        source: a file, a folder or a pattern.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where the shelf is.

    Raises:
        CacheError: if the shelf cannot be written.
        ValueError: if no file can be read.
    """
    source = resolve_source(source)
    notes = Notes()
    try:
        files = list_files(source, notes)
        check_text(source, [file.path for file in files])  # before a model is opened
        shelf = Shelf(source, model, reading)
        shelf.update(files, notes)
    finally:
        notes.print()
    if not shelf.parts:
        raise ValueError(f"No file of {source!r} can be read.")
    return shelf


def wait_for(lock: FileLock) -> AbstractContextManager[object]:
    """Locks a shelf for writing; another command that opens the same shelf waits.

    Args:
        lock: the lock of the shelf. Nothing is locked if its folder is read-only.
    """
    if not os.access(os.path.dirname(lock.lock_file), os.W_OK):
        return nullcontext()
    try:
        return lock.acquire(timeout=1)
    except Timeout:
        print("Waiting for another command that reads the same files.", file=sys.stderr)
        return lock.acquire()


def _end_reading(lock: FileLock) -> None:
    lock.release()
    Path(lock.lock_file).unlink(missing_ok=True)


def _read_columns(path: Path, columns: Sequence[str]) -> pa.Table:
    # The memory of the part before is released first; threads would hold as much each.
    pa.default_memory_pool().release_unused()
    with pq.ParquetFile(path, memory_map=True) as file:
        return file.read(list(columns), use_threads=False)


def _key(file: SourceFile) -> str:
    """Returns the name by which the content of a file is remembered."""
    if str(file.path) == PYTHON_MANUAL:
        return f"{PYTHON_MANUAL} {sys.version}"
    return os.path.abspath(file.path)


def _readers() -> list[bool]:
    """Returns which optional packages are installed, without which some files are left out."""
    return [importlib.util.find_spec(name) is not None for name in _MODULES_OF_READERS]


class Shelf:
    """The parts of a source's files, in a folder of the cache.

    Attributes:
        model: the model of the search.
        parts: the parts of the files that could be read, in the order of the files; see `update`.
        folder: folder of the parts.
        lock: the lock for writing into the folder.
        states: what the files held when they were last read.

    Raises:
        CacheError: if the folder cannot be made.
    """

    def __init__(
        self, source: str, model: SearchModel | NextLevelBertModel | None, reading: ReadingOptions
    ) -> None:
        self.model = search_model(model)
        self.parts: list[Part] = []
        self._reading = reading
        key = self.model.shelf_key(reading).encode() + os.fsencode(os.path.abspath(source))
        # The dot keeps the shelves of a cache that lies in the source from being read.
        self.folder = reading.cache_dir / ".shelves" / hashlib.sha256(key).hexdigest()[:32]
        with writing(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds texts
        self.states = FileStates(self.folder / "states")
        self.lock = FileLock(self.folder / "lock", thread_local=False)
        # Other processes remove nothing from the folder while this lock is held.
        self._reader_lock = FileLock(
            self.folder / f"reader-{uuid.uuid4().hex}.lock", thread_local=False
        )

    def update(self, files: Sequence[SourceFile], notes: Notes) -> None:
        """Makes the parts that are missing, and removes the parts of files that are gone."""
        with wait_for(self.lock):
            if self.lock.is_locked:
                self._reader_lock.acquire()
                weakref.finalize(self, _end_reading, self._reader_lock)
            sources, left_out = self._contents_of(files, notes)
            written = written_parts(self.folder)
            missing = []
            for source in sources:
                is_written = parts_of(source, written.get(source.content, {}))
                if not is_written and source.content not in left_out:
                    missing.append(source)
            if missing:
                left_out |= self._encode(missing)
                written = written_parts(self.folder)
            contents = {source.content for source in sources}
            outdated = [paths for content, paths in written.items() if content not in contents]
            self.remove_files([path for paths in outdated for path in paths.values()])
            if self.lock.is_locked:
                for path in self.folder.glob("*.new"):  # what a killed process left
                    path.unlink()
                for path in self.folder.glob(".tmp*"):
                    shutil.rmtree(path)

        self.parts = []
        readers = _readers()
        for source in sources:
            self.parts.extend(parts_of(source, written.get(source.content, {})))
            notes_on_file = left_out.get(source.content)
            notes.add(source.file.name, notes_on_file or [])
            content = [source.content, notes_on_file, readers]
            self.states.remember(_key(source.file), source.state, content)
        self.states.save(list(map(_key, files)))

    def _contents_of(
        self, files: Sequence[SourceFile], notes: Notes
    ) -> tuple[list[FileContent], dict[str, list[Note]]]:
        """Hashes files, unless they are known by their state.

        Returns:
            The files that can be opened, and the notes about those that were left out before, by
            the hash of their bytes.
        """
        sources = []
        left_out = {}
        current_readers = _readers()
        for file in files:
            try:
                state = state_of(paths_of(file))
                known = self.states.content(_key(file), state)
                if known is None:
                    sources.append(FileContent(file, content=hash_of(file), state=state))
                    continue
            except OSError as error:
                notes.add(file.name, [Note("left out", f" cannot be read: {reason(error)}")])
                continue
            content, notes_on_file, readers = known
            sources.append(FileContent(file, content=content, state=state))
            if notes_on_file is not None and readers == current_readers:
                left_out[content] = [Note(*note) for note in notes_on_file]
        return sources, left_out

    def _encode(self, sources: Sequence[FileContent]) -> dict[str, list[Note]]:
        """Makes the parts of files that are missing; returns notes about files left out."""
        return PartWriter(self.folder, self.model, self._reading).write(sources)

    def read(self, part: Part, *columns: str) -> pa.Table:
        """Reads columns of a part, which is made again first if it is damaged.

        Raises:
            ValueError: if the part is damaged, and its file has changed since.
        """
        if not part.is_checked and not is_whole(part.path):
            self.make_again(part)
        try:
            table = _read_columns(part.path, columns)
        except (pa.ArrowException, OSError, ValueError, KeyError):  # removed or changed since
            self.make_again(part)
            table = _read_columns(part.path, columns)
        part.is_checked = True
        return table

    def remove_files(self, outdated: Sequence[Path]) -> None:
        """Removes files of the shelf, unless another process has the shelf open."""
        if outdated and self.lock.is_locked and not self._has_other_readers():
            for path in outdated:
                path.unlink()

    def _has_other_readers(self) -> bool:
        for path in self.folder.glob("reader-*.lock"):
            if str(path) == str(self._reader_lock.lock_file):
                continue
            lock = FileLock(path, thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return True
            _end_reading(lock)  # of a process that was killed
        return False

    def make_again(self, part: Part) -> None:
        """Makes a part that is damaged from its file.

        Raises:
            ValueError: if the file has changed, or cannot be read any more.
        """
        source = part.source
        content = source.content
        with wait_for(self.lock):
            with writing(part.path):
                part.path.unlink(missing_ok=True)
            if exists(source.file) and hash_of(source.file) == content:
                self._encode([source])
            path = written_parts(self.folder).get(content, {}).get(part.index)
        if path is None:
            raise ValueError(
                f"{part.path} was damaged, and {part.file.path} has changed since. Run the command"
                " again."
            )
        part.path = path


def part_notes(
    parts: Sequence[Part], metadata: Sequence[Mapping[bytes, bytes]]
) -> list[list[Note]]:
    """Returns notes about files; those about a file belong to its last part."""
    notes = []
    counts: list[dict[str, Any]] = []
    for part, values in zip(parts, metadata, strict=True):
        counts.append(json.loads(values[b"unknown"]))
        notes.append([Note(*note) for note in json.loads(values[b"notes"])])
        if part.is_last:
            notes[-1].extend(notes_on_words(part.file, counts))
            counts = []
    return notes
