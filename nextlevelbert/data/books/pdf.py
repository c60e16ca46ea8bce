"""Reads the text of PDF files by PDFium, which needs the extra ``files``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .pdf_layers import mark_layers
from .pdf_letters import arrange_letters

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

# PDFium's signs for a hyphen at the end of a line, which divides a word or belongs to it.
_LINE_END_HYPHEN = re.compile("[\x02\ufffe](?:\r?\n)?")
_NAMED_PAGES = 10
# Flags of a remark that no screen shows: hidden, and only printed.
_NOT_SHOWN = 2 | 32


def read_pdf(data: bytes) -> tuple[list[str], list[str]]:
    """Returns the text of each page, and notes on pages without text."""
    from pypdfium2 import PdfDocument, PdfiumError

    pages = []
    pictures = []
    damaged = []
    with PdfDocument(mark_layers(data)) as document:
        has_form = document.get_formtype() != 0
        if has_form:
            document.init_forms()
        for index in range(len(document)):
            pages.append("")
            try:
                pages[-1], has_content = _read_page(document, index, has_form)
            except PdfiumError:
                damaged.append(index + 1)
            else:
                if has_content and not pages[-1]:
                    pictures.append(index + 1)

    notes = []
    if pictures:
        which = _first_of(pictures, pages=len(pages))
        notes.append(f"{which} hold no text; if they are pictures, run OCR over the file")
    if damaged:
        notes.append(f"{_first_of(damaged, pages=len(pages))} are damaged")

    return pages, notes


def _read_page(document: PdfDocument, index: int, has_form: bool) -> tuple[str, bool]:
    """Returns the text of a page with its remarks, and whether the page shows anything."""
    from pypdfium2 import raw

    page = document[index]
    remarks = list(_remarks(page))
    if has_form or remarks:
        # Fields that were filled in, and remarks, become text of the page.
        raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)
        page.close()
        page = document[index]

    arrange_letters(page)
    text_page = page.get_textpage()
    text = _LINE_END_HYPHEN.sub("-\n", text_page.get_text_range()).replace("\r\n", "\n").strip()
    has_content = next(page.get_objects(max_depth=1), None) is not None
    text_page.close()
    page.close()

    words = " ".join(text.split())
    comments = [remark for remark in remarks if " ".join(remark.split()) not in words]
    return "\n\n".join([text, *comments]).strip(), has_content


def _remarks(page: PdfPage) -> Iterator[str]:
    """Yields the text of each remark on a page, such as a comment, a stamp or a box of text."""
    from pypdfium2 import raw

    without_remarks = (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP, raw.FPDF_ANNOT_WIDGET)
    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        is_hidden = raw.FPDFAnnot_GetFlags(annotation) & _NOT_SHOWN
        if not is_hidden and raw.FPDFAnnot_GetSubtype(annotation) not in without_remarks:
            size = raw.FPDFAnnot_GetStringValue(annotation, b"Contents", None, 0)
            buffer = (raw.FPDF_WCHAR * (size // 2))()
            raw.FPDFAnnot_GetStringValue(annotation, b"Contents", buffer, size)
            remark = bytes(buffer).decode("utf-16-le", "replace").rstrip("\0")
            yield remark.replace("\r\n", "\n").replace("\r", "\n").strip()

        raw.FPDFPage_CloseAnnot(annotation)


def _first_of(numbers: list[int], *, pages: int) -> str:
    """Says how many pages these are, and names the first few."""
    shown = ", ".join(str(number) for number in numbers[:_NAMED_PAGES])
    if len(numbers) > _NAMED_PAGES:
        shown = f"{shown}, …"
    return f"{len(numbers)} of {pages} pages ({shown})"
