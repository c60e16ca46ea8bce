"""What can be read is read, what cannot is named once, and nothing ends the reading of others."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from nextlevelbert import read_documents
from nextlevelbert.data.documents import source_files


def read(source: Path, **options: str) -> tuple[list[str], list[str]]:
    """Reads the texts of a source, and the messages about what cannot be read."""
    errors = list[ValueError]()
    documents = list(read_documents(source, on_error=errors.append, **options))
    return [document.text for document in documents], [str(error) for error in errors]


def test_a_bad_file_ends_no_reading(tmp_path):
    for number in range(4):
        (tmp_path / f"n{number}.txt").write_text(f"note {number}")
    (tmp_path / "n1x.txt").write_bytes("café".encode("latin-1"))
    (tmp_path / "n2x.pdf").write_bytes(b"%PDF no")
    (tmp_path / "n2y.parquet").write_bytes(b"PAR1")
    (tmp_path / "n2z.txt.gz").write_bytes(b"not packed")
    texts, errors = read(tmp_path)
    assert texts == ["note 0", "note 1", "note 2", "note 3"]
    assert [error.split(" cannot be read")[0] for error in errors] == [
        str(tmp_path / name) for name in ("n1x.txt", "n2x.pdf", "n2y.parquet", "n2z.txt.gz")
    ]
    assert "Save it in UTF-8." in errors[0]
    documents = read_documents(tmp_path)
    assert [next(documents).text for _ in range(2)] == ["note 0", "note 1"]
    with pytest.raises(ValueError, match=r"n1x\.txt cannot be read"):
        next(documents)


def test_a_file_that_is_gone_or_locked_ends_no_reading(tmp_path):
    for name in ("a.txt", "b.txt", "c.jsonl", "d.txt"):
        (tmp_path / name).write_text('{"text": "x"}')
    errors = list[ValueError]()
    documents = read_documents(tmp_path, on_error=errors.append)
    assert next(documents).id == "a"
    (tmp_path / "b.txt").unlink()
    (tmp_path / "c.jsonl").unlink()
    assert [document.id for document in documents] == ["d"]
    assert ["b.txt" in str(errors[0]), "c.jsonl" in str(errors[1])] == [True, True]


ROWS = [f"Entry {number}." for number in range(30)]


def write_table(path: Path, kind: str) -> tuple[Path, str]:
    """Writes thirty good rows and a bad one among them, and returns what names the bad one."""
    before, after = ROWS[:20], ROWS[20:]
    if kind.endswith(".csv"):
        bad, message = {
            "ragged.csv": ("One, two,3", "must have as many fields as line 1, got {'text': 'One'"),
            "quote.csv": ('"One" two,x', "is not CSV (',' expected after '\"')"),
            "latin.csv": ("café,x", "'utf-8' codec can't decode byte 0xe9"),
        }[kind]
        lines = ["text,id", *(f"{row},x" for row in before), bad]
        lines.extend(f"{row},x" for row in after)
        path.write_bytes("\n".join(lines).encode("latin-1"))
        return path, f"line 22: {message}"
    if kind.endswith(".parquet"):
        pq.write_table(pa.table({"text": [*before, None, *after]}), path)
        return path, "row 20: The text of document '20' is not a valid str: None"
    if kind == "saved":
        Dataset.from_dict({"text": [*before, None, *after]}).save_to_disk(path)
        return path, "row 20: The text of document '20' is not a valid str: None"
    bad, message = {
        "surrogate.jsonl": (rb'{"id": "bad", "text": "cut \ud83d"}', "document 'bad'"),
        "id.jsonl": (rb'{"id": "cut \ud83d", "text": "a"}', "line 21: The text of document"),
        "comma.jsonl": (b'{"text": "x",}', "line 21, column 14: is not JSON"),
        "deep.jsonl": (b"[" * 100_000, "line 21: is JSON of too many levels"),
        "number.jsonl": (b"7", "line 21: is not a JSON object, but 7 (int)"),
        "latin.jsonl": (b'{"text": "caf\xe9"}', "line 21: 'utf-8' codec can't decode byte 0xe9"),
        "column.jsonl": (b'{"body": "x"}', "line 21: Document 20 has no column 'text'"),
    }[kind]
    lines = [b'{"text": "%s"}' % row.encode() for row in ROWS]
    path.write_bytes(b"\n".join([*lines[:20], bad, *lines[20:]]))
    return path, message


@pytest.mark.parametrize(
    "kind",
    [
        "ragged.csv",
        "quote.csv",
        "latin.csv",
        "null.parquet",
        "saved",
        "surrogate.jsonl",
        "id.jsonl",
        "comma.jsonl",
        "deep.jsonl",
        "number.jsonl",
        "latin.jsonl",
        "column.jsonl",
    ],
)
def test_a_bad_row_costs_no_other(tmp_path, kind):
    path, message = write_table(tmp_path / kind, kind)
    texts, [error] = read(tmp_path)
    assert texts == ROWS
    assert error.startswith(f"{path}, ")
    assert message in error
    with pytest.raises(ValueError, match=path.name):
        list(read_documents(path))


def test_many_bad_rows_are_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' + "7\n" * 12)
    texts, errors = read(path)
    assert texts == ["good"]
    assert len(errors) == 11
    assert errors[-1] == f"{path}: 2 more rows cannot be read."
    path.write_text('{"body": "no text"}\n' * 12)
    texts, errors = read(path)
    assert texts == []
    assert "line 1: Document 0 has no column 'text'" in errors[0]
    assert errors[1:] == [f"{path}: 11 more rows cannot be read."]
    assert read(path, text_column="body")[0] == ["no text"] * 12


def test_bad_rows_keep_their_numbers(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n7\n{"text": "y"}')
    (tmp_path / "b.jsonl").write_text('{"text": "z"}')
    documents = read_documents(tmp_path, on_error=print)
    assert [document.id for document in documents] == ["0", "2", "3"]


def test_rows_before_damage_are_read(tmp_path):
    rows = b"".join(b'{"text": "row %d"}\n' % number for number in range(50_000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(rows)[:-2000])
    texts, [error] = read(tmp_path)
    assert len(texts) > 1000
    assert "a.jsonl.gz cannot be read" in error


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.csv", "a.jsonl", "a.json", "a.txt.gz"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_read_by_its_mark_or_refused(tmp_path, name, encoding):
    content = {
        "a.csv": "text\nThe lé",
        "a.jsonl": '{"text": "The lé"}',
        "a.json": '[{"text": "The lé"}]',
    }
    data = content.get(name, "The lé").encode(encoding)
    if name.endswith(".gz"):
        data = gzip.compress(data)
    (tmp_path / name).write_bytes(data)
    texts, errors = read(tmp_path)
    if encoding == "utf-16":
        assert (texts, errors) == (["The lé"], [])
    else:
        assert texts == []
        assert "UTF-16 without a byte order mark. Save it in UTF-8." in errors[0]


def test_line_ends_of_all_systems_are_line_feeds(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\rthree\n")
    assert read(tmp_path)[0] == ["one\ntwo\nthree\n"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_of_other_delimiters(tmp_path, delimiter):
    (tmp_path / "a.csv").write_text(f"id{delimiter}text\n1{delimiter}Der Hafen.\n")
    assert [(row.id, row.text) for row in read_documents(tmp_path)] == [("1", "Der Hafen.")]


def test_links_to_folders_are_followed_once(tmp_path):
    shelf, other = tmp_path / "shelf", tmp_path / "other"
    for folder in (shelf / "z", other, shelf / ".hidden"):
        folder.mkdir(parents=True)
        (folder / "b.txt").write_text(folder.name)
    for name in ("linked", "second"):
        (shelf / name).symlink_to(other)
    (shelf / "again").symlink_to(shelf / "z")
    (other / "round").symlink_to(shelf)
    ids = [name for _, name in source_files(shelf)]
    assert ids == ["linked/b", "z/b"]


def test_what_is_left_out_is_counted_by_kind(tmp_path, caplog):
    for number in range(6):
        (tmp_path / f"a{number}.odt").write_bytes(b"PK")
    (tmp_path / "b.rtf").write_text("{\\rtf1}")
    (tmp_path / "b.rtf.gz").write_text("{\\rtf1}")
    (tmp_path / "README").write_text("no suffix")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nothing")
    (tmp_path / "a.txt").write_text("x")
    assert len(source_files(tmp_path)) == 1
    assert "6 .odt, 2 .rtf, 1 without suffix, 1 broken links" in caplog.text
    assert "README first" in caplog.text


def test_a_folder_that_may_not_be_opened_is_named(tmp_path, caplog, monkeypatch):
    (tmp_path / "locked").mkdir()
    (tmp_path / "a.txt").write_text("x")
    scan = os.scandir

    def refuse(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [name for _, name in source_files(tmp_path)] == ["a"]
    assert f"folder {tmp_path / 'locked'}: Permission denied" in caplog.text


def test_a_name_that_is_not_utf8_can_be_printed(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    Path(path).write_text("The café.")
    [(_, name)] = source_files(tmp_path)
    assert name == "caf\\xe9"
    name.encode()
