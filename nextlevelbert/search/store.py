"""What a search keeps of a folder, in one SQLite file: documents, passages, words and vectors.

A file is known by its path, size, times and inode, and its content by a hash of its bytes: a file
that has not changed is not read, a renamed file is not encoded again, and two equal files are kept
once. The documents of a file are stored in runs, each in one transaction, so that a command that is
killed loses at most the run that it was reading. A change costs what has changed.

=========  =========================================================================================
files      the state of each file when it was last hashed, and the hash of its bytes
contents   of each hash whose runs are stored, or that is left out: notes about reading the file
runs       arrays over the documents and passages of a run, see `Run`, and their vectors
documents  name, text and metadata; the number of a document is that of its first passage
words      FTS5's index of `search_words` of each passage; the passages of a run are consecutive
checksums  the checksum of each run and its documents, as the view `sums` computes it
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
from contextlib import ExitStack
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

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
from .passages import (
    Run,
    StoredDocument,
    borders_of_passages,
    numbers_of_texts,
    passage_texts,
    readable_json,
)
from .reading import (
    DocumentRun,
    ReadingOptions,
    SourceFile,
    count_unknown,
    list_files,
    note_on_error,
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
_VERSION = 4
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    key TEXT PRIMARY KEY, state TEXT NOT NULL, hash TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contents (
    hash TEXT PRIMARY KEY, readers TEXT NOT NULL, notes TEXT NOT NULL CHECK (json_valid(notes))
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    first_passage INTEGER PRIMARY KEY, hash TEXT NOT NULL, position INTEGER NOT NULL,
    unknown TEXT NOT NULL, counts BLOB NOT NULL, texts BLOB NOT NULL, document_texts BLOB NOT NULL,
    spans BLOB NOT NULL, document_vectors BLOB NOT NULL, vectors BLOB NOT NULL,
    passages INTEGER AS (length(texts) / 8), UNIQUE (hash, position)
);
CREATE TABLE IF NOT EXISTS documents (
    first_passage INTEGER PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL,
    metadata TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS checksums (
    first_passage INTEGER PRIMARY KEY, checksum INTEGER NOT NULL
);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(terms, tokenize="ascii tokenchars '.'");
CREATE VIEW IF NOT EXISTS sums AS
    SELECT first_passage, crc32(CAST(
        hash || position || unknown || counts || texts || document_texts || spans
        || document_vectors || vectors AS BLOB
    )) + (
        SELECT total(crc32(CAST(name || text || metadata AS BLOB))) FROM documents
        WHERE documents.first_passage
            BETWEEN runs.first_passage AND runs.first_passage + passages - 1
    ) FROM runs;
CREATE TRIGGER IF NOT EXISTS forget_run AFTER DELETE ON runs BEGIN
    DELETE FROM documents
        WHERE first_passage BETWEEN old.first_passage AND old.first_passage + old.passages - 1;
    DELETE FROM words
        WHERE rowid BETWEEN old.first_passage AND old.first_passage + old.passages - 1;
    DELETE FROM checksums WHERE first_passage = old.first_passage;
END;
"""
_FAULTS = """
SELECT quick_check FROM pragma_quick_check(1) WHERE quick_check != 'ok'
UNION ALL SELECT 'a checksum is wrong' FROM (SELECT * FROM sums EXCEPT SELECT * FROM checksums)
"""
_NEXT_PASSAGE = """
SELECT ifnull(max(first_passage + max(passages, 1)), 1)
FROM (SELECT first_passage, passages FROM runs ORDER BY first_passage DESC LIMIT 1)
"""
_REMEDY = (
    "Make room on its disk, or name another folder for the cache with --cache_dir. A damaged file"
    " can be removed: the folder is then read again."
)
# Characters that are encoded together, and that a run of a table holds; a kill costs no more.
_CHARACTERS = 2_000_000
_CHARACTERS_WITH_LAYERS = 200_000
# The notes about a file that another command, which saw a later state of it, has forgotten.
_FORGOTTEN = json.dumps([Note("left out", " has changed meanwhile. Run the command again.")])
_MODULES_OF_READERS = ("pypdfium2", "mammoth")  # without which some files cannot be read
_DTYPES = {"spans": "<i4", "document_vectors": "<f2", "vectors": "<f4"}
# In FTS5's BM25: the weight of a word that half of the passages hold, or more; and k1.
_LEAST_WEIGHT = 1e-6
_K1 = 1.2


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
        files = list_files(source, notes)
        store = Store(resolve_source(source), model, reading or ReadingOptions())
        store.update(files, notes)
    finally:
        notes.print()
    if not store.runs:
        raise ValueError("No document of the folder holds a word that the model can read.")
    return store


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
    """

    _database: sqlite3.Connection
    _is_writable: bool

    def __init__(
        self, source: str, model: SearchModel | NextLevelBertModel | None, reading: ReadingOptions
    ) -> None:
        self.model = search_model(model)
        self.recipe = self.model.recipe(reading.splitter)
        self.runs = list[Run]()
        self.passages = 0
        self.end = 1
        self._reading = reading
        self._readers = " ".join(filter(importlib.util.find_spec, _MODULES_OF_READERS))
        self._spreads = dict[str, int]()
        columns = (reading.text_column, reading.id_column)
        encoder = (self.recipe["encoder"]["dtype"], self.model.vectors.fingerprint())
        self._source = os.path.abspath(source)
        settings = repr((self.recipe["chunking"], encoder, columns, os.fsencode(self._source)))
        key = hashlib.sha256(settings.encode())
        self.path = reading.cache_dir / STORES / key.hexdigest()[:32] / "store.sqlite3"
        self._connections = ExitStack()
        weakref.finalize(self, self._connections.close)

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
                self._put_aside(error)
                self._update(files, notes)

    def _update(self, files: Sequence[SourceFile], notes: Notes) -> None:
        self._open()
        known = set(self._database.execute("SELECT * FROM files"))
        states = {key: values for key, *values in known}
        readable = []
        for file in files:
            try:
                file.look(*states.get(file.key, ()))
            except ValueError as error:
                notes.add(file.name, [note_on_error(file, error)])
            else:
                readable.append(file)
        if self._is_writable:
            self._remember(readable, known)
        self._read_missing(readable)
        self._list_runs(readable, notes)

    def _open(self) -> None:
        """Opens the database, which is made if need be.

        Raises:
            sqlite3.DatabaseError: if the database cannot be used.
        """
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds texts
        self._is_writable = os.access(folder, os.W_OK)
        if not self._is_writable:
            # SQLite cannot lock a database in a folder that is read-only.
            address = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
            self._database = sqlite3.connect(
                address, uri=True, isolation_level=None, check_same_thread=False
            )
            return

        if not self.path.exists():
            self.path.touch(mode=0o600)
        self._database = open_database(self.path, _SCHEMA)
        self._connections.callback(self._database.close)
        self._database.create_function("crc32", 1, zlib.crc32, deterministic=True)
        self._check()
        self._connections.callback(close_whole, self._database, self.path)

    def _check(self) -> None:
        """Refuses a database of another version, or one that was changed and is damaged.

        Raises:
            sqlite3.DatabaseError: if the database cannot be used.
        """
        query = self._database.execute
        [(version,)] = query("PRAGMA user_version")
        if version == 0:  # it is new
            name = self.recipe["encoder"]["name"]
            about = {"source": readable_name(self._source), "model": name}
            write_whole(self.path.with_name(ABOUT), json.dumps(about))
            query(f"PRAGMA user_version = {_VERSION}")
        elif version != _VERSION:
            raise sqlite3.DatabaseError(f"it has the format {version}, and not {_VERSION}")
        elif not was_left_whole(self.path):
            with transaction(self._database):
                query("INSERT INTO words(words) VALUES ('integrity-check')")
            for (fault,) in query(_FAULTS):
                raise sqlite3.DatabaseError(fault)

    def _put_aside(self, error: sqlite3.DatabaseError) -> None:
        """Renames a database that is damaged, and removes SQLite's files beside it.

        Raises:
            sqlite3.OperationalError: another error, such as that of a full disk.
        """
        # Python gives no code to the error about a text that is no UTF-8. A table that is missing,
        # or of which FTS5 can make nothing, has the code of no other error.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        is_damage = code == sqlite3.SQLITE_ERROR and "no such module" not in str(error)
        if isinstance(error, sqlite3.OperationalError) and not is_damage:
            raise error
        print(f"{self.path} is made again: {error}.", file=sys.stderr)
        self._connections.close()
        os.replace(self.path, self.path.with_suffix(".damaged"))
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _remember(self, files: Sequence[SourceFile], known: Set[tuple[str, str, str]]) -> None:
        """Stores what files hold, and removes what no file holds any more."""
        current = {(file.key, file.state, file.content) for file in files}
        if current == known:
            return
        with transaction(self._database):
            query = self._database.executemany
            query("DELETE FROM files WHERE (key, state, hash) = (?, ?, ?)", known - current)
            query("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", current - known)
            for table in ("contents", "runs"):
                gone = f"DELETE FROM {table} WHERE hash NOT IN (SELECT hash FROM files)"
                self._database.execute(gone)

    def _read_missing(self, files: Sequence[SourceFile]) -> None:
        """Reads the files that are not stored, or were left out when other readers were installed.

        Documents of many small files are encoded together, for speed.
        """
        query = "SELECT hash FROM contents WHERE readers IN ('any', ?)"
        stored = {content for (content,) in self._database.execute(query, [self._readers])}
        missing = {file.content: file for file in files if file.content not in stored}
        if not missing:
            return
        from tqdm import tqdm  # a third of the time that numpy takes

        most = _CHARACTERS
        if self.model.vectors.has_layers:
            most = _CHARACTERS_WITH_LAYERS
        waiting = dict[tuple[str, int], DocumentRun]()
        characters = 0
        # Others wait, and then find what was read. No bar in a log file.
        bar = tqdm(missing.values(), unit="file", disable=None, delay=1)
        with transaction(self._database), bar:
            for file in bar:
                for run in self._missing_runs(file, most):
                    waiting[run.content, run.position] = run
                    characters += sum(len(document.text) for document in run.documents)
                    if characters >= most:
                        self._write([*waiting.values()])
                        self._database.execute("COMMIT")
                        begin(self._database)
                        waiting = {}
                        characters = 0
            self._write([*waiting.values()])

    def _missing_runs(self, file: SourceFile, characters: int) -> Iterator[DocumentRun]:
        """Reads the documents that are not stored yet."""
        if self._is_stored(file.content):
            return
        try:
            for run in read_content(file, self._reading, characters):
                if not run.documents:
                    self._finish(run.content, run.notes, self._readers)
                elif not self._is_stored(run.content, run.position):
                    yield run
        except ValueError as error:  # the file went away, before it was opened or after that
            self._finish(file.content, [note_on_error(file, error)], "none")

    def _is_stored(self, content: str, position: int | None = None) -> bool:
        """Returns whether a content is stored, or else its run at a position.

        Another process may have read it meanwhile.
        """
        query = (
            "SELECT 1 FROM contents WHERE hash = ?1 AND readers IN ('any', ?2)"
            " UNION ALL SELECT 1 FROM runs WHERE hash = ?1 AND position = ?3"
        )
        rows = self._database.execute(query, [content, self._readers, position])
        return rows.fetchone() is not None

    def _write(self, runs: Sequence[DocumentRun]) -> None:
        """Encodes runs together, or if that fails one by one to find those that fail."""
        try:
            self._encode(runs)
        except (ValueError, TypeError) as error:
            for run in runs:
                if len(runs) > 1:
                    self._write([run])
                else:
                    self._finish(run.content, [note_on_error(run.file, error)], self._readers)

    def _encode(self, runs: Sequence[DocumentRun]) -> None:
        """Encodes the documents of several runs together, and stores each run.

        Raises:
            ValueError: or TypeError, if a document cannot be encoded; then nothing is stored.
        """
        texts = [document.text for run in runs for document in run.documents]
        if not texts:
            return
        with warnings.catch_warnings():  # `notes_on_words` names the files
            warnings.filterwarnings("ignore", ".* (no token|unknown tokens only)")
            encoded = self.model.vectors.encode(texts, self._reading.splitter)
        vectors = self.model.vectors.search_vectors(encoded.plain)
        passages = borders_of_passages(texts, encoded.spans)
        spans = np.concatenate([np.concatenate(encoded.spans), passages], axis=1)  # [N, 4]
        counts = np.array(list(map(len, encoded.spans)), np.int64)

        documents = np.cumsum([len(run.documents) for run in runs])[:-1]  # before each further run
        passages_before = np.cumsum(counts)[documents - 1]
        arrays = zip(
            np.split(counts, documents),
            np.split(spans, passages_before),
            np.split(encoded.documents, documents),
            np.split(vectors, passages_before),
            strict=True,
        )
        for run, values in zip(runs, arrays, strict=True):
            self._write_run(run, *values)

    def _write_run(
        self,
        run: DocumentRun,
        counts: np.ndarray,
        spans: np.ndarray,
        document_vectors: np.ndarray,
        vectors: np.ndarray,
    ) -> None:
        """Stores the documents of a run that hold a token, with their arrays."""
        has_token = counts > 0
        counts = counts[has_token]
        documents = list(compress(run.documents, has_token))
        texts = [document.text for document in documents]
        passages = passage_texts(texts, counts, spans[:, 2:])
        unknown = count_unknown(self.model.vectors.tokenizer, run.documents)
        [(first,)] = self._database.execute(_NEXT_PASSAGE)
        values = [
            first,
            run.content,
            run.position,
            json.dumps(unknown),
            counts,
            numbers_of_texts(passages),
            numbers_of_texts(texts),
            spans.astype("<i4"),
            # No score depends on these, which take half of their bytes in float16.
            document_vectors[has_token].astype("<f2"),
            vectors,
        ]
        query = self._database.execute
        query("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        numbers = first + np.cumsum(counts) - counts
        names = [readable_name(document.id) for document in documents]
        metadata = [readable_json(dict(document.metadata)) for document in documents]
        rows = zip(numbers.tolist(), names, texts, metadata, strict=True)
        query_rows = self._database.executemany
        query_rows("INSERT INTO documents VALUES (?, ?, ?, ?)", rows)
        words = enumerate(map(" ".join, map(search_words, passages)), first)
        query_rows("INSERT INTO words(rowid, terms) VALUES (?, ?)", words)
        query("INSERT INTO checksums SELECT * FROM sums WHERE first_passage = ?", [first])
        if run.is_last:
            of_runs = "SELECT json_group_array(json(unknown)) FROM runs WHERE hash = ?"
            [(unknown,)] = query(of_runs, [run.content])
            notes = [*run.notes, *notes_on_words(run.file, json.loads(unknown))]
            self._finish(run.content, notes, "any")

    def _finish(self, content: str, notes: Sequence[Note], readers: str) -> None:
        """Stores the notes about a content that was read to its end, or is left out.

        Args:
            content: the hash of its bytes.
            notes: the notes.
            readers: "any" if all its runs are stored; or the readers that are installed, without
                which it is read again; or "none" if it is to be read next time.
        """
        query = self._database.execute
        if readers != "any":
            query("DELETE FROM runs WHERE hash = ?", [content])
        values = [content, readers, json.dumps(notes)]
        query("INSERT OR REPLACE INTO contents VALUES (?, ?, ?)", values)

    def _list_runs(self, files: Sequence[SourceFile], notes: Notes) -> None:
        query = self._database.execute
        self.runs = []
        self._spreads = {}
        if query("PRAGMA journal_mode").fetchone() != ("delete",):
            query("BEGIN")  # what is read from now on stays as it is; a journal would block others
        [(self.passages,)] = query("SELECT ifnull(sum(passages), 0) FROM runs")
        [(self.end,)] = query(_NEXT_PASSAGE)
        runs = defaultdict[str, list[list[Any]]](list)
        columns = "hash, first_passage, counts, texts, document_texts"
        rows = f"SELECT {columns} FROM runs JOIN contents USING (hash)"
        for content, *row in query(f"{rows} WHERE readers = 'any' AND passages > 0 ORDER BY 2"):
            runs[content].append(row)
        stored = dict(query("SELECT hash, notes FROM contents"))
        for file in files:
            notes.add(file.name, json.loads(stored.get(file.content, _FORGOTTEN)))
            for first, *blobs in runs[file.content]:
                self.runs.append(Run(file, first, *(np.frombuffer(blob, "<i8") for blob in blobs)))

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
        weight = max(math.log(self.odds(np.array(len(rows)))), 0) or _LEAST_WEIGHT
        return numbers.astype(np.int64), -scores / (weight * (_K1 + 1))

    def odds(self, spread: np.ndarray) -> np.ndarray:
        """Returns the odds of words not to be in a passage, from the numbers that hold them."""
        return (self.passages - spread + 0.5) / (spread + 0.5)

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
        query = f"SELECT {column} FROM runs WHERE first_passage = ?"
        [(values,)] = self.query(query, run.first_passage)
        rows = len(run.texts)
        if column == "document_vectors":
            rows = len(run.counts)
        return np.frombuffer(values, _DTYPES[column]).reshape(rows, -1)

    def vectors(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yields each run's first passage and the values of its passages' vectors, ``[N * D]``."""
        with named_errors(self.path, _REMEDY):
            for first, values in self._database.execute("SELECT first_passage, vectors FROM runs"):
                yield first, np.frombuffer(values, _DTYPES["vectors"])

    def documents(self, file: SourceFile, first: int, count: int) -> list[StoredDocument]:
        """Reads documents of a file.

        Args:
            file: the file.
            first: the number of their first passage.
            count: the number of their passages.
        """
        query = "SELECT name, text, metadata FROM documents WHERE first_passage BETWEEN ? AND ?"
        rows = self.query(f"{query} ORDER BY first_passage", first, first + count - 1)
        return [StoredDocument.of(file, *row) for row in rows]
