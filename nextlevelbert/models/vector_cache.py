"""Chunk vectors on disk, found again by encoder and token ids, so that no chunk is encoded twice.

One SQLite file holds all vectors. SQLite brings what would be hard to write: several processes at once,
and whole transactions only, whenever a process is killed. Its write-ahead log needs memory that processes
share, so the folder has to be on a disk of this machine: **a network file system is no place for it.**

Notation for shapes: N chunks, D hidden size.
"""

from __future__ import annotations

import operator
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

FILE_NAME = "vectors.sqlite3"

_SCHEMA_VERSION = 1
_APPLICATION_ID = 0x4E4C4256  # "NLBV": says that a SQLite file is a cache of ours
_KEY_BYTES = 32
_KEYS_PER_QUERY = 500
_LOCK_SECONDS = 30.0
# Rows do not cross pages, so small pages waste room: at 16 KiB it is 3 % for 384 dimensions, 5 % for 768, where
# 4 KiB would lose 29 % and 31 %. Writing to a full cache is no slower for it.
_PAGE_BYTES = 16_384
_MIN_PAGES = 64
_ROW_OVERHEAD = 64  # key, check sum, row id and SQLite's own header: 52 to 60 bytes
_TRANSACTION_BYTES = 4 * 2**20
_LOG_BYTES = 32 * 2**20

# Least recently used goes first, without a time stamp that every read would have to write: the row id is the stamp.
# Ids only rise, so the smallest was placed longest ago, and eviction takes rows from that end, which empties whole
# pages. The upper bits of an id are the generation, a counter that goes up when `write` has been given
# 1/8 of max_bytes. A read places a row anew only if it is of an older generation. So without new vectors
# reads write nothing (in the generation they are in); a row moves at most once a generation, however often it is
# read; and the order of eviction is right to 1/8 of the cache. No clock is needed, so none can be wrong.
_GENERATIONS = 8
_GENERATION_SHIFT = 32

# The vector comes last, so that the other columns are read without it.
_SCHEMA = """
CREATE TABLE vectors (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, crc INTEGER NOT NULL, vector BLOB NOT NULL);
CREATE TABLE state (generation INTEGER NOT NULL, filled INTEGER NOT NULL);
INSERT INTO state VALUES (0, 0);
"""


