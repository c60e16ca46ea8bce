"""Zip archives from strangers: what they may take, and what they may not reach."""

import struct
import tracemalloc
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from nextlevelbert import read_documents
from nextlevelbert.data.books import archives
from nextlevelbert.data.books.archives import Archive

from ...toys.books import WORD, text_of, write_archive, write_docx, write_epub, write_word

TOO_MUCH = "takes more than .* bytes when it is unpacked"
LIMIT = 100_000


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(archives, "UNPACKED_LIMIT", LIMIT)


def word_file(name="word/document.xml", size=100, **parts):
    """A Word file whose main part has a name and takes so many bytes."""
    relations = f'<R><Relationship Id="x" Type="x/officeDocument" Target="{name}"/></R>'
    body = f"<w:p><w:r><w:t>{'word ' * (size // 5)}</w:t></w:r></w:p>"
    main = f'<w:document xmlns:w="{WORD}">{body}</w:document>'
    return {"_rels/.rels": relations, name: main, **parts}


@pytest.mark.parametrize("write", [write_epub, write_docx])
@pytest.mark.parametrize("pages", [["word " * 21_000], ["word " * 5_000] * 5])
def test_an_archive_that_takes_too_much_is_refused_and_others_are_read(
    tmp_path, small_limit, write, pages
):
    suffix = write.__name__.removeprefix("write_")
    path = write(tmp_path / f"a.{suffix}", pages)
    write(tmp_path / f"b.{suffix}", ["Call me Ishmael."])
    errors = []

    texts = [document.text for document in read_documents(tmp_path, on_error=errors.append)]

    [error] = errors
    assert texts == ["Call me Ishmael."]
    assert str(error).startswith(f"{path} cannot be read: it takes more than 268,435,456 bytes")


@pytest.mark.parametrize("name", ["word/document.bin", "text"])
def test_the_main_part_of_a_word_file_counts_under_any_name(tmp_path, small_limit, name):
    path = write_archive(tmp_path / "a.docx", word_file(name=name, size=LIMIT))

    with pytest.raises(ValueError, match=TOO_MUCH):
        text_of(path)


@pytest.mark.parametrize("name", ["_rels/.rels", "word/_rels/document.xml.rels"])
def test_the_relations_of_a_word_file_count(tmp_path, small_limit, name):
    contents = word_file() | {name: f"<R>{' ' * LIMIT}</R>"}

    with pytest.raises(ValueError, match=TOO_MUCH):
        text_of(write_archive(tmp_path / "a.docx", contents))


def test_paths_in_a_long_folder_count(tmp_path, small_limit):
    folder = "a" * 1_000
    relations = "<R>{}</R>".format("<Relationship/>" * 100)
    contents = word_file(f"{folder}/a.xml", **{f"{folder}/_rels/a.xml.rels": relations})
    spine = "<itemref idref='a'/>" * 100
    items = "<manifest><item id='a' href='a'/></manifest>"
    package = f"<p>{items}<spine>{spine}</spine></p>"

    for path in (
        write_archive(tmp_path / "a.docx", contents),
        write_archive(tmp_path / "a.epub", {f"{folder}/a.opf": package}),
    ):
        with pytest.raises(ValueError, match=TOO_MUCH):
            text_of(path)


