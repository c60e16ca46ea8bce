"""What can be read is read, what cannot is named once, and nothing ends the reading of others."""

import gzip
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from nextlevelbert import read_documents
from nextlevelbert.data.reading import source_files


def read(source: Path, **options: str) -> tuple[list[str], list[str]]:
    """Reads the texts of a source, and the messages about what cannot be read."""
    errors = list[ValueError]()
    documents = list(read_documents(source, on_error=errors.append, **options))
    return [document.text for document in documents], [str(error) for error in errors]


def test_a_bad_file_ends_no_reading(tmp_path):
    (tmp_path / "n0.txt").write_text("note 0")
    (tmp_path / "n1.txt").write_bytes("café".encode("latin-1"))
    (tmp_path / "n2.pdf").write_bytes(b"%PDF no")
    (tmp_path / "n3.parquet").write_bytes(b"PAR1")
    (tmp_path / "n4.txt.gz").write_bytes(b"not packed")
    (tmp_path / "n5.txt").write_text("note 5")
    texts, errors = read(tmp_path)

    assert texts == ["note 0", "note 5"]

    for error, name in zip(errors, "n1.txt n2.pdf n3.parquet n4.txt.gz".split(), strict=True):
        assert error.startswith(f"{tmp_path / name} cannot be read")

    assert "Save it in UTF-8." in errors[0]

    documents = read_documents(tmp_path)

    assert next(documents).text == "note 0"

    with pytest.raises(ValueError, match=r"n1\.txt cannot be read"):
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


ROWS = [f"Entry {index}." for index in range(30)]


def assert_one_is_named(path: Path, message: str) -> None:
    """Checks that a bad row among thirty good rows costs none of them, and is named."""
    texts, [error] = read(path)
    assert texts == ROWS
    assert error.startswith(f"{path}, ")
    assert message in error
    with pytest.raises(ValueError, match=path.name):
        list(read_documents(path))


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        (
            "ragged.csv",
            b"One, two",
            "line 22: must have as many fields as line 1, got ['One', ' two']",
        ),
        ("quote.csv", b'"One" two', "line 22: is not CSV (',' expected after '\"')"),
        ("latin.csv", b"caf\xe9", "line 22: 'utf-8' codec can't decode byte 0xe9"),
        ("surrogate.jsonl", rb'{"id": "bad", "text": "cut \ud83d"}', "document 'bad'"),
        ("id.jsonl", rb'{"id": "cut \ud83d", "text": "a"}', "line 21: The text of document"),
        ("comma.jsonl", b'{"text": "x",}', "line 21, column 13: is not JSON."),
        ("cut.jsonl", b'{"text": "x"', "line 21, column 13: is not JSON."),
        ("value.jsonl", b'{"text": x}', "line 21, column 9: is not JSON."),
        ("deep.jsonl", b"[" * 100_000, "line 21: is JSON of too many levels"),
        ("number.jsonl", b"7", "line 21: is not a JSON object, but 7 (int)"),
        ("latin.jsonl", b'{"text": "caf\xe9"}', "line 21: 'utf-8' codec can't decode byte 0xe9"),
        ("column.jsonl", b'{"body": "x"}', "line 21: Document 20 has no column 'text'"),
    ],
)
def test_a_bad_line_costs_no_other(tmp_path, name, bad, message):
    if name.endswith(".csv"):
        lines = [b"text", *map(str.encode, ROWS)]
    else:
        lines = [b'{"text": "%s"}' % row.encode() for row in ROWS]
    lines.insert(-10, bad)
    (tmp_path / name).write_bytes(b"\n".join(lines))
    assert_one_is_named(tmp_path / name, message)


@pytest.mark.parametrize("write", [Dataset.to_parquet, Dataset.save_to_disk])
def test_a_bad_row_costs_no_other(tmp_path, write):
    path = tmp_path / "rows.parquet"
    write(Dataset.from_dict({"text": [*ROWS[:20], None, *ROWS[20:]]}), path)
    assert_one_is_named(path, "row 20: The text of document '20' is not a valid str: None")


