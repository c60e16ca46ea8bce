"""A folder into which one process writes at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..models.files import writing


@contextmanager
def hold_folder(folder: Path, rank: int = 0, *, is_shared: bool = False) -> Iterator[None]:
    """Keeps other runs out of a folder that this process writes into.

    Args:
        folder: the folder, which is made.
        rank: number of this process among those of one run, each of which holds the folder.
        is_shared: if true, the others are to see that this process has ended with an error.

    Raises:
        ValueError: another process holds the folder; the message names the process.
    """
    lock = FileLock(folder / f".lock-{rank}", thread_local=False, is_singleton=True)
    holder = folder / f".holder-{rank}"  # Windows lets nobody else read a locked file
    with writing(folder):
        try:
            lock.acquire(timeout=1)
        except Timeout:
            raise ValueError(
                f"Another run writes into {folder} (process {holder.read_text()}). Wait until it"
                " ends, or give another folder."
            ) from None
        holder.write_text(str(os.getpid()))
    try:
        yield
        is_shared = False  # nobody waits for this process any more
    finally:
        if not is_shared:
            holder.unlink(missing_ok=True)
        with suppress(OSError):  # Windows removes no file that is open
            Path(lock.lock_file).unlink()
        lock.release()


def is_abandoned(folder: Path, rank: int) -> bool:
    """Returns whether a process has held a folder and has ended before it had finished."""
    if (folder / f".holder-{rank}").exists():
        with suppress(Timeout), FileLock(folder / f".lock-{rank}", timeout=0):
            return True
    return False


def forget_abandoned(folder: Path) -> None:
    """Removes what processes left that held a folder and ended before they had finished."""
    for pattern in (".holder-*", ".lock-*"):
        for left in folder.glob(pattern):
            lock = left.with_name(left.name.replace("holder", "lock"))
            # Another process may hold the folder, which may also be read-only.
            with suppress(OSError), FileLock(lock, timeout=0):
                left.unlink()
