"""A shelf that is brought up to date: what is encoded, kept, forgotten and left out."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from nextlevelbert import NextLevelBertModel
from nextlevelbert.commands import records
from nextlevelbert.commands import shelf as shelves
from nextlevelbert.commands.shelf import open_shelf
from nextlevelbert.commands.words import count_words
from nextlevelbert.models.modeling_nextlevelbert import DocumentEncodingModel

from ..book_toys import write_docx, write_epub, write_pdf
from .conftest import COURT, KITCHEN, SEA


@pytest.fixture(scope="module")
def model(toy_checkpoint) -> NextLevelBertModel:
    return NextLevelBertModel.from_pretrained(toy_checkpoint)


def test_documents_have_what_encode_gives(model, books, tmp_path):
    found = list(open_shelf(model, str(books), tmp_path / "cache"))
    assert [(each.place, each.text) for each in found] == [
        ("far/court.txt", COURT),
        ("kitchen.txt", KITCHEN),
        ("sea.txt", SEA),
    ]
    for each in found:
        expected = model.encode(each.text)
        torch.testing.assert_close(each.vector, expected.document)
        torch.testing.assert_close(each.plain, expected.plain)
        np.testing.assert_array_equal(each.spans, expected.spans)
        assert len(each.plain) > 3


def test_only_what_is_new_or_changed_is_encoded(model, books, tmp_path, encoded):
    cache = tmp_path / "cache"
    assert open_shelf(model, str(books), cache).encoded == 3
    assert encoded == [COURT, KITCHEN, SEA]
    encoded.clear()
    assert open_shelf(model, str(books), cache).encoded == 0
    (books / "new.txt").write_text("A new one, about the moon.")
    (books / "sea.txt").write_text(SEA + "The end.")
    (books / "kitchen.txt").rename(books / "bakery.txt")
    (books / "far" / "court.txt").unlink()
    found = open_shelf(model, str(books), cache)
    assert encoded == ["A new one, about the moon.", SEA + "The end."]
    assert [each.place for each in found] == ["bakery.txt", "new.txt", "sea.txt"]
    assert len(list(found.folder.iterdir())) == 3  # what is gone is forgotten


def test_another_model_has_another_shelf(model, books, tmp_path, encoded, toy_checkpoint):
    cache = tmp_path / "cache"
    first = open_shelf(model, str(books), cache)
    other = NextLevelBertModel.from_pretrained(toy_checkpoint)
    assert open_shelf(other, str(books), cache).encoded == 0
    with torch.no_grad():
        other.special_embeddings.weight += 1
    second = open_shelf(other, str(books), cache)
    assert second.encoded == 3
    assert not torch.equal(next(iter(first)).vector, next(iter(second)).vector)
    assert torch.equal(next(iter(first)).plain, next(iter(second)).plain)


def test_an_interrupted_run_goes_on(command, books, monkeypatch, encoded):
    """Each document is encoded for itself; the second is interrupted."""
    monkeypatch.setattr(shelves, "_CHARACTERS_OF_SLOW_ENCODERS", 1)
    encode = DocumentEncodingModel.encode

    def interrupted(self, texts, *args, **kwargs):
        if KITCHEN in texts:
            raise KeyboardInterrupt
        return encode(self, texts, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(DocumentEncodingModel, "encode", interrupted)
        said = command("search", books, "whales?")
    assert said.status == 130
    assert "Stopped. 1 of 3 files are done. Start the same command again to go on from there." in said.err
    encoded.clear()
    assert command("search", books, "whales?").status == 0
    assert encoded == [KITCHEN, SEA, "whales?"]


def test_a_damaged_record_is_made_again(model, books, tmp_path, encoded, caplog):
    found = open_shelf(model, str(books), tmp_path / "cache")
    before = [each.vector for each in found]
    path = found.folder / found.records[1][1]
    path.write_bytes(path.read_bytes()[:-5])
    encoded.clear()
    again = open_shelf(model, str(books), tmp_path / "cache")
    assert encoded == [KITCHEN]
    assert f"{path} is damaged" in caplog.text
    torch.testing.assert_close([each.vector for each in again], before)


def everything(shelf):
    return list(shelf), [shelf.words(number) for number in range(len(shelf.records))]


@pytest.mark.parametrize("tensor", ["plain", "texts", "words.words", "words.chunks", "words.lengths"])
def test_a_changed_bit_in_a_record_is_found(model, books, tmp_path, encoded, caplog, tensor):
    """Before it is opened; and if it is changed after that."""
    found = open_shelf(model, str(books), tmp_path / "cache")
    before, words = everything(found)
    path = found.folder / found.records[1][1]
    content = bytearray(path.read_bytes())
    head = 8 + int.from_bytes(content[:8], "little")
    content[head + json.loads(content[8:head])[tensor]["data_offsets"][0]] ^= 1
    path.write_bytes(content)
    with pytest.raises(SystemExit, match=r"is damaged \(a tensor .* Start the same command again\."):
        everything(found)
    encoded.clear()
    again, same = everything(open_shelf(model, str(books), tmp_path / "cache"))
    assert encoded == [KITCHEN]
    assert f"{path} is damaged" in caplog.text
    torch.testing.assert_close([each.vector for each in again], [each.vector for each in before])
    for one, other in zip(words, same, strict=True):
        np.testing.assert_equal(one, other)


def test_words_of_new_and_changed_files_alone_are_counted(model, books, tmp_path, monkeypatch):
    counted: list[str] = []

    def spy(passages):
        counted.extend(passages := list(passages))
        return count_words(passages)

    monkeypatch.setattr(records, "count_words", spy)
    cache = tmp_path / "cache"

    def check(shelf):
        for number in range(len(shelf.records)):
            [document] = shelf.documents(number)
            pieces = [document.text[start:end] for start, end in document.spans.tolist()]
            np.testing.assert_equal(shelf.words(number), count_words(pieces))

    check(open_shelf(model, str(books), cache))
    assert any("oven" in piece for piece in counted)
    counted.clear()
    check(open_shelf(model, str(books), cache))
    assert counted == []
    (books / "sea.txt").write_text("Another sea.")
    (books / "far" / "court.txt").unlink()
    check(open_shelf(model, str(books), cache))
    assert counted == ["Another sea."]


def test_no_record_goes_while_another_process_reads(model, books, tmp_path):
    """A lock belongs to an open folder, so that two shelves of one process are as two processes."""
    first = open_shelf(model, str(books), tmp_path / "cache")
    (books / "sea.txt").write_text("Another sea.")
    second = open_shelf(model, str(books), tmp_path / "cache")
    assert [each.text for each in first] == [COURT, KITCHEN, SEA]
    assert [each.text for each in second] == [COURT, KITCHEN, "Another sea."]
    assert len(list(first.folder.iterdir())) == 4
    del first, second
    third = open_shelf(model, str(books), tmp_path / "cache")
    assert len(list(third.folder.iterdir())) == 3
    for path in third.folder.iterdir():
        path.unlink()
    with pytest.raises(SystemExit, match=r"something removed it\. Start the same command again"):
        list(third)


def test_a_file_that_changes_while_it_is_read_is_left_out(model, books, tmp_path, monkeypatch):
    """Otherwise its old content would have the record of its new one."""
    read = shelves.read_file

    def change(file):
        if file.place == "sea.txt":
            file.path.write_text("Another sea.")
        return read(file)

    with monkeypatch.context() as patch:
        patch.setattr(shelves, "read_file", change)
        found = open_shelf(model, str(books), tmp_path / "cache")
    assert [each.place for each in found] == ["far/court.txt", "kitchen.txt"]
    assert [(each.place, each.reason) for each in found.unreadable] == [
        ("sea.txt", "was changed while it was read; start the same command again")
    ]
    assert "Another sea." in [each.text for each in open_shelf(model, str(books), tmp_path / "cache")]


def test_a_damaged_cache_of_chunk_vectors_is_an_error_with_a_message(command, books, tmp_path):
    assert command("search", books, "whales?").status == 0
    [path] = (tmp_path / "cache").rglob("*.sqlite3")
    path.write_bytes(b"no database" * 1000)
    (books / "new.txt").write_text("A new one, about the moon.")
    said = command("search", books, "whales?")
    assert said.status == 1
    assert said.err.startswith("error: ")
    assert path.name in said.err


def test_rows_of_a_table_and_books_of_every_kind(model, tmp_path):
    books = tmp_path / "books"
    books.mkdir()
    rows = [{"id": "é", "text": SEA, "year": 1851}, {"text": "  "}, {"text": "Short — naïve."}]
    (books / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_pdf(books / "same.pdf", ["The whale."])
    write_epub(books / "same.epub", ["<p>The whale.</p>"])
    write_docx(books / "same.docx", ["The whale."])
    found = {each.place: each for each in open_shelf(model, str(books), tmp_path / "cache")}
    assert list(found) == ["same.docx", "same.epub", "same.pdf", "table.jsonl#é", "table.jsonl#document-000002"]
    assert {each.text for place, each in found.items() if place.startswith("same")} == {"The whale."}
    assert found["table.jsonl#é"].metadata == {"year": 1851}
    assert found["table.jsonl#document-000002"].text == "Short — naïve."


def test_what_cannot_be_read_is_named_and_left_out(command, books):
    (books / "latin.txt").write_bytes("naïve".encode("latin-1"))
    (books / "blank.txt").write_text(" \n")
    (books / "scan.pdf").write_bytes(b"%PDF-1.4 broken")
    (books / "settings.json").write_text('{"colour": "red"}')
    for _ in range(2):  # a second time, too
        said = command("search", books, "whales?")
        assert said.status == 0
        assert said.out.count(".txt") > 3
        for line in (
            "left out: blank.txt: holds no text",
            "left out: latin.txt: ",
            "left out: scan.pdf: ",
            "left out: settings.json: ",
        ):
            assert line in said.err
    said = command("search", books, "whales?", "--json")
    assert {each["place"] for each in said.json["unreadable"]} == {
        "blank.txt", "latin.txt", "scan.pdf", "settings.json",
    }  # fmt: skip
    for name in ("sea", "kitchen", "far/court"):
        (books / f"{name}.txt").unlink()
    for words in (("search", books, "whales?"), ("plan", books)):
        said = command(*words)
        assert said.status == 1
        assert "latin.txt" in said.err
        assert "is not UTF-8" in said.err


def test_an_empty_folder(command, tmp_path):
    (tmp_path / "empty").mkdir()
    said = command("search", tmp_path / "empty", "whales?")
    assert said.status == 1
    assert "holds nothing to read (no file)" in said.err