class VectorCache:
    """Vectors on disk, found again by their keys (of chunks: `chunk_keys`). What is full loses what is oldest.

    Several processes may use one folder at once; each opens its own `VectorCache`, and so does each thread.
    A process may be killed at any time: what a returned `write` wrote is there, and nothing half-written is.
    (A power cut can lose the last writes, but leaves whole ones.) Not for a network file system.

    Args:
        path: a folder on a local disk; made if it is missing. Holds `vectors.sqlite3` and, beside it, SQLite's log.
        max_bytes: most bytes of `vectors.sqlite3`; what was used longest ago makes room. The log comes on top: as
            a rule less than 64 MiB. A file that is larger already is made smaller, so processes that share a
            folder should give the same number.

    Raises:
        ValueError: if `max_bytes` is below 1 MiB, or the folder holds something that is not a cache of this
            version, or a damaged one.
        OSError: if the folder cannot be made or written to.

    Example:
        >>> import hashlib, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> keys = [hashlib.sha256(text).digest() for text in (b"one", b"two")]
        >>> with VectorCache(folder.name) as cache:
        ...     cache.write(keys[:1], np.ones((1, 2), np.float32))
        ...     found, vectors = cache.read(keys, hidden_size=2)
        >>> found.tolist(), vectors.tolist()
        ([True, False], [[1.0, 1.0], [0.0, 0.0]])
        >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, max_bytes: int = 8 * 2**30) -> None:
        self.path = Path(path)
        self.file = self.path / FILE_NAME
        self.max_bytes = operator.index(max_bytes)
        self._max_pages = self.max_bytes // _PAGE_BYTES
        if self._max_pages < _MIN_PAGES:
            raise ValueError(
                f"max_bytes must be at least {_MIN_PAGES * _PAGE_BYTES} (1 MiB), got {max_bytes}; "
                "a million vectors of 384 values take 1.7 GB."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise ValueError(
                f"A vector cache is a folder, but {str(self.path)!r} is a file; give a folder."
            ) from error
        with _explained(self.file):
            self._database = sqlite3.connect(self.file, timeout=_LOCK_SECONDS, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._database.close()
                raise

    def read(self, keys: Sequence[bytes], hidden_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Looks up vectors; a key may occur several times.

        Args:
            keys: N keys of 32 bytes.
            hidden_size: D, values in a vector.

        Returns:
            ``[N]`` bool, which keys were found; ``[N, D]`` float32, their vectors with the bits that were written,
            zero where nothing was found.

        Raises:
            ValueError: for a key that is not 32 bytes, one that was written with another D, or a damaged cache.
            OSError: if the cache cannot be read, or cannot note that rows were used.
        """
        _check_keys(keys)
        number: dict[bytes, int] = {}
        places = [number.setdefault(key, len(number)) for key in keys]
        distinct = list(number)
        found = np.zeros(len(distinct), bool)
        vectors = np.zeros((len(distinct), hidden_size), "<f4")
        stale: list[bytes] = []
        with _explained(self.file):
            generation = self._value("SELECT generation FROM state")
            for start in range(0, len(distinct), _KEYS_PER_QUERY):
                some = distinct[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(some))
                query = f"SELECT key, id, crc, vector FROM vectors WHERE key IN ({marks})"
                for key, row, crc, vector in self._database.execute(query, some).fetchall():
                    self._check_row(key, crc, vector, hidden_size)
                    found[number[key]] = True
                    vectors[number[key]] = np.frombuffer(vector, "<f4")
                    if row >> _GENERATION_SHIFT < generation:
                        stale.append(key)
        if stale:
            self._put(stale, vectors[[number[key] for key in stale]], are_new=False)
        vectors = vectors.astype(np.float32, copy=False)  # the machine's own byte order
        return found[places], vectors[places]

    def write(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Stores vectors; one stored before under the same key is replaced.

        Up to 4 MiB (and 1/8 of `max_bytes`) are one transaction; more are several, so that the log stays small.

        Args:
            keys: N keys of 32 bytes.
            vectors: ``[N, D]`` float32.

        Raises:
            ValueError: for a key that is not 32 bytes, vectors of another shape or type, vectors too large for
                `max_bytes`, or a damaged cache.
            OSError: if the disk is full or read-only, or another process holds the cache for 30 seconds.
        """
        _check_keys(keys)
        if not isinstance(vectors, np.ndarray) or vectors.dtype != np.float32 or vectors.shape[:-1] != (len(keys),):
            got = f"{vectors.dtype} {vectors.shape}" if isinstance(vectors, np.ndarray) else type(vectors).__name__
            raise ValueError(f"vectors must be a NumPy array [{len(keys)}, D] of float32, one row a key, got {got}.")
        needed = 8 * _pages(1, vectors.shape[1])
        if needed > self._max_pages:
            raise ValueError(
                f"max_bytes {self.max_bytes} is too small for vectors of {vectors.shape[1]} values; "
                f"give at least {needed * _PAGE_BYTES}."
            )
        self._put(list(keys), vectors, are_new=True)

    def close(self) -> None:
        """Closes the file; the last process that does also removes the log. The cache cannot be used after it."""
        with _explained(self.file):
            self._database.close()

    def __enter__(self) -> VectorCache:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _value(self, query: str) -> Any:
        return self._database.execute(query).fetchone()[0]

    def _open(self) -> None:
        """Checks what the file is before anything in it is changed, and makes the tables in an empty one."""
        execute = self._database.execute
        if self._value("SELECT count(*) FROM sqlite_master") == 0:  # new, or its maker was killed right then
            execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            execute("PRAGMA auto_vacuum = INCREMENTAL")  # lets the file shrink; only possible before there are tables
            self._start_log()
            with self._transaction():
                if self._value("SELECT count(*) FROM sqlite_master") == 0:  # not made by another process meanwhile
                    for statement in _SCHEMA.strip().splitlines():
                        execute(statement)
                    execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        if self._value("PRAGMA application_id") != _APPLICATION_ID:
            raise ValueError(f"{str(self.file)!r} is a SQLite database, but no vector cache; give another folder.")
        version = self._value("PRAGMA user_version")
        if version != _SCHEMA_VERSION:
            raise ValueError(
                f"The vector cache {str(self.file)!r} has version {version}, this program reads {_SCHEMA_VERSION}; "
                f"delete the folder {str(self.path)!r} (its vectors will be computed again)."
            )
        # In WAL mode NORMAL loses no committed transaction to a kill, only to a power cut.
        execute("PRAGMA synchronous = NORMAL")
        execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // 4 // _PAGE_BYTES}")
        execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        execute(f"PRAGMA cache_size = {-_LOG_BYTES // 1024}")  # KiB: a transaction's pages are written once
        pages = self._value("PRAGMA page_count")
        while pages > self._max_pages:  # made with a larger max_bytes
            pages = max(pages - _TRANSACTION_BYTES // _PAGE_BYTES, self._max_pages)
            with self._transaction():
                self._make_room(0, pages)
            execute("PRAGMA wal_checkpoint(TRUNCATE)")  # brings it into the file itself

    def _start_log(self) -> None:
        """Makes the write-ahead log. Where several processes do so at once, SQLite refuses instead of waiting."""
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                mode = self._value("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise OSError(f"No log is possible beside {str(self.file)!r}; give a folder on a disk of this machine.")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explained(self.file):
            self._database.execute("BEGIN IMMEDIATE")  # takes the write lock at once: waiting for it later can fail
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # SQLite ends it by itself after some errors
                    self._database.execute("ROLLBACK")
                raise

    def _put(self, keys: list[bytes], vectors: np.ndarray, are_new: bool) -> None:
        """Places rows behind all others, in transactions of bounded size, after making room for them."""
        size = vectors.shape[1]
        most = min(_TRANSACTION_BYTES, self.max_bytes // _GENERATIONS) // (4 * size + _ROW_OVERHEAD) or 1
        for start in range(0, len(keys), most):
            some = keys[start : start + most]
            data = [vector.tobytes() for vector in vectors[start : start + most].astype("<f4", copy=False)]
            with self._transaction():
                generation, filled = self._database.execute("SELECT generation, filled FROM state").fetchone()
                if are_new:
                    filled += len(some) * (4 * size + 2 * _ROW_OVERHEAD)  # twice: once more for the key's index
                    if filled >= self.max_bytes // _GENERATIONS:
                        generation, filled = generation + 1, 0
                    self._database.execute("UPDATE state SET generation = ?, filled = ?", (generation, filled))
                else:  # first, so that they make room for themselves
                    self._database.executemany("DELETE FROM vectors WHERE key = ?", [(key,) for key in some])
                self._make_room(_pages(len(some), size), self._max_pages)
                last = self._value("SELECT coalesce(max(id), 0) FROM vectors")
                first = max(last + 1, generation << _GENERATION_SHIFT)
                crcs = map(_checksum, some, data)
                rows = zip(range(first, first + len(some)), some, crcs, data, strict=True)
                self._database.executemany("REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)
                self._make_room(0, self._max_pages)  # only if the index grew more than was reckoned with
            self._trim_log()

    def _make_room(self, pages: int, limit: int) -> None:
        """Removes the rows placed longest ago until `pages` more fit into a file of `limit` pages."""
        while True:
            total, free = self._value("PRAGMA page_count"), self._value("PRAGMA freelist_count")
            short = total - free + pages - limit
            if short <= 0:
                break
            # A page holds several rows, so this many rows are never too many; 16, so that the end is not slow.
            oldest = "DELETE FROM vectors WHERE id IN (SELECT id FROM vectors ORDER BY id LIMIT ?)"
            if self._database.execute(oldest, (max(short, 16),)).rowcount == 0:
                break
        for _ in range(total - limit):  # one by one: Python's execute ends this pragma after its first step
            self._database.execute("PRAGMA incremental_vacuum(1)")

    def _trim_log(self) -> None:
        """Empties a log that grew because other processes were always reading; waits for them to end."""
        log = self.file.with_name(self.file.name + "-wal")
        with _explained(self.file):
            if log.stat().st_size > _LOG_BYTES:
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _check_row(self, key: bytes, crc: int, vector: bytes, hidden_size: int) -> None:
        if _checksum(key, vector) != crc:
            raise ValueError(_damage(self.file, "a vector is not what was written"))
        if len(vector) != 4 * hidden_size:
            raise ValueError(
                f"hidden_size is {hidden_size}, but a vector of {len(vector) // 4} values is stored under the same "
                f"key in {str(self.file)!r}; `encoder` in chunk_keys must be different for different encoders."
            )


def _checksum(key: bytes, vector: bytes) -> int:
    # SQLite answers for whole transactions, but not for bits that change in its file afterwards: it has check sums
    # in its log only. A wrong vector would go unseen, so 1 microsecond a row is spent on it.
    return zlib.crc32(vector, zlib.crc32(key))


def _check_keys(keys: Sequence[bytes]) -> None:
    for index, key in enumerate(keys):
        if type(key) is not bytes or len(key) != _KEY_BYTES:
            got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise ValueError(f"A key is {_KEY_BYTES} bytes, as chunk_keys makes them, but key {index} is {got}.")


def _pages(rows: int, hidden_size: int) -> int:
    """Pages that new rows may need at most, as good as always: their own, split index pages, and some to spare."""
    row = 4 * hidden_size + _ROW_OVERHEAD
    rows_per_page = _PAGE_BYTES // row
    own = -(-rows // rows_per_page) if rows_per_page else rows * (row // _PAGE_BYTES + 2)
    return own + rows // 64 + 4


def _damage(file: Path, what: str) -> str:
    return (
        f"The vector cache {str(file)!r} is damaged, or no vector cache ({what}); "
        f"delete the folder {str(file.parent)!r} (its vectors will be computed again)."
    )


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Turns SQLite's errors into ones that name the file and say what to do; others pass."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of an extended code is detail
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise ValueError(_damage(file, str(error))) from error
        reasons = {
            sqlite3.SQLITE_FULL: "the disk is full; make room, or give a folder on another disk",
            sqlite3.SQLITE_READONLY: "it is read-only; make folder and file writable, or give another folder",
            sqlite3.SQLITE_CANTOPEN: "the folder cannot be written to; make it writable, or give another folder",
            sqlite3.SQLITE_IOERR: "the disk reports an error; see that it has room, and is not a network file system",
            sqlite3.SQLITE_BUSY: f"another process held it for {_LOCK_SECONDS:.0f} seconds; end that process",
        }
        if code not in reasons:
            raise
        raise OSError(f"Cannot use the vector cache {str(file)!r}: {reasons[code]} ({error}).") from error
