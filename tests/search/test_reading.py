"""Files that are read, and notes about what is not read."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Audio, Dataset, Features, Value

from nextlevelbert.search.notes import Notes
from nextlevelbert.search.reading import ReadingOptions, list_files, read_files

from ..toys.books import write_docx, write_epub, write_pdf
from ..toys.finetuning import write
from .conftest import SEA


def test_notes_that_are_alike_are_one_line(command, books, toy, capsys):
    """Settings of programs, in hundreds of JSON files; and texts in another script."""
    for number in range(40):
        (books / f"s{number:02}.json").write_text(f'{{"name": "s", "value{number}": 1}}')
        (books / f"t{number:02}.txt").write_text("渡輪" * 9 + f"{number}")
        (books / f"u{number:02}.txt").write_text(" ")
    for _ in range(2):
        _, *lines = command("search", books, "The whale").err.splitlines()
        assert len(lines) == 3
        [settings] = [line for line in lines if line.startswith("left out: s00.json, line 1: ")]
        assert "has no column 'text'; it has name, value0. Name the right" in settings
        assert settings.endswith(
            "The same holds for s01.json, s02.json, s03.json, s04.json, s05.json, s06.json, s07.json, s08.json, s09.json, s10.json and 29 more."
        )
        assert "left out: u00.txt holds no text. The same holds for u01.txt" in "".join(lines)
    list(read_files(str(books), ReadingOptions(), toy.tokenizer))

    assert len(capsys.readouterr().err.splitlines()) == 3


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


def test_what_cannot_be_read_is_named_and_left_out(command, books):
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
        assert "Left out (unsupported kinds): 1 .rtf; letter.rtf first" in said.err

    assert command("search", books / "blank.txt", "whales?").status == 1

    for name in ("sea", "kitchen", "far/court"):
        (books / f"{name}.txt").unlink()
    said = command("search", books, "whales?")

    assert (said.status, said.out) == (1, "")
    assert "No document of the folder holds a word" in said.err


def test_files_of_other_kinds_are_named_once_while_the_page_is_open(books, capsys):
    (books / "letter.rtf").write_text("{\\rtf1}")
    notes = Notes()

    for _ in range(2):  # each request lists the files again
        list_files(str(books), notes)
        notes.print()

    line = "Left out (unsupported kinds): 1 .rtf; letter.rtf first."
    assert capsys.readouterr().err.splitlines() == [line]


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
    list(read_files(str(books), ReadingOptions(), toy.tokenizer))
    err = capsys.readouterr().err

    assert "note: far/genome.txt: the model does not know" in err
    assert "note: deed.pdf was read in part" in err


def test_texts_of_a_data_set_with_sound_are_read(command, books, tmp_path):
    """Its sound is not opened, which would need further packages; one that is damaged is named."""
    sound = [{"path": "/no/such/file.wav", "bytes": None}]
    features = Features({"text": Value("string"), "sound": Audio()})
    table = pa.table({"text": ["The observatory."], "sound": sound}, schema=features.arrow_schema)
    for name in ("calls", "damaged"):
        Dataset(table.replace_schema_metadata()).save_to_disk(books / name)
        info = books / name / "dataset_info.json"
        content = json.loads(info.read_text())
        content["features"] = features.to_dict()
        info.write_text(json.dumps(content))
    for file in (books / "damaged").glob("*.arrow"):
        file.write_bytes(b"ARROW1")

    said = [
        command("search", books, "observatory"),
        command("embed", books, "-o", tmp_path / "vectors.parquet"),
        command("fit", books, "-o", tmp_path / "model"),
    ]

    assert "calls#0" in said[0].out
    assert "calls#0" in pq.read_table(tmp_path / "vectors.parquet")["document"].to_pylist()
    assert "fitted to 4 documents" in said[2].out
    for one in said:
        assert one.status == 0, one.err
        assert "left out: damaged cannot be read: " in one.err


@pytest.mark.parametrize(("unknown", "is_named"), [(4, False), (6, True)])
def test_a_document_with_five_percent_of_unknown_words_is_named(
    toy, tmp_path, capsys, unknown, is_named
):
    """An ideogram is a word of one character that the toy model does not know."""
    text = "whales " * 16 + "渡" * unknown
    (tmp_path / "a.txt").write_text(text)

    assert toy.tokenizer(text).input_ids.count(toy.tokenizer.unk_token_id) == unknown

    list(read_files(str(tmp_path), ReadingOptions(), toy.tokenizer))

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
