"""Paths, folders and patterns: what is found, in which order, and what is refused before it is opened."""

from __future__ import annotations

import gzip
import os
import re
import socket
from pathlib import Path

import pytest

from nextlevelbert import Document, read_documents
from nextlevelbert.data.files import check_source, source_files


@pytest.fixture
def shelf(tmp_path, monkeypatch) -> Path:
    """A folder of texts, from whose parent all paths are written."""
    for name in ("a.txt", "b.md", "sea/c.txt", "sea/deep/d.txt", "sea/deep/e.html", ".hidden/f.txt", "sea/.g.txt"):
        path = tmp_path / "shelf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Path(name).stem)
    monkeypatch.chdir(tmp_path)
    return Path("shelf")


def ids(source) -> list[str | None]:
    return [file.id for file in source_files(source)]


def test_folders_are_read_in_order_without_what_is_hidden(shelf):
    assert ids(shelf) == ids("shelf/") == ["a", "b", "sea/c", "sea/deep/d", "sea/deep/e"]
    assert ids(shelf / "sea") == ["c", "deep/d", "deep/e"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("shelf/*.txt", ["a"]),
        ("shelf/?.md", ["b"]),
        ("shelf/**/*.txt", ["a", "sea/c", "sea/deep/d"]),
        ("shelf/**/deep/*", ["sea/deep/d", "sea/deep/e"]),
        ("shelf/**", ["a", "b", "sea/c", "sea/deep/d", "sea/deep/e"]),
        ("shelf/se[ab]", ["sea/c", "sea/deep/d", "sea/deep/e"]),  # folders that match are read whole
        ("*/[!b].*", ["shelf/a"]),
        ("shelf/.hid*/*", [".hidden/f"]),
    ],
)
def test_patterns(shelf, pattern, found):
    assert ids(pattern) == found


def test_a_name_is_a_pattern_only_where_there_is_no_such_file(shelf):
    for name in ("books[1].jsonl", "books1.jsonl"):
        Path(name).write_text(f'{{"id": "{name}", "text": "x"}}')
    assert [document.id for document in read_documents("books[1].jsonl")] == ["books[1].jsonl"]
    Path("books[1].jsonl").unlink()
    assert [document.id for document in read_documents("books[1].jsonl")] == ["books1.jsonl"]
    Path("[x]").mkdir()
    Path("[x]/a.txt").write_text("a")
    Path("x").mkdir()
    Path("x/b.txt").write_text("b")
    assert ids("[x]/*.txt") == ["a"]


