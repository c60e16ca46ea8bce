"""Pages of EPUB files under the names that makers of books give them, and pages without text."""

import re

import pytest

from nextlevelbert import read_documents

from ...toys.books import text_of, write_archive, write_epub

WHALE = "Call me Ishmael."
XHTML = "application/xhtml+xml"
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile'
    ' full-path="OEBPS/book.opf"/></rootfiles></container>'
)


def package(items, spine):
    manifest = "".join(
        f'<item id="{name}" href="{href}" media-type="{kind}"/>' for name, href, kind in items
    )
    references = "".join(f'<itemref idref="{name}"/>' for name in spine)
    return (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{manifest}</manifest>'
        f"<spine>{references}</spine></package>"
    )


def manifest_item(name, kind=XHTML, more=""):
    return f'<item id="{name}" href="{name}" media-type="{kind}" {more}/>'


def package_of(items, spine):
    return package([], spine).replace("<manifest>", f"<manifest>{''.join(items)}")


def test_a_page_is_read_once_whatever_places_in_it_are_listed(tmp_path):
    items = [
        ("a", "1.xhtml#a", XHTML),
        ("b", "1.xhtml#b", XHTML),
        ("c", "./1.xhtml", XHTML),
        ("d", "2.xhtml", XHTML),
    ]
    contents = {
        "book.opf": package(items, ["a", "d", "b", "c", "d"]),
        "1.xhtml": "<p>One.",
        "2.xhtml": "<p>Two.",
    }

    assert text_of(write_archive(tmp_path / "a.epub", contents)) == "One.\n\nTwo."


@pytest.mark.parametrize("last", [XHTML, "application/x-other"])
def test_a_page_is_read_for_an_item_of_another_type(tmp_path, last):
    items = [
        manifest_item("plan", "application/x-plan", more="fallback='image'"),
        manifest_item("image", "image/png", more="fallback='page'"),
        manifest_item("page", last, more="fallback='page'"),
    ]
    contents = {
        "book.opf": package_of(items, ["plan"]),
        "plan": b"\0\1",
        "image": b"\0\1",
        "page": f"<p>{WHALE}",
    }

    assert text_of(write_archive(tmp_path / "a.epub", contents)) == WHALE


def test_the_package_file_is_found_by_its_type(tmp_path):
    other = '<rootfile full-path="book.pdf" media-type="application/pdf"/>'
    container = CONTAINER.replace("<rootfiles>", f"<rootfiles>{other}").replace(
        'book.opf"', 'book.opf" media-type="application/oebps-package+xml"'
    )
    contents = {
        "META-INF/container.xml": container,
        "book.pdf": "%PDF",
        "OEBPS/book.opf": package([("a", "a.xhtml", XHTML)], ["a"]),
        "OEBPS/a.xhtml": f"<p>{WHALE}",
    }

    assert text_of(write_archive(tmp_path / "a.epub", contents)) == WHALE


@pytest.mark.parametrize("damaged", ["", "%PDF", "<e>"])
def test_a_damaged_container_or_list_of_encrypted_files_costs_no_page(tmp_path, damaged):
    contents = {
        "META-INF/container.xml": damaged,
        "META-INF/encryption.xml": damaged,
        "book.opf": package([("a", "a.xhtml", XHTML)], ["a"]),
        "a.xhtml": f"<p>{WHALE}",
    }

    assert text_of(write_archive(tmp_path / "a.epub", contents)) == WHALE


def test_an_epub_with_odd_entries_loses_only_those(tmp_path, caplog):
    kinds = "text/html text/xml application/xml text/x-oeb1-document".split()
    items = [
        ("ad", "ad.xhtml", XHTML),
        ("latin", "latin.xhtml", XHTML),
        ("case", "Text/CASE.xhtml#start", XHTML),
    ]
    contents: dict[str, str | bytes] = {
        "META-INF/container.xml": CONTAINER,
        "OEBPS/latin.xhtml": '<?xml version="1.0" encoding="iso-8859-1"?><p>café'.encode("latin-1"),
        "OEBPS/text\\case.xhtml": "<html><head><title/></head><p>weir",
    }
    for index, kind in enumerate([XHTML, XHTML.upper(), *kinds]):
        items.append((f"c{index}", f"{index}.xhtml", kind))
        contents[f"OEBPS/{index}.xhtml"] = f"<p>number{index}"
    spine = ["cover", *(name for name, _, _ in items)]
    contents["OEBPS/book.opf"] = package(items, spine)

    text = text_of(write_archive(tmp_path / "a.epub", contents))

    assert text.split() == "café weir number0 number1 number2 number3 number4 number5".split()
    assert "page 'cover' is not in the manifest" in caplog.text
    assert "page ad.xhtml cannot be read (the archive lacks it)" in caplog.text