def test_a_date_beyond_those_of_python_costs_no_other_row(tmp_path):
    """Databases write "infinity" so."""
    dates = pa.array([*range(20), 2**63 - 1, *range(10)], pa.timestamp("us"))
    table = pa.table({"text": [*ROWS[:20], "x", *ROWS[20:]], "until": dates})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert_one_is_named(tmp_path / "rows.parquet", "row 20: holds a value that Python does not")


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
    rows = b"".join(b'{"text": "row %d"}\n' % index for index in range(5_000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(rows)[:-500])
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


@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.TSV", "\t"), ("a.csv", "|")]
)
def test_csv_of_other_delimiters(tmp_path, name, delimiter):
    header = delimiter.join(("id", "text", '"notes, if any"'))
    (tmp_path / name).write_text(f"{header}\n1{delimiter}Der Hafen.{delimiter}\n")

    assert [(row.id, row.text) for row in read_documents(tmp_path)] == [("1", "Der Hafen.")]


def test_the_delimiter_is_the_one_by_which_rows_fit_the_header(tmp_path):
    """Not the one that occurs most often in the names of columns."""
    header = "name, first, second\tname, last\ttext\n"
    (tmp_path / "a.tsv").write_text(header + "Ann\tSmith\tThe heron, a bird.\n")
    (tmp_path / "b.csv").write_text(
        "size, in mm, or more;text\n12;The otter, a beast; it dives\n" * 1
    )
    texts, [error] = read(tmp_path)

    assert texts == ["The heron, a bird."]
    assert "b.csv, line 2: must have as many fields as line 1" in error

    (tmp_path / "b.csv").write_text("size, in mm, or more;text\n12;The otter dives\n")

    assert read(tmp_path)[0][1:] == ["The otter dives"]


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=;"])
def test_a_line_for_excel_names_the_delimiter(tmp_path, line):
    rows = "id,a;text\r\n1;The heron.\r\n2\r\n3;The otter.\r\n"
    (tmp_path / "a.csv").write_bytes(f"{line}\r\n{rows}".encode())
    texts, [error] = read(tmp_path)

    assert texts == ["The heron.", "The otter."]
    assert "a.csv, line 4: must have as many fields as line 2" in error


def test_a_quotation_mark_that_is_not_closed_costs_its_line(tmp_path):
    name = "a.csv"
    lines = [f"{index},Entry {index}." for index in range(30)]
    lines[5] = '5,"Entry 5.'
    lines[20] = '20,"Entry 20."'
    for bad, end in ((lines[:20], 21), (lines, 22)):
        (tmp_path / name).write_text("\n".join(["id,text", *bad]))
        texts, [error] = read(tmp_path)
        count = len(bad) - 1
        assert len(texts) == count
        assert texts[5] == "Entry 6."
        assert (
            f"{name}, line 7: begins a field in quotation marks that takes {end - 6} lines" in error
        )
        assert f"to line {end}, and is not CSV" in error


def test_each_quotation_mark_that_is_not_closed_costs_its_line(tmp_path):
    """Below the first, lines are read as rows of their own, as if each were the first."""
    lines = ["id,text", '0,"a', '1","b', '2","c', "3,d", '4,"e" f', '5,"g', 'h"', '6,"i', "7,j"]
    (tmp_path / "a.csv").write_text("\n".join(lines))

    texts, errors = read(tmp_path)

    assert texts == ["d", "g\nh", "j"]
    assert [str(error).partition("a.csv, ")[2].partition(", and ")[0] for error in errors] == [
        "line 2: begins a field in quotation marks that takes 5 lines, to line 6",
        "line 3: begins a field in quotation marks that takes 4 lines, to line 6",
        "line 4: begins a field in quotation marks that takes 3 lines, to line 6",
        "line 6: is not CSV (',' expected after '\"').",
        "line 9: begins a field in quotation marks that takes 2 lines, to line 10",
    ]


