"""A shelf that is brought up to date: what is encoded, kept, forgotten and left out."""

import os
import re
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock

from nextlevelbert import NextLevelBertModel, text_sentences
from nextlevelbert.search import shelf
from nextlevelbert.search.library import Library
from nextlevelbert.search.shelf import Part, open_shelf, read_files

from ..toys.books import write_docx, write_epub, write_pdf
from ..toys.finetuning import write
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
    assert torch.equal(first.vectors, second.vectors)


def test_a_part_that_is_damaged_is_made_again_at_once(toy, books, open_library, tmp_path):
    """Wherever a bit is changed, in values, headers or metadata, and wherever the file ends."""
    source = books / "sea.txt"  # alone, because texts that are encoded together differ by an ulp
    right = open_library(toy, source).ask("Who hunts a whale?").score
    [part] = (tmp_path / "cache").rglob("*.parquet")
    content = part.read_bytes()
    for number in range(12):
        place = len(content) * number // 12
        damaged = bytearray(content)
        damaged[place] ^= 1 << number % 8
        for data in (damaged, content[:place]):
            part.write_bytes(data)
            [index] = (tmp_path / "cache").rglob("index-*")
            index.unlink()
            library = open_library(toy, source)
            np.testing.assert_array_equal(library.ask("Who hunts a whale?").score, right)
            assert part.read_bytes() == content


def test_an_index_that_is_damaged_is_made_again_at_once(toy, books, open_library, tmp_path):
    right = open_library(toy, books).ask("Who hunts a whale?").score
    [index] = (tmp_path / "cache").rglob("index-*.safetensors")
    content = index.read_bytes()
    for number in range(8):
        place = len(content) * number // 8
        damaged = bytearray(content)
        damaged[place] ^= 1 << number % 8
        for data in (damaged, content[:place]):
            index.write_bytes(data)
            library = open_library(toy, books)
            np.testing.assert_array_equal(library.ask("Who hunts a whale?").score, right)
            assert index.read_bytes() == content


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


def test_a_file_that_changes_while_it_is_read_is_read_again(toy, books, tmp_path, monkeypatch):
    read = shelf.read_file
    texts = ["The first.", "The second.", "The third.", "The fourth."]

    def read_and_change(part, column):
        result = read(part, column)
        if part.name == "sea.txt" and texts:
            part.source.write_text(texts.pop(0))
        return result

    monkeypatch.setattr(shelf, "read_file", read_and_change)
    del texts[2:]
    library = Library(toy, open_shelf(toy, str(books), tmp_path / "cache"))
    assert library.document(2).text == "The second."
    texts.extend(["The fifth.", "The sixth.", "The seventh."])
    (books / "sea.txt").write_text("The fourth.")
    library = Library(toy, open_shelf(toy, str(books), tmp_path / "cache"))
    assert library.names == ["far/court.txt", "kitchen.txt"]


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


def test_notes_that_are_alike_are_one_line(command, books, toy, capsys):
    """Settings of programs, in hundreds of JSON files; and texts in another script."""
    for number in range(40):
        (books / f"s{number:02}.json").write_text(f'{{"name": "s", "value{number}": 1}}')
        (books / f"t{number:02}.txt").write_text("渡輪" * 9 + f"{number}")
        (books / f"u{number:02}.txt").write_text(" ")
    for _ in range(2):
        lines = command("search", books, "whales?").err.splitlines()
        assert len(lines) == 3
        [settings] = [line for line in lines if line.startswith("left out: s00.json, row 0: ")]
        assert "has no column 'text' (text_column); it has ['name', 'value0']." in settings
        assert settings.endswith(
            "The same holds for s01.json, s02.json, s03.json, s04.json, s05.json, s06.json, s07.json, s08.json, s09.json, s10.json and 29 more."
        )
        assert "left out: u00.txt holds no text. The same holds for u01.txt" in "".join(lines)
    list(read_files(str(books), "text", toy.tokenizer))
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_no_progress_bar_goes_into_a_file(command, books):
    said = command("search", books, "whales?")
    assert said.err == ""


