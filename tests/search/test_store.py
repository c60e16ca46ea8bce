"""A store that is brought up to date: what is read, kept, forgotten and left out."""

import os
import re
import resource
import shutil
import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from nextlevelbert import NextLevelBertModel, databases, static_checkpoint
from nextlevelbert.search import reading as reading_of_files
from nextlevelbert.search import store
from nextlevelbert.search.passages import readable_json
from nextlevelbert.search.reading import SourceFile
from nextlevelbert.search.store import Store, open_store

from ..toys.finetuning import write
from .conftest import COURT, KITCHEN, SEA

QUESTION = "Who hunts a whale?"
ROWS = 12
ROWS_OF_A_RUN = 3


@pytest.fixture
def table(tmp_path, monkeypatch) -> Path:
    """A table of which three rows fill a run."""
    texts = [f"Note {index:02} about the sea. " * 4 for index in range(ROWS)]
    rows = []
    for index, text in enumerate(texts):
        rows.append({"id": f"note {index % 10}", "text": text})
    monkeypatch.setattr(store, "_CHARACTERS_WITH_LAYERS", 250)
    (tmp_path / "docs").mkdir()
    return Path(write(tmp_path / "docs" / "notes.jsonl", rows))


def database_of(folder: Path) -> Path:
    [path] = folder.rglob("store.sqlite3")
    return path


def test_only_what_is_new_or_changed_is_encoded(toy, books, open_library, encoded, tmp_path):
    open_library(toy, books)
    assert encoded == [COURT, KITCHEN, SEA]
    encoded.clear()
    open_library(toy, books)
    assert encoded == []
    (books / "new.txt").write_text("A new one, about the moon.")
    (books / "sea.txt").write_text(SEA + "The end.")
    (books / "kitchen.txt").rename(books / "bakery.txt")
    (books / "far" / "court.txt").unlink()

    library = open_library(toy, books)

    assert encoded == ["A new one, about the moon.", SEA + "The end."]
    assert library.names == ["bakery.txt", "new.txt", "sea.txt"]
    with sqlite3.connect(database_of(tmp_path)) as database:
        [(contents,)] = database.execute("SELECT count(*) FROM contents")
        [(documents,)] = database.execute("SELECT count(*) FROM documents")
    assert contents == documents == 3  # what is gone is forgotten


def test_two_commands_may_find_the_same_new_files(toy, books, open_library, monkeypatch, capsys):
    monkeypatch.setattr(reading_of_files, "_COARSEST_TIME", 0)  # their state is stored
    look = SourceFile.look
    others = []

    def look_after_another_command(file, *known):
        if not others:
            others.append(None)
            others[0] = open_library(toy, books)
        look(file, *known)

    monkeypatch.setattr(SourceFile, "look", look_after_another_command)

    library = open_library(toy, books)

    assert library.names == others[0].names == ["far/court.txt", "kitchen.txt", "sea.txt"]
    assert "is made again" not in capsys.readouterr().err


def test_what_another_command_forgets_meanwhile_is_left_out(
    toy, books, open_library, monkeypatch, capsys
):
    """It has seen that the file is gone."""
    list_runs = Store._list_runs
    others = []

    def list_after_another_command(store, files, notes):
        if not others:
            others.append(None)
            (books / "kitchen.txt").unlink()
            others[0] = open_library(toy, books)
        list_runs(store, files, notes)

    monkeypatch.setattr(Store, "_list_runs", list_after_another_command)

    library = open_library(toy, books)

    assert library.names == others[0].names == ["far/court.txt", "sea.txt"]
    assert "left out: kitchen.txt has changed meanwhile." in capsys.readouterr().err


def test_a_store_that_was_changed_answers_as_a_new_one(toy, books, open_library, reading):
    """Whatever was added and removed before: words, vectors, order and copies."""
    open_library(toy, books)
    for name in ("a", "z"):
        (books / f"{name}.txt").write_text(f"The captain {name} hunts moths. " * 9)
    open_library(toy, books)
    (books / "kitchen.txt").unlink()
    (books / "a.txt").write_text(SEA)
    changed = open_library(toy, books)
    shutil.rmtree(reading.cache_dir)

    new = open_library(toy, books)

    for question in (QUESTION, "the captain", "flour", "moths z"):
        one = changed.ask(question)
        other = new.ask(question)
        np.testing.assert_array_equal(one.bm25, other.bm25)
        np.testing.assert_allclose(one.score, other.score, atol=1e-6)
        assert one.passages == other.passages
        assert changed.question_note(question) == new.question_note(question)
    assert changed.names == new.names == ["a.txt", "far/court.txt", "sea.txt", "z.txt"]
    assert changed.copies_of_document(0) == ["sea.txt"]


