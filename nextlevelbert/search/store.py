"""What a search keeps of a folder, in one SQLite file: documents, passages, words and vectors.

A file is known by its path, size, times and inode, and its content by a hash of its bytes: a file
that has not changed is not read, a renamed file is not encoded again, and two equal files are kept
once. The documents of a file are stored in runs, each in one transaction, so that a command that is
killed loses at most the run that it was reading. A change costs what has changed.

=========  =========================================================================================
contents   of each file: hash of its bytes, whether all its runs are stored, notes about reading it
files      the state of each file when it was last hashed
runs       arrays over the documents and passages of a run, see `Run`, and their vectors
documents  name, text, metadata and page borders; the numbers of a run's documents are consecutive
words      FTS5's index of `search_words` of each passage; the passages of a run are consecutive
vectors    passages that a second model has read, see `Reranker`
=========  =========================================================================================
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import sqlite3
import sys
import warnings
import weakref
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..bundled import resolve_source
from ..data.words import search_words
from ..databases import (
    begin,
    close_whole,
    named_errors,
    open_database,
    transaction,
    was_left_whole,
)
from ..messages import readable_name
from ..models.files import write_whole
from .encoders.choice import SearchModel, search_model
from .notes import Note, Notes
from .passages import Run, StoredDocument, borders_of_passages, numbers_of_texts, passage_texts
from .reading import (
    DocumentRun,
    ReadingOptions,
    SourceFile,
    count_unknown,
    left_out,
    list_files,
    notes_on_words,
    read_content,
)

if TYPE_CHECKING:
    from ..models.modeling_nextlevelbert import NextLevelBertModel

STORES = ".stores"
"""Folder in the cache; the dot keeps stores from being read if the cache lies in the source."""
ABOUT = "store.json"
"""File beside a database, with its source and its model."""
# Raised when a store has other tables or other contents than before, so that it is made anew.
_VERSION = 3
_SCHEMA = """
CREATE TABLE IF NOT EXISTS contents (
    id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, is_whole INTEGER NOT NULL DEFAULT 0,
    notes TEXT NOT NULL DEFAULT '[]', readers TEXT
);
CREATE TABLE IF NOT EXISTS files (
    key TEXT PRIMARY KEY, state TEXT NOT NULL, hash TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, content INTEGER NOT NULL, position INTEGER NOT NULL,
    first_document INTEGER NOT NULL, first_passage INTEGER NOT NULL, passages INTEGER NOT NULL,
    unknown TEXT NOT NULL, checksum INTEGER NOT NULL, counts BLOB NOT NULL, texts BLOB NOT NULL,
    document_texts BLOB NOT NULL, spans BLOB NOT NULL, document_vectors BLOB NOT NULL,
    vectors BLOB NOT NULL, UNIQUE (content, position)
);
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL, metadata TEXT NOT NULL,
    pages TEXT
);
CREATE VIRTUAL TABLE IF NOT EXISTS words
    USING fts5(terms, content='', tokenize="ascii tokenchars '.'");
