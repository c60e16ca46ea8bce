"""All text that Word shows is read, whatever is around it."""

import zipfile
from pathlib import Path

import pytest

from nextlevelbert import read_documents

from ...toys.books import WORD, text_of, write_archive, write_word

BOOKS = Path(__file__).parent
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
NAMESPACES = (
    f'xmlns:a="{DRAWING}/main" xmlns:c="{DRAWING}/chart" xmlns:dgm="{DRAWING}/diagram"'
    ' xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    ' xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
    ' xmlns:v="urn:schemas-microsoft-com:vml" xmlns:wps="urn:shape"'
)


STYLES = (
    f"<w:styles xmlns:w='{WORD}'><w:style w:styleId='Secret'><w:rPr><w:vanish/></w:rPr></w:style>"
    "<w:style w:styleId='Based'><w:basedOn w:val='Secret'/></w:style><w:style w:styleId='Shown'>"
    "<w:basedOn w:val='Based'/><w:rPr><w:vanish w:val='0'/></w:rPr></w:style></w:styles>"
)
HIDDEN = "<w:r><w:rPr><w:vanish/></w:rPr>{}</w:r>"


def run(text):
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*contents):
    return f"<w:p>{''.join(contents)}</w:p>"


def part(name, *paragraphs):
    contents = "".join(paragraph(run(text)) for text in paragraphs)
    return f'<w:{name} xmlns:w="{WORD}">{contents}</w:{name}>'


def section(*references, more=""):
    """A section with headers and footers, by their kind, type and id."""
    marks = "".join(
        f'<w:{kind}Reference w:type="{shown_on}" r:id="{identifier}"/>'
        for kind, shown_on, identifier in references
    )
    return f"<w:sectPr>{marks}{more}</w:sectPr>"


def text_box(text):
    return f"<w:txbxContent>{paragraph(run(text))}</w:txbxContent>"


