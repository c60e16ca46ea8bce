"""What of HTML, EPUB, PDF and Word files is read, and what is named because it is not."""

import gzip
import time
import zipfile

import pytest

from nextlevelbert import read_documents
from nextlevelbert.data import files
from tests.book_toys import write_docx, write_epub

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


def pdf(path, pages, page_entries=b"", more=()):
    """Writes a PDF of content streams; the objects `more` are numbered from 4 + 2 × pages on."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[6 0 R]/DA(/F1 11 Tf 0 g)>>>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>"
        % (len(pages), b" ".join(b"%d 0 R" % (5 + 2 * number) for number in range(len(pages)))),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
    ]
    for number, content in enumerate(pages):
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(content), content))
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>"
            b"/Contents %d 0 R%s>>" % (4 + 2 * number, page_entries)
        )
    objects.extend(more)
    data = b"%PDF-1.7\n"
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    count = len(objects) + 1
    path.write_bytes(
        b"%sxref\n0 %d\n0000000000 65535 f \n%strailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n"
        % (data, count, table, count, len(data))
    )
    return path


def line(text):
    return b"BT /F1 11 Tf 1 0 0 1 60 700 Tm (%s) Tj ET" % text


PICTURE = b"q 500 0 0 700 50 50 cm BI /W 1 /H 1 /BPC 8 /CS /G ID \x00 EI Q"


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


def test_pages_of_a_pdf_that_are_pictures_are_named(tmp_path, caplog):
    path = pdf(tmp_path / "deed.pdf", [line(b"The town archive"), b"", *[PICTURE] * 8])
    [document] = read_documents(path)
    assert document.text.strip() == "The town archive"
    assert document.metadata["pages"] == [0, 18, 20, 22, 24, 26, 28, 30, 32, 34]
    assert "deed.pdf was read in part: 8 of 10 pages (3, 4, 5, 6, 7, 8, 9, 10)" in caplog.text
    assert "OCR" in caplog.text
    with pytest.raises(ValueError, match=r"scan\.pdf holds no text: 2 of 2 pages .*OCR"):
        text_of(pdf(tmp_path / "scan.pdf", [PICTURE] * 2))


def test_what_was_filled_into_a_pdf_form_is_read(tmp_path):
    stream = b"/Tx BMC BT /F1 11 Tf 2 4 Td (Wilhelmina Quist) Tj ET EMC"
    field = (
        b"<</Type/Annot/Subtype/Widget/FT/Tx/T(applicant)/V(Wilhelmina Quist)/Rect[150 690 400 710]"
        b"/F 4/DA(/F1 11 Tf 0 g)/P 5 0 R/AP<</N 7 0 R>>>>"
    )
    look = (
        b"<</Type/XObject/Subtype/Form/BBox[0 0 250 20]/Resources<</Font<</F1 3 0 R>>>>"
        b"/Length %d>>stream\n%s\nendstream" % (len(stream), stream)
    )
    path = pdf(tmp_path / "a.pdf", [line(b"Applicant:")], b"/Annots[6 0 R]", (field, look))
    assert text_of(path).split() == ["Applicant:", "Wilhelmina", "Quist"]


def test_line_breaks_and_notes_of_word_files(tmp_path):
    path = write_docx(tmp_path / "a.docx", ["The mill@was sold# in spring."])
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    with zipfile.ZipFile(path) as zip_file:
        contents = {name: zip_file.read(name).decode() for name in zip_file.namelist()}
    document = contents["word/document.xml"].replace("@", "</w:t><w:br/><w:t>")
    document = document.replace("#", '</w:t><w:footnoteReference w:id="2"/><w:t>')
    contents["word/document.xml"] = document
    contents["word/_rels/document.xml.rels"] = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="n" Type="{office}/footnotes" Target="footnotes.xml"/></Relationships>'
    )
    contents["word/footnotes.xml"] = (
        f'<w:footnotes xmlns:w="{word}"><w:footnote w:id="2"><w:p><w:r><w:t>The ledger disagrees.'
        "</w:t></w:r></w:p></w:footnote></w:footnotes>"
    )
    assert text_of(archive(path, contents)).split("\n") == [
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
