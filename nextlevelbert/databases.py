"""Opens SQLite files, which several processes can use at once."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PATIENCE = 1_000  # milliseconds before a line says that another process is waited for
_FOREVER = 2**31 - 1
_MAPPED = 2**31  # bytes of a file that are mapped into memory: vectors are read in half the time
_PAGE_SIZE = 16_384  # bytes; vectors are read in half the time of SQLite's 4,096


class DatabaseError(OSError):
    """Names an SQLite file in an error, with the remedy."""


@contextmanager
def named_errors(path: Path, remedy: str) -> Iterator[None]:
    """Names an SQLite file in the errors of a block.

    Args:
        path: the file.
        remedy: what to do, as a sentence.

    Raises:
        DatabaseError: if the file is damaged, or cannot be opened or written.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        cause = str(error)
        if isinstance(error, OSError) and error.strerror:
            cause = error.strerror
        if "no such module: fts5" in cause:
            remedy = (
                "The SQLite of this Python was built without FTS5, its full-text search. Use a"
                " Python that has it, such as those of python.org, conda and Debian."
            )
        raise DatabaseError(f"{path} cannot be used: {cause}. {remedy}") from error


def open_database(path: Path, schema: str) -> sqlite3.Connection:
    """Opens an SQLite file, and creates the tables that it lacks.

    Whole transactions only are written, even if a process is killed. SQLite's log (WAL) needs
    memory that processes share, so the file has to be on a disk of this machine, not on a network
    drive; on a file system without such memory, SQLite keeps its journal.

    Args:
        path: the file.
        schema: the statements ``CREATE TABLE IF NOT EXISTS``.

    Returns:
        A connection that any thread can use, without transactions of its own; see `transaction`.

    Raises:
        sqlite3.Error: if the file is damaged, or cannot be opened.
    """
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA busy_timeout = {_FOREVER}")
        database.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
        database.execute(f"PRAGMA mmap_size = {_MAPPED}")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(schema)
    except sqlite3.Error:
        database.close()
        raise
    return database


def begin(database: sqlite3.Connection) -> None:
    """Begins a transaction that writes, once no other process does."""
    database.execute(f"PRAGMA busy_timeout = {_PATIENCE}")
    try:
        database.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        print("Waiting for another command that writes the same file.", file=sys.stderr)
        database.execute(f"PRAGMA busy_timeout = {_FOREVER}")
        database.execute("BEGIN IMMEDIATE")


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Writes all changes of a block, or if it fails none."""
    begin(database)
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def close_whole(database: sqlite3.Connection, path: Path) -> None:
    """Closes a database, and writes a file beside it that says in which state it was whole."""
    database.close()
    with suppress(OSError):  # the folder was removed
        path.with_suffix(".whole").write_text(_state(path))


def was_left_whole(path: Path) -> bool:
    """Returns whether a database is as `close_whole` left it.

    If not, a process was killed while it had the database open, or another program changed it.
    """
    with suppress(OSError):  # it was not closed yet
        return path.with_suffix(".whole").read_text() == _state(path)
    return False


def _state(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
