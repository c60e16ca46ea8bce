"""Paragraphs of HTML and XHTML as browsers show them, and how pages are decoded."""

import pytest

from nextlevelbert import read_documents

XHTML_HEAD = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>'


def html_text(tmp_path, markup):
    path = tmp_path / "page.html"
    if isinstance(markup, str):
        markup = markup.encode()
    path.write_bytes(markup)
    [document] = read_documents(path)
    return document.text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>表<ruby>示<rp>（</rp><rt>ひょう</rt><rp>）</rp></ruby>された。", "表示された。"),
        (
            "<p>The energy <math><mi>E</mi><mo>=</mo><mi>m</mi></math> stays.",
            "The energy E=m stays.",
        ),
        ("<p>a <my-tag>b</my-tag> c", "a b c"),
        (
            "<p>The <acronym>UN</acronym> in <st1:City>Bonn</st1:City> is un<x-y>usual</x-y>ly"
            "<o:p></o:p> <nobr>open</nobr>.",
            "The UN in Bonn is unusually open.",
        ),
        ("<p>Run:</p><pre>if x:\n    go()\n</pre><p>Done.", "Run:\n\nif x:\n    go()\n\nDone."),
        ("<pre><div>one</div><div>  two</div></pre>", "one\n  two"),
        ("<pre>a<br>b</pre>", "a\nb"),
        ("<p>a<textarea>b</textarea><video>c</video>d", "a\n\nb\n\nd"),
        ("<p>one<br>two<br><br>three", "one\ntwo\n\nthree"),
        ("<title>Bilge pumps</title><p>Shut the valve.", "Bilge pumps\n\nShut the valve."),
        ("<title>Pumps</title><h1>Pumps</h1>x", "Pumps\n\nx"),
        ("<title>Pumps</title><p>x<p>Pumps", "Pumps\n\nx\n\nPumps"),
        ("<title/><script src='x'/><p>a", "a"),
        ("<p>a<?php x ?>b<!-- c -->d", "abd"),
        ("<html:p>a</html:p><html:p>b</html:p>", "a\n\nb"),
        ("<ruby>a<rt>b</ruby><p>c", "a\n\nc"),
        ("<p>a</pre></rt></title>b", "ab"),
        ("plain text &amp; more", "plain text & more"),
        (
            "<p>Name: <input value=Ann><input type=hidden value=x><input type=checkbox value=y>",
            "Name: Ann",
        ),
    ],
)
def test_paragraphs_and_lines_of_html(tmp_path, markup, text):
    assert html_text(tmp_path, f"<body>{markup}") == text


@pytest.mark.parametrize(
    "element",
    [
        "<noscript><div>Enable JavaScript</noscript>",
        "<NOSCRIPT class='x'>Enable JavaScript</NOSCRIPT>",
        "<video src='x'><p>Your browser is old</video>",
        "<audio>Your browser is old</audio>",
        "<canvas><table><td>A chart</table></canvas>",
        "<iframe src='x'><p>A page</iframe>",
        "<noembed><p>A plugin</noembed>",
        "<noframes>Frames</noframes>",
        "<object data='x.svg'>A drawing<object>of a pier</object></object>",
        "<datalist><option>Bonn</option></datalist>",
        "<meter value=1>1 of 10</meter> <progress>10 %</progress>",
    ],
)
def test_what_browsers_show_only_instead_of_something_else_is_not_read(tmp_path, element):
    text = html_text(tmp_path, f"<p>One.</p>{element}<p>Two.")

    assert text.split() == ["One.", "Two."]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("One.<script src='x'/>code</script><p>Two.", "One.\n\nTwo."),
        ("One.<SCRIPT\n src=x/>code</Script ><p>Two.", "One.\n\nTwo."),
        ("One.<style/>code</style><noscript/>no</noscript><p>Two.", "One.\n\nTwo."),
        ("One.<textarea/><b></textarea>Two.", "One.\n\n<b>\n\nTwo."),
        ("<svg><style/><script/><title/><text>a</text></svg><script>no</script>b", "a\n\nb"),
        ("<!-- <script/> -->a<script>no</script>b", "ab"),
        ("a<script>'<noscript>'</script>b<noscript>no</noscript>c", "abc"),
        ("a<script>'<!--<script/></script>'--></script>b", "ab"),
        ("a<scripts/>b</scripts>c", "abc"),
    ],
)
def test_the_slash_of_a_tag_means_nothing_in_html(tmp_path, markup, text):
    assert html_text(tmp_path, f"<body>{markup}") == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<svg><title>t</title><desc>d</desc><text>a</text><text>b</text></svg>c", "a\n\nb\n\nc"),
        ("<svg><text>a<tspan>b</tspan><tspan x=1 dy=2>c</tspan></text></svg>", "ab\nc"),
        (
            "<math><mi>E</mi><annotation>\\mathit{E}</annotation></math> is <annotation>shown",
            "E is shown",
        ),
        ("<svg><metadata>m</metadata><style>s</style><text>a", "a"),
        ("<my-card><template shadowrootmode=open><p>a</template></my-card>b", "a\n\nb"),
        ("<template>no<template shadowrootmode=open>no</template>no</template>b", "b"),
        ("a<template>no<template>no</template>no</template><p>b<style>p {", "a\n\nb"),
        ("a<p>b<!-- never closed <p>c", "a\n\nb"),
    ],
)
def test_drawings_templates_and_parts_that_are_never_closed(tmp_path, markup, text):
    assert html_text(tmp_path, f"<body>{markup}") == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ('<script>x = "<![CDATA[" + y + "]]" + ">"</script><p>a', "a"),
        ("<style>/* <![CDATA[ */ p {} /* ]] > */</style><p>a<!-- <![CDATA[ --><p>b", "a\n\nb"),
        ("<pre>&lt;![CDATA[ x ]]&gt;</pre><p>a", "<![CDATA[ x ]]>\n\na"),
        ("<p>a<![CDATA[ b ]]>c", "ac"),  # a comment in HTML
        ("<svg><text><![CDATA[a & b]]></text></svg>c", "a & b\n\nc"),
        (f"{XHTML_HEAD}<body><p>a <![CDATA[<b> & c]]> d</p></body></html>", "a <b> & c d"),
    ],
)
def test_cdata_sections_are_what_they_are_in_browsers(tmp_path, markup, text):
    assert html_text(tmp_path, markup) == text


