"""Prepares a PDF page for PDFium: turned texts become upright, shadows and layers are left out."""

from __future__ import annotations

import ctypes
import math
from itertools import product
from typing import TYPE_CHECKING

from .pdf_layers import is_hidden

if TYPE_CHECKING:
    from pypdfium2 import PdfObject, PdfPage

_MOST_DEGREES = 3  # between a line and an edge of the page
_APART = 20_000  # points; more than the longest side of a page
_SHADOW = 0.15  # of the height of a font; the narrowest letters are 0.2 wide


def arrange_letters(page: PdfPage) -> None:
    """Turns each text of a page upright, and leaves out hidden layers and shadows of other texts.

    PDFium tears a turned line whose letters are placed one by one, and doubles letters that
    have a shadow. Lines of each direction come to lie on an area of their own.
    """
    from pypdfium2 import raw

    shadows = _Shadows()
    rotation = page.get_rotation()
    page.set_rotation(0)
    for item in page.get_objects():
        is_shown = not is_hidden(item)
        if is_shown and item.type == raw.FPDF_PAGEOBJ_TEXT:
            _turn_upright(item, rotation)
            is_shown = not shadows.has(item)
        if not is_shown:
            raw.FPDFPageObj_SetIsActive(item, 0)


def _turn_upright(text: PdfObject, rotation: int) -> None:
    """Turns a text that runs along an edge of the page, but not to the right."""
    from pypdfium2 import PdfMatrix

    matrix = text.get_matrix()
    degrees = math.degrees(math.atan2(matrix.b, matrix.a)) % 360
    turned = (degrees + 45) // 90 * 90
    if turned and abs(degrees - turned) < _MOST_DEGREES:
        turn = PdfMatrix().rotate(turned)
        if (turned + rotation) % 360:
            turn = turn.translate(0, -_APART * turned)
        text.transform(turn)


class _Shadows:
    """Finds texts that are a shadow of an earlier one: as large as it, and nearly on it."""

    def __init__(self) -> None:
        self.places = dict[tuple[object, ...], tuple[float, float]]()

    def has(self, text: PdfObject) -> bool:
        from pypdfium2 import raw

        font_size = ctypes.c_float()
        raw.FPDFTextObj_GetFontSize(text, font_size)
        matrix = text.get_matrix()
        reach = _SHADOW * font_size.value * math.hypot(matrix.a, matrix.b)
        if not reach:
            return False

        left, bottom, right, top = text.get_bounds()
        kind = (text.container, round(right - left, 2), round(top - bottom, 2))
        column = matrix.e // reach
        row = matrix.f // reach
        for x, y in product((0, -1, 1), repeat=2):
            place = self.places.get((kind, column + x, row + y))
            if place and math.dist(place, (matrix.e, matrix.f)) < reach:
                return True

        self.places[kind, column, row] = (matrix.e, matrix.f)
        return False