@pytest.mark.parametrize("piece", ["<a/>", "<a b='' c='' d='' e=''/>"])
def test_tags_and_attributes_count_since_their_tree_takes_memory(tmp_path, small_limit, piece):
    path = write_word(tmp_path / "a.docx", piece * (LIMIT // 2 // len(piece)))

    with pytest.raises(ValueError, match=TOO_MUCH):
        text_of(path)


def test_numbers_of_clauses_count(tmp_path, small_limit):
    level = f"<w:lvl w:ilvl='0'><w:lvlText w:val='{'clause ' * 14}'/></w:lvl>"
    numbering = (
        f"<w:numbering xmlns:w='{WORD}'><w:abstractNum w:abstractNumId='0'>{level}</w:abstractNum>"
        "<w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num></w:numbering>"
    )
    styles = (
        f"<w:styles xmlns:w='{WORD}'><w:style w:styleId='s'><w:pPr><w:numPr><w:numId w:val='1'/>"
        "</w:numPr></w:pPr></w:style></w:styles>"
    )
    paragraph = "<w:p><w:pPr><w:pStyle w:val='s'/></w:pPr><w:r><w:t>x</w:t></w:r></w:p>"
    parts = {"numbering": numbering, "styles": styles}

    few = write_word(tmp_path / "few.docx", paragraph * 160, **parts)
    many = write_word(tmp_path / "many.docx", paragraph * 210, **parts)

    assert text_of(few).count("clause") == 160 * 14
    with pytest.raises(ValueError, match=TOO_MUCH):
        text_of(many)


def test_the_text_of_charts_in_charts_counts_at_each_level(tmp_path, small_limit):
    parts = {}
    for index in range(10):
        relation = f'<Relationship Id="x" Type="x/chart" Target="c{index + 1}.xml"/>'
        parts[f"word/_rels/c{index}.xml.rels"] = f"<R>{relation}</R>"
        parts[f"word/c{index}.xml"] = "<c><chart id='x'/></c>"
    parts["word/c10.xml"] = f"<c><pt><v>{'word ' * 2_000}</v></pt></c>"
    main = "<d><chart id='x'/></d>"
    relations = '<R><Relationship Id="x" Type="x/chart" Target="c0.xml"/></R>'
    contents = parts | {"word/document.xml": main, "word/_rels/document.xml.rels": relations}

    with pytest.raises(ValueError, match=TOO_MUCH):
        text_of(write_archive(tmp_path / "a.docx", contents))


def test_an_entry_that_understates_its_size_is_not_unpacked_beyond_it(tmp_path):
    size = 50_000_000
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zip_file:
        zip_file.writestr("a", b"a" * size)
    archive = Archive(path.read_bytes().replace(struct.pack("<I", size), struct.pack("<I", 100)))

    tracemalloc.start()
    with pytest.raises(zipfile.BadZipFile):
        archive.unpack("a")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < size / 10


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_unpack_gigabytes_at_once_are_refused(tmp_path, method):
    path = tmp_path / "a.docx"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in word_file().items():
            archive.writestr(name, content)

    with pytest.raises(ValueError, match=r"a\.docx .*another method than deflate"):
        text_of(path)


def test_names_in_an_archive_are_not_used_as_paths(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("secret.xhtml", "folder/secret.xhtml"):
        (tmp_path / name).write_text("<p>secret</p>")
    hrefs = ["../secret.xhtml", "secret.xhtml", str(tmp_path / "secret.xhtml"), "good.xhtml"]
    items = ""
    spine = ""
    for href in hrefs:
        items += f'<item id="{href}" href="{href}"/>'
        spine += f'<itemref idref="{href}"/>'
    package = f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>"
    contents = {"a.opf": package, "../outside.txt": "x", "good.xhtml": "<p>kept</p>"}

    text = text_of(write_archive(folder / "a.epub", contents))

    assert text == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "secret.xhtml"]


@pytest.fixture
def server():
    """A server on this machine, and the addresses that it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Handler) as http_server:
        thread = Thread(target=http_server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http_server.server_port}", asked
        http_server.shutdown()


@pytest.mark.parametrize("suffix", ["docx", "epub", "xhtml"])
def test_entities_reach_no_file_and_no_network(tmp_path, server, suffix):
    address, asked = server
    (tmp_path / "secret.txt").write_text("secret")
    doctype = (
        f'<!DOCTYPE html SYSTEM "{address}/a.dtd" [<!ENTITY file SYSTEM "secret.txt">'
        f'<!ENTITY path SYSTEM "{(tmp_path / "secret.txt").as_uri()}">'
        f'<!ENTITY net SYSTEM "{address}/b.txt"><!ENTITY % more SYSTEM "{address}/c.ent">%more;]>'
    )
    path = tmp_path / f"a.{suffix}"
    entities = "kept &file;&path;&net;"
    page = f"{doctype}<html xmlns='http://www.w3.org/1999/xhtml'><p>{entities}</p></html>"
    word = f'{doctype}<w:d xmlns:w="{WORD}"><w:p><w:r><w:t>{entities}</w:t></w:r></w:p></w:d>'
    items = "<manifest><item id='a' href='a.xhtml'/></manifest><spine><itemref idref='a'/></spine>"
    if suffix == "docx":
        write_archive(path, {"word/document.xml": word})
    elif suffix == "epub":
        write_archive(path, {"a.opf": f"{doctype}<p>{items}</p>", "a.xhtml": page})
    else:
        path.write_text(page)

    text = text_of(path)

    assert "kept" in text
    assert "secret" not in text.replace("secret.txt", "")
    assert asked == []
