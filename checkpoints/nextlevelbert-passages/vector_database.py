"""The SQLite file of a vector cache: its tables, its size, its log and its errors.

SQLite brings what would be hard to write: several processes at once, and whole transactions only, whenever a process
is killed. Its write-ahead log needs memory that processes share, so the file has to be on a disk of this machine: **a
network file system is no place for it.**
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Rows do not cross pages, so small pages waste room: at 16 KiB it is 3 % for 384 dimensions, 5 % for 768, where
# 4 KiB would lose 29 % and 31 %. Writing to a full cache is no slower for it.
PAGE_BYTES = 16_384
TRANSACTION_BYTES = 4 * 2**20

_SCHEMA_VERSION = 1
_APPLICATION_ID = 0x4E4C4256  # "NLBV": says that a SQLite file is a cache of ours
_LOCK_SECONDS = 30.0
_LOG_BYTES = 32 * 2**20

# The vector comes last, so that the other columns are read without it.
_SCHEMA = """
CREATE TABLE vectors (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, crc INTEGER NOT NULL, vector BLOB NOT NULL);
CREATE TABLE state (generation INTEGER NOT NULL, filled INTEGER NOT NULL);
INSERT INTO state VALUES (0, 0);
"""


class VectorDatabase:
    """A file of rows (id, key, check sum, vector) that never has more than so many pages.

    Args:
        file: where it is, or will be made.
        max_pages: its bound; a file that is larger is made smaller. The log comes on top.

    Raises:
        ValueError: for something that is not a cache of this version, or a damaged one.
        OSError: if it cannot be made or written to.
    """

    def __init__(self, file: Path, max_pages: int) -> None:
        self.file, self._max_pages = file, max_pages
        with self.explained():
            self._connection = sqlite3.connect(file, timeout=_LOCK_SECONDS, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._connection.close()
                raise

    def execute(self, query: str, values: Sequence[int | bytes] = ()) -> sqlite3.Cursor:
        return self._connection.execute(query, values)

    def executemany(self, query: str, rows: Iterable[tuple[int | bytes, ...]]) -> None:
        self._connection.executemany(query, rows)

    def value(self, query: str) -> Any:
        """The first column of the first row of an answer."""
        return self._connection.execute(query).fetchone()[0]

    def close(self) -> None:
        """Closes the file; the last process that does so also removes the log."""
        with self.explained():
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is done within it, or nothing."""
        with self.explained():
            self.execute("BEGIN IMMEDIATE")  # takes the write lock at once: waiting for it later can fail
            try:
                yield
                self.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it by itself after some errors
                    self.execute("ROLLBACK")
                raise

    def make_room(self, pages: int, limit: int | None = None) -> None:
        """Removes the rows with the smallest ids until `pages` more fit into a file of `limit` pages (by default all).

        To be called in a transaction.
        """
        limit = self._max_pages if limit is None else limit
        while True:
            total, free = self.value("PRAGMA page_count"), self.value("PRAGMA freelist_count")
            short = total - free + pages - limit
            if short <= 0:
                break
            # A page holds several rows, so this many rows are never too many; 16, so that the end is not slow.
            oldest = "DELETE FROM vectors WHERE id IN (SELECT id FROM vectors ORDER BY id LIMIT ?)"
            if self.execute(oldest, (max(short, 16),)).rowcount == 0:
                break
        for _ in range(total - limit):  # one by one: Python's execute ends this pragma after its first step
            self.execute("PRAGMA incremental_vacuum(1)")

    def trim_log(self) -> None:
        """Empties a log that grew because other processes were always reading; waits for them to end."""
        log = self.file.with_name(self.file.name + "-wal")
        with self.explained():
            if log.stat().st_size > _LOG_BYTES:
                self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turns SQLite's errors into ones that name the file and say what to do; others pass."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of an extended code is detail
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self.damaged(str(error)) from error
            reasons = {
                sqlite3.SQLITE_FULL: "the disk is full; make room, or give a folder on another disk",
                sqlite3.SQLITE_READONLY: "it is read-only; make folder and file writable, or give another folder",
                sqlite3.SQLITE_CANTOPEN: "the folder cannot be written to; make it writable, or give another folder",
                sqlite3.SQLITE_IOERR: "the disk reports an error; check that it has room and is not a network file "
                "system",
                sqlite3.SQLITE_BUSY: f"another process held it for {_LOCK_SECONDS:.0f} seconds; end that process",
            }
            if code not in reasons:
                raise
            raise OSError(f"Cannot use the vector cache {str(self.file)!r}: {reasons[code]} ({error}).") from error

    def damaged(self, what: str) -> ValueError:
        """The error for a file whose content is not what was written."""
        return ValueError(
            f"The vector cache {str(self.file)!r} is damaged, or not a vector cache ({what}); "
            f"delete the folder {str(self.file.parent)!r} (its vectors will be computed again)."
        )

    def _open(self) -> None:
        """Checks what the file is before anything in it is changed, and makes the tables in an empty one."""
        if self.value("SELECT count(*) FROM sqlite_master") == 0:  # new, or its maker was killed right then
            self.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            self.execute("PRAGMA auto_vacuum = INCREMENTAL")  # lets the file shrink; only possible without tables
            self._start_log()
            with self.transaction():
                if self.value("SELECT count(*) FROM sqlite_master") == 0:  # not made by another process meanwhile
                    for statement in _SCHEMA.strip().splitlines():
                        self.execute(statement)
                    self.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    self.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        if self.value("PRAGMA application_id") != _APPLICATION_ID:
            raise ValueError(f"{str(self.file)!r} is a SQLite database, but not a vector cache; give another folder.")
        version = self.value("PRAGMA user_version")
        if version != _SCHEMA_VERSION:
            raise ValueError(
                f"The vector cache {str(self.file)!r} has version {version}, this version of the package reads "
                f"{_SCHEMA_VERSION}; delete the folder {str(self.file.parent)!r} (its vectors will be computed again)."
            )
        # In WAL mode NORMAL loses no committed transaction to a kill, only to a power cut.
        self.execute("PRAGMA synchronous = NORMAL")
        self.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // 4 // PAGE_BYTES}")
        self.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        self.execute(f"PRAGMA cache_size = {-_LOG_BYTES // 1024}")  # KiB: a transaction's pages are written once
        pages = self.value("PRAGMA page_count")
        while pages > self._max_pages:  # made with a larger bound
            pages = max(pages - TRANSACTION_BYTES // PAGE_BYTES, self._max_pages)
            with self.transaction():
                self.make_room(0, pages)
            self.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # brings it into the file itself

    def _start_log(self) -> None:
        """Makes the write-ahead log. Where several processes do so at once, SQLite refuses instead of waiting."""
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                mode = self.value("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise OSError(f"Cannot create a log next to {str(self.file)!r}; give a folder on a local disk.")