def test_rows_of_a_tsv_may_begin_with_speech(tmp_path):
    """Most programs that write such a table quote nothing; spreadsheets quote what needs it."""
    rows = [
        '0\t"Yes," he said.',
        "1\tThe dome opens.",
        '2\t"No," said the keeper, "not today."',
        '3\t"I say',
        '4\t"quoted\tby a ""spreadsheet"""',
        '5\t"More" of\tthis.',
    ]
    (tmp_path / "a.tsv").write_text("\n".join(["id\ttext", *rows]))

    texts, [error] = read(tmp_path)

    assert texts == [
        '"Yes," he said.',
        "The dome opens.",
        '"No," said the keeper, "not today."',
        '"I say',
        'quoted\tby a "spreadsheet"',
    ]
    assert "a.tsv, line 7: is not CSV ('\t' expected after '\"')" in error


def test_empty_fields_behind_the_last_column_are_none(tmp_path):
    """Instruments end each line with a comma; pandas and spreadsheets read such tables so."""
    (tmp_path / "a.csv").write_text("id,text\n1,a,\n2,b\n3,c,,\n4,d,,e\n")

    texts, [error] = read(tmp_path)

    assert texts == ["a", "b", "c"]
    assert "a.csv, line 5: must have as many fields as line 1, got ['4', 'd', '', 'e']" in error


def write_csv(path: Path, names: list[str], rows: list[list[str]]) -> None:
    path.write_text("\n".join(",".join(row) for row in [names, *rows]))


def write_parquet(path: Path, names: list[str], rows: list[list[str]]) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, names=names), path)


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_columns_of_one_name_are_numbered(tmp_path, write):
    """None of them is the text: it would be a guess which."""
    path = tmp_path / write.__name__.replace("write_", "a.")
    write(path, ["note", "text", "note"], [["a", "b", "c"]])

    [document] = read_documents(path)
    _, [text_error] = read(path, text_column="note")
    _, [id_error] = read(path, id_column="note")

    assert document.text == "b"
    assert document.metadata == {"note (1)": "a", "note (2)": "c"}
    assert "has no column 'note'; it has note (1), " in text_error
    assert "has 'note' twice. Rename one of them." in id_error
    assert read(path, text_column="note (2)")[0] == ["c"]


def test_numbered_columns_that_are_there_already_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("note,text,note,note (1)\na,b,c,d\n")

    _, [error] = read(tmp_path)

    assert "a.csv cannot be read: some of its columns have the same name. Rename them." in error


def test_a_record_has_at_most_256_mb(tmp_path, monkeypatch):
    """Of all lines between two quotation marks, as they are in memory: 50 bytes more each."""
    monkeypatch.setattr("nextlevelbert.data.tables.UNPACKED_LIMIT", 10_000)
    lines = ["id,text", '0,"a', *["b"] * 1_000, '1,"c', 'd"', "2,e"]
    (tmp_path / "a.csv").write_text("\n".join(lines))

    texts, errors = read(tmp_path)

    [line_count] = re.findall(r"line 2: begins a field .* takes ([0-9,]+) lines", errors[0])
    assert texts == ["c\nd", "e"]
    assert int(line_count.replace(",", "")) < 300
    assert "and is not CSV, or more than 10,000 bytes" in errors[0]


def test_a_text_of_several_lines_is_one_row(tmp_path):
    text = "One,\n\ntwo\nthree"
    (tmp_path / "a.csv").write_text(f'id,text\n1,"{text}"\n2,"{text}",x\n3,"{text}"\n')
    texts, [error] = read(tmp_path)

    assert texts == [text, text]
    assert "a.csv, line 6: must have as many fields as line 1" in error


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson"])
@pytest.mark.parametrize("between", ["\n", ",\n", "", "\n\n"])
def test_objects_of_several_lines_follow_each_other(tmp_path, name, between):
    objects = [json.dumps({"id": text, "text": text}, indent=2) for text in ROWS]
    (tmp_path / name).write_text(between.join(objects))

    assert read(tmp_path) == (ROWS, [])

    (tmp_path / name).write_text("[" + ",".join(objects) + "]")

    assert read(tmp_path) == (ROWS, [])


