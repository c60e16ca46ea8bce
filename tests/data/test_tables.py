"""CSV, Parquet and folders of `save_to_disk`: their rows as they stand, and what is damaged."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import re

import pyarrow as pa
import pyarrow.parquet
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from hypothesis import given
from hypothesis import strategies as st

from nextlevelbert import Document, read_documents
from nextlevelbert.data.rows import Place, file_rows, open_rows
from nextlevelbert.data.tables import csv_rows, hub_dataset, read_csv

ROWS = [{"id": "2024-01-01", "text": "One,\n“two”"}, {"id": "b", "text": ""}]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "ROWS.CSV"])
def test_csv(tmp_path, name, end):
    text = f'\ufeffid,text,rank{end}{end}2024-01-01,"One, ""two""\r\nthree",007{end}b,{"x" * 200_000},{end}'
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    first = {"id": "2024-01-01", "text": 'One, "two"\r\nthree', "rank": "007"}
    assert list(csv_rows(tmp_path / name)) == [(3, first), (5, {"id": "b", "text": "x" * 200_000, "rank": ""})]
    assert next(open_rows(tmp_path / name).rows) == (Place(name, "row 0", 3), first)
    assert next(read_documents(tmp_path / name)) == Document("2024-01-01", first["text"], {"rank": "007"})
    assert csv.field_size_limit() == 131_072  # of the whole process, and not ours to change


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=2), max_size=5))
def test_csv_is_read_as_it_was_written(tmp_path_factory, fields):
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    buffer = io.StringIO(newline="")
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows(fields)
    path.write_bytes(b"\xef\xbb\xbf" + buffer.getvalue().encode())
    assert [found for _, found in read_csv(path)] == fields


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"id,text\n1,a\n2,b,c\n",
            "line 3 has 3 fields, but there are 2 columns (id, text). The first line must name",
        ),
        (b"id,text\n1\n", "line 2 has 1 fields, but there are 2 columns (id, text)."),
        (b"id,text,id\n1,a,2\n", "line 1: two columns are called 'id'. Rename one of them."),
        (
            b'id,text\n1,"a\n2,b\n',
            "line 2 cannot be read (unexpected end of data). A field with commas, quotes or line ends",
        ),
        (b'id,text\n1,"a" b\n', "line 2 cannot be read (',' expected after '\"')"),
        (b"id,text\r1,a\r", "line 1 cannot be read (a carriage return without a line feed)."),
        (b"id,text\n1,na\xefve\n", "line 2: byte EF is not UTF-8 (in Windows-1252 it is 'ï')."),
        ("id,text\n1,a".encode("utf-16"), "is UTF-16 (byte order mark FF FE), but UTF-8 text is needed"),
        (b"id;text\n1;a\n", "row 0 (counted from 0), line 2 has no column 'text'; it has id;text. Name the right one"),
    ],
)
def test_csv_that_is_refused(tmp_path, content, message):
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(ValueError, match="^" + re.escape(f"{tmp_path}/bad.csv") + ".*" + re.escape(message)):
        list(read_documents(tmp_path / "bad.csv"))


@pytest.mark.parametrize("name", ["rows.parquet", "rows.parquet.gz"])
def test_parquet_keeps_types(tmp_path, name):
    columns = {
        "id": [datetime.date(2024, 1, 1), None],
        "text": ["a", "b"],
        "rank": [10**17, 2],
        "tags": [["x"], None],
        "when": pa.array([0, 1000], pa.timestamp("us")),
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "plain")
    content = (tmp_path / "plain").read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    first, second = read_documents(tmp_path / name)
    epoch = datetime.datetime(1970, 1, 1)
    assert first == Document("2024-01-01", "a", {"rank": 10**17, "tags": ["x"], "when": epoch})
    assert (second.id, second.metadata["tags"]) == ("document-000001", None)


def test_parquet_that_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(ROWS * 100), path)
    whole = path.read_bytes()
    twice = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    buffer = io.BytesIO()
    pa.parquet.write_table(twice, buffer)
    for content in (b"", b"text", whole[:-40], whole[:100] + whole[101:], buffer.getvalue()):
        path.write_bytes(content)
        for read in (file_rows, read_documents):
            with pytest.raises(
                ValueError, match=r"rows\.parquet cannot be read as Parquet: .* Copy it again"
            ) as raised:
                list(read(path))
            assert type(raised.value) is ValueError
    assert "two of its columns have one name: text, text" in str(raised.value)
    (tmp_path / "rows.parquet.gz").write_bytes(whole)
    with pytest.raises(ValueError, match=r"rows\.parquet\.gz is not a whole gzip file \(Not a gzipped file"):
        list(read_documents(tmp_path / "rows.parquet.gz"))


def test_folders_of_save_to_disk(tmp_path):
    features = Features({"id": Value("int64"), "text": Value("string"), "label": ClassLabel(names=["sea", "oven"])})
    rows = [{"id": 7, "text": "a", "label": 1}, {"id": 8, "text": "b", "label": 0}]
    one = Dataset.from_list(rows, features=features)
    one.save_to_disk(tmp_path / "one")
    DatasetDict({"test": one}).save_to_disk(tmp_path / "single")
    DatasetDict({"train": one, "test": one.select([1])}).save_to_disk(tmp_path / "both")
    expected = [Document("7", "a", {"label": 1}), Document("8", "b", {"label": 0})]
    for source in (tmp_path / "one", tmp_path / "single", tmp_path / "both/train"):
        assert list(read_documents(source)) == expected
    (tmp_path / "shelf").mkdir()
    (tmp_path / "one").rename(tmp_path / "shelf/one")  # among other files, as one of them
    (tmp_path / "shelf/z.txt").write_text("c")
    assert list(read_documents(tmp_path / "shelf")) == [*expected, Document("z", "c")]
    with pytest.raises(ValueError, match=r"both has several splits \(train, test\)\. Give one of them, or the folder"):
        list(read_documents(tmp_path / "both"))

    table = open_rows(tmp_path / "both", split="test")
    assert (table.name, table.class_names) == ("both", {"label": ("sea", "oven")})
    assert list(table.rows) == [(Place("both", "row 0"), rows[1])]
    with pytest.raises(ValueError, match=r"both has no split 'dev' \(train, test\)"):
        open_rows(tmp_path / "both", split="dev")
    [arrow] = (tmp_path / "both/train").glob("*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"both/train cannot be read as a dataset of save_to_disk \(Arrow"):
        list(read_documents(tmp_path / "both/train"))


def test_a_dataset_with_a_loading_script_is_read_from_the_hub_s_parquet(monkeypatch, caplog):
    calls = []

    def load_dataset(*args, **kwargs):
        calls.append((args, kwargs))
        if "revision" not in kwargs:
            raise RuntimeError("Dataset scripts are no longer supported, but found multi_news.py")
        return "rows"

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert hub_dataset("alexfabbri/multi_news", split="train") == "rows"
    assert hub_dataset("ghomasHudson/muld", "Character Archetype Classification", split="test") == "rows"
    assert calls[1] == (
        ("alexfabbri/multi_news",), {"data_dir": None, "revision": "refs/convert/parquet", "split": "train"}
    )  # fmt: skip
    assert calls[3][1]["data_dir"] == "Character Archetype Classification"
    assert "the Hub's Parquet export of it is read" in caplog.text

    def broken(*args, **kwargs):
        raise RuntimeError("something else")

    monkeypatch.setattr("datasets.load_dataset", broken)
    with pytest.raises(RuntimeError, match="something else"):
        hub_dataset("alexfabbri/multi_news", split="train")
