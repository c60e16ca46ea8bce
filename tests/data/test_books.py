"""What of HTML, EPUB, PDF and Word files is read, and what is named because it is not."""

import gzip
import time
import zipfile
from pathlib import Path

import pytest

from nextlevelbert import read_documents
from nextlevelbert.data import files
from tests.book_toys import write_docx, write_epub

BOOKS = Path(__file__).with_name("books")
WHALE = "Call me Ishmael."
XHTML = "application/xhtml+xml"
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile'
    ' full-path="OEBPS/book.opf"/></rootfiles></container>'
)


def text_of(path):
    [document] = read_documents(path)
    return document.text


def html_text(tmp_path, markup):
    path = tmp_path / "page.html"
    if isinstance(markup, str):
        markup = markup.encode()
    path.write_bytes(markup)
    return text_of(path)


def archive(path, contents):
    with zipfile.ZipFile(path, "w") as zip_file:
        for name, content in contents.items():
            zip_file.writestr(name, content)
    return path


def package(items, spine):
    manifest = "".join(
        f'<item id="{name}" href="{href}" media-type="{kind}"/>' for name, href, kind in items
    )
    references = "".join(f'<itemref idref="{name}"/>' for name in spine)
    return (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{manifest}</manifest>'
        f"<spine>{references}</spine></package>"
    )


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>表<ruby>示<rp>（</rp><rt>ひょう</rt><rp>）</rp></ruby>された。", "表示された。"),
        (
            "<p>The energy <math><mi>E</mi><mo>=</mo><mi>m</mi></math> stays.",
            "The energy E=m stays.",
        ),
        ("<p>a <my-tag>b</my-tag> c", "a b c"),
        ("<p>Run:</p><pre>if x:\n    go()\n</pre><p>Done.", "Run:\n\nif x:\n    go()\n\nDone."),
        ("<pre><div>one</div><div>  two</div></pre>", "one\n  two"),
        ("<pre>a<br>b</pre>", "a\nb"),
        ("<p>a<textarea>b</textarea><video>c</video>d", "a\n\nb\n\nc\n\nd"),
        ("<p>one<br>two<br><br>three", "one\ntwo\n\nthree"),
        ("<title>Bilge pumps</title><p>Shut the valve.", "Bilge pumps\n\nShut the valve."),
        ("<title>Pumps</title><h1>Pumps</h1>x", "Pumps\n\nx"),
        ("<title>Pumps</title><p>x<p>Pumps", "Pumps\n\nx\n\nPumps"),
        ("<title/><script src='x'/><p>a", "a"),
        ("<p>a<?php x ?>b<!-- c -->d", "abd"),
        ("<p>a <![CDATA[<b> & c]]> d <![CDATA[e]]>", "a <b> & c d e"),
        ("<script><![CDATA[ x</script>y ]]></script><p>a <![CDATA[ b", "a b"),
        ("<html:p>a</html:p><html:p>b</html:p>", "a\n\nb"),
        ("<svg><title>t</title><text>a</text><text>b</text></svg>", "a\n\nb"),
        ("<ruby>a<rt>b</ruby><p>c", "a\n\nc"),
        ("<p>a</pre></rt></title>b", "ab"),
        ("plain text &amp; more", "plain text & more"),
    ],
)
def test_paragraphs_and_lines_of_html(tmp_path, markup, text):
    assert html_text(tmp_path, f"<body>{markup}").removeprefix("t\n\n") == text


def test_deeply_nested_tags_cost_no_text(tmp_path):
    words = html_text(tmp_path, "".join(f"<div><font>w{number} " for number in range(5000))).split()
    assert (len(words), words[-1]) == (5000, "w4999")


def test_the_time_for_html_grows_linearly(tmp_path):
    def seconds(count):
        markup = "<pre>" + "<span class='k'>word</span> <b>x</b>\n" * count + "</pre>"
        start = time.process_time()
        assert html_text(tmp_path, markup).count("x") == count
        return time.process_time() - start

    seconds(100)
    assert seconds(40_000) < 12 * seconds(10_000)


@pytest.mark.parametrize(
    ("codec", "declaration", "sentence"),
    [
        ("cp1252", '<meta charset="windows-1252">', "The café’s price was 5 €."),
        (
            "cp1252",
            '<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1">',
            "The café’s price was 5 €.",
        ),
        ("latin-1", '<?xml version="1.0" encoding="iso-8859-1"?>', "Le café est fermé."),
        ("cp932", "<meta charset=shift_jis>", "①表示された。"),
        ("koi8-r", "<META CHARSET='KOI8-R'>", "Русский"),
        ("iso2022_jp", '<meta charset="iso-2022-jp">', "表示された。"),
        ("utf-8", '<meta charset="no-such-thing">', "café"),
        ("utf-8", '<meta charset="utf-16">', "café"),
        ("utf-8-sig", '<meta charset="iso-8859-1">', "café"),
        ("utf-16", '<meta charset="iso-8859-1">', "café"),
        ("utf-8", "", "café"),
    ],
)
def test_html_is_decoded_as_it_declares(tmp_path, codec, declaration, sentence):
    assert html_text(tmp_path, f"{declaration}<p>{sentence}</p>".encode(codec)) == sentence


