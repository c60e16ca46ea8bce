"""Rows of files and datasets with their places."""

import gzip
import io
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Audio, ClassLabel, Dataset, DatasetDict, Features, Image, List, Value, Video

from nextlevelbert import Document, read_documents
from nextlevelbert.data.documents import as_documents
from nextlevelbert.data.rows import RowLocation
from nextlevelbert.data.tables import hub_dataset, open_rows
from nextlevelbert.models.tokenizing import iter_texts

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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"a": 1}\n\n{"a": ?}\n', "line 3, column 6"),
        ("a.jsonl", b'{"a": 1}\n7\n', "line 2 is not a JSON object, but 7 (int)"),
        ("a.jsonl", b'{"a": "na\xefve"}', "0xef"),
        ("a.csv", b"id,text\n1,a\n2,b,c\n", "line 3 must have as many fields as line 1, got ["),
        ("a.csv", b'id,text\n1,"a\n2,b\n', "takes 2 lines, to line 3, and is not CSV"),
        ("a.json", b'{"a":\n1,\n}', "line 2 is not JSON"),
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


def test_names_in_a_folder_tell_the_splits(tmp_path):
    names = ["latest.jsonl", "train-00000-of-00002.jsonl", "test/TRAIN_1.jsonl", "val/1.jsonl"]
    for name in [*names, "dev.csv.gz/.train.jsonl"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"text": name}))

    train = [row["text"] for _, row in open_rows(tmp_path).rows]

    assert train == ["test/TRAIN_1.jsonl", "train-00000-of-00002.jsonl"]
    assert open_rows(tmp_path, "validation").first == {"text": "val/1.jsonl"}
    assert open_rows(tmp_path, config="test").first == {"text": "test/TRAIN_1.jsonl"}
    with pytest.raises(ValueError, match="the splits train, validation, not test"):
        open_rows(tmp_path, "test")


def test_tables_of_a_folder_without_splits_are_trained_on(tmp_path):
    for index, row in enumerate(ROWS):
        (tmp_path / f"part-{index}.jsonl").write_text(json.dumps(row))

    table = open_rows(tmp_path)

    assert table.name == f"{tmp_path.name} (train)"
    assert [row for _, row in table.rows] == ROWS


@pytest.mark.parametrize("source", ["", "a.txt", "*.txt"])
def test_texts_are_not_a_table(tmp_path, source):
    (tmp_path / "a.txt").write_text("It rained.\n\nIt poured.\n")
    with pytest.raises(ValueError, match="holds no table"):
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


# --- Data sets from strangers


class Server(NamedTuple):
    """A server on this machine: the address of a picture on it, and what it was asked for."""

    address: str
    requests: list[str]


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    requests = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        threading.Thread(target=http_server.serve_forever, args=(0.01,), daemon=True).start()
        yield Server(f"http://127.0.0.1:{http_server.server_port}/a.png", requests)
        http_server.shutdown()


TEXT = "The whale swims."


def rows_with_media(server: Server, column: Any) -> pa.Table:
    """A row with a text and an address, stored as `datasets` stores a picture."""
    picture: Any = {"path": server.address, "bytes": None}
    if isinstance(column, List):
        picture = [picture]
    if isinstance(column, dict):
        picture = {"front": picture}
    features = Features({"text": Value("string"), "picture": column, "year": Value("int64")})
    row = {"text": TEXT, "picture": picture, "year": 1851}
    return pa.Table.from_pylist([row], schema=features.arrow_schema)


def write_saved(folder: Path, table: pa.Table) -> Path:
    """A folder of `save_to_disk`, which itself would open the picture, so its type comes later."""
    features = Features.from_arrow_schema(table.schema)
    path = folder / "saved"
    Dataset(table.replace_schema_metadata()).save_to_disk(path)
    info = json.loads((path / "dataset_info.json").read_text())
    info["features"] = features.to_dict()
    (path / "dataset_info.json").write_text(json.dumps(info))
    return path


def read_saved(folder: Path, table: pa.Table) -> Iterable[Document]:
    return read_documents(write_saved(folder, table))


def read_parquet(folder: Path, table: pa.Table) -> Iterable[Document]:
    pq.write_table(table, folder / "rows.parquet")
    return read_documents(folder)