"""
_REMEDY = (
    "Make room on its disk, or name another folder for the cache with --cache_dir. A damaged file"
    " can be removed: the folder is then read again."
)
# Characters that are encoded together, and that a run of a table holds; a kill costs no more.
_CHARACTERS = 2_000_000
_CHARACTERS_WITH_LAYERS = 200_000
_MODULES_OF_READERS = ("pypdfium2", "mammoth")  # without which some files cannot be read
_DTYPES = {"spans": "<i4", "document_vectors": "<f2", "vectors": "<f4"}
# In FTS5's BM25: the weight of a word that half of the passages hold, or more; and k1.
_LEAST_WEIGHT = 1e-6
_K1 = 1.2


class _Waiting(NamedTuple):
    """Documents that wait to be encoded, with their file and the hash of the bytes it held."""

    file: SourceFile
    content: str
    run: DocumentRun


def open_store(
    source: str,
    model: SearchModel | NextLevelBertModel | None,
    reading: ReadingOptions | None = None,
    notes: Notes | None = None,
) -> Store:
    """Opens the store of a source: reads new and changed files, and forgets deleted ones.

    Args:
        source: a file, a folder or a pattern.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where the store is.
        notes: prints what was not read, but no line twice (default: prints all).

    Raises:
        DatabaseError: if the store cannot be written.
        ValueError: if no document can be read.
    """
    notes = notes or Notes()
    try:
        source = resolve_source(source)
        files = list_files(source, notes)
        store = Store(source, model, reading or ReadingOptions())
        store.update(files, notes)
    finally:
        notes.print()
    if not store.runs:
        raise ValueError("No document of the folder holds a word that the model can read.")
    return store


def _readers() -> str:
    """Returns which optional packages are installed, without which some files are left out."""
    return " ".join(filter(importlib.util.find_spec, _MODULES_OF_READERS))


class Store:
    """The documents, passages, words and vectors of a source's files, in a folder of the cache.

    What a store has read stays as it is while it is open, even if another process changes it.

    Attributes:
        model: the model of the search.
        recipe: how the vectors are made, as in a corpus.
        runs: the documents that hold a token, in the order of their files.
        passages: the number of passages, of which those of equal files count once.
        end: one more than the largest number of a passage.
        path: the database.

    Raises:
        DatabaseError: if the folder cannot be made.
    """

    def __init__(
        self, source: str, model: SearchModel | NextLevelBertModel | None, reading: ReadingOptions
    ) -> None:
        self.model = search_model(model)
        self.recipe = self.model.recipe(reading.splitter)
        self.runs = list[Run]()
        self._reading = reading
        self.passages = 0
        self.end = 1
        self._spreads = dict[str, int]()
        self._finished = set[str]()  # hashes of the contents that are stored
        columns = (reading.text_column, reading.id_column)
        encoder = (self.recipe["encoder"]["dtype"], self.model.vectors.fingerprint())
        self._source = os.path.abspath(source)
        settings = repr((self.recipe["chunking"], encoder, columns, os.fsencode(self._source)))
        key = hashlib.sha256(settings.encode())
        self.path = reading.cache_dir / STORES / key.hexdigest()[:32] / "store.sqlite3"
        with named_errors(self.path, _REMEDY):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds texts
            self._is_writable = os.access(self.path.parent, os.W_OK)
            self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        if not self._is_writable:
            # SQLite cannot lock a database in a folder that is read-only.
            address = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
            return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)

        if not self.path.exists():
            self.path.touch(mode=0o600)
        try:
            database = self._open_and_check()
        except sqlite3.DatabaseError as error:
            self._put_aside(error)
            database = self._open_and_check()
        weakref.finalize(self, close_whole, database, self.path)
        return database

    def _put_aside(self, error: sqlite3.DatabaseError) -> None:
        """Renames a database that is damaged, and removes SQLite's files beside it.

        Raises:
            sqlite3.OperationalError: another error, such as that of a full disk.
        """
        # Python gives no code to the error about a text that is no UTF-8.
        if isinstance(error, sqlite3.OperationalError) and hasattr(error, "sqlite_errorcode"):
            raise error
        print(f"{self.path} is made again: {error}.", file=sys.stderr)
        os.replace(self.path, self.path.with_suffix(".damaged"))
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self.path.touch(mode=0o600)

    def _open_and_check(self) -> sqlite3.Connection:
        """Refuses a database of another version, or one that was changed and is damaged.

        Raises:
            sqlite3.DatabaseError: if the database cannot be used.
        """
        database = open_database(self.path, _SCHEMA)
        [(version,)] = database.execute("PRAGMA user_version")
        if version == 0:  # it is new
            name = self.recipe["encoder"]["name"]
            about = {"source": readable_name(self._source), "model": name}
            write_whole(self.path.with_name(ABOUT), json.dumps(about))
            database.execute(f"PRAGMA user_version = {_VERSION}")
            return database
        if version != _VERSION:
            raise sqlite3.DatabaseError(f"it has the format {version}, and not {_VERSION}")

        if was_left_whole(self.path):
            return database
        [(answer,)] = database.execute("PRAGMA quick_check(1)")
        [(unreadable,)] = database.execute("SELECT sum(NOT json_valid(notes)) FROM contents")
        if answer != "ok" or unreadable:
            raise sqlite3.DatabaseError(answer)
        with transaction(database):
            database.execute("INSERT INTO words(words) VALUES ('integrity-check')")
        for _, *values in database.execute("SELECT * FROM runs"):
            counts = values[7]
            documents = _documents(database, first=values[2], count=len(counts) // 8)
            if _checksum(values[:6], blobs=values[7:], documents=documents) != values[6]:
                raise sqlite3.DatabaseError("a checksum is wrong")
        return database

    def update(self, files: Sequence[SourceFile], notes: Notes) -> None:
        """Reads the files that are missing, forgets those that are gone, and lists the runs.

        Args:
            files: the files of the source.
            notes: gets notes about what was not read.

        Raises:
            DatabaseError: if the store cannot be written.
        """
        with named_errors(self.path, _REMEDY):
            try:
                self._update(files, notes)
            except sqlite3.DatabaseError as error:
                self._database.close()
                self._put_aside(error)
                self._database = self._open()
                self._update(files, notes)

    def _update(self, files: Sequence[SourceFile], notes: Notes) -> None:
        query = self._database.execute
        known = set(query("SELECT * FROM files"))
        states = {key: values for key, *values in known}
        readable = []
        for file in files:
            try:
                file.look(*states.get(file.key, ()))
            except ValueError as error:
                notes.add(file.name, [left_out(file, error)])
            else:
                readable.append(file)
        self._read_missing(readable)
        if self._is_writable:
            self._forget(readable)
            self._remember(readable, known)
        self._list_runs(readable, notes)

    def _list_runs(self, files: Sequence[SourceFile], notes: Notes) -> None:
        query = self._database.execute
        self.runs = []
        self._spreads = {}
        if query("PRAGMA journal_mode").fetchone() != ("delete",):
            query("BEGIN")  # what is read from now on stays as it is; a journal would block others
        sums = "ifnull(sum(passages), 0), ifnull(max(first_passage + passages), 1)"
        [(self.passages, self.end)] = query(f"SELECT {sums} FROM runs")
        runs = defaultdict[str, list[list[Any]]](list)
        columns = "hash, runs.id, first_document, first_passage, counts, texts, document_texts"
        tables = "contents JOIN runs ON content = contents.id"
        rows = f"SELECT {columns} FROM {tables} WHERE passages > 0 AND readers IS NULL"
        for content, *row in query(f"{rows} ORDER BY content, position"):
            runs[content].append(row)
        stored = dict(query("SELECT hash, notes FROM contents WHERE is_whole"))
        for file in files:
            notes.add(file.name, json.loads(stored[file.content]))
            for *numbers, counts, texts, document_texts in runs[file.content]:
                arrays = [np.frombuffer(blob, "<i8") for blob in (counts, texts, document_texts)]
                self.runs.append(Run(file, *numbers, *arrays))

    def _read_missing(self, files: Sequence[SourceFile]) -> None:
        """Reads the files that are not stored, or were left out when other readers were installed.

        Documents of many small files are encoded together, for speed.
        """
        query = "SELECT hash FROM contents WHERE is_whole AND readers IS NULL OR readers = ?"
        self._finished = {digest for (digest,) in self._database.execute(query, [_readers()])}
        missing = [file for file in files if file.content not in self._finished]
        if not missing:
            return
        from tqdm import tqdm  # a third of the time that numpy takes

        most = _CHARACTERS
        if self.model.vectors.has_layers:
            most = _CHARACTERS_WITH_LAYERS
        waiting = []
        characters = 0
        with transaction(self._database):  # others wait, and then find what was read
            # No bar in a log file.
            for file in tqdm(missing, unit="file", disable=None, delay=1):
                for item in self._missing_runs(file, most):
                    waiting.append(item)
                    characters += sum(len(document.text) for document in item.run.documents)
                    if characters >= most:
                        self._write_readable(waiting)
                        self._database.execute("COMMIT")
                        begin(self._database)
                        waiting = []
                        characters = 0
            self._write_readable(waiting)

    def _missing_runs(self, file: SourceFile, characters: int) -> Iterator[_Waiting]:
        """Reads the documents that are not stored yet."""
        if self._stored_runs(file.content) is None:
            return
        try:
            for content, run in read_content(file, self._reading, characters):
                stored = self._stored_runs(content)
                if stored is None:
                    return
                if not run.documents:
                    self._leave_out(content, run.notes, _readers())
                elif run.index not in stored:
                    yield _Waiting(file, content=content, run=run)
        except ValueError as error:  # the file went away, before it was opened or after that
            self._leave_out(file.content, [left_out(file, error)], "none")
        else:
            self._finished.add(file.content)

    def _stored_runs(self, content: str) -> set[int] | None:
        """Returns the positions of the runs of a content that are stored; None if it is finished.

        Another process may have read it meanwhile.
        """
        query = (
            "SELECT is_whole AND readers IS NULL, position FROM contents"
            " LEFT JOIN runs ON content = contents.id WHERE hash = ?"
        )
        rows = self._database.execute(query, [content]).fetchall()
        if content in self._finished or (1, 0) in rows:
            return None
        return {position for _, position in rows}

    def _leave_out(self, content: str, notes: Sequence[Note], readers: str) -> None:
        """Stores why a content is left out; it is read again if other readers are installed.

        Args:
            content: the hash of its bytes.
            notes: the reasons.
            readers: the readers that are installed; "none" if it is to be read next time.
        """
        for number in self._numbers("SELECT id FROM contents WHERE hash = ?", content):
            self._delete_content(number)
        self._database.execute(
            "INSERT INTO contents (hash, is_whole, notes, readers) VALUES (?, 1, ?, ?)",
            [content, json.dumps(notes), readers],
        )
        self._finished.add(content)

    def _numbers(self, query: str, *values: int | str) -> list[int]:
        """Returns the first column of a query."""
        return [number for number, *_ in self._database.execute(query, values)]

    def _write_readable(self, waiting: Sequence[_Waiting]) -> None:
        """Encodes documents together, or if that fails file by file to find those that fail."""
        try:
            self._write(waiting)
        except (ValueError, TypeError):
            for item in waiting:
                try:
                    self._write([item])
                except (ValueError, TypeError) as error:
                    self._leave_out(item.content, [left_out(item.file, error)], _readers())

    def _write(self, waiting: Sequence[_Waiting]) -> None:
        """Encodes the documents of several runs together, and stores each run.

        Raises:
            ValueError: or TypeError, if a document cannot be encoded; then nothing is stored.
        """
        documents = [document for item in waiting for document in item.run.documents]
        if not documents:
            return
        texts = [document.text for document in documents]
        with warnings.catch_warnings():  # `notes_on_words` names the files
            warnings.filterwarnings("ignore", ".* (no token|unknown tokens only)")
            encoded = self.model.vectors.encode(texts, self._reading.splitter)
        vectors = self.model.vectors.search_vectors(encoded.plain)
        passages = borders_of_passages(texts, encoded.spans)
        spans = np.concatenate([np.concatenate(encoded.spans), passages], axis=1)  # [N, 4]
        starts = np.cumsum([0, *map(len, encoded.spans)])

        first = 0
        for file, content, run in waiting:
            stop = first + len(run.documents)
            rows = slice(starts[first], starts[stop])
            counts = np.diff(starts[first : stop + 1])
            arrays = (counts, spans[rows], encoded.documents[first:stop], vectors[rows])
            self._database.execute("INSERT OR IGNORE INTO contents (hash) VALUES (?)", [content])
            [number] = self._numbers("SELECT id FROM contents WHERE hash = ?", content)
            self._write_run(number, run, file.is_table, arrays)
            first = stop
            if run.is_last:
                self._finish(file, number, run.notes)

    def _write_run(
        self, content: int, run: DocumentRun, is_table: bool, arrays: Sequence[np.ndarray]
    ) -> None:
        """Stores the documents of a run that hold a token, with their arrays."""
        all_counts, spans, document_vectors, vectors = arrays
        has_token = all_counts > 0
        counts = all_counts[has_token]
        documents = list(compress(run.documents, has_token))
        [first_document] = self._numbers("SELECT ifnull(max(id), 0) + 1 FROM documents")
        [first_passage] = self._numbers("SELECT ifnull(max(first_passage + passages), 1) FROM runs")
        rows = [StoredDocument.of(document, is_table=is_table) for document in documents]
        document_texts = [document.text for document in documents]
        texts = passage_texts(document_texts, counts, spans[:, 2:])
        blobs = [
            counts.tobytes(),
            numbers_of_texts(texts),
            numbers_of_texts(document_texts),
            spans.astype("<i4").tobytes(),
            # No score depends on these, which take half of their bytes in float16.
            document_vectors[has_token].astype("<f2").tobytes(),
            vectors.tobytes(),
        ]
        unknown = count_unknown(self.model.vectors.tokenizer, run.documents)
        head = [content, run.index, first_document, first_passage, len(spans), json.dumps(unknown)]
        values = [*head, _checksum(head, blobs, rows), *blobs]
        query = self._database.executemany
        query(f"INSERT INTO runs VALUES (NULL{', ?' * len(values)})", [values])
        numbered = [(number, *row) for number, row in enumerate(rows, first_document)]
        query("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", numbered)
        words = enumerate(map(" ".join, map(search_words, texts)), first_passage)
        query("INSERT INTO words(rowid, terms) VALUES (?, ?)", words)

    def _finish(self, file: SourceFile, content: int, notes: Sequence[Note]) -> None:
        """Marks a content as whole, with the notes about all its runs."""
        query = self._database.execute
        rows = query("SELECT unknown FROM runs WHERE content = ?", [content])
        counts = [json.loads(unknown) for (unknown,) in rows]
        stored = json.dumps([*notes, *notes_on_words(file, counts)])
        columns = "is_whole = 1, readers = NULL, notes = ?"
        query(f"UPDATE contents SET {columns} WHERE id = ?", [stored, content])

    def _forget(self, files: Sequence[SourceFile]) -> None:
        """Removes the contents that no file has any more."""
        current = {file.content for file in files}
        rows = self._database.execute("SELECT id, hash FROM contents").fetchall()
        gone = [number for number, content in rows if content not in current]
        if gone:
            with transaction(self._database):
                for number in gone:
                    self._delete_content(number)

    def _delete_content(self, content: int) -> None:
        query = self._database.execute
        columns = "first_document, first_passage, counts, spans"
        runs = query(f"SELECT {columns} FROM runs WHERE content = ?", [content]).fetchall()
        for first_document, first_passage, counts, spans in runs:
            numbers = np.frombuffer(counts, "<i8")
            documents = _documents(self._database, first_document, len(numbers))
            texts = [document.text for document in documents]
            borders = np.frombuffer(spans, "<i4").reshape(-1, 4)[:, 2:]
            passages = passage_texts(texts, numbers, borders)
            words = enumerate(map(" ".join, map(search_words, passages)), first_passage)
            # An index without its texts has to be told which words a passage has.
            self._database.executemany(
                "INSERT INTO words(words, rowid, terms) VALUES ('delete', ?, ?)", words
            )
            between = [first_document, first_document + len(numbers) - 1]
            query("DELETE FROM documents WHERE id BETWEEN ? AND ?", between)
        query("DELETE FROM runs WHERE content = ?", [content])
        query("DELETE FROM contents WHERE id = ?", [content])

    def _remember(self, files: Sequence[SourceFile], known: Set[tuple[str, str, str]]) -> None:
        """Stores what files hold, if the next change to them will be seen, and forgets others."""
        states = set[tuple[str, str, str]]()
        for file in files:
            if file.state:
                states.add((file.key, file.state, file.content))
        if states != known:
            with transaction(self._database):
                query = self._database.executemany
                query("DELETE FROM files WHERE key = ? AND state = ? AND hash = ?", known - states)
                query("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", states - known)

    def query(self, query: str, *values: int | str) -> list[tuple[Any, ...]]:
        """Reads rows of the tables.

        Raises:
            DatabaseError: if the database is damaged.
        """
        with named_errors(self.path, _REMEDY):
            return self._database.execute(query, values).fetchall()

    def passages_with(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        """Finds the passages that hold a word, by FTS5.

        Returns:
            The numbers of the passages, and how often each holds the word, between 0 and 1, as BM25
            weighs it beside the length of the passage.
        """
        query = "SELECT rowid, bm25(words) FROM words WHERE words MATCH ?"
        rows = self.query(query, f'"{word}"')
        values = np.fromiter(chain.from_iterable(rows), np.float64, 2 * len(rows))
        numbers, scores = values.reshape(-1, 2).T
        odds = (self.passages - len(rows) + 0.5) / (len(rows) + 0.5)
        weight = max(math.log(odds), 0) or _LEAST_WEIGHT
        return numbers.astype(np.int64), -scores / (weight * (_K1 + 1))

    def spread_of(self, word: str) -> int:
        """Counts the passages that hold a word, once for each word."""
        if word not in self._spreads:
            query = "SELECT count(*) FROM words WHERE words MATCH ?"
            [(self._spreads[word],)] = self.query(query, f'"{word}"')
        return self._spreads[word]

    def array(self, column: str, run: Run) -> np.ndarray:
        """Reads an array of a run, with a row for each document or passage.

        Args:
            column: ``"document_vectors"`` ``[n, H]``, ``"vectors"`` ``[N, D]``, or ``"spans"``: the
                characters of chunks and of passages in their documents, ``[N, 4]``.
            run: the run.
        """
        [(values,)] = self.query(f"SELECT {column} FROM runs WHERE id = ?", run.id)
        rows = len(run.texts)
        if column == "document_vectors":
            rows = len(run.counts)
        return np.frombuffer(values, _DTYPES[column]).reshape(rows, -1)

    def vectors(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yields each run's first passage and the values of its passages' vectors, ``[N * D]``."""
        with named_errors(self.path, _REMEDY):
            for first, values in self._database.execute("SELECT first_passage, vectors FROM runs"):
                yield first, np.frombuffer(values, _DTYPES["vectors"])

    def names(self, run: Run) -> list[str]:
        """Reads the printed names of a run's documents."""
        query = "SELECT name FROM documents WHERE id >= ? ORDER BY id LIMIT ?"
        rows = self.query(query, run.first_document, len(run.counts))
        return [run.file.name_of(name) for (name,) in rows]

    def documents(self, run: Run, start: int, count: int) -> list[StoredDocument]:
        """Reads documents of a run, with their printed names."""
        documents = _documents(self._database, run.first_document + start, count)
        return [document._replace(name=run.file.name_of(document.name)) for document in documents]


def _documents(database: sqlite3.Connection, first: int, count: int) -> list[StoredDocument]:
    query = "SELECT name, text, metadata, pages FROM documents WHERE id >= ? ORDER BY id LIMIT ?"
    rows = database.execute(query, [first, count])
    return [StoredDocument(*row) for row in rows]


def _checksum(head: Sequence[Any], blobs: Sequence[bytes], documents: Sequence[Any]) -> int:
    """Returns the CRC-32 of what is stored for a run."""
    return zlib.crc32(b"".join([repr([*head, *documents]).encode(), *blobs]))
