"""Small PDF, EPUB and Word files."""

import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import matplotlib
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from nextlevelbert import read_documents

_CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/package.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
_PACKAGE = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">
<manifest><item id="css" href="style.css" media-type="text/css"/>{items}</manifest><spine>{spine}</spine></package>"""
_CONTENT_TYPES = """<?xml version="1.0"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Override PartName="/word/document.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"""
_RELATIONSHIPS = """<?xml version="1.0"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"
 Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
 Target="word/document.xml"/></Relationships>"""
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def write_pdf(path: Path, pages: Sequence[str]) -> Path:
    """One page each, by matplotlib; an empty one has no text."""
    with matplotlib.rc_context({"pdf.fonttype": 42}), PdfPages(path) as pdf:
        for page in pages:
            figure = Figure()
            figure.text(0.1, 0.5, page)
            pdf.savefig(figure)
    return path


def write_pdf_content(
    path: Path, content: str, page: str = "", catalog: str = "", more: Sequence[str] = ()
) -> Path:
    """One page of operators, with the fonts F1 (Courier) and F2 (Helvetica).

    Args:
        page: further entries of the page.
        catalog: further entries of the catalogue.
        more: further objects, from number 7; the first is also the property Layer.
    """
    fonts = [f"<</Type/Font/Subtype/Type1/BaseFont/{name}>>" for name in ("Courier", "Helvetica")]
    resources = "/Resources<</Font<</F1 3 0 R/F2 4 0 R>>/Properties<</Layer 7 0 R>>>>"
    objects = [
        f"<</Type/Catalog/Pages 2 0 R{catalog}>>",
        f"<</Type/Pages/Count 1/Kids[6 0 R]/MediaBox[0 0 600 800]{resources}>>",
        *fonts,
        f"<</Length {len(content)}>>stream\n{content}\nendstream",
        f"<</Type/Page/Parent 2 0 R/Contents 5 0 R{page}>>",
        *more,
    ]
    file = "%PDF-1.7\n"
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(f"{len(file):010d} 00000 n \n")
        file += f"{number} 0 obj\n{body}\nendobj\n"
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{''.join(offsets)}"
    file += (
        f"{table}trailer\n<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{len(file)}\n%%EOF\n"
    )
    path.write_text(file, encoding="latin-1", newline="")
    return path


def words_at(text: str, x: float, y: float, degrees: int = 0, font: str = "F1") -> str:
    """The operators of a text of 10 points as one piece, turned against the clock."""
    sine = round(math.sin(math.radians(degrees)), 6)
    cosine = round(math.cos(math.radians(degrees)), 6)
    matrix = f"{cosine} {sine} {-sine} {cosine} {x} {y}"
    return f"BT /{font} 10 Tf {matrix} Tm ({text}) Tj ET\n"


def letters_at(text: str, x: float, y: float, degrees: int = 0) -> str:
    """The operators of a text whose letters are placed one by one."""
    operators = []
    for index, letter in enumerate(text):
        right = x + 6 * index * math.cos(math.radians(degrees))
        above = y + 6 * index * math.sin(math.radians(degrees))
        operators.append(words_at(letter, round(right, 3), round(above, 3), degrees))
    return "".join(operators)


def write_epub(path: Path, pages: Sequence[str]) -> Path:
    """Pages of HTML; in the archive and in the manifest they stand in the opposite order."""
    names = [f"text/page {index}.xhtml" for index in range(len(pages))]
    items = [
        f'<item id="p{index}" href="text/page%20{index}.xhtml" media-type="application/xhtml+xml"/>'
        for index in range(len(pages))
    ]
    spine = "".join(f'<itemref idref="p{index}"/>' for index in range(len(pages)))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", _CONTAINER)
        for name, page in reversed(list(zip(names, pages, strict=True))):
            archive.writestr(
                f"OEBPS/{name}", f"<html><head><title>no</title></head><body>{page}</body></html>"
            )
        archive.writestr(
            "OEBPS/package.opf", _PACKAGE.format(items="".join(reversed(items)), spine=spine)
        )
    return path


def write_archive(path: Path, contents: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


def write_docx(path: Path, paragraphs: Sequence[str]) -> Path:
    body = "".join(
        f"<w:p><w:r><w:t>{escape(paragraph)}</w:t></w:r></w:p>" for paragraph in paragraphs
    )
    return write_word(path, body)


def write_word(path: Path, body: str, namespaces: str = "", word: str = WORD, **parts: str) -> Path:
    """A Word file of a body in XML; the kinds of its other parts are also their names and ids."""
    relations = "".join(
        f'<Relationship Id="{kind}" Type="{_OFFICE}/{kind}" Target="{kind}.xml"/>' for kind in parts
    )
    contents: dict[str, str | bytes] = {
        "[Content_Types].xml": _CONTENT_TYPES,
        "_rels/.rels": _RELATIONSHIPS,
        "word/_rels/document.xml.rels": f"<Relationships>{relations}</Relationships>",
        "word/document.xml": (
            f'<w:document xmlns:w="{word}" {namespaces}><w:body>{body}</w:body></w:document>'
        ),
    }
    for kind, part in parts.items():
        contents[f"word/{kind}.xml"] = part
    return write_archive(path, contents)


def text_of(path: Path) -> str:
    """Reads the text of a file that holds one document."""
    [document] = read_documents(path)
    return document.text
