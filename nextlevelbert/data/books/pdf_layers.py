"""Leaves out what is on layers of a PDF that are off, which PDFium reads but does not draw."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pypdfium2 import PdfObject

_OFF = b"Hide"  # as long as the key that it replaces


def mark_layers(data: bytes) -> bytes:
    """Returns a document in which layers that are off when it is opened have a key of their own.

    PDFium does not tell which layers (optional content) are off. In a copy that it writes, no
    objects are packed, and the keys of an object are sorted.
    """
    from pypdfium2 import PdfDocument, raw

    copy = io.BytesIO()
    with PdfDocument(data) as document:
        document.save(copy, flags=raw.FPDF_REMOVE_SECURITY)

    if b"/OFF[" not in copy.getvalue():
        return data

    items = copy.getvalue().split(b"endobj")
    off = set[bytes]()
    for item in items:
        if b"/OCGs[" in item:
            configuration = item.partition(b"/D<<")[2]
            references = configuration.partition(b"/OFF[")[2].partition(b"]")[0]
            off.update(references.split()[::3])

    for index, item in enumerate(items):
        number = item.partition(b" 0 obj")[0].rpartition(b"\n")[2]
        if number in off:
            items[index] = item.replace(b"/Type/OCG", b"/%s/OCG" % _OFF)

    return b"endobj".join(items)


def is_hidden(item: PdfObject) -> bool:
    """Returns whether an object of a page is on a marked layer."""
    from pypdfium2 import raw

    for index in range(raw.FPDFPageObj_CountMarks(item)):
        mark = raw.FPDFPageObj_GetMark(item, index)
        if raw.FPDFPageObjMark_GetParamValueType(mark, _OFF):
            return True
    return False
