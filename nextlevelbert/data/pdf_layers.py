"""Leaves out what is on layers of a PDF that are off, which PDFium reads but does not draw."""

from __future__ import annotations

import ctypes
import io
import re
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

_OPTIONAL = "OC\0".encode("utf-16-le")  # the mark of what is on a layer
_LONGEST_NAME = 4_096  # bytes
_START = re.compile(rb"\s*(\d+) \d+ obj")
_OFF = re.compile(rb"/OFF\[([\d\sR]*)\]")
_REFERENCE = re.compile(rb"(\d+) \d+ R")
_NAME = re.compile(rb"/Name(?:\(((?:[^()\\]|\\.)*)\)|<((?:[0-9A-Fa-f]{2})*)>)", re.DOTALL)


class Layers:
    """The layers of a document (optional content).

    Args:
        document: the document.
    """

    def __init__(self, document: PdfDocument) -> None:
        self.document = document

    def hide(self, page: PdfPage) -> None:
        """Leaves what is on layers that are off out of the text of a page."""
        from pypdfium2 import raw

        for item in range(raw.FPDFPage_CountObjects(page)):
            shown = raw.FPDFPage_GetObject(page, item)
            for index in range(raw.FPDFPageObj_CountMarks(shown)):
                if self._is_off(raw.FPDFPageObj_GetMark(shown, index)):
                    raw.FPDFPageObj_SetIsActive(shown, 0)

    def _is_off(self, mark: object) -> bool:
        """Returns whether a mark of an object on a page names a layer that is off."""
        from pypdfium2 import raw

        size = ctypes.c_ulong()
        kind = (raw.FPDF_WCHAR * 3)()
        raw.FPDFPageObjMark_GetName(mark, kind, ctypes.sizeof(kind), size)
        if bytes(kind) != _OPTIONAL:
            return False
        name = (ctypes.c_ubyte * _LONGEST_NAME)()
        raw.FPDFPageObjMark_GetParamBlobValue(mark, b"Name", name, _LONGEST_NAME, size)
        return bytes(name[: size.value]) in self._names_of_off

    @cached_property
    def _names_of_off(self) -> set[bytes]:
        """Names that only layers have which are off when the file is opened.

        PDFium does not tell them. In a copy that it writes, no objects are packed.
        """
        from pypdfium2 import raw

        copy = io.BytesIO()
        self.document.save(copy, flags=raw.FPDF_REMOVE_SECURITY)
        off = set[bytes]()
        names = dict[bytes, bytes]()  # by number of the layer
        for item in copy.getvalue().split(b"endobj"):
            if b"/OCGs[" in item:
                _, _, configuration = item.partition(b"/D<<")
                for numbers in _OFF.findall(configuration):
                    off.update(_REFERENCE.findall(numbers))
            if b"/Type/OCG" in item:
                number = _START.match(item)
                name = _NAME.search(item)
                if number and name:
                    names[number[1]] = _bytes_of(name)
        on = {name for number, name in names.items() if number not in off}
        return set(names.values()) - on


def _bytes_of(name: re.Match[bytes]) -> bytes:
    """Returns the bytes of a text in a PDF file, which is written in brackets or as digits."""
    if name[2] is not None:
        return bytes.fromhex(name[2].decode())
    line_ends = {b"n": b"\n", b"r": b"\r"}
    return re.sub(
        rb"\\(.)", lambda escape: line_ends.get(escape[1], escape[1]), name[1], flags=re.S
    )
