"""Text on layers of a PDF that are off is not read, as in pdftotext and on PDFium's own pictures."""

import pytest

from ..toys.books import text_of, words_at, write_pdf_content

TEXTS = (
    "/OC /Layer BDC\n"
    + words_at("Deutscher Text.", 72, 700)
    + "EMC\n/Span <</MCID 0>> BDC\n"
    + words_at("English text.", 72, 650)
    + "EMC\n"
)
BOTH = "Deutscher Text.\nEnglish text."
OFF = "/OCProperties<</OCGs[7 0 R]/D<</OFF[7 0 R]/Order[7 0 R]>>>>"


@pytest.mark.parametrize(
    "name", ["(German)", "(A \\(b\\) \\\\ c)", "<FEFF010D0A28>", "(\\376\\377\\001\\r\\000\\n)"]
)
def test_a_layer_that_is_off_is_not_read(tmp_path, name):
    """Its name may be written in brackets or as digits, with signs that have a meaning there."""
    layer = f"<</Type/OCG/Name{name}>>"

    path = write_pdf_content(tmp_path / "a.pdf", TEXTS, catalog=OFF, more=[layer])

    assert text_of(path) == "English text."


@pytest.mark.parametrize(
    "catalog",
    [
        "",
        "/OCProperties<</OCGs[7 0 R]/D<</Order[7 0 R]>>>>",
        "/OCProperties<</Configs[<</OFF[7 0 R]>>]/OCGs[7 0 R]/D<</Order[7 0 R]>>>>",
    ],
)
def test_a_layer_that_is_on_is_read(tmp_path, catalog):
    """The last file has a second configuration, which viewers do not begin with."""
    layer = "<</Type/OCG/Name(German)>>"

    path = write_pdf_content(tmp_path / "a.pdf", TEXTS, catalog=catalog, more=[layer])

    assert text_of(path) == BOTH


def test_a_layer_that_shares_its_name_with_one_that_is_on_is_read(tmp_path):
    layer = "<</Type/OCG/Name(German)>>"
    catalog = "/OCProperties<</OCGs[7 0 R 8 0 R]/D<</OFF[7 0 R]>>>>"

    path = write_pdf_content(tmp_path / "a.pdf", TEXTS, catalog=catalog, more=[layer, layer])

    assert text_of(path) == BOTH
