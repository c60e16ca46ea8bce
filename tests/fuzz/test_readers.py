"""Files of every kind, damaged: what is read is whole, and what cannot be read is named."""

from __future__ import annotations

import gzip
import io
import json
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextlevelbert import read_documents, read_marked
from nextlevelbert.data.rows import open_rows, placed_rows
from nextlevelbert.pretraining.document_sets import read_document_sets
from nextlevelbert.tasks.document_matching import read_document_pairs
from nextlevelbert.tasks.ecbplus import read_ecbplus
from nextlevelbert.tasks.labelled_documents import ColumnArguments, read_choices, read_classes
from nextlevelbert.tasks.multihop_qa import read_hotpotqa
from nextlevelbert.tasks.published import choice_table, classification_table
from nextlevelbert.tasks.ranking import RankingArguments, read_ranking
from nextlevelbert.tasks.retrieval import read_retrieval_task
from nextlevelbert.tasks.summarization import SummaryArguments, read_summaries

from ..book_toys import write_docx, write_epub, write_pdf
from .cases import TEXTS, cases, only_our_errors

ROWS = [
    {"id": "2024-01-01", "text": "a\u2028b \0 é 😀 " * 5, "n": 10**30, "x": [1, {"y": None}]},
    {"id": 7, "text": "b", "label": 1},
]
LINES = "\n".join(json.dumps(row) for row in ROWS).encode()


def parquet(rows):
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


JSON = [
    LINES, json.dumps(ROWS).encode(), LINES.replace(b"\n", b"\r\n"), "\ufeff".encode() + LINES, b"",
    LINES.decode().encode("utf-16"), b"null", b'[{"text": 1e999}]',
    b'{"a":1,"a":2}', b'{"text":"\\ud800"}', b"[" * 5_000, b'{"a":' * 5_000, b"[" + b"9" * 5_000 + b"]", b'{"a":NaN}',
    json.dumps(ROWS, indent=1).encode(), json.dumps(ROWS[0], indent=2).encode(), b"[{}] x",
]  # fmt: skip
SEEDS = {
    ".jsonl": JSON,
    ".json": JSON,
    ".csv": [b'id,text\n1,"a ""b"" c"\n2,x\n', b'id,text\r\n1,"a\r\nb"\r\n', b"a\rb", b"id,id\n1,2",
             b"text\n" + b"x" * 200_000],
    ".html": [b"<html><head><title>x</title></head><body><p>a<br>b<pre> c\n d</pre><script>1<2</script>&amp;&#x0;"
              b"<![if x]>y<![endif]><!-- z --></body>", b"<![CDATA[x", b"&#99999999999;", b"<div>" * 3_000],
    ".txt": ["aé\r\nb".encode(), "ab".encode("utf-16-le"), b"\xed\xa0\x80", b"\x1f\x8b\x08", b""],
    ".md": [b"# x\n\ny"],
    ".parquet": [parquet(ROWS[1:] * 20), parquet([{"text": "x" * 99, "id": None}] * 3), b"PAR1PAR1", b""],
}  # fmt: skip
INSERTED = (b"\0", b"\xff\xfe", b'"', b"\n", b"\r", b"<![", b"<!", b"{", b"[", b"\\u", b"\xed\xa0\x80", b",", b"\x1a")
PLACES = st.integers(0, 1 << 16)
MUTATIONS = st.lists(
    st.tuples(st.just("set"), PLACES, st.binary(min_size=1, max_size=1))
    | st.tuples(st.just("cut"), PLACES, st.integers(1, 20))
    | st.tuples(st.just("insert"), PLACES, st.binary(min_size=1, max_size=5) | st.sampled_from(INSERTED)),
    max_size=5,
)


def damaged(content: bytes, mutations) -> bytes:
    for kind, place, value in mutations:
        at = place % (len(content) + 1)
        if kind == "set":
            content = content[:at] + value + content[at + 1 :]
        elif kind == "cut":
            content = content[:at] + content[at + value :]
        else:
            content = content[:at] + value + content[at:]
    return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def read_all(path):
    for document in read_documents(path):
        assert isinstance(document.text, str)
        document.text.encode()  # no lone surrogate
    for _ in (
        placed_rows(path) if path.name.removesuffix(".gz").endswith((".jsonl", ".json", ".csv", ".parquet")) else ()
    ):
        pass


