"""For `training/resuming.py`; goes with it."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]


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
