"""The parts of a shelf by the names of their files, and what a part is made from.

A part is named by the hash of its file's bytes, by its index among the parts of the file, and by a
checksum of its own. The last part of a file says so, which shows that the file was read to its end.
"""

import hashlib
import os
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..data.documents import PYTHON_MANUAL
from ..data.files import suffix
from .file_states import State, state_of
from .reading import SourceFile

# Raised when parts have other columns or other contents than before, so that parts are made anew.
VERSION = 6
_NAME = re.compile(r"([0-9a-f]{32})-(\d{5})(-last)?-[0-9a-f]{8}\.parquet")


@dataclass
class FileContent:
    """A file of a source, and what it holds.

    Attributes:
        file: the file.
        content: hash of the file's bytes.
        state: state of the file before it was hashed.
    """

    file: SourceFile
    content: str
    state: State

    @classmethod
    def of(cls, file: SourceFile) -> "FileContent":
        """Hashes a file.

        Raises:
            OSError: if the file cannot be read.
        """
        state = state_of(paths_of(file))
        return cls(file, content=hash_of(file), state=state)

    def is_unchanged(self) -> bool:
        """Returns whether the file still holds the same; if not, the new content is stored.

        Raises:
            OSError: if the file cannot be read any more.
        """
        if self.state.is_settled and self.state == state_of(paths_of(self.file)):
            return True
        current = FileContent.of(self.file)
        is_same = current.content == self.content
        self.content = current.content
        self.state = current.state
        return is_same


@dataclass
class Part:
    """A part of a shelf: a file, or a run of the documents of a table.

    Attributes:
        source: the file.
        index: index of the part among the parts of the file.
        path: path of the part.
        is_last: true for the last part of a file, which has the notes about reading the file.
        is_checked: true if the part is known to be whole.
    """

    source: FileContent
    index: int
    path: Path
    is_last: bool
    is_checked: bool = False

    @property
    def file(self) -> SourceFile:
        """Returns the file that the part was made from."""
        return self.source.file


def paths_of(file: SourceFile) -> list[Path]:
    """Returns the file, or the files of a saved data set; Python's manual has none."""
    if str(file.path) == PYTHON_MANUAL:
        return []
    if file.is_table and file.path.is_dir():
        return sorted(path for path in file.path.rglob("*") if path.is_file())
    return [file.path]


def exists(file: SourceFile) -> bool:
    """Returns whether a file can still be read."""
    return str(file.path) == PYTHON_MANUAL or os.path.exists(file.path)


def hash_of(file: SourceFile) -> str:
    """Hashes the bytes of a file, or of a saved data set's files, and how they are read.

    Python's manual is known by the version of Python.
    """
    if str(file.path) == PYTHON_MANUAL:
        return hashlib.sha256(f"{PYTHON_MANUAL} {sys.version}".encode()).hexdigest()[:32]
    digest = hashlib.sha256()
    for path in paths_of(file):
        digest.update(f"{suffix(path)} {path.suffix}".encode(errors="replace"))
        with open(path, "rb", buffering=0) as stream:
            for block in iter(partial(stream.read, 1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()[:32]


def part_name(content: str, index: int, is_last: bool) -> str:
    """Returns the name of a part, without its checksum."""
    name = f"{content}-{index:05d}"
    if is_last:
        return f"{name}-last"
    return name


def written_parts(folder: Path) -> dict[str, dict[int, Path]]:
    """Returns the parts in a folder by the hash of their file, and by their index."""
    parts = dict[str, dict[int, Path]]()
    for path in sorted(folder.glob("*.parquet")):
        name = _NAME.fullmatch(path.name)
        if name is not None:
            parts.setdefault(name[1], {})[int(name[2])] = path
    return parts


def is_last_part(path: Path) -> bool:
    """Returns whether a part is the last of its file."""
    return "-last-" in path.name


def parts_of(source: FileContent, paths: dict[int, Path]) -> list[Part]:
    """Returns the parts of a file in order; none if a part is missing."""
    parts = []
    for index in range(len(paths)):
        if index not in paths:
            return []
        path = paths[index]
        parts.append(Part(source, index=index, path=path, is_last=is_last_part(path)))
    if parts and parts[-1].is_last:
        return parts
    return []