def test_a_second_command_waits_for_the_first(command, books, tmp_path, monkeypatch):
    before = command("search", books, "whales?").out
    [folder] = (tmp_path / "cache").rglob(".shelves/*")
    lock = FileLock(folder / "lock")
    lock.acquire()
    monkeypatch.setattr(shelf, "print", lambda *line, **_: lock.release(), raising=False)
    assert command("search", books, "whales?").out == before
    assert not lock.is_locked


def test_rows_of_a_table_and_books_of_every_kind(toy, open_library, tmp_path):
    books = tmp_path / "books"
    books.mkdir()
    rows = [
        {"id": "é", "text": SEA, "year": 1851},
        {"text": "  "},
        {"text": "Short — naïve."},
        {"id": "é", "text": "The second of this name."},
    ]
    write(books / "table.jsonl", rows)
    write_pdf(books / "same.pdf", ["The whale."])
    write_epub(books / "same.epub", ["<p>The whale.</p>"])
    write_docx(books / "same.docx", ["The whale."])
    library = open_library(toy, books)
    assert library.names[:3] == ["same.docx", "same.epub", "same.pdf"]
    assert library.names[3:] == ["table.jsonl#é", "table.jsonl#2", "table.jsonl#é (2)"]
    texts = ["The whale."] * 3 + [SEA, "Short — naïve.", "The second of this name."]
    assert [library.document(number).text for number in range(6)] == texts
    assert library.document(3).metadata == {"year": 1851}


def test_what_cannot_be_read_is_named_and_left_out(command, books, caplog):
    (books / "letter.rtf").write_text("{\\rtf1}")
    (books / "latin.txt").write_bytes("naïve".encode("latin-1"))
    (books / "blank.txt").write_text(" \n")
    (books / "scan.pdf").write_bytes(b"%PDF-1.4 broken")
    (books / "zero.txt").write_text("\u200b")  # no token
    for _ in range(2):  # a second time, too
        said = command("search", books, "whales?")
        assert said.status == 0, said.err
        assert said.out.count(".txt") > 3
        assert "left out: blank.txt holds no text.\n" in said.err
        assert "left out: latin.txt cannot be read: 'utf-8' codec" in said.err
        assert "left out: scan.pdf cannot be read as PDF" in said.err
    assert "Left out (unsupported kinds): 1 .rtf; letter.rtf first" in caplog.text
    assert command("search", books / "blank.txt", "whales?").status == 1
    for name in ("sea", "kitchen", "far/court"):
        (books / f"{name}.txt").unlink()
    said = command("search", books, "whales?")
    assert (said.status, said.out) == (1, "")
    assert "No document of the folder holds a word" in said.err


def test_metadata_of_any_kind_does_not_end_the_command(command, books):
    """A column "pages", half a surrogate pair, NaN, and a name that is not UTF-8."""
    row = '{"id": "x\\ud83d", "text": "The observatory.", "pages": 312, "t": "a\\ud83d", "n": NaN}'
    (books / "table.jsonl").write_text(row + "\n" + row.replace("x\\ud83d", "y") + "\n")
    Path(os.fsdecode(os.fsencode(books) + b"/caf\xe9.txt")).write_text("The café.")
    said = command("search", books, "observatory", "--json", "--documents", 99)
    assert said.status == 0, said.err
    metadata = {row["place"]: row["metadata"] for row in said.json["documents"]}
    assert metadata["table.jsonl#y"] == {"pages": 312, "t": "a?", "n": None}
    assert "caf\\xe9.txt" in metadata


def test_what_was_not_read_is_named_each_time(command, books, toy, capsys):
    """Rows, pages, and words that the model does not know; the rest is searched."""
    write_pdf(books / "deed.pdf", ["The town archive.", ""])
    (books / "table.jsonl").write_text('{"text": null}\n{"text": "The observatory."}\n')
    (books / "far" / "genome.txt").write_text("渡輪" * 200)
    (books / "marks.csv").write_text("id,text\na,The sea.\nb,\u200b\n")
    for _ in range(2):
        said = command("search", books, "observatory", "--json")
        assert said.status == 0, said.err
        assert "left out: table.jsonl, line 1: The text of document '0' is not" in said.err
        assert "note: deed.pdf was read in part: 1 of 2 pages (2) hold no text; if" in said.err
        assert "note: far/genome.txt: the model does not know 5% of the text or more." in said.err
        assert (
            "note: marks.csv: it holds no word that the model can read, in 1 of 2 rows, 'b' first."
        ) in said.err
        assert "table.jsonl#1" in {row["place"] for row in said.json["documents"]}
    list(read_files(str(books), "text", toy.tokenizer))
    err = capsys.readouterr().err
    assert "note: far/genome.txt: the model does not know" in err
    assert "note: deed.pdf was read in part" in err


