"""Files that appear under their own name only when they are whole, also where several runs write into one folder."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed
    fcntl = None  # type: ignore[assignment]

# What safetensors calls a file until it is whole. It does not lock it.
_UNLOCKED = ".tmp*"


def write_atomically(path: Path, content: bytes, only_if_missing: bool = False) -> None:
    """Writes a file under a temporary name and renames it: what has the name `path` is whole, even after a power cut.

    The temporary file is locked while it is written, so that `remove_leftovers` of another process leaves it alone.

    Args:
        path: the file.
        content: what it will hold.
        only_if_missing: the first of several processes wins, if the file system has hard links.
    """
    while True:
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as file:
                if not _locked(file, temporary):
                    continue
                file.write(content)
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
    for path in folder.glob("*.tmp"):
        with suppress(OSError), path.open("rb") as file:  # removed meanwhile, or no locks here
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    for path in folder.glob(_UNLOCKED):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > unlocked_seconds or unlocked_seconds == 0:
                path.unlink()
