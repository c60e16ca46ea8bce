"""Letters of a PDF that are placed one by one are words; the values are those of pdftotext."""

import matplotlib
import pytest
from matplotlib.figure import Figure

from ...toys.books import letters_at, text_of, words_at, write_pdf_content

LINE = words_at("The dome opened at night.", 150, 700)

# Before, matplotlib drew letters outside Latin-1 as pictures in fonts of type 3, and Hebrew from left to right.
OLD_MATPLOTLIB = matplotlib.__version_info__ < (3, 11)


@pytest.mark.parametrize("degrees", [90, 180, 270, 30])
def test_letters_of_a_turned_label_are_joined(tmp_path, degrees):
    label = letters_at("Sparsity level", 300, 300, degrees)

    text = text_of(write_pdf_content(tmp_path / "a.pdf", LINE + label))

    assert text == "The dome opened at night.\nSparsity level"


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_turned_labels_stay_apart(tmp_path, degrees):
    """The second label is a line below the first; the third follows it on its line, as upright."""
    x, y = {90: (12, 0), 180: (0, 12), 270: (-12, 0)}[degrees]
    right, above = {90: (0, 200), 180: (-200, 0), 270: (0, -200)}[degrees]
    labels = [
        letters_at("Sparsity level", 300, 300, degrees),
        letters_at("of a vector", 300 + x, 300 + y, degrees),
        letters_at("Sums", 300 + x + right, 300 + y + above, degrees),
    ]

    text = text_of(write_pdf_content(tmp_path / "a.pdf", LINE + "".join(labels)))

    lines = text.split("\n")
    assert sorted(lines) == ["Sparsity level", "The dome opened at night.", "of a vector Sums"]


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_words_and_gaps_of_turned_labels(tmp_path, degrees):
    """No letter is between the words, so that only their places tell the space."""
    gap = 9 * 6
    x, y = {0: (gap, 0), 90: (0, gap), 180: (-gap, 0), 270: (0, -gap)}[degrees]
    label = letters_at("Sparsity", 300, 300, degrees)
    label += letters_at("level", 300 + x, 300 + y, degrees)

    text = text_of(write_pdf_content(tmp_path / "a.pdf", LINE + label))

    assert text == "The dome opened at night.\nSparsity level"


@pytest.mark.parametrize("fonttype", [3, 42])
def test_labels_of_matplotlib_with_formulas(tmp_path, fonttype):
    figure = Figure()
    axes = figure.add_subplot(xticks=[], yticks=[], title="A title")
    axes.set_ylabel(r"Sparsity level $\lambda_1$ of $x$")
    figure.text(0.97, 0.3, r"Down $\alpha$ hill", rotation=270)
    figure.text(0.5, 0.5, r"Upside $\beta$ down", rotation=180)

    with matplotlib.rc_context({"pdf.fonttype": fonttype}):
        figure.savefig(tmp_path / "a.pdf")

    lines = text_of(tmp_path / "a.pdf").split("\n")
    expected = ["A title", "Down α hill", "Sparsity level λ1 of x", "Upside β down"]
    if OLD_MATPLOTLIB and fonttype == 3:
        expected = ["A title", "Down hill", "Sparsity level 1 of x", "Upside down"]
    assert sorted(lines) == expected


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_labels_of_turned_pages(tmp_path, rotation):
    """Viewers turn the page, so that its lines are upright."""
    x, y = {0: (0, -14), 90: (14, 0), 180: (0, 14), 270: (-14, 0)}[rotation]
    lines = [
        words_at("The dome opened", 300, 300, rotation),
        words_at("at night.", 300 + x, 300 + y, rotation),
    ]
    label = letters_at("Sparsity level", 100, 600, (rotation + 90) % 360)

    path = write_pdf_content(tmp_path / "a.pdf", "".join(lines) + label, page=f"/Rotate {rotation}")

    assert text_of(path) == "The dome opened\nat night.\nSparsity level"


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("shadows", [[(1, 1)], [(-0.5, 0.5)], [(0.4, 0.4), (-0.4, -0.4)]])
def test_letters_with_a_shadow_are_read_once(tmp_path, degrees, shadows):
    name = letters_at("All free Bassoons", 300, 300, degrees)
    for x, y in shadows:
        name += letters_at("All free Bassoons", 300 + x, 300 + y, degrees)

    assert text_of(write_pdf_content(tmp_path / "a.pdf", name)) == "All free Bassoons"


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_doubled_letters_are_kept(tmp_path, degrees):
    """Two narrow letters beside each other are no shadow, in a label that is torn, either."""
    words = words_at("The bookkeeper ill-advised 1100", 300, 300, degrees, font="F2")
    content = words + letters_at("aabb ll", 100, 500, degrees)

    lines = text_of(write_pdf_content(tmp_path / "a.pdf", content)).split("\n")

    assert sorted(lines) == ["The bookkeeper ill-advised 1100", "aabb ll"]


def test_narrow_letters_that_stand_close_are_kept(tmp_path):
    places = {"o": 300, "l": 305.6, "i": 307.6}
    letters = [words_at(letter, x, 300, font="F2") for letter, x in places.items()]
    letters.append(words_at("i", 309.6, 300, font="F2"))

    assert text_of(write_pdf_content(tmp_path / "a.pdf", "".join(letters))) == "olii"


def test_forms_with_equal_words_at_equal_places_of_their_own_are_read(tmp_path):
    """Each form begins at its own corner, as figures of a page do."""
    words = words_at("Sums", 0, 0) + words_at("Sums", 1, 1)
    form = (
        f"<</Type/XObject/Subtype/Form/BBox[0 0 99 99]/Resources<</Font<</F1 3 0 R>>>>"
        f"/Length {len(words)}>>stream\n{words}\nendstream"
    )
    content = "q 1 0 0 1 50 600 cm /A Do Q q 1 0 0 1 50 500 cm /A Do Q"
    page = "/Resources<</XObject<</A 7 0 R>>>>"

    path = write_pdf_content(tmp_path / "a.pdf", content, page=page, more=[form])

    assert text_of(path).split() == ["Sums", "Sums"]


def test_a_turned_word_of_hebrew_stays(tmp_path):
    """PDFium has put its letters into their order of reading, which is not that of their places."""
    word = "ירושלים"
    drawn = {True: word[::-1], False: word}[OLD_MATPLOTLIB]
    figure = Figure()
    figure.text(0.5, 0.5, drawn, rotation=90)

    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(tmp_path / "a.pdf")

    assert text_of(tmp_path / "a.pdf") == word
