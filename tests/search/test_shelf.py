"""A shelf that is brought up to date: what is encoded, kept, forgotten and left out."""

import re
import resource
import shutil

import numpy as np
import pytest
import torch
from filelock import FileLock

from nextlevelbert import NextLevelBertModel
from nextlevelbert.search import part_writer, shelf
from nextlevelbert.search.shelf import Shelf

from .conftest import COURT, KITCHEN, SEA


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
    names = open_library(toy, books).names
    assert encoded == ["A new one, about the moon.", SEA + "The end."]
    assert names == ["bakery.txt", "new.txt", "sea.txt"]
    assert len(list(tmp_path.rglob("*.parquet"))) == 3  # what is gone is forgotten


def test_a_part_belongs_to_a_column_and_to_a_kind_of_file(command, tmp_path):
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
def test_another_model_has_another_shelf(toy, books, open_library, encoded, toy_checkpoint):
    first = open_library(toy, books)
    other = NextLevelBertModel.from_pretrained(toy_checkpoint)
    encoded.clear()
    open_library(other, books)
    assert encoded == []  # the same weights
    other.special_embeddings.weight *= -3
    second = open_library(other, books)
    assert len(encoded) == 3
    assert not np.allclose(first.document_vectors, second.document_vectors)
    np.testing.assert_array_equal(first.vectors, second.vectors)


def test_a_part_that_is_damaged_is_made_again_at_once(toy, books, open_library, tmp_path):
    """Wherever a bit is changed, in values, headers or metadata, and wherever the file ends."""
    source = books / "sea.txt"  # alone, because texts that are encoded together differ by an ulp
    right = open_library(toy, source).ask("Who hunts a whale?").score
    [part] = (tmp_path / "cache").rglob("*.parquet")
    content = part.read_bytes()
    for number in range(6):
        place = len(content) * number // 6
        damaged = bytearray(content)
        damaged[place] ^= 1 << number % 8
        for data in (damaged, content[:place]):
            part.write_bytes(data)
            [index] = (tmp_path / "cache").rglob("index-*")
            index.unlink()
            library = open_library(toy, source)
            np.testing.assert_array_equal(library.ask("Who hunts a whale?").score, right)
            assert part.read_bytes() == content


def test_a_part_that_disappears_is_made_again_from_the_same_file_only(
    toy, books, open_library, tmp_path
):
    library = open_library(toy, books)
    for part in (tmp_path / "cache").rglob("*.parquet"):
        part.unlink()
    assert library.document(1).text == KITCHEN
    (books / "sea.txt").write_text(COURT)
    with pytest.raises(ValueError, match=r"sea\.txt has changed since\. Run the command again"):
        library.document(2)


def test_parts_of_gone_files_stay_while_another_process_reads_them(
    toy, books, open_library, tmp_path
):
    """Opened libraries hold a lock, which ends with their process, even if it is killed."""
    library = open_library(toy, books)
    (books / "sea.txt").write_text("The harbour is quiet.")
    later = open_library(toy, books)
    assert library.document(2).text == SEA
    assert later.document(2).text == "The harbour is quiet."
    assert len(list(tmp_path.rglob("*.parquet"))) == 4
    del library
    (books / "kitchen.txt").unlink()
    del later
    assert not list(tmp_path.rglob("reader-*"))
    open_library(toy, books)
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    assert len(list(tmp_path.rglob("index-*"))) == 1


def test_a_file_that_changes_while_it_is_read_is_read_again(toy, books, open_library, monkeypatch):
    read_runs = part_writer.read_runs
    texts = ["The first.", "The second.", "The third.", "The fourth."]

    def read_and_change(file, *args):
        runs = list(read_runs(file, *args))
        if file.name == "sea.txt" and texts:
            file.path.write_text(texts.pop(0))
        return runs

    monkeypatch.setattr(part_writer, "read_runs", read_and_change)
    del texts[2:]
    library = open_library(toy, books)
    assert library.document(2).text == "The second."
    texts.extend(["The fifth.", "The sixth.", "The seventh."])
    (books / "sea.txt").write_text("The fourth.")
    library = open_library(toy, books)
    assert library.names == ["far/court.txt", "kitchen.txt"]