def test_several_sources(shelf):
    assert ids(["shelf/sea/deep", Path("shelf/a.txt")]) == ["d", "e", "a"]
    for source, message in (
        (["shelf/a.txt", "shelf/*.txt"], "shelf/a.txt is given twice. Name each file once."),
        (
            [],
            "Got no file to read. Supported: .txt, .md, .markdown, .html, .htm, .pdf, .epub, .docx, .jsonl",
        ),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            read_documents(source)
    Path("shelf/sea/a.txt").write_text("another a")
    message = "shelf/a.txt and shelf/sea/a.txt would both be document 'a'. Rename or leave out one of them, or give a"
    with pytest.raises(ValueError, match=re.escape(message)):
        read_documents(["shelf/a.txt", "shelf/sea"])
    assert ids("shelf")[:2] == ["a", "b"]
    assert "sea/a" in ids("shelf")


def test_files_of_other_kinds_are_left_out_of_a_folder_and_named(shelf, caplog):
    (shelf / "cover.jpg").write_bytes(b"\xff")
    (shelf / "LICENSE").write_text("x")
    assert len(ids(shelf)) == 5
    [record] = caplog.records
    assert record.message == "shelf: files of kinds that are not supported are left out (1 .jpg, 1 without suffix)."
    with pytest.raises(ValueError, match=r"Cannot read shelf/LICENSE\. Supported: \.txt, \.md"):
        read_documents("shelf/*")
    (shelf / "only").mkdir()
    (shelf / "only/x.doc").write_bytes(b"")
    with pytest.raises(ValueError, match=r"folder shelf/only holds nothing to read \(1 \.doc\)\. Supported: \.txt"):
        read_documents(shelf / "only")
    with pytest.raises(ValueError, match=r"Cannot read shelf/only/x\.doc\. Supported: \.txt"):
        read_documents(shelf / "only/x.doc")


def test_upper_case_and_packed_names(tmp_path):
    (tmp_path / "A.TXT").write_text("a")
    (tmp_path / "b.1.md.gz").write_bytes(gzip.compress(b"# B"))
    assert list(read_documents(tmp_path)) == [Document("A", "a"), Document("b.1", "# B")]


def test_special_files_are_refused_and_not_waited_for(shelf):
    os.mkfifo("shelf/sea/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.jsonl")
    cases = {
        "shelf": "shelf/sea/pipe is a named pipe (FIFO), which cannot be read twice. Write its content to a file",
        "shelf/*/pi*": "shelf/sea/pipe is a named pipe (FIFO)",
        "shelf/sea/pipe": "shelf/sea/pipe is a named pipe (FIFO)",
        "socket.jsonl": "socket.jsonl is a socket",
        "/dev/zero": "/dev/zero is a device",
    }
    for source, message in cases.items():
        for look in (read_documents, check_source) if source != "shelf" else (read_documents,):
            with pytest.raises(ValueError, match=re.escape(message)):
                look(source)


def test_links(shelf):
    Path("elsewhere").mkdir()
    Path("elsewhere/x.txt").write_text("x")
    (shelf / "linked").symlink_to("../elsewhere")
    assert "linked/x" in ids(shelf)
    (shelf / "sea/deep/loop").symlink_to("../../../shelf")
    for source in (shelf, "shelf/**/*.txt", "shelf/**"):
        with pytest.raises(ValueError, match=r"is a link to a folder above it\. Remove the link\."):
            read_documents(source)
    (shelf / "sea/deep/loop").unlink()
    (shelf / "self.txt").symlink_to("self.txt")
    for source in (shelf, "shelf/self.txt", "shelf/s*.txt"):
        with pytest.raises(ValueError, match=r"shelf/self\.txt is a link that leads back to itself\. Remove it\."):
            read_documents(source)
    (shelf / "self.txt").unlink()
    (shelf / "gone.txt").symlink_to("nowhere.txt")
    for source in (shelf, "shelf/gone.txt"):
        with pytest.raises(FileNotFoundError, match=r"shelf/gone\.txt is a link to a file that is not there"):
            read_documents(source)
    (shelf / "gone.txt").unlink()
    before = [book.id for book in read_documents(shelf)]
    (shelf / "gone.js").symlink_to("nowhere.js")  # would not be read in any case
    assert [book.id for book in read_documents(shelf)] == [book.id for book in read_documents("shelf/**")] == before
    (shelf / "gone").symlink_to("nowhere")  # may have been a folder
    with pytest.raises(FileNotFoundError, match=r"shelf/gone is a link to a file that is not there"):
        read_documents(shelf)


def test_names_that_are_no_paths(shelf):
    for source in ("", "a\0b.txt"):
        with pytest.raises(
            ValueError, match=re.escape(f"Got {source!r} where the path of a file or folder is needed")
        ):
            read_documents(source)
    with pytest.raises(FileNotFoundError, match=r"^No file or folder 'shelf/none\.txt'\. Supported: \.txt"):
        read_documents("shelf/none.txt")
    with pytest.raises(FileNotFoundError, match=r"'shelf/none\*', and nothing matches it as a pattern\. Supported:"):
        read_documents("shelf/none*")
    (shelf / os.fsdecode(b"na\xefve.txt")).write_text("x")
    with pytest.raises(ValueError, match=r"file name 'shelf/na\\udcefve\.txt' is not UTF-8\. Rename the file"):
        read_documents(shelf)


def test_a_source_of_rows_is_looked_at_before_anything_is_loaded(shelf):
    Path("rows.train").write_text('{"a": 1}')
    for source in (None, "rows.train", "rows*", "shelf"):
        check_source(source)
    Path("empty.jsonl").write_bytes(b"")
    Path("wide.jsonl").write_bytes('{"a": 1}'.encode("utf-16"))
    Path("cut.jsonl.gz").write_bytes(b'{"a": 1}')
    cases = {
        "none.jsonl": (FileNotFoundError, "No file or folder 'none.jsonl'. Check the path. A dataset on the Hub is"),
        "empty.jsonl": (ValueError, "empty.jsonl is empty: it has no rows."),
        "wide.jsonl": (ValueError, "wide.jsonl is UTF-16 (byte order mark FF FE), but UTF-8 text is needed"),
        "cut.jsonl.gz": (ValueError, "cut.jsonl.gz is not a whole gzip file (Not a gzipped file"),
    }
    for source, (kind, message) in cases.items():
        with pytest.raises(kind, match=re.escape(message)):
            check_source(source)