@pytest.mark.parametrize(
    "body",
    [
        "<script src='x'/><p>caf&eacute; &amp; tea</p>",
        "<script src='x'/><p>caf&eacute; & tea",  # not well-formed, so that it is read as HTML
        "<script src='x'/><p>caf&eacute; & tea<script>code</script>",
        "<noscript><div>no</noscript><p>caf&eacute; & tea",
    ],
)
def test_xhtml_with_tags_that_are_closed_at_once_and_entities(tmp_path, body):
    assert html_text(tmp_path, f"{XHTML_HEAD}<body>{body}</body></html>") == "café & tea"


def test_entities_that_the_page_defines_are_read_and_unknown_ones_cost_no_text(tmp_path):
    doctype = (
        '<!DOCTYPE html PUBLIC "x" "x.dtd" [<!ENTITY firm "Quayside &amp; Sons">'
        '<!ENTITY nbsp "&#160;">]>'
    )
    page = "<body><p>before&nbsp;&firm; &unknown; after</p></body></html>"

    with_definition = html_text(tmp_path, f"{doctype}{XHTML_HEAD}{page}")
    without = html_text(tmp_path, f'<?xml version="1.0"?>{XHTML_HEAD}{page}')

    assert with_definition.endswith("before Quayside & Sons &unknown; after")
    assert without.endswith("before &firm; &unknown; after")


def test_entities_do_not_multiply_a_page(tmp_path):
    entities = "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">'
        for before, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    doctype = f'<!DOCTYPE html [<!ENTITY a "laugh">{entities}]>'
    page = f"{doctype}{XHTML_HEAD}<body><p>before &h; after</p></body></html>"

    assert len(html_text(tmp_path, page)) < 10 * len(page)


@pytest.mark.parametrize("declaration", ['<?xml version="1.0"?>', ""])
def test_one_version_of_a_part_of_a_page_is_read(tmp_path, declaration):
    switch = (
        "<epub:switch><epub:case required-namespace='x'><p>one</p></epub:case><epub:case"
        " required-namespace='y'><p>two</p></epub:case><epub:default><p>words</p></epub:default>"
        "</epub:switch>"
    )
    html = '<html xmlns:epub="http://www.idpf.org/2007/ops">'

    text = html_text(tmp_path, f"{declaration}{html}<body>See {switch}</body></html>")

    assert text == "See\n\nwords"


def test_deeply_nested_tags_cost_no_text(tmp_path):
    words = html_text(tmp_path, "".join(f"<div><font>w{index} " for index in range(5000))).split()

    assert (len(words), words[-1]) == (5000, "w4999")