def test_a_folder_that_changes_while_it_is_read(toy, books, open_library, monkeypatch, capsys):
    """A file that is gone is named and left out; a new one is read by the next command."""
    read_runs = part_writer.read_runs

    def read_and_change(file, *args):
        if file.name == "far/court.txt":
            (books / "kitchen.txt").unlink()
            (books / "late.txt").write_text("A late note about the moon.")
        return read_runs(file, *args)

    monkeypatch.setattr(part_writer, "read_runs", read_and_change)
    library = open_library(toy, books)
    assert library.names == ["far/court.txt", "sea.txt"]
    assert "left out: kitchen.txt" in capsys.readouterr().err

    monkeypatch.undo()
    library = open_library(toy, books)

    assert library.names == ["far/court.txt", "late.txt", "sea.txt"]


@pytest.mark.parametrize("suffix", ["*.parquet", "index-*"])
def test_a_full_disk_is_a_clear_error(command, books, tmp_path, monkeypatch, suffix):
    """The error names the file, the reason and the remedy; the next search works."""
    before = command("search", books, "whales?").out
    [*_, written] = (tmp_path / "cache").rglob(suffix)
    size = written.stat().st_size - 1
    shutil.rmtree(tmp_path / "cache")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for path in books.rglob("*.txt"):
        path.touch()
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        said = command("search", books, "whales?")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert said.status == 1
    assert re.search(r"error: \S+ cannot be written: .*File too large", said.err), said.err
    assert "with --cache_dir." in said.err
    assert command("search", books, "whales?").out == before
    assert not list(tmp_path.rglob("*.new*"))


def test_a_cache_folder_that_cannot_be_made_is_named(command, books):
    said = command("search", books, "whales?", "--cache_dir", books / "sea.txt" / "cache")
    assert said.status == 1
    assert "cannot be written: Not a directory" in said.err
    assert "with --cache_dir." in said.err


def test_no_progress_bar_goes_into_a_file(command, books):
    said = command("search", books, "whale?")
    assert said.err == "Reading with model on cpu in float32.\n"


def test_a_second_command_waits_for_the_first(command, books, tmp_path, monkeypatch):
    before = command("search", books, "whales?").out
    [folder] = (tmp_path / "cache").rglob(".shelves/*")
    lock = FileLock(folder / "lock")
    lock.acquire()
    monkeypatch.setattr(shelf, "print", lambda *line, **_: lock.release(), raising=False)
    assert command("search", books, "whales?").out == before
    assert not lock.is_locked


def test_a_search_of_unchanged_files_opens_only_what_it_shows(command, books, monkeypatch):
    for number in range(20):
        (books / f"{number}.txt").write_text(f"Note {number} of the harbour.")
    words = ("search", books, "whales?", "--documents", 2, "--passages", 2)
    before = command(*words).out
    opened = []
    read = Shelf.read

    def read_and_count(self, part, *columns):
        opened.append(part.file.name)
        return read(self, part, *columns)

    monkeypatch.setattr(Shelf, "read", read_and_count)
    assert command(*words).out == before
    assert 0 < len(opened) <= 4


def test_a_file_that_may_not_be_opened_is_named(command, books, monkeypatch):
    hash_of = shelf.hash_of

    def refuse(file):
        if file.name == "kitchen.txt":
            raise PermissionError(13, "Permission denied", str(file.path))
        return hash_of(file)

    monkeypatch.setattr(shelf, "hash_of", refuse)
    said = command("search", books, "Who hunts the whale?", "--json", "--documents", 9)
    assert said.status == 0, said.err
    assert "left out: kitchen.txt cannot be read: Permission denied. Change" in said.err
    assert {row["place"] for row in said.json["documents"]} == {"far/court.txt", "sea.txt"}


def test_files_that_have_not_changed_are_not_read(settled, toy, books, open_library, monkeypatch):
    """Neither to hash nor to encode them; a file that is left out is named again."""
    (books / "latin.txt").write_bytes(b"caf\xe9 au lait")
    first = open_library(toy, books)
    hash_of = shelf.hash_of
    hashed = []

    def spy(file):
        hashed.append(file.name)
        return hash_of(file)

    monkeypatch.setattr(shelf, "hash_of", spy)
    again = open_library(toy, books)
    assert hashed == []
    assert again.names == first.names
    (books / "sea.txt").write_text("The sea is calm.")
    changed = open_library(toy, books)
    assert hashed == ["sea.txt"]
    assert changed.document(2).text == "The sea is calm."


def test_a_file_that_is_left_out_is_named_each_time(settled, command, books, monkeypatch):
    (books / "latin.txt").write_bytes(b"caf\xe9 au lait")
    first = command("search", books, "whales?").err
    monkeypatch.setattr(part_writer, "read_runs", None)  # it would be called

    again = command("search", books, "whales?").err

    assert "left out: latin.txt cannot be read" in first
    assert again == first