@pytest.mark.parametrize(
    ("name", "href"),
    [
        ("OEBPS/Chapter%201.xhtml", "Chapter%201.xhtml"),
        ("OEBPS/Chapter 1.xhtml", "Chapter%201.xhtml"),
        ("OEBPS/Chapter%201.xhtml", "Chapter 1.xhtml"),
        ("OEBPS/cafe\u0301.xhtml", "caf\u00e9.xhtml"),
        ("OEBPS/text/a.xhtml", "/OEBPS/text/a.xhtml"),
        ("/OEBPS/a.xhtml", "a.xhtml"),
        ("a.xhtml", "../a.xhtml"),
    ],
)
def test_a_page_is_read_by_other_spellings_of_its_name(tmp_path, name, href):
    contents = {
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": package([("a", href, XHTML)], ["a"]),
        name: f"<p>{WHALE}",
    }

    assert text_of(write_archive(tmp_path / "a.epub", contents)) == WHALE


def test_a_name_in_utf_8_whose_entry_does_not_say_so(tmp_path):
    contents = {
        "book.opf": package([("a", "caf\u00e9.xhtml", XHTML)], ["a"]),
        "caf__.xhtml": f"<p>{WHALE}",
    }
    path = write_archive(tmp_path / "a.epub", contents)
    path.write_bytes(path.read_bytes().replace(b"caf__.xhtml", "caf\u00e9.xhtml".encode()))

    assert text_of(path) == WHALE


def test_two_pages_whose_names_differ_in_capitals_are_both_read(tmp_path):
    contents = {
        "book.opf": package([("a", "a.xhtml", XHTML), ("b", "A.xhtml", XHTML)], ["a", "b"]),
        "A.xhtml": "<p>capital",
        "a.xhtml": "<p>small",
    }

    assert text_of(write_archive(tmp_path / "a.epub", contents)) == "small\n\ncapital"


XHTML_HEAD = b'<html xmlns="http://www.w3.org/1999/xhtml">'


def test_a_damaged_character_costs_no_page_of_an_epub(tmp_path, caplog):
    contents = {
        "book.opf": package([("a", "a.html", XHTML), ("b", "b.html", XHTML)], ["a", "b"]),
        "a.html": XHTML_HEAD + b"<script/><p>The caf\xe9 is open.</p><script>no</script></html>",
        "b.html": b"<p>One\xff and two\0.</p>",
    }

    text = text_of(write_archive(tmp_path / "a.epub", contents))

    assert text == "The caf\ufffd is open.\n\nOne\ufffd and two."
    assert "a.epub was read in part: characters" in caplog.text
    assert caplog.text.count("U+FFFD") == 1


def test_an_epub_without_container_is_read(tmp_path):
    contents = {"book.opf": package([("a", "a.html", XHTML)], ["a"]), "a.html": f"<p>{WHALE}"}

    assert text_of(write_archive(tmp_path / "a.epub", contents)) == WHALE


def test_pages_that_are_pictures_are_named_except_the_cover(tmp_path, caplog):
    picture = '<div><img src="x.jpg"/></div>'
    write_epub(tmp_path / "novel.epub", [picture, "<p>One.</p>", "<hr/>"])
    write_epub(tmp_path / "comic.epub", [picture, "<p>One.</p>", picture, "<svg/>"])

    texts = [document.text for document in read_documents(tmp_path)]

    assert texts == ["One.", "One."]
    assert "novel.epub" not in caplog.text
    assert re.search(r"comic\.epub .*: 2 of 4 pages are pictures without text \(.*2", caplog.text)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({}, "cannot be read as EPUB .*no package file"),
        ({"book.opf": "%PDF"}, "cannot be read as EPUB .*package file book.opf lists no pages"),
        ({"book.opf": package([], [])}, "cannot be read as EPUB .*book.opf lists no pages"),
        (
            {"book.opf": package([("a", "a.html", XHTML)], ["a"])},
            "holds no text: page a.html cannot be read",
        ),
        (
            {
                "book.opf": package([("a", "a.html", XHTML)], ["a"]),
                "a.html": b"noise",
                "META-INF/encryption.xml": '<e><CipherReference URI="a.html"/></e>',
            },
            r"holds no text: .*encrypted \(DRM\)",
        ),
        (
            {"book.opf": package([("a", "a.html", XHTML)], ["a"]), "a.html": "<img src='x'/>"},
            "holds no text: 1 of 1 pages are pictures",
        ),
    ],
)
def test_an_epub_without_any_page_is_named(tmp_path, contents, message):
    path = write_archive(tmp_path / "a.epub", contents)

    with pytest.raises(ValueError, match=rf"a\.epub {message}"):
        text_of(path)
