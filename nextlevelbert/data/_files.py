"""Files that appear under their own name only when they are whole, also where several runs write into one folder."""

from __future__ import annotations

import glob
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed
    fcntl = None  # type: ignore[assignment]

# What safetensors calls a file until it is whole. It does not lock it.
_UNLOCKED = ".tmp*"


def write_atomically(path: Path, content: bytes, only_if_missing: bool = False) -> None:
    """Writes a file as `atomic_file` does.

    Args:
        path: the file.
        content: what it will hold.
        only_if_missing: the first of several processes wins, if the file system has hard links.
    """
    with atomic_file(path, only_if_missing) as file:
        file.write(content)


@contextmanager
def atomic_file(path: Path, only_if_missing: bool = False) -> Iterator[BinaryIO]:
    """Opens a temporary file to write to, and renames it in the end: what has the name `path` is whole, even after a
    power cut.

    The temporary file is locked while it is written, so that `remove_leftovers` of another process leaves it alone.
    """
    while True:
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as file:
                if not _locked(file, temporary):
                    continue
                yield file
                file.flush()
                os.fsync(file.fileno())
                if only_if_missing:
                    _link(temporary, path)
                else:
                    os.replace(temporary, path)
            return
        finally:
            temporary.unlink(missing_ok=True)


def _locked(file: BinaryIO, path: Path) -> bool:
    """Locks a new file; false if another process removed it before it was locked."""
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks, where nothing can be taken for a leftover
            fcntl.flock(file, fcntl.LOCK_EX)
    return path.exists()


def _link(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:
        os.replace(temporary, path)


def remove_leftovers(folder: Path, unlocked_seconds: float = 3_600.0) -> None:
    """Removes temporary files of processes that were killed; those of running processes are locked and stay.

    Args:
        folder: where to look, not below it.
        unlocked_seconds: age at which a file that a library writes without a lock is taken for a leftover; 0 where
            nothing else can be writing.
    """
    _remove_unlocked(folder.glob("*.tmp"))
    for path in folder.glob(_UNLOCKED):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > unlocked_seconds or unlocked_seconds == 0:
                path.unlink()


def remove_leftovers_of(path: Path) -> None:
    """Removes temporary files of one file; for a folder that may hold other people's."""
    _remove_unlocked(path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 32}.tmp"))


def _remove_unlocked(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError), path.open("rb") as file:  # removed meanwhile, or no locks here
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


class FolderLock:
    """A lock on a folder, which several processes share or one has alone; until it is closed or forgotten.

    Where there are no locks, nobody is kept from anything.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = None if fcntl is None else os.open(folder, os.O_RDONLY)

    def try_alone(self) -> bool:
        """Whether no other process has this lock; until `share`, none will get it."""
        return self._lock("LOCK_EX", "LOCK_NB")

    def share(self) -> None:
        """Keeps others from being alone."""
        self._lock("LOCK_SH")

    def _lock(self, *how: str) -> bool:
        if self._descriptor is not None:
            try:
                fcntl.flock(self._descriptor, sum(getattr(fcntl, each) for each in how))
            except BlockingIOError:
                return False
            except OSError:  # a file system without locks
                pass
        return True

    def close(self) -> None:
        """Gives the lock back."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):  # not where the folder could not be opened
            self.close()