def add_parts(path, relations, parts):
    """Replaces the relations of a Word file, and adds parts to it."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["word/_rels/document.xml.rels"] = f"<Relationships>{relations}</Relationships>"
    for name, content in parts.items():
        contents[f"word/{name}"] = content
    write_archive(path, contents)


def word_text(tmp_path, body, **parts):
    path = write_word(tmp_path / "a.docx", body, namespaces=NAMESPACES, **parts)
    [document] = read_documents(path)
    return document.text


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<w:hyperlink w:anchor='x'>", "</w:hyperlink>"),
        ("<w:fldSimple w:instr='DATE'>", "</w:fldSimple>"),
        ("<w:ins w:id='1'>", "</w:ins>"),
        ("<w:moveTo w:id='1'>", "</w:moveTo>"),
        ("<w:smartTag w:element='City'>", "</w:smartTag>"),
        ("<w:customXml>", "</w:customXml>"),
        ("<w:sdt><w:sdtPr><w:tag/></w:sdtPr><w:sdtContent>", "</w:sdtContent></w:sdt>"),
        ("<w:dir w:val='rtl'>", "</w:dir>"),
        ("<w:bdo w:val='ltr'>", "</w:bdo>"),
        ("<w:element-of-a-later-version>", "</w:element-of-a-later-version>"),
        ("<mc:AlternateContent><mc:Choice Requires='x'>", "</mc:Choice></mc:AlternateContent>"),
        ("<w:r><w:fldChar w:fldCharType='separate'/></w:r>", ""),
        (
            "<w:r><w:fldChar w:fldCharType='begin'/><w:instrText>DATE</w:instrText></w:r>",
            "<w:r><w:fldChar w:fldCharType='end'/></w:r>",
        ),
    ],
)
def test_every_container_of_text_is_read(tmp_path, begin, end):
    body = paragraph(run("The ferry "), begin, run("leaves"), end, run(" at dawn."))

    assert word_text(tmp_path, body) == "The ferry leaves at dawn."


@pytest.mark.parametrize(
    "content",
    [
        "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>",
        f"<w:moveFrom>{run('gone')}</w:moveFrom>",
        "<w:r><w:instrText>PAGE</w:instrText></w:r>",
        "<w:pPr><w:tabs><w:tab w:val='left'/></w:tabs></w:pPr>",
    ],
)
def test_what_word_does_not_show_is_not_read(tmp_path, content):
    assert word_text(tmp_path, paragraph(content, run("kept"))) == "kept"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<w:r><w:t>name</w:t><w:tab/><w:t>value</w:t></w:r>", "name\tvalue"),
        (
            "<w:r><w:t>one</w:t><w:br/><w:t>two</w:t><w:cr/><w:t>three</w:t></w:r>",
            "one\ntwo\nthree",
        ),
        ("<w:r><w:t>re</w:t><w:noBreakHyphen/><w:t>enter</w:t></w:r>", "re-enter"),
        ("<w:r><w:t>har</w:t><w:softHyphen/><w:t>bour</w:t></w:r>", "harbour"),
        ("<w:r><w:sym w:font='Symbol' w:char='F061'/></w:r>", "α"),
        (
            "<w:r><w:ruby><w:rt><w:r><w:t>とう</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>東</w:t>"
            "</w:r></w:rubyBase></w:ruby></w:r>",
            "東",
        ),
        ("<m:oMath><m:r><m:t>E=</m:t></m:r><m:r><m:t>m</m:t></m:r></m:oMath>", "E=m"),
        ("<w:r><w:pict><v:shape><v:textpath string='DRAFT'/></v:shape></w:pict></w:r>", "DRAFT"),
        (
            "<w:r><w:fldChar w:fldCharType='begin'><w:ffData><w:ddList><w:result w:val='1'/>"
            "<w:listEntry w:val='Bergen'/><w:listEntry w:val='Oslo'/></w:ddList></w:ffData>"
            "</w:fldChar></w:r>",
            "Oslo",
        ),
    ],
)
def test_characters_that_are_elements(tmp_path, content, text):
    assert word_text(tmp_path, paragraph(content)) == text


@pytest.mark.parametrize(
    "box",
    [
        f"<w:drawing><wps:txbx>{text_box('Low bridge')}</wps:txbx></w:drawing>",
        f"<w:pict><v:textbox>{text_box('Low bridge')}</v:textbox></w:pict>",
        f"<mc:AlternateContent><mc:Choice><w:drawing>{text_box('Low bridge')}</w:drawing></mc:Choice>"
        f"<mc:Fallback><w:pict>{text_box('Low bridge')}</w:pict></mc:Fallback>"
        "</mc:AlternateContent>",
        f"<mc:AlternateContent><mc:Choice><w:drawing/></mc:Choice>"
        f"<mc:Fallback><w:pict>{text_box('Low bridge')}</w:pict></mc:Fallback>"
        "</mc:AlternateContent>",
    ],
)
def test_a_text_box_is_read_once_and_does_not_cut_the_sentence_around_it(tmp_path, box):
    body = paragraph(run("Mind "), f"<w:r>{box}</w:r>", run("the gap."))

    assert word_text(tmp_path, body) == "Low bridge\n\nMind the gap."


def test_a_deleted_paragraph_mark_joins_two_paragraphs(tmp_path):
    deleted = "<w:pPr><w:rPr><w:del w:id='1'/></w:rPr></w:pPr>"
    body = paragraph(deleted, run("The fee is ")) + paragraph(run("sixty crowns."))
    last = paragraph(deleted, run("The end."))

    assert word_text(tmp_path, body + last) == "The fee is sixty crowns.\n\nThe end."


def test_deleted_rows_of_tables_are_not_read(tmp_path):
    row = f"<w:tr><w:tc>{paragraph(run('%s'))}</w:tc><w:tc>{paragraph(run('x'))}</w:tc></w:tr>"
    deleted = row.replace("<w:tc>", "<w:trPr><w:del w:id='1'/></w:trPr><w:tc>", 1)

    text = word_text(tmp_path, f"<w:tbl>{row % 'kept'}{deleted % 'gone'}</w:tbl>")

    assert text == "kept\n\nx"


def test_the_labels_of_diagrams_and_charts_are_read_in_their_place(tmp_path):
    label = "<a:p><a:r><a:t>Apply</a:t></a:r></a:p>"
    diagram = f"<dgm:m {NAMESPACES}><dgm:pt><dgm:t>{label}</dgm:t></dgm:pt></dgm:m>"
    chart = (
        f"<c:chartSpace {NAMESPACES}><c:strCache><c:pt><c:v>Bergen</c:v></c:pt></c:strCache>"
        "<c:numCache><c:pt><c:v>17</c:v></c:pt></c:numCache></c:chartSpace>"
    )
    body = (
        paragraph(run("Before."))
        + paragraph("<w:r><w:drawing><dgm:relIds r:dm='diagramData'/></w:drawing></w:r>")
        + paragraph("<w:r><w:drawing><c:chart r:id='chart'/></w:drawing></w:r>")
        + paragraph(run("After."))
    )

    text = word_text(tmp_path, body, diagramData=diagram, chart=chart)

    assert text.split() == ["Before.", "Apply", "Bergen", "After."]


def test_notes_headers_footers_and_comments_follow_the_text(tmp_path):
    def notes(name, text):
        contents = f'<w:{name} w:id="1">{paragraph(run(text))}</w:{name}>'
        return f'<w:{name}s xmlns:w="{WORD}">{contents}</w:{name}s>'

    references = "".join(
        f'<w:r><w:{kind}Reference w:id="1"/></w:r>' for kind in ("footnote", "endnote", "comment")
    )
    margins = section(("header", "default", "header"), ("footer", "default", "footer"))

    text = word_text(
        tmp_path,
        paragraph(run("The board met."), references) + margins,
        comments=notes("comment", "Ask Ann."),
        header=part("hdr", "Confidential"),
        footer=part("ftr", "Confidential"),
        footnotes=notes("footnote", "In May."),
        endnotes=notes("endnote", "Or June."),
    )

    assert text.split("\n\n") == [
        "The board met.",
        "In May.",
        "Or June.",
        "Confidential",
        "Ask Ann.",
    ]


@pytest.mark.parametrize("kind", ["footnote", "endnote", "comment"])
@pytest.mark.parametrize("around", ["", "<w:del>{}</w:del>", HIDDEN])
def test_notes_that_the_text_does_not_refer_to_are_not_read(tmp_path, kind, around):
    contents = "".join(
        f'<w:{kind} w:id="{index}">{paragraph(run(f"note {index}"))}</w:{kind}>'
        for index in range(3)
    )
    notes = f'<w:{kind}s xmlns:w="{WORD}">{contents}</w:{kind}s>'
    shown = f'<w:r><w:{kind}Reference w:id="1"/></w:r>'
    other = around.format(f'<w:{kind}Reference w:id="2"/>')
    body = paragraph(run("kept"), shown, other)

    assert word_text(tmp_path, body, **{f"{kind}s": notes}) == "kept\n\nnote 1"


@pytest.mark.parametrize(
    ("more", "settings", "shown"),
    [
        ("", "", "all"),
        ("<w:titlePg/>", "", "all first"),
        ("<w:titlePg w:val='0'/>", "<w:evenAndOddHeaders w:val='off'/>", "all"),
        ("", "<w:evenAndOddHeaders/>", "all even"),
    ],
)
def test_only_the_headers_and_footers_that_a_section_shows_are_read(
    tmp_path, more, settings, shown
):
    relations = '<Relationship Id="settings" Type="x/settings" Target="settings.xml"/>'
    parts = {"settings.xml": f'<w:settings xmlns:w="{WORD}">{settings}</w:settings>'}
    references = []
    for kind, text in (("default", "all"), ("first", "first"), ("even", "even")):
        relations += f'<Relationship Id="{kind}" Type="x/header" Target="{kind}.xml"/>'
        parts[f"{kind}.xml"] = part("hdr", text)
        references.append(("header", kind, kind))
    body = paragraph(run("kept")) + section(*references, more=more)
    path = write_word(tmp_path / "a.docx", body, namespaces=NAMESPACES)
    add_parts(path, relations, parts)

    assert text_of(path).split() == ["kept", *shown.split()]


def test_a_section_shows_the_header_of_first_pages_of_the_section_before(tmp_path):
    before = paragraph(f"<w:pPr>{section(('header', 'first', 'header'))}</w:pPr>", run("kept"))

    text = word_text(
        tmp_path, before + section(more="<w:titlePg/>"), header=part("hdr", "Confidential")
    )

    assert text == "kept\n\nConfidential"


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ("<w:vanish/>", "kept"),
        ("<w:vanish w:val='true'/>", "kept"),
        ("<w:vanish w:val='0'/>", "keptgone"),
        ("<w:vanish w:val='false'/>", "keptgone"),
        ("<w:webHidden/>", "keptgone"),
        ("<w:rStyle w:val='Secret'/>", "kept"),
        ("<w:rStyle w:val='Based'/>", "kept"),
        ("<w:rStyle w:val='Shown'/>", "keptgone"),
        ("<w:rStyle w:val='Secret'/><w:vanish w:val='off'/>", "keptgone"),
    ],
)
def test_hidden_text_is_not_read(tmp_path, properties, text):
    hidden = f"<w:r><w:rPr>{properties}</w:rPr><w:t>gone</w:t></w:r>"

    assert word_text(tmp_path, paragraph(run("kept"), hidden), styles=STYLES) == text


def test_text_is_hidden_by_the_style_of_its_paragraph_but_not_by_its_mark(tmp_path):
    by_style = paragraph("<w:pPr><w:pStyle w:val='Secret'/></w:pPr>", run("gone"))
    twice = paragraph(
        "<w:pPr><w:pStyle w:val='Secret'/></w:pPr>",
        "<w:r><w:rPr><w:rStyle w:val='Based'/></w:rPr><w:t>shown again</w:t></w:r>",
    )
    mark = paragraph("<w:pPr><w:rPr><w:vanish/></w:rPr></w:pPr>", run("kept"))

    text = word_text(tmp_path, by_style + twice + mark, styles=STYLES)

    assert text == "shown again\n\nkept"


def test_the_code_of_a_field_is_not_read(tmp_path):
    def mark(kind):
        return f"<w:r><w:fldChar w:fldCharType='{kind}'/></w:r>"

    inner = mark("begin") + run("code") + mark("separate") + run("name") + mark("end")
    code = mark("begin") + run("not chosen") + inner + mark("separate")
    body = paragraph(run("It is "), code, run("chosen"), mark("end"), run("."))
    without_begin = paragraph(mark("begin"), run("kept")) + paragraph(mark("separate"), run("too"))

    text = word_text(tmp_path, body + without_begin)

    assert text == "It is chosen.\n\nkept\n\ntoo"


@pytest.mark.parametrize(
    "content",
    [
        "<w:r><w:sym w:font='Symbol' w:char='alpha'/></w:r>",
        "<w:ddList><w:result w:val='-9'/><w:listEntry w:val='Oslo'/></w:ddList>",
        "<w:ddList><w:result w:val='first'/></w:ddList>",
        "<w:pPr><w:numPr><w:ilvl w:val='one'/><w:numId w:val='1'/></w:numPr></w:pPr>",
    ],
)
def test_an_odd_number_costs_no_text(tmp_path, content):
    numbering = (
        f"<w:numbering xmlns:w='{WORD}'><w:abstractNum w:abstractNumId='0'><w:lvl/><w:lvl"
        " w:ilvl='0'><w:start w:val=''/><w:lvlRestart w:val='x'/></w:lvl></w:abstractNum><w:num"
        " w:numId='1'><w:abstractNumId w:val='0'/><w:lvlOverride><w:startOverride w:val='x'/>"
        "</w:lvlOverride></w:num></w:numbering>"
    )

    assert word_text(tmp_path, paragraph(content, run("kept")), numbering=numbering) == "kept"


def test_a_chart_in_charts_is_read_once(tmp_path):
    drawings = "<w:r><w:drawing><c:chart r:id='chart'/></w:drawing></w:r>" * 3
    path = write_word(tmp_path / "a.docx", paragraph(drawings), namespaces=NAMESPACES, chart="")
    label = (
        f"<c:chartSpace {NAMESPACES}><c:chart r:id='x'/><c:pt><c:v>%s</c:v></c:pt></c:chartSpace>"
    )
    relations = '<Relationship Id="chart" Type="x/chart" Target="a.xml"/>'
    add_parts(
        path,
        relations,
        {
            "a.xml": label % "Bergen",
            "b.xml": label % "Oslo",
            "_rels/a.xml.rels": '<R><Relationship Id="x" Type="x/chart" Target="b.xml"/></R>',
            "_rels/b.xml.rels": '<R><Relationship Id="x" Type="x/chart" Target="a.xml"/></R>',
        },
    )

    assert text_of(path).split() == ["Bergen", "Oslo"]


def test_line_breaks_and_notes_of_word_files():
    """A line break within a paragraph, and a footnote."""
    [document] = read_documents(BOOKS / "notes.docx")

    assert document.text.split("\n") == [
        "The mill",
        "was sold in spring.",
        "",
        "The ledger disagrees.",
    ]


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (
            "<w:r><w:sym w:font='Marlett' w:char='F061'/></w:r>",
            "symbols of the font Marlett without a known character: 1.",
        ),
        ("<w:altChunk r:id='x'/><w:subDoc r:id='y'/>", "a file within the file is not read."),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, caplog, content, note):
    assert word_text(tmp_path, paragraph(run("kept"), content)) == "kept"
    assert f"a.docx was read in part: {note}" in caplog.text


def test_a_damaged_part_costs_no_other(tmp_path, caplog):
    body = paragraph(run("kept")) + section(("header", "default", "header"))

    assert word_text(tmp_path, body, header="<w:hdr>", numbering="") == "kept"
    assert "word/header.xml is missing or damaged" in caplog.text
    assert "word/numbering.xml is missing or damaged" in caplog.text


def test_a_file_in_strict_open_xml_is_read(tmp_path):
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    body = paragraph("<w:r><w:t>kept</w:t><w:tab/></w:r>", run("tab"))
    path = write_word(tmp_path / "a.docx", body, namespaces=NAMESPACES, word=strict)

    [document] = read_documents(path)

    assert document.text == "kept\ttab"
