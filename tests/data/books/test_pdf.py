"""Text of PDF files, and pages that are named because their text is a picture."""

import ctypes
from pathlib import Path

import pypdfium2
import pytest
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from pypdfium2 import raw

from nextlevelbert import read_documents
from nextlevelbert.data.words import search_words

from ...toys.books import text_of, words_at, write_pdf_content

BOOKS = Path(__file__).parent


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


def test_hyphens_at_line_ends_stay_so_that_both_forms_are_searched(tmp_path):
    figure = Figure()
    figure.text(0.1, 0.5, "the long-\nterm lease of naviga-\ntional charts")
    with PdfPages(tmp_path / "a.pdf") as pdf:
        pdf.savefig(figure)

    text = text_of(tmp_path / "a.pdf")

    assert text == "the long-\nterm lease of naviga-\ntional charts"
    assert {"long", "term", "longterm", "navigational"} <= set(search_words(text))


def test_remarks_on_a_page_are_read_once(tmp_path):
    """A remark typed onto the page, and one that quotes a line of the page."""
    figure = Figure()
    figure.text(0.1, 0.5, "Accounts of the mill")
    with PdfPages(tmp_path / "a.pdf") as pdf:
        pdf.attach_note("See the ledger", positionRect=[10, 10, 200, 40])
        pdf.attach_note("Accounts of\nthe mill", positionRect=[10, 50, 200, 80])
        pdf.savefig(figure)

    assert text_of(tmp_path / "a.pdf") == "Accounts of the mill\n\nSee the ledger"


def test_words_on_a_stamp_are_read(tmp_path):
    """The stamp has a text object as its appearance, and no text of a comment."""
    document = pypdfium2.PdfDocument.new()
    page = document.new_page(300, 300)
    stamp = raw.FPDFPage_CreateAnnot(page, raw.FPDF_ANNOT_STAMP)
    words = raw.FPDFPageObj_NewTextObj(document, b"Helvetica", 12)
    characters = ctypes.create_string_buffer("Approved\0".encode("utf-16-le"))
    raw.FPDFText_SetText(words, ctypes.cast(characters, raw.FPDF_WIDESTRING))
    raw.FPDFPageObj_Transform(words, 1, 0, 0, 1, 50, 50)
    raw.FPDFAnnot_SetRect(stamp, raw.FS_RECTF(left=40, bottom=40, right=200, top=80))
    raw.FPDFAnnot_AppendObject(stamp, words)
    raw.FPDFPage_CloseAnnot(stamp)
    document.save(tmp_path / "a.pdf")
    document.close()

    assert text_of(tmp_path / "a.pdf") == "Approved"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (0, "The dome opens.\n\nSay when"),
        (4, "The dome opens.\n\nSay when"),
        (2, "The dome opens."),
        (6, "The dome opens."),
        (32, "The dome opens."),
    ],
)
def test_hidden_remarks_are_not_read(tmp_path, flags, text):
    """2 hides a remark, 32 leaves it off screens, and 4 prints it."""
    remark = f"<</Type/Annot/Subtype/Text/Rect[10 10 20 20]/F {flags}/Contents(Say when)>>"
    content = words_at("The dome opens.", 72, 700)

    path = write_pdf_content(tmp_path / "a.pdf", content, page="/Annots[7 0 R]", more=[remark])

    assert text_of(path) == text