def test_a_bad_object_costs_no_other(tmp_path):
    objects = ['{\n "text": "x"\n}', '{\n "text": }', '{\n "text": "y"\n}', "7"]
    (tmp_path / "a.json").write_text("\n".join(objects))
    texts, errors = read(tmp_path)

    assert texts == ["x", "y"]
    assert "line 4: begins a value that is not JSON." in errors[0]
    assert "line 9: is not a JSON object, but 7 (int)" in errors[1]


def test_bad_objects_below_a_bad_one_cost_no_other(tmp_path):
    """A list that is not closed would hold all objects behind it."""
    bad = [
        '{"text": ["a",',
        '{"text":\n"b"}',
        '{"text": "c"}, {"text": "d"}',
        "{]",
        "}",
        '{"text": 7,}',
    ]
    (tmp_path / "a.json").write_text("\n".join(['{"text":\n"x"}', *bad, '{"text":\n"y"}']))

    texts, errors = read(tmp_path)

    assert texts == ["x", "b", "c", "d", "y"]
    assert [error.partition("a.json, ")[2] for error in errors] == [
        "line 3: begins a value that is not JSON.",
        "line 7: begins a value that is not JSON.",
        "line 9: begins a value that is not JSON.",
    ]


@pytest.mark.parametrize("bad", [b'{"text": "a"', b'{"text": "caf\xe9"}', b"{", b"[" * 100_000])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_a_damaged_first_line_costs_no_other(tmp_path, name, bad):
    (tmp_path / name).write_bytes(bad + b'\n{"text": "b"}\n{"text": "c"}\n')

    texts, [error] = read(tmp_path)

    assert texts == ["b", "c"]
    assert f"{name}, line 1" in error


def test_a_damaged_array_is_named_with_its_line(tmp_path):
    (tmp_path / "a.json").write_text('[\n {"text": "a"},\n {"text": "b"},\n]')

    texts, [error] = read(tmp_path)

    assert texts == []
    assert "a.json cannot be read: line 3 is not JSON." in error


@pytest.mark.parametrize("behind", [b"", b"\0\0", b"signature", b"\0signature\0"])
def test_bytes_behind_a_packed_file_are_ignored(tmp_path, caplog, behind):
    """As by gunzip."""
    members = gzip.compress(b"The ferry leaves.\n") + gzip.compress(b"The dome opens.\n")
    (tmp_path / "a.txt.gz").write_bytes(members + behind)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"text\n") + members + behind)

    texts, errors = read(tmp_path)

    assert texts == ["The ferry leaves.\nThe dome opens.\n", "The ferry leaves.", "The dome opens."]
    assert errors == []
    for name in ("a.txt.gz", "b.csv.gz"):
        is_named = f"{name} was read in part: the bytes at its end are not packed" in caplog.text
        assert is_named == (b"signature" in behind)


def test_a_packed_file_with_a_wrong_checksum_is_refused(tmp_path):
    data = bytearray(gzip.compress(b"The ferry leaves."))
    data[-6] ^= 1
    (tmp_path / "a.txt.gz").write_bytes(data)

    texts, [error] = read(tmp_path)

    assert texts == []
    assert "a.txt.gz cannot be read: CRC check failed" in error


def test_texts_that_are_stored_as_binary_are_read(tmp_path):
    """As Spark and Impala write them."""
    texts = pa.array([b"The heron.", "Der Fährmann.".encode(), b"caf\xe9"], pa.binary())
    ids = pa.array([b"a", b"b", b"c"], pa.binary())
    pq.write_table(pa.table({"id": ids, "text": texts}), tmp_path / "a.parquet")
    errors = list[ValueError]()
    documents = list(read_documents(tmp_path, on_error=errors.append))

    assert [(row.id, row.text) for row in documents] == [
        ("a", "The heron."),
        ("b", "Der Fährmann."),
    ]
    assert "row 2: The text of document 'c' is not a valid str: b'caf\\xe9' (bytes)" in str(
        errors[0]
    )


