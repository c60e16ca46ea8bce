"""Rows of files and datasets with their places."""

import gzip
import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from nextlevelbert.data.tables import RowLocation, hub_dataset, open_rows

ROWS = [
    {"id": "2024-01-01", "text": "One.", "labels": [1, 0]},
    {"id": "9" * 30, "text": "Two — ü.\u2028\x85", "labels": []},
]


def content_of(suffix: str) -> bytes:
    if suffix == ".parquet":
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(ROWS), buffer)
        return buffer.getvalue()
    if suffix.startswith(".json") and not suffix.startswith(".jsonl"):
        content = json.dumps(ROWS, indent=1).encode()
    else:
        content = (
            b"\xef\xbb\xbf"
            + "\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()
        )
    return gzip.compress(content, mtime=0) if suffix.endswith(".gz") else content


@pytest.mark.parametrize(
    ("suffix", "places"),
    [
        (".jsonl", ("line 1", "line 3")),
        (".json", ("row 0", "row 1")),
        (".parquet", ("row 0", "row 1")),
        (".jsonl.gz", ("line 1", "line 3")),
        (".json.gz", ("row 0", "row 1")),
        (".dev", ("line 1", "line 3")),
    ],
)
def test_every_kind_of_file_has_the_same_rows(tmp_path, suffix, places):
    """Ids that look like dates or numbers stay the strings that they are."""
    path = tmp_path / f"rows[1]{suffix}"
    path.write_bytes(content_of(suffix))

    table = open_rows(path)

    assert (table.name, table.first, table.class_names) == (path.name, ROWS[0], {})
    assert list(table.rows) == [
        (RowLocation(str(path), place), row) for place, row in zip(places, ROWS, strict=True)
    ]


@pytest.mark.parametrize(
    ("content", "rows"),
    [('{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]), ('{"a":\n 1}', [{"a": 1}])],
)
def test_json_lines_and_one_object_in_a_json(tmp_path, content, rows):
    (tmp_path / "rows.json").write_text(content)
    assert [row for _, row in open_rows(tmp_path / "rows.json").rows] == rows


@pytest.mark.parametrize(
    ("name", "packed"),
    [("rows.csv", bytes), ("rows.csv.gz", gzip.compress), ("ROWS.CSV", bytes)],
)
def test_csv(tmp_path, name, packed):
    text = f'\ufeffid,text,rank\n\n2024-01-01,"One, ""two""\r\nthree",007\nNA,{"x" * 200_000},\n'
    text += "9,a\u2028b\x85c\x1fd,\n"
    (tmp_path / name).write_bytes(packed(text.encode()))
    rows = [
        {"id": "2024-01-01", "text": 'One, "two"\r\nthree', "rank": "007"},
        {"id": "NA", "text": "x" * 200_000, "rank": ""},
        {"id": "9", "text": "a\u2028b\x85c\x1fd", "rank": ""},
    ]

    assert [row for _, row in open_rows(tmp_path / name).rows] == rows


def test_a_delimiter_within_quotes_of_the_header_is_a_part_of_a_name(tmp_path):
    (tmp_path / "rows.csv").write_text('"title, author, year";text\n"Emma; Austen";A novel.\n')

    table = open_rows(tmp_path / "rows.csv")

    assert table.first == {"title, author, year": "Emma; Austen", "text": "A novel."}


def two_columns_of_one_name() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"a": 1}\n\n{"a": ?}\n', "line 3, column 7"),
        ("a.jsonl", b'{"a": 1}\n7\n', "line 2 is not a JSON object, but 7 (int)"),
        ("a.jsonl", b'{"a": "na\xefve"}', "0xef"),
        ("a.csv", b"id,text\n1,a\n2,b,c\n", "line 3 must have as many fields as line 1, got {"),
        ("a.csv", b'id,text\n1,"a\n2,b\n', "unexpected end of data"),
        ("a.csv", b"text,text,,\na,b,,\n", "it has 2 columns named 'text'. Rename all but one."),
        ("a.parquet", two_columns_of_one_name(), "it has 2 columns named 'text'"),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}' * 99, mtime=0)[:-9], "cannot be read"),
        ("a.parquet", b"PAR1 no Parquet PAR1", "cannot be read"),
        ("a.jsonl", b"\n", "is empty"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        list(open_rows(tmp_path / name).rows)
    assert name in str(raised.value)


@pytest.mark.parametrize("source", ["", "a.txt", "*.txt"])
def test_texts_are_not_a_table(tmp_path, source):
    (tmp_path / "a.txt").write_text("It rained.\n\nIt poured.\n")
    with pytest.raises(ValueError, match="holds texts, and not a table"):
        open_rows(tmp_path / source)


def test_a_table_of_texts_alone_is_one(tmp_path):
    Dataset.from_dict({"text": ["It rained."]}).to_parquet(tmp_path / "train.parquet")
    assert open_rows(tmp_path).first == {"text": "It rained."}


def test_a_pattern_of_files_is_one_source(tmp_path):
    for index, row in enumerate(ROWS):
        (tmp_path / f"part-{index}.jsonl").write_text(json.dumps(row))

    table = open_rows(tmp_path / "part-*.jsonl")

    assert (table.name, [row for _, row in table.rows]) == (str(tmp_path / "part-*.jsonl"), ROWS)


@pytest.mark.parametrize(
    "source", ["absent.jsonl", "absent*", "no/such/set", "no-such-folder/no-such-set", "cdlm"]
)
def test_what_is_not_there(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=re.escape(f"There is no file or folder {source!r}")
    ):
        open_rows(source)


def test_folders_of_save_to_disk_and_names_of_classes(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["sea", "oven"])})
    one = Dataset.from_list(
        [{"text": "a", "label": 1}, {"text": "b", "label": 0}], features=features
    )
    one.save_to_disk(tmp_path / "one")
    DatasetDict({"train": one, "test": one.select([1])}).save_to_disk(tmp_path / "both")
    one.to_parquet(str(tmp_path / "rows.parquet"))

    for source in ("one", "rows.parquet", "both"):
        table = open_rows(tmp_path / source)
        assert (table.name, table.class_names, table.first) == (
            source,
            {"label": ("sea", "oven")},
            one[0],
        )
    assert [row for _, row in open_rows(tmp_path / "both", "test").rows] == [one[1]]
    with pytest.raises(ValueError, match="splits train, test, not dev"):
        open_rows(tmp_path / "both", "dev")


def test_a_dataset_with_a_loading_script_is_read_from_the_hub_s_parquet(monkeypatch):
    calls = []

    def load_dataset(*args, **kwargs):
        calls.append((args, kwargs))
        if "revision" not in kwargs:
            raise RuntimeError("Dataset scripts are no longer supported, but found muld.py")
        return "rows"

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert hub_dataset("ghomasHudson/muld", "Character Archetype", split="test") == "rows"
    options = {
        "data_dir": "Character Archetype",
        "revision": "refs/convert/parquet",
        "split": "test",
    }
    assert calls[1] == (("ghomasHudson/muld",), options)


def test_text_that_is_no_unicode_is_named_with_its_row():
    location = RowLocation("books.jsonl", "line 3")

    with pytest.raises(
        ValueError, match=r"books.jsonl, line 3, column 'text': is not valid Unicode"
    ):
        location.require_text("half of a pair: \ud800", "text")
    assert location.require_text("naïve", "text") == "naïve"
