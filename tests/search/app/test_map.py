"""The map of `nextlevelbert app`: its points, its colours, and its time."""

import time
from types import SimpleNamespace

import numpy as np

from nextlevelbert.search.app.page import Page

ORANGE = [234, 88, 12]


def test_the_map_marks_what_was_found_and_knows_its_points(page):
    """A click on a point tells its document; ranked documents are orange there, the others blue."""
    pixels = page.map([2, 0], 1)
    height, width, _ = pixels.shape
    for number, (x, y) in enumerate((page.points + 0.06) / 1.12):
        column = round(x * width)
        row = round((1 - y) * height)
        assert page.nearest_point(column, row) == number
        around = pixels[row - 8 : row + 8, column - 8 : column + 8].reshape(-1, 3).tolist()
        assert (ORANGE in around) == (number in (2, 0))
    assert page.points.min() == 0
    assert page.points.max() == 1


def test_a_question_on_thousands_of_documents_is_drawn_at_once():
    """All names are measured once, when the page opens."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3_000, 256)).astype(np.float32)
    names = list(map("note {} on the ferry.txt".format, range(3_000)))
    library = SimpleNamespace(document_vectors=vectors, names=names)
    page = Page(library)
    start = time.process_time()

    pixels = page.map([1, 2, 3], chosen=1)

    assert time.process_time() - start < 0.5
    assert (pixels.max(axis=2) < 64).sum() > 1_000  # there are names
