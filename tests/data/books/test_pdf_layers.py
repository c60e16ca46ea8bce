"""Text on layers of a PDF that are off is not read, as in pdftotext and on PDFium's own pictures."""

import pytest

from ...toys.books import text_of, words_at, write_pdf_content

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


@pytest.mark.parametrize(("off", "text"), [("7 0 R", "English text."), ("8 0 R", BOTH)])
def test_a_layer_that_shares_its_name_with_another(tmp_path, off, text):
    """The text is on the first of the two."""
    layer = "<</Type/OCG/Name(German)>>"
    catalog = f"/OCProperties<</OCGs[7 0 R 8 0 R]/D<</OFF[{off}]>>>>"

    path = write_pdf_content(tmp_path / "a.pdf", TEXTS, catalog=catalog, more=[layer, layer])

    assert text_of(path) == text


def test_a_form_on_a_layer_that_is_off_is_not_read(tmp_path):
    """The same words on a layer that is on stand at the same place; they are not its shadow."""
    words = words_at("The dome opens.", 72, 600)
    form = (
        f"<</Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<</Font<</F1 3 0 R>>>>"
        f"/Length {len(words)}>>stream\n{words}\nendstream"
    )
    content = f"/OC /Layer BDC\n/A Do\n{words}EMC\n{words}"
    page = "/Resources<</Font<</F1 3 0 R>>/XObject<</A 8 0 R>>/Properties<</Layer 7 0 R>>>>"
    layer = "<</Type/OCG/Name(German)>>"

    path = write_pdf_content(
        tmp_path / "a.pdf", content, page=page, catalog=OFF, more=[layer, form]
    )

    assert text_of(path) == "The dome opens."