@pytest.mark.parametrize(("unknown", "is_named"), [(4, False), (6, True)])
def test_a_document_with_five_percent_of_unknown_words_is_named(
    toy, tmp_path, capsys, unknown, is_named
):
    """An ideogram is a word of one character that the toy model does not know."""
    text = "whales " * 16 + "渡" * unknown
    (tmp_path / "a.txt").write_text(text)
    assert toy.tokenizer(text).input_ids.count(toy.tokenizer.unk_token_id) == unknown
    list(read_files(str(tmp_path), "text", toy.tokenizer))
    assert ("the model does not know 5%" in capsys.readouterr().err) == is_named


def test_own_files_are_no_documents(command, books, toy_checkpoint, tmp_path):
    before = command("search", books, "whales?", "--json").json
    assert command("embed", books, "-o", books / "vectors.parquet").status == 0
    shutil.copytree(toy_checkpoint, books / "model")
    words = ("search", books, "whales?", "--json", "--cache_dir", books / "cache")
    for _ in range(2):
        said = command(*words)
        assert said.json == before
        assert "left out: vectors.parquet: nextlevelbert wrote it" in said.err
        assert "left out: model: it is the folder of a model." in said.err


def test_a_search_of_unchanged_files_opens_only_what_it_shows(command, books, monkeypatch):
    for number in range(20):
        (books / f"{number}.txt").write_text(f"Note {number} of the harbour.")
    words = ("search", books, "whales?", "--documents", 2, "--passages", 2)
    before = command(*words).out
    opened = []
    read = Part.read
    monkeypatch.setattr(
        Part, "read", lambda self, *names: opened.append(self.name) or read(self, *names)
    )
    assert command(*words).out == before
    assert 0 < len(opened) <= 4


def sentences_outside_the_kitchen(text: str) -> list[tuple[int, int]]:
    if text == KITCHEN:
        return []
    return text_sentences(text)


def test_a_splitter_by_name(command, books, toy_checkpoint, toy_encoder_path, tmp_path):
    search = ("search", books, "whales?", "--json")
    assert "not sentences" in command(*search, "--splitter", "text_sentences").err

    model = NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=64, chunking="sentences"
    )
    model.save_pretrained(tmp_path / "sentences")
    search += ("--model", tmp_path / "sentences", "--splitter")
    rows = command(*search, "text_sentences").json["documents"]
    [sea] = filter(lambda row: row["place"] == "sea.txt", rows)
    assert sea["chunks"] == len(text_sentences(SEA))
    assert "no sentence splitter 'nowhere.splitter'" in command(*search, "nowhere.splitter").err

    splitter = f"{__name__}.{sentences_outside_the_kitchen.__name__}"
    said = command(*search, splitter)
    assert "left out: kitchen.txt: The splitter found no sentence in a text" in said.err
    assert {row["place"] for row in said.json["documents"]} == {"far/court.txt", "sea.txt"}


def test_a_file_that_may_not_be_opened_is_named(command, books, monkeypatch):
    content = shelf._content

    def refuse(part):
        if part.name == "kitchen.txt":
            raise PermissionError(13, "Permission denied", str(part.source))
        return content(part)

    monkeypatch.setattr(shelf, "_content", refuse)
    said = command("search", books, "Who hunts the whale?", "--json", "--documents", 9)
    assert said.status == 0, said.err
    assert "left out: kitchen.txt cannot be read: Permission denied. Change" in said.err
    assert {row["place"] for row in said.json["documents"]} == {"far/court.txt", "sea.txt"}