def test_a_content_belongs_to_a_column_and_to_a_kind_of_file(command, tmp_path):
    table = tmp_path / "docs" / "a.csv"
    table.parent.mkdir()
    table.write_text("text,body\nThe whale.,The baker.\n")
    words = ("search", table.parent, "whale", "--json")
    [row] = command(*words).json["passages"]

    assert row["text"] == "The whale."

    [row] = command(*words, "--text_column", "body").json["passages"]

    assert row["text"] == "The baker."

    table.rename(table.with_suffix(".txt"))
    [row] = command(*words).json["documents"]

    assert (row["place"], row["characters"]) == ("a.txt", 32)


@torch.no_grad()
def test_another_model_has_another_store(toy, books, reading, encoded, toy_checkpoint):
    first = open_store(str(books), toy, reading)
    other = NextLevelBertModel.from_pretrained(toy_checkpoint)
    encoded.clear()
    open_store(str(books), other, reading)

    assert encoded == []  # the same weights

    other.special_embeddings.weight *= -3
    second = open_store(str(books), other, reading)

    assert len(encoded) == 3
    for run, run_of_other in zip(first.runs, second.runs, strict=True):
        vectors = [first.array("document_vectors", run)]
        vectors.append(second.array("document_vectors", run_of_other))
        assert not np.allclose(*vectors)
        np.testing.assert_array_equal(
            first.array("vectors", run), second.array("vectors", run_of_other)
        )