def test_links_to_folders_are_followed_once(tmp_path):
    shelf = tmp_path / "shelf"
    other = tmp_path / "other"
    for folder in (shelf / "z", other, shelf / ".hidden"):
        folder.mkdir(parents=True)
        (folder / "b.txt").write_text(folder.name)
    for name in ("linked", "second"):
        (shelf / name).symlink_to(other)
    (shelf / "again").symlink_to(shelf / "z")
    (other / "round").symlink_to(shelf)
    for source in (shelf, f"{shelf}/**", f"{shelf}/**/*", f"{shelf}/*/**/[bc]**.txt"):
        assert [name for _, name in source_files(source)] == ["linked/b", "z/b"]


def test_what_is_left_out_is_counted_by_kind(tmp_path, caplog):
    for index in range(6):
        (tmp_path / f"a{index}.odt").write_bytes(b"PK")
    (tmp_path / "b.rtf").write_text("{\\rtf1}")
    (tmp_path / "b.rtf.gz").write_text("{\\rtf1}")
    (tmp_path / "README").write_text("no suffix")
    (tmp_path / "~$letter.docx").write_bytes(b"\x05Ann")  # Word has letter.docx open
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nothing")
    (tmp_path / "a.txt").write_text("x")

    assert len(source_files(tmp_path)) == 1

    (tmp_path / "self.txt").symlink_to("self.txt")

    assert len(source_files(tmp_path)) == 1
    assert "6 .odt, 2 .rtf, 1 without suffix; README first" in caplog.text
    assert "(broken links, or things that are no files): gone.txt, self.txt." in caplog.text


def test_a_state_of_another_program_makes_no_data_set(tmp_path):
    """Editors and sync programs write a file of this name beside notes."""
    (tmp_path / "a.txt").write_text("The observatory.")
    for state in ('{"window": [0, 0, 800, 600]}', "[1]", "{", '{"_data_files": []}'):
        (tmp_path / "state.json").write_text(state)
        texts, errors = read(tmp_path)
        assert texts == ["The observatory."]
        assert "state.json" in errors[0]
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')

    assert read(tmp_path)[0] == ["The observatory."]


def test_a_hidden_file_is_read_if_it_is_the_source(tmp_path):
    (tmp_path / ".diary.txt").write_text("The observatory.")
    (tmp_path / "a.txt").write_text("The estuary.")

    assert read(tmp_path / ".diary.txt")[0] == ["The observatory."]
    assert read(tmp_path)[0] == ["The estuary."]


def test_folders_may_be_nested_deeper_than_python_can_call(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("The estuary.")
    monkeypatch.chdir(tmp_path)
    depth = sys.getrecursionlimit() + 10
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    Path("deep.txt").write_text("The plough.")

    assert read(tmp_path) == (["The estuary.", "The plough."], [])

    for _ in range(depth):  # pytest, too, removes folders by recursion
        shutil.rmtree("d", ignore_errors=True)
        os.chdir("..")
    shutil.rmtree("d")


def test_every_document_has_an_id_of_its_own(tmp_path):
    """A scan, notes on it, and its text under the name that programs for OCR give it."""
    shelves = [tmp_path / "one", tmp_path / "two"]
    for shelf in shelves:
        shelf.mkdir()
        for name in ("report.md", "report.txt", "report.md.txt", "other.txt"):
            (shelf / name).write_text("The board met.")
    _, ids = zip(*source_files(shelves[0]), strict=True)

    assert ids == ("other", "report.md", "report.md.txt", "report.txt")

    paths, ids = zip(*source_files(shelves), strict=True)

    assert list(ids) == list(map(str, paths))


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