@pytest.mark.parametrize("tag", ["b", "div", "li", "q:x", "a-ü"])
def test_deeply_nested_tags_are_closed_but_no_script_is(tmp_path, tag):
    script = "<script>" + "a < b; " * 2_000 + "</script>"

    text = html_text(tmp_path, f"<{tag}>" * 2_000 + script + f"c</{tag}><!-- {'<d>' * 3_000} -->e")

    assert text.split() in (["ce"], ["c", "e"])


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
        ("utf-8", '<!-- <meta charset="koi8-r"> --><meta charset="utf-8">', "Ærø"),
        ("koi8-r", '<!-- <meta charset="utf-8"> --><meta charset="koi8-r">', "Русский"),
        ("cp1252", "<script>'<meta charset=koi8-r>'</script><meta charset=l1>", "Ærø"),
        ("utf-8", "<meta charset=koi8-r>", "Ærø"),
        ("koi8-r", f"<!-- {'a' * 9_999} --><meta charset=koi8-r>", "Русский"),
        ("koi8-r", f"<script>{'a' * 9_999}</script><meta charset=koi8-r>", "Русский"),
        ("utf-8-sig", '<meta charset="iso-8859-1">', "café"),
        ("utf-16", '<meta charset="iso-8859-1">', "café"),
        ("utf-8", "", "café"),
    ],
)
def test_html_is_decoded_as_it_declares(tmp_path, codec, declaration, sentence):
    assert html_text(tmp_path, f"{declaration}<p>{sentence}</p>".encode(codec)) == sentence


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("x-sjis", "cp932", "港の記録"),
        ("windows-31j", "cp932", "港の記録"),
        ("x-euc-jp", "euc_jp", "港の記録"),
        ("windows-874", "cp874", "ท่าเรือ"),
        ("dos-874", "cp874", "ท่าเรือ"),
        ("x-gbk", "gb18030", "码头"),
        ("gb2312", "gb18030", "码头㐀"),  # 㐀 takes four bytes
        ("ks_c_5601-1987", "cp949", "항구똠"),
        ("big5", "big5hkscs", "碼頭"),
        ("iso-8859-8-i", "iso8859_8", "נמל"),
        ("iso-8859-9", "cp1254", "İğ€"),
        ("x-cp1251", "cp1251", "порт"),
        ("x-mac-cyrillic", "mac_cyrillic", "порт"),
        ("unicode-1-1-utf-8", "utf-8", "порт"),
    ],
)
def test_encodings_have_the_names_that_browsers_know(tmp_path, label, codec, text):
    page = f'<html><head><meta charset="{label}"></head><body><p>{text}</p></body></html>'

    assert html_text(tmp_path, page.encode(codec)) == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (b"<p>The caf\xe9 is open.", "The caf\ufffd is open."),
        (b"<meta charset=utf-8><p>The caf\xe9 is open.", "The caf\ufffd is open."),
        (b"<meta charset=utf-16><p>The caf\xe9 is open.", "The caf\ufffd is open."),
        (b"<meta charset=l1><p>\xc3\xa9t\xc3\xa9 caf\xe9", "été caf\ufffd"),
        (b"<meta charset=l1><p>caf\xe9 at\x81 noon", "café at\ufffd noon"),
        (b"<meta charset=shift_jis><p>\x8d`\x82\xcc\x82 is open.", "港の\ufffd is open."),
        (b"\xff\xfe<\0p\0>\0t\0e\0a\0\0\xd8", "tea\ufffd"),
        (
            b"<meta charset=iso-2022-jp><p>Caf\x1b$B9A\xff\xff\x1b(B, open",
            "Caf港\ufffd\ufffd, open",
        ),
    ],
)
def test_damaged_characters_cost_no_page(tmp_path, caplog, page, text):
    assert html_text(tmp_path, page) == text
    assert "page.html was read in part: characters that are not in the encoding" in caplog.text


@pytest.mark.parametrize(
    "page",
    [
        b"<meta name=description content='caf\xc3'><p>The ferry leaves.",
        b"<p>The fer\0ry leaves.",
        b"<meta charset=l1>\0<p>The ferry leaves.",
    ],
)
def test_damage_that_is_not_shown_and_nul_are_no_matter(tmp_path, caplog, page):
    assert html_text(tmp_path, page) == "The ferry leaves."
    assert caplog.text == ""


@pytest.mark.parametrize(
    "data",
    [
        "<p>Корабль".encode("cp1251"),
        "<p>港の記録".encode("cp932"),
        "<p>tea".encode("utf-16-le"),
    ],
)
def test_html_in_another_encoding_names_the_remedy(tmp_path, data):
    with pytest.raises(ValueError, match=r"page\.html cannot be read: .*Save it in UTF-8"):
        html_text(tmp_path, data)