def test_texts_are_for_their_owner_only(toy, books, open_library, tmp_path):
    open_library(toy, books)

    path = database_of(tmp_path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("places", [5, pytest.param(150, marks=pytest.mark.long)])
def test_a_store_that_is_damaged_is_made_again_at_once(
    toy, books, open_library, tmp_path, capsys, places
):
    """Wherever a bit is changed, and wherever the file ends: what is damaged is never shown."""
    source = books / "sea.txt"  # alone, because texts that are encoded together differ by an ulp
    right = open_library(toy, source).ask(QUESTION)
    path = database_of(tmp_path)
    content = path.read_bytes()
    for number in range(places):
        place = len(content) * number // places
        damaged = bytearray(content)
        damaged[place] ^= 1 << number % 8
        for data in (damaged, content[:place]):
            path.write_bytes(data)

            library = open_library(toy, source)

            answer = library.ask(QUESTION)
            np.testing.assert_allclose(answer.score, right.score, atol=1e-6, err_msg=f"{place}")
            assert library.document(0).text == SEA
            del library
    assert f"{path} is made again: " in capsys.readouterr().err
    assert path.with_suffix(".damaged").exists()


def test_a_store_that_was_closed_is_not_checked(toy, books, open_library, monkeypatch):
    """The check reads the whole file."""
    open_library(toy, books)
    monkeypatch.setattr(store, "_FAULTS", None)  # it would be asked

    again = open_library(toy, books)

    assert again.names == ["far/court.txt", "kitchen.txt", "sea.txt"]


def test_damage_while_a_store_is_open_is_named(toy, books, open_library, tmp_path, monkeypatch):
    library = open_library(toy, books)

    class Damaged:
        def execute(self, *_):
            raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(library._store, "_database", Damaged())
    with pytest.raises(
        OSError, match=r"store\.sqlite3 cannot be used: .*A damaged file can be removed"
    ):
        library.ask(QUESTION)


def test_a_store_that_disappears_is_made_again(toy, books, open_library, encoded, tmp_path):
    """What was opened before can still be read."""
    library = open_library(toy, books)
    shutil.rmtree(tmp_path / "cache")
    encoded.clear()
    assert library.document(1).text == KITCHEN

    again = open_library(toy, books)

    assert len(encoded) == 3
    assert again.document(1).text == KITCHEN


def test_what_is_open_stays_as_it_is_while_another_process_changes_it(
    toy, books, open_library, tmp_path
):
    library = open_library(toy, books)
    before = library.ask(QUESTION)
    (books / "sea.txt").write_text("The harbour is quiet.")

    later = open_library(toy, books)

    assert library.document(2).text == SEA
    np.testing.assert_array_equal(library.ask(QUESTION).bm25, before.bm25)
    assert later.document(2).text == "The harbour is quiet."


def test_a_file_that_changes_while_it_is_read_is_read_again(toy, books, open_library, monkeypatch):
    read_runs = reading_of_files.read_runs
    texts = ["The first.", "The second.", "The third.", "The fourth."]

    def read_and_change(file, *args):
        runs = list(read_runs(file, *args))
        if file.name == "sea.txt" and texts:
            file.path.write_text(texts.pop(0))
        return runs

    monkeypatch.setattr(reading_of_files, "read_runs", read_and_change)
    del texts[2:]
    library = open_library(toy, books)
    assert library.document(2).text == "The second."
    texts.extend(["The fifth.", "The sixth.", "The seventh."])
    (books / "sea.txt").write_text("The fourth.")
    library = open_library(toy, books)
    assert library.names == ["far/court.txt", "kitchen.txt"]
    library = open_library(toy, books)
    assert library.document(2).text == "The seventh."


def test_a_folder_that_changes_while_it_is_read(toy, books, open_library, monkeypatch, capsys):
    """A file that is gone is named and left out; a new one is read by the next command."""
    read_runs = reading_of_files.read_runs

    def read_and_change(file, *args):
        if file.name == "far/court.txt":
            (books / "kitchen.txt").unlink()
            (books / "late.txt").write_text("A late note about the moon.")
        return read_runs(file, *args)

    monkeypatch.setattr(reading_of_files, "read_runs", read_and_change)
    library = open_library(toy, books)
    assert library.names == ["far/court.txt", "sea.txt"]
    assert "left out: kitchen.txt" in capsys.readouterr().err

    monkeypatch.undo()
    library = open_library(toy, books)

    assert library.names == ["far/court.txt", "late.txt", "sea.txt"]


@pytest.mark.parametrize("size", [20_000, 100_000])
def test_a_full_disk_is_a_clear_error(command, books, tmp_path, size):
    """The error names the file, the reason and the remedy; the next search works."""
    (books / "long.txt").write_text(COURT * 20)
    before = command("search", books, "whales?").out

    assert database_of(tmp_path).stat().st_size > size

    shutil.rmtree(tmp_path / "cache")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        said = command("search", books, "whales?")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert said.status == 1
    assert re.search(r"error: \S+store.sqlite3 cannot be used: .*disk", said.err), said.err
    assert "with --cache_dir." in said.err
    assert command("search", books, "whales?").out == before


def test_a_cache_folder_that_cannot_be_made_is_named(command, books):
    said = command("search", books, "whales?", "--cache_dir", books / "sea.txt" / "cache")

    assert said.status == 1
    assert "cannot be used: Not a directory" in said.err
    assert "with --cache_dir." in said.err


def test_a_folder_that_is_read_only_is_read(command, books, tmp_path, monkeypatch):
    before = command("search", books, "whales?").out
    access = os.access
    stores = str(tmp_path / "cache")
    monkeypatch.setattr(
        os, "access", lambda path, mode: not str(path).startswith(stores) and access(path, mode)
    )

    again = command("search", books, "whales?")
    (books / "sea.txt").rename(tmp_path / "sea.txt")  # its passages have the highest numbers
    without = command("search", books, "whale ship", "--json")
    (books / "new.txt").write_text("A new one, about the moon.")
    said = command("search", books, "whales?")

    assert again.out == before, again.err
    assert {row["place"] for row in without.json["documents"]} == {"far/court.txt", "kitchen.txt"}
    assert said.status == 1
    assert "store.sqlite3 cannot be used: attempt to write a readonly database" in said.err


def test_a_store_of_another_version_is_made_again(toy, books, open_library, encoded, monkeypatch):
    open_library(toy, books)
    encoded.clear()
    monkeypatch.setattr(store, "_VERSION", 99)

    open_library(toy, books)

    assert len(encoded) == 3
    encoded.clear()
    open_library(toy, books)
    assert encoded == []


def test_an_sqlite_without_full_text_search_is_named(command, books, tmp_path, monkeypatch):
    """Keeps a store that a Python with FTS5 has made."""
    command("search", books, "whales?")
    before = database_of(tmp_path).stat().st_ino

    def refuse(*_):
        raise sqlite3.OperationalError("no such module: fts5")

    monkeypatch.setattr(store, "open_database", refuse)

    said = command("search", books, "whales?")

    assert said.status == 1
    assert "The SQLite of this Python was built without FTS5" in said.err
    assert database_of(tmp_path).stat().st_ino == before


def test_no_progress_bar_goes_into_a_file(command, books):
    said = command("search", books, "whale?")

    assert said.err == "Reading with model on cpu in float32.\n"


def test_a_second_command_waits_for_the_first(command, books, tmp_path, monkeypatch):
    before = command("search", books, "whales?").out
    (books / "sea.txt").write_text(SEA + " ")
    other = sqlite3.connect(database_of(tmp_path), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    lines = []

    def end_the_other(line, **_):
        lines.append(line)
        other.execute("ROLLBACK")

    monkeypatch.setattr(databases, "print", end_the_other, raising=False)
    after = command("search", books, "whales?").out

    assert after.replace("385 characters", "384 characters") == before
    assert lines == ["Waiting for another command that writes the same file."]


def test_a_search_of_unchanged_files_reads_only_the_texts_that_it_shows(
    command, books, monkeypatch
):
    for number in range(20):
        (books / f"{number}.txt").write_text(f"Note {number} of the harbour.")
    words = ("search", books, "whales?", "--documents", 2, "--passages", 2)
    before = command(*words).out
    read = []
    documents = Store.documents

    def read_and_count(self, run, start, count):
        read.extend(range(start, start + count))
        return documents(self, run, start, count)

    monkeypatch.setattr(Store, "documents", read_and_count)
    assert command(*words).out == before
    assert 0 < len(read) <= 4


def test_a_file_that_may_not_be_opened_is_named(command, books, monkeypatch):
    content_hash = SourceFile.content_hash

    def refuse(file):
        if file.name == "kitchen.txt":
            raise PermissionError(13, "Permission denied", str(file.path))
        return content_hash(file)

    monkeypatch.setattr(SourceFile, "content_hash", refuse)
    said = command("search", books, "Who hunts the whale?", "--json", "--documents", 9)
    assert said.status == 0, said.err
    assert "left out: kitchen.txt cannot be read: Permission denied. Change" in said.err
    assert {row["place"] for row in said.json["documents"]} == {"far/court.txt", "sea.txt"}


def test_files_that_have_not_changed_are_not_read(settled, toy, books, open_library, monkeypatch):
    """Neither to hash nor to encode them; a file that is left out is named again."""
    (books / "latin.txt").write_bytes(b"caf\xe9 au lait")
    first = open_library(toy, books)
    content_hash = SourceFile.content_hash
    hashed = []

    def spy(file):
        hashed.append(file.name)
        return content_hash(file)

    monkeypatch.setattr(SourceFile, "content_hash", spy)
    again = open_library(toy, books)
    assert hashed == []
    assert again.names == first.names
    (books / "sea.txt").write_text("The sea is calm.")
    changed = open_library(toy, books)
    assert set(hashed) == {"sea.txt"}
    assert changed.document(2).text == "The sea is calm."


def test_a_file_within_the_step_of_the_clock_is_hashed_again(toy, books, open_library):
    """Two changes within one step have the same time stamp."""
    open_library(toy, books)
    path = books / "sea.txt"
    status = path.stat()
    path.write_text(SEA.replace("whale", "shark"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    library = open_library(toy, books)

    assert "shark" in library.document(2).text


def test_a_file_that_is_left_out_is_named_each_time(settled, command, books, monkeypatch):
    (books / "latin.txt").write_bytes(b"caf\xe9 au lait")
    first = command("search", books, "whales?").err
    monkeypatch.setattr(reading_of_files, "read_runs", None)  # it would be called

    again = command("search", books, "whales?").err

    assert "left out: latin.txt cannot be read" in first
    assert again == first


def test_a_file_that_was_left_out_is_read_again_with_another_package(
    command, books, monkeypatch, encoded
):
    (books / "latin.txt").write_bytes(b"caf\xe9 au lait")
    command("search", books, "whales?")
    read_runs = reading_of_files.read_runs
    read = []

    def spy(file, *args):
        read.append(file.name)
        return read_runs(file, *args)

    monkeypatch.setattr(reading_of_files, "read_runs", spy)
    monkeypatch.setattr(store, "_MODULES_OF_READERS", ("a_package_that_is_not_there",))

    command("search", books, "whales?")

    assert read == ["latin.txt"]


def test_a_table_has_several_runs(toy, table, open_library, encoded, tmp_path):
    library = open_library(toy, table.parent)

    with sqlite3.connect(database_of(tmp_path)) as database:
        [(runs,)] = database.execute("SELECT count(*) FROM runs")
    assert runs == ROWS / ROWS_OF_A_RUN
    assert library.names[:2] == ["notes.jsonl#note 0", "notes.jsonl#note 1"]
    assert library.names[10:] == ["notes.jsonl#note 0 (2)", "notes.jsonl#note 1 (2)"]
    for index in range(ROWS):
        assert library.document(index).text == encoded[index]
        assert f"Note {index:02}" in encoded[index]


def test_an_interrupted_table_is_continued(toy, table, open_library, encoded, monkeypatch):
    """The runs that were written are not encoded again, and the answers are the same."""
    right = open_library(toy, table.parent).ask("sea").score
    elsewhere = table.parent.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "notes.jsonl").write_bytes(table.read_bytes())
    write_run = Store._write_run
    written = []

    def interrupt(self, *values):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(values)
        write_run(self, *values)

    monkeypatch.setattr(Store, "_write_run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_library(toy, elsewhere)
    monkeypatch.setattr(Store, "_write_run", write_run)
    encoded.clear()

    library = open_library(toy, elsewhere)

    assert len(encoded) == ROWS - 2 * ROWS_OF_A_RUN
    assert "Note 06" in encoded[0]
    np.testing.assert_allclose(library.ask("sea").score, right, atol=1e-6)


def steps_of(opened: Store, query: str) -> int:
    """Counts the instructions that SQLite's machine takes for a query."""
    steps = []
    opened._database.set_progress_handler(lambda: steps.append(query), 1)
    opened.query(query)
    opened._database.set_progress_handler(None, 0)
    return len(steps)


def test_a_run_gets_its_number_without_a_look_at_all_runs(toy, tmp_path, reading):
    """Twice as many files would take four times as long."""
    steps = []
    for files in (5, 50):
        folder = tmp_path / f"{files}"
        folder.mkdir()
        for index in range(files):
            (folder / f"{index}.txt").write_text(f"Note {index} of the harbour.")

        steps.append(steps_of(open_store(str(folder), toy, reading), store._NEXT_PASSAGE))

    assert steps[0] == steps[1] > 0


def test_notes_count_the_rows_of_all_runs(command, table):
    rows = [{"text": "\u200b"}, *({"text": "The sea. " * 30} for _ in range(4)), {"text": "\u200b"}]
    write(table, rows)

    said = command("search", table.parent, "sea")

    note = "holds no word that the model can read, in 2 of 6 rows, '0' first."
    assert said.err.count("notes.jsonl") == 1
    assert note in said.err


def test_metadata_can_be_read_by_any_json_reader():
    metadata = {"a": float("nan"), "b": "\ud83d", "c": ["é"]}

    assert readable_json(metadata) == '{"a": null, "b": "?", "c": ["é"]}'


def test_a_word_that_two_chunks_share_is_found(tmp_path, reading):
    """It is a word of both, as the sentence is."""
    sentence = "The harbour pilot counted the phalaropes. "
    (tmp_path / "a.txt").write_text(sentence * 60)
    opened = open_store(str(tmp_path), model_of_words(), reading)

    numbers, _ = opened.passages_with("phalaropes")

    assert len(numbers) == opened.passages > 1


def test_a_word_more_often_than_65535_times(tmp_path, reading):
    """By hand: of one passage, as long as the mean, n / (n + 1.2) with k1 = 1.2."""
    (tmp_path / "matrix.txt").write_text("0│" * 70_000 + "0")
    opened = open_store(str(tmp_path / "matrix.txt"), model_of_words(), reading)

    _, shares = opened.passages_with("0")

    np.testing.assert_allclose(shares, 70_001 / 70_002.2, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Łódź and Straße", "lodz"),
        ("release 14.2 of it", "14.2"),
        ("北京大学", "京"),
        ("ภาษาไทย", "ษา"),
        ("the sign-off mail", "signoff"),
        ("देवनागरी लिपि", "देवनागरी"),
    ],
)
def test_words_of_any_script_are_found(tmp_path, reading, text, word):
    """FTS5 takes each word of `search_words` as it is, and nothing else for a word."""
    (tmp_path / "a.txt").write_text(text)
    opened = open_store(str(tmp_path), model_of_words(), reading)

    assert opened.spread_of(word) == 1
    assert opened.spread_of(word[:-1]) == 0


def model_of_words() -> NextLevelBertModel:
    """The installed model, for which a word of any length is one token."""
    return NextLevelBertModel.from_pretrained(static_checkpoint())
