"""SQLite files: opened by several processes, written whole or not at all."""

import sqlite3

import pytest

from nextlevelbert import databases
from nextlevelbert.databases import named_errors, open_database, transaction

SCHEMA = "CREATE TABLE IF NOT EXISTS numbers (number INTEGER);"


def test_a_transaction_that_fails_writes_nothing(tmp_path):
    database = open_database(tmp_path / "a.sqlite3", SCHEMA)
    with transaction(database):
        database.execute("INSERT INTO numbers VALUES (1)")

    def numbers():
        yield (2,)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), transaction(database):
        database.executemany("INSERT INTO numbers VALUES (?)", numbers())

    assert database.execute("SELECT number FROM numbers").fetchall() == [(1,)]
    assert not database.in_transaction


def test_a_reader_sees_what_was_there_when_it_began(tmp_path):
    writer = open_database(tmp_path / "a.sqlite3", SCHEMA)
    reader = open_database(tmp_path / "a.sqlite3", SCHEMA)
    reader.execute("BEGIN")
    before = reader.execute("SELECT number FROM numbers").fetchall()

    with transaction(writer):
        writer.execute("INSERT INTO numbers VALUES (1)")

    assert reader.execute("SELECT number FROM numbers").fetchall() == before == []


def test_a_writer_says_after_a_second_that_it_waits(tmp_path, monkeypatch):
    first = open_database(tmp_path / "a.sqlite3", SCHEMA)
    second = open_database(tmp_path / "a.sqlite3", SCHEMA)
    monkeypatch.setattr(databases, "_PATIENCE", 10)
    said = []

    def end_the_first(line, **_):
        said.append(line)
        first.execute("ROLLBACK")

    monkeypatch.setattr(databases, "print", end_the_first, raising=False)
    databases.begin(first)

    with transaction(second):
        second.execute("INSERT INTO numbers VALUES (1)")

    assert said == ["Waiting for another command that writes the same file."]


def test_errors_name_the_file_and_what_to_do(tmp_path):
    path = tmp_path / "a.sqlite3"
    path.write_bytes(b"no database" * 500)

    with (
        pytest.raises(OSError, match=r"a\.sqlite3 cannot be used: file is not a database\. Do it"),
        named_errors(path, "Do it."),
    ):
        open_database(path, SCHEMA)


def test_an_error_that_names_fts5_says_which_python_has_it(tmp_path):
    with pytest.raises(OSError, match="was built without FTS5"), named_errors(tmp_path, "Do it."):
        raise sqlite3.OperationalError("no such module: fts5")