@cases(0.40)
@given(st.sampled_from(sorted(SEEDS)), st.integers(0, 99), MUTATIONS, st.sampled_from([None, None, ()]) | MUTATIONS)
def test_damaged_files(folder, kind, seed, mutations, packed):
    content = damaged(SEEDS[kind][seed % len(SEEDS[kind])], mutations)
    path = folder / (f"x{kind}" if packed is None else f"x{kind}.gz")
    path.write_bytes(content if packed is None else damaged(gzip.compress(content, mtime=0), packed))
    with only_our_errors():
        read_all(path)
    path.unlink()


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """The bytes of a book of each kind."""
    place = tmp_path_factory.mktemp("books")
    pages = ["<p>The whale é.</p>", "<p>b</p>"]
    made = [
        write_pdf(place / "x.pdf", pages),
        write_epub(place / "x.epub", pages),
        write_docx(place / "x.docx", pages),
    ]
    return {path.suffix: path.read_bytes() for path in made}


@cases(0.15)
@given(st.sampled_from([".pdf", ".epub", ".docx"]), st.none() | st.integers(0, 9), MUTATIONS)
def test_damaged_books(folder, books, kind, member, mutations):
    """Damaged as a file, or one file within the archive, whose own check sum then fits."""
    content = books[kind]
    if kind == ".pdf" or member is None:
        content = damaged(content, mutations)
    else:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        chosen = sorted(files)[member % len(files)]
        with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
            for name, data in files.items():
                archive.writestr(name, damaged(data, mutations) if name == chosen else data)
        content = file.getvalue()
    path = folder / f"x{kind}"
    path.write_bytes(content)
    with only_our_errors():
        read_all(path)
    path.unlink()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | TEXTS
    | st.sampled_from(["0", "1", "yes", "<m>a</m> b", -100, 2**63, "\ud800", ""]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(TEXTS | st.sampled_from(["title", "sentences"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
TASKS = {
    "classification": lambda path: read_classes(classification_table(path), ColumnArguments()),
    "choice": lambda path: read_choices(choice_table(path), ColumnArguments()),
    "coreference": read_ecbplus,
    "matching": read_document_pairs,
    "multihop": read_hotpotqa,
    "ranking": lambda path: read_ranking(path, "train", RankingArguments()),
    "retrieval": read_retrieval_task,
    "summaries": lambda path: read_summaries(SummaryArguments(model="any"), str(path), None, None),
    "clusters": read_document_sets,
    "rows": lambda path: [list(open_rows(path))],
}
GOOD = {
    "classification": {"text": "a", "label": "b"},
    "choice": {"text": "a", "question": "b", "choices": ["c", "d"], "label": 0},
    "coreference": {
        "doc_id": "1_1ecb", "topic": "1", "subtopic": "1_1", "text": "It rained.", "sentences": [[0, 10]],
        "sentence_ids": [0], "validated_sentences": [0],
        "mentions": [{"start": 3, "end": 9, "sentence": 0, "type": "ACTION_OCCURRENCE", "cluster": "r"}],
    },
    "matching": {"text1": "a", "text2": "b", "label": 1},
    "multihop": {"id": "q", "question": "a", "answer": "b", "supporting_facts": [["t", 0]],
                 "context": [["t", ["b."]]]},
    "ranking": {"query": "a", "document": "b"},
    "retrieval": {"query": "a", "document": "b"},
    "summaries": {"text": "A b. C d.", "summary": "A b."},
    "clusters": {"document": ["a", "b"]},
    "rows": {"a": 1},
}  # fmt: skip
COLUMNS = sorted({column for row in GOOD.values() for column in row} | {"labels", "type"})


@pytest.mark.parametrize("task", TASKS)
def test_a_row_as_it_should_be(folder, task):
    path = folder / "good.jsonl"
    rows = [GOOD[task], {**GOOD[task], "label": 0, "doc_id": "1_2ecb", "id": "r", "text": "It rained. And?"}]
    if task == "classification":
        rows[1]["label"] = "another"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert TASKS[task](path)


@cases(0.15)
@given(
    st.sampled_from(sorted(TASKS)),
    st.lists(st.dictionaries(st.sampled_from(COLUMNS), VALUES, max_size=3), min_size=1, max_size=4),
    st.booleans(),
)
def test_rows_of_tasks_with_anything_in_them(folder, task, changes, array):
    rows = [{**GOOD[task], **change} for change in changes]
    path = folder / ("rows.json" if array else "rows.jsonl")
    path.write_text(json.dumps(rows) if array else "\n".join(map(json.dumps, rows)))
    with only_our_errors():
        TASKS[task](path)


@cases(0.02)
@given(TEXTS)
def test_marked_text(text):
    with only_our_errors():
        plain, spans = read_marked(text)
        assert all(0 <= start < end <= len(plain) for start, end in spans)
