"""JSON read as it stands, and what is said of JSON that cannot be."""

from __future__ import annotations

import gzip
import json
import math
import re
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nextlevelbert import read_documents
from nextlevelbert.data.json_lines import read_json
from nextlevelbert.data.rows import file_rows

ROWS = [
    {"id": "2024-01-01", "text": "A date is no timestamp.", "rank": 0},
    {"id": 123456789012345678901234567890, "text": "Thirty digits.", "rank": 10**30},
    {"id": "00017", "text": "Leading zeros, \u2028 \u0085 \0 and \U0001f40b."},
    {"id": None, "text": "", "nested": {"list": [1, 2.5, None, True, []]}},
]
LINES = "\n".join(json.dumps(row) for row in ROWS).encode()


@pytest.mark.parametrize(
    "content",
    [
        LINES,
        LINES + b"\n",
        LINES.replace(b"\n", b"\r\n"),
        LINES.replace(b"\n", b"\n \t\r\n\n"),
        b"\xef\xbb\xbf" + LINES,
        b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\n\xef\xbb\xbf", 1),  # two files with a mark put together
        json.dumps(ROWS).encode(),
        b"\n \n" + json.dumps(ROWS, indent=2, ensure_ascii=False).encode() + b"\n\n",
        "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode(),
    ],
)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.jsonl.gz", "rows"])
def test_every_layout_has_the_same_values(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(file_rows(path)) == ROWS


def test_one_object_on_several_lines(tmp_path):
    (tmp_path / "one.json").write_text("\n" + json.dumps(ROWS[3], indent=4) + "\n")
    assert list(read_json(tmp_path / "one.json")) == [(2, ROWS[3])]
    for name in ("one.json", "empty.json"):
        (tmp_path / name).write_text("[\n]" if name == "one.json" else "\n")
        assert list(read_json(tmp_path / name)) == []


def test_lines_are_those_of_an_editor(tmp_path):
    (tmp_path / "rows.jsonl").write_text('\n{"a": "\u2028"}\r\n\n{}\n', encoding="utf-8")
    assert list(read_json(tmp_path / "rows.jsonl")) == [(2, {"a": "\u2028"}), (4, {})]
    (tmp_path / "rows.json").write_text('\n[\n{"a":\n1}, {},\n\n{}]\n')
    assert list(read_json(tmp_path / "rows.json")) == [(3, {"a": 1}), (4, {}), (6, {})]


def test_ids_and_numbers_are_not_guessed(tmp_path):
    """An id that is a number for 10 MB and then a string, which Arrow cannot read."""
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        file.writelines(json.dumps({"id": number, "text": "x" * 1000}) + "\n" for number in range(11_000))
        file.write('{"id": "last", "text": "y", "year": 1e3}\n')
    ids = [document.id for document in read_documents(path)]
    assert ids == [*map(str, range(11_000)), "last"]


def test_not_a_number_stays_one(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a": NaN, "b": -Infinity}')
    [(_, row)] = read_json(tmp_path / "rows.jsonl")
    assert math.isnan(row["a"])
    assert row["b"] == -math.inf


SINGLE = "A .jsonl file holds one object a line, in UTF-8; one object on several lines belongs in a .json."
HOSTILE = {
    "cut in a string": (b'{"a": 1}\n{"text": "Call me Ish', "line 2: the file is cut off in the middle of an object."),
    "cut after a value": (
        b'{"a": 1}\n\n{"text": 1',
        "line 3: the file is cut off in the middle of an object. Copy it",
    ),
    "cut in a character": (b'{"a": "\xc3', "line 1: the file is cut off in the middle of a character. Copy it again."),
    "no value": (b'{"a": 1}\n{"a": }\n{"a": 2}\n', f"line 2, column 7 is not JSON (Expecting value). {SINGLE}"),
    "two in a line": (b'{"a": 1} {"a": 2}\n', f"line 1, column 10: more follows after the object. {SINGLE}"),
    "on several lines": (b'{\n"a": 1\n}\n', "line 1, column 1 is not JSON (Expecting property name"),
    "a string": (b'"text"\n', f"line 1 is not a JSON object, but a string. {SINGLE}"),
    "null": (b'{"a": 1}\nnull\n', "line 2 is not a JSON object, but null."),
    "a number": (b"17\n", "line 1 is not a JSON object, but a number."),
    "a truth value": (b"true\n", "line 1 is not a JSON object, but true or false."),
    "an array in an array": (b'[{"a": 1},\n[2]]', "line 2 is not a JSON object, but an array."),
    "an array after a line": (b'{"a": 1}\n[2]\n', "line 2 is not a JSON object, but an array."),
    "a repeated key": (b'{"a": 1}\n{"text": "x", "a": 1, "text": "y"}', "line 2: the key 'text' stands twice in one"),
    "a repeated key within": (
        b'[{"a": {"b": 1, "b": 1}}]',
        "line 1: the key 'b' stands twice in one object. Keep one",
    ),
    "NUL": (
        b'{"a": "x\0y"}',
        r"line 1 holds NUL bytes: the file is damaged, or is no text. JSON writes NUL as \u0000.",
    ),
    "a hole": (b'{"a": 1}\n' + bytes(4096), "line 2 holds NUL bytes: the file is damaged"),
    "a raw tab": (b'{"a": "x\ty"}\n', "line 1, column 9 is not JSON (Invalid control character)"),
    "a lone surrogate": (
        b'{"a": 1}\n{"text": "a\\ud83db"}',
        r"line 2, column 'text': \ud83d is a lone surrogate, half",
    ),
    "one in a key": (b'[{"\\udc00": 1}]', r"line 1, column '\udc00': \udc00 is a lone surrogate"),
    "one in UTF-8": (
        b'{"a": "\xed\xa0\x80"}',
        "line 1 holds a surrogate, half of a character, which UTF-8 does not allow.",
    ),
    "Latin-1": (b'{}\n{"a": "na\xefve"}\n', "line 2: byte EF is not UTF-8 (in Windows-1252 it is 'ï'). Find out the"),
    "neither": (b'{}\n{"a": "\x81 "}\n', "line 2: byte 81 is not UTF-8. Find out the file's encoding and convert it"),
    "Latin-1 in an array": (b'[{},\n\n{"a": "na\xefve"}]', "line 3: byte EF is not UTF-8 (in Windows-1252 it is 'ï')"),
    "UTF-16": (
        '{"a": "x"}'.encode("utf-16"),
        "is UTF-16 (byte order mark FF FE), but UTF-8 text is needed: convert it",
    ),
    "UTF-16, big": ('\ufeff{"a": 1}'.encode("utf-16-be"), "is UTF-16 (byte order mark FE FF), but UTF-8 text"),
    "UTF-16, no mark": ('{"a": "x"}'.encode("utf-16-le"), "looks like UTF-16 without a byte order mark (every second"),
    "UTF-16, big, no mark": ('{"a": "x"}'.encode("utf-16-be"), "convert it with iconv -f UTF-16BE -t UTF-8."),
    "UTF-32": ('{"a": "x"}'.encode("utf-32"), "is UTF-32 (byte order mark FF FE 00 00)"),
    "gzip": (
        gzip.compress(b"{}"),
        "is compressed with gzip, but UTF-8 text is needed: give it a name that ends in .gz.",
    ),
    "zip": (b"PK\x03\x04" + bytes(30), "is a zip archive, but UTF-8 text is needed: unpack it with unzip."),
    "Parquet": (b"PAR1\x15\x04", "is Parquet, but UTF-8 text is needed: give it a name that ends in .parquet."),
    "too deep": (b"[" * 100_000, "line 1: arrays or objects are nested too deeply to be read."),
    "too deep a line": (b'{"a": ' * 100_000, "line 1: arrays or objects are nested too deeply to be read."),
    "a long number": (
        b'{"id": ' + b"1" * 5000 + b"}",
        "line 1: a number has more digits than Python reads. Write it as",
    ),
    "a long number within": (b'[{"id": ' + b"1" * 5000 + b"}]", "line 1: a number has more digits than Python reads."),
    "an open array": (b'[{"a": 1},\n{"a": 2}\n', "line 3: the file is cut off in the middle of an array. Copy it"),
    "an array cut in an object": (b'[{"a": 1},\n{"a": "x', "line 2: the file is cut off in the middle of an object."),
    "no comma": (b'[{"a": 1}\n{"a": 2}]', "line 2: '{' stands where a comma or ']' is needed."),
    "a comma too many": (b'[{"a": 1},\n]', "line 2 is not JSON (Expecting value)."),
    "more after an array": (b"[{}]\n{}", "line 2: '{' stands where the end of the file is needed."),
}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_json_is_named_with_its_line(tmp_path, case, pack):
    content, message = HOSTILE[case]
    path = tmp_path / ("rows.jsonl" + ".gz" * pack)
    path.write_bytes(gzip.compress(content) if pack else content)
    for read in (read_json, file_rows):
        with pytest.raises(ValueError, match=re.escape(message)) as raised:
            list(read(path))
        assert type(raised.value) is ValueError
        assert str(raised.value).startswith(f"{path}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"a": 1,\n"b": }',
            "line 2 is not JSON (Expecting value). A .json file holds an array of objects, one object,",
        ),
        ('{"a": 1,\n"b": "x', "line 2: the file is cut off in the middle of an object."),
        ('{\n"a": 1}\n{}', "line 3: '{' stands where the end of the file is needed."),
    ],
)
def test_an_object_on_several_lines_that_is_none(tmp_path, content, message):
    (tmp_path / "one.json").write_text(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        list(read_json(tmp_path / "one.json"))


def test_rows_before_the_wrong_one_are_read(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\nno JSON\n')
    rows = read_json(tmp_path / "rows.jsonl")
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2, column 1 is not JSON"):
        next(rows)


@pytest.mark.parametrize("layout", ["lines", "array"])
def test_one_object_at_a_time_is_in_memory(tmp_path, layout):
    path, row = tmp_path / "rows.json", json.dumps({"text": "x" * 100_000})
    path.write_text("[" + ",".join([row] * 200) + "]" if layout == "array" else f"{row}\n" * 200)
    tracemalloc.start()
    assert sum(len(row["text"]) for row in file_rows(path)) == 20_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('\u2028\u2029\0\x85\x1c\ufeff\r\n\\"[{\U0001f40b')
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
records = st.lists(st.dictionaries(texts, values, max_size=4), max_size=5)
many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@many
@given(records, st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n"]), st.sampled_from(["", "\ufeff"]))
def test_what_json_dumps_wrote_is_read_back(tmp_path, records, ascii_only, end, mark):
    lines = mark + "".join(json.dumps(record, ensure_ascii=ascii_only) + end for record in records)
    array = mark + json.dumps(records, ensure_ascii=ascii_only, indent=1 if end == "\n" else None)
    for name, text in (("lines.jsonl", lines), ("lines.json", lines), ("array.json", array)):
        (tmp_path / name).write_bytes(text.encode())
        assert list(file_rows(tmp_path / name)) == records


@many
@given(st.lists(st.tuples(texts | st.none() | st.integers() | st.floats(allow_nan=False), texts, values), max_size=4))
def test_documents_are_what_json_dumps_wrote(tmp_path, rows):
    lines = [json.dumps({"id": name, "text": text, "more": more}) + "\n" for name, text, more in rows]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    found = [(document.id, document.text, document.metadata) for document in read_documents(tmp_path / "rows.jsonl")]
    ids = [f"document-{number:06d}" if name is None else str(name) for number, (name, _, _) in enumerate(rows)]
    assert found == [(name, text, {"more": more}) for name, (_, text, more) in zip(ids, rows, strict=True)]