@pytest.mark.parametrize("data", ["<p>café".encode("latin-1"), "<p>tea".encode("utf-16-le")])
def test_html_in_another_encoding_names_the_remedy(tmp_path, data):
    with pytest.raises(ValueError, match=r"page\.html cannot be read: .*Save it in UTF-8"):
        html_text(tmp_path, data)


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
    for number, kind in enumerate([XHTML, XHTML.upper(), *kinds]):
        items.append((f"c{number}", f"{number}.xhtml", kind))
        contents[f"OEBPS/{number}.xhtml"] = f"<p>number{number}"
    spine = ["cover", *(name for name, _, _ in items)]
    contents["OEBPS/book.opf"] = package(items, spine)
    text = text_of(archive(tmp_path / "a.epub", contents))
    assert text.split() == "café weir number0 number1 number2 number3 number4 number5".split()
    assert "page 'cover' is not in the manifest" in caplog.text
    assert "page ad.xhtml cannot be read (the archive lacks it)" in caplog.text


def test_an_epub_without_container_is_read(tmp_path):
    contents = {"book.opf": package([("a", "a.html", XHTML)], ["a"]), "a.html": f"<p>{WHALE}"}
    assert text_of(archive(tmp_path / "a.epub", contents)) == WHALE


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({}, "no package file"),
        ({"book.opf": package([("a", "a.html", XHTML)], ["a"])}, "a.html cannot be read"),
        (
            {
                "book.opf": package([("a", "a.html", XHTML)], ["a"]),
                "a.html": b"noise",
                "META-INF/encryption.xml": '<e><CipherReference URI="a.html"/></e>',
            },
            r"encrypted \(DRM\)",
        ),
    ],
)
def test_an_epub_without_any_page_is_named(tmp_path, contents, message):
    path = archive(tmp_path / "a.epub", contents)
    with pytest.raises(ValueError, match=rf"a\.epub cannot be read as EPUB .*{message}"):
        text_of(path)


def test_pages_of_a_pdf_that_are_pictures_are_named(caplog):
    """The deed has a line of text, a blank page and eight pictures, the scan two pictures."""
    [document] = read_documents(BOOKS / "deed.pdf")
    assert document.text.strip() == "The town archive"
    assert document.metadata["pages"] == [0, 18, 20, 22, 24, 26, 28, 30, 32, 34]
    assert "deed.pdf was read in part: 8 of 10 pages (3, 4, 5, 6, 7, 8, 9, 10)" in caplog.text
    assert "OCR" in caplog.text
    with pytest.raises(ValueError, match=r"scan\.pdf holds no text: 2 of 2 pages .*OCR"):
        text_of(BOOKS / "scan.pdf")


def test_what_was_filled_into_a_pdf_form_is_read():
    assert text_of(BOOKS / "form.pdf").split() == ["Applicant:", "Wilhelmina", "Quist"]


def test_line_breaks_and_notes_of_word_files():
    """A line break within a paragraph, and a footnote."""
    assert text_of(BOOKS / "notes.docx").split("\n") == [
        "The mill",
        "was sold in spring.",
        "",
        "The ledger disagrees.",
    ]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.html.gz", "a.jsonl.gz", "a.csv.gz", "a.json.gz"])
def test_what_takes_too_much_unpacked_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "UNPACKED_LIMIT", 1000)
    (tmp_path / name).write_bytes(gzip.compress(b"a" * 5000))
    with pytest.raises(ValueError, match=rf"{name}.* takes more than 1,000 bytes"):
        list(read_documents(tmp_path / name))


@pytest.mark.parametrize("write", [write_epub, write_docx])
def test_archives_that_take_too_much_are_refused(tmp_path, monkeypatch, write):
    monkeypatch.setattr("nextlevelbert.data.books.UNPACKED_LIMIT", 100)
    suffix = write.__name__.removeprefix("write_")
    path = write(tmp_path / f"a.{suffix}", ["word " * 100])
    with pytest.raises(ValueError, match=rf"a\.{suffix} cannot be read.* takes more than"):
        text_of(path)


@pytest.mark.parametrize("kind", ["html", "epub", "docx"])
def test_empty_books_are_not_told_to_run_ocr(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"")
    if kind == "epub":
        write_epub(path, [""])
    if kind == "docx":
        write_docx(path, [""])
    with pytest.raises(ValueError, match=rf"a\.{kind} holds no text\.$"):
        text_of(path)