def read_labelled(folder: Path, table: pa.Table) -> Iterable[Document]:
    pq.write_table(table, folder / "train.parquet")
    return as_documents(row for _, row in open_rows(folder).rows)


def read_stream(folder: Path, table: pa.Table) -> Iterable[Document]:
    return as_documents(Dataset(table).to_iterable_dataset())


def read_own(folder: Path, table: pa.Table) -> Iterable[Document]:
    return as_documents(Dataset(table))


@pytest.mark.parametrize("column", [Image(), Audio(), Video(), List(Image()), {"front": Image()}])
@pytest.mark.parametrize("read", [read_saved, read_parquet, read_labelled, read_stream, read_own])
def test_pictures_and_sound_are_not_opened(
    tmp_path, server, column, read: Callable[[Path, pa.Table], Iterable[Document]]
):
    """A stranger would learn from a request when and where his data set is read."""
    table = rows_with_media(server, column)

    documents = list(read(tmp_path, table))

    assert documents == [Document("0", TEXT, {"year": 1851})]
    assert server.requests == []


def test_addresses_in_the_card_of_a_folder_are_not_fetched(tmp_path, server):
    (tmp_path / "train.jsonl").write_text(json.dumps(ROWS[0]))
    (tmp_path / "README.md").write_text(
        f"---\nconfigs:\n- config_name: default\n  data_files: {server.address}\n---\n"
    )

    table = open_rows(tmp_path)

    assert table.first == ROWS[0]
    with pytest.raises(ValueError, match="is on this machine"):
        hub_dataset(str(tmp_path), split="train", streaming=True)
    assert server.requests == []


def test_encoding_a_data_set_opens_no_picture(server):
    dataset = Dataset(rows_with_media(server, Image()))

    texts = list(iter_texts(dataset))

    assert texts == [TEXT]
    assert server.requests == []


def test_a_column_of_pictures_may_become_the_text(tmp_path):
    """By a transform of the user's own, which reads it."""
    dataset = Dataset.from_list([{"scan": {"path": "a.png", "bytes": None}}])
    dataset = dataset.with_transform(lambda rows: {"text": [scan["path"] for scan in rows["scan"]]})

    documents = list(as_documents(dataset))

    assert documents == [Document("0", "a.png")]


@pytest.mark.parametrize("error", [ImportError("no torchcodec"), KeyError("x"), MemoryError()])
def test_any_error_of_a_file_costs_this_file_only(tmp_path, monkeypatch, error):
    (tmp_path / "a.txt").write_text(TEXT)
    Dataset.from_list([{"text": "x"}]).save_to_disk(tmp_path / "saved")

    def fail(folder: str) -> None:
        raise error

    monkeypatch.setattr("datasets.load_from_disk", fail)
    errors: list[ValueError] = []

    documents = list(read_documents(tmp_path, on_error=errors.append))

    assert documents == [Document("a", TEXT)]
    reason = str(error) or "MemoryError"
    assert [str(error) for error in errors] == [f"{tmp_path / 'saved'} cannot be read: {reason}."]


def test_a_data_set_without_its_file_is_not_said_to_be_removed(tmp_path):
    Dataset.from_list([{"text": "x"}]).save_to_disk(tmp_path / "saved")
    [path] = (tmp_path / "saved").glob("*.arrow")
    path.unlink()

    with pytest.raises(ValueError, match=rf"saved cannot be read: .*{path.name}"):
        list(read_documents(tmp_path))


def test_values_of_a_saved_data_set_are_not_converted(tmp_path):
    """Whatever format its writer worked with; texts may be stored as bytes."""
    dataset = Dataset.from_dict({"id": [7], "text": [TEXT.encode()], "ratio": [0.5]})
    dataset.with_format("numpy").save_to_disk(tmp_path / "saved")

    [document] = read_documents(tmp_path / "saved")

    assert document == Document("7", TEXT, {"ratio": 0.5})


def test_a_folder_may_not_name_itself_as_its_split(tmp_path):
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["."]}')
    (tmp_path / "a.txt").write_text(TEXT)

    documents = list(read_documents(tmp_path, on_error=print))

    assert documents == [Document("a", TEXT)]
