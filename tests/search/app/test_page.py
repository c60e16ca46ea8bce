"""What the page of `nextlevelbert app` shows, without a browser."""

import base64
import io
import re
import runpy
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from nextlevelbert import NextLevelBertModel
from nextlevelbert.search.app import page as page_module
from nextlevelbert.search.app.page import Page
from nextlevelbert.search.app.sections import Section

from ..conftest import KITCHEN

ROOT = Path(__file__).parents[3]
QUESTION = "Where does the captain hunt the whale?"
WORDS = "The captain hunts the whale over the sea. " * 15  # longer than the shortest part
ORANGE = [234, 88, 12]


@pytest.fixture
def page(toy_encoder_path, books, open_library) -> Page:
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    return Page(open_library(model, books))


def test_the_map_marks_what_was_found_and_knows_its_points(page):
    """A click on a point tells its document; ranked documents are orange there, the others blue."""
    pixels = page.map([2, 0], 1)
    height, width, _ = pixels.shape
    for index, (x, y) in enumerate((page.points + 0.06) / 1.12):
        column = round(x * width)
        row = round((1 - y) * height)
        assert page.nearest_point(column, row) == index
        around = pixels[row - 8 : row + 8, column - 8 : column + 8].reshape(-1, 3).tolist()
        assert (ORANGE in around) == (index in (2, 0))
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

    pixels = page.map([1, 2, 3], selected=1)

    assert time.process_time() - start < 0.5
    assert (pixels.max(axis=2) < 64).sum() > 1_000  # there are names


def test_similarity_of_sections(page):
    sections, cosines = page.sections(2)
    spans = page.library.spans[page.passages(2)]
    vectors = page.library.vectors[page.passages(2)].double().numpy()
    means = []
    for section in sections:
        within = (spans[:, 0] >= section.start) & (spans[:, 1] <= section.end)
        means.append(vectors[within].mean(axis=0))
    directions = np.array(means) - np.mean(means, axis=0)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    np.testing.assert_allclose(cosines, directions @ directions.T, atol=1e-5)
    assert page.square(2).shape == (len(sections), len(sections), 3)


def test_a_click_on_the_square_shows_two_sections(page):
    """In a short text, every chunk is a section."""
    sections, _ = page.sections(2)
    passages = page.passages(2)
    width = 640 // len(sections)
    shown = page.nearest_pair(2, x=2 * width + 5, y=0)
    assert shown == [
        *page.text(passages[0], heading=f"{sections[0].heading} · "),
        *page.text(passages[2], heading=f"{sections[2].heading} · "),
    ]
    shown = page.nearest_pair(2, x=width + 5, y=width + 5)
    assert shown == page.text(passages[1], heading=f"{sections[1].heading} · ")
    assert page.nearest_pair(2, x=639, y=639)[0][0].startswith(f"{sections[-1].heading} · ")


def test_a_document_of_one_section_is_similar_to_itself(page):
    page.library.starts = np.array([0, 1])
    sections, cosines = page.sections(0)
    assert len(sections) == 1
    np.testing.assert_allclose(cosines, [[1]], atol=1e-5)


def test_a_chunk_on_the_border_of_two_sections_is_not_compared_with_itself(page, monkeypatch):
    text = page.library.document(2).text
    first, second = page.library.spans[page.passages(2)][:2].tolist()
    border = (second[0] + second[1]) // 2
    sections = [Section("one", first[0], border), Section("two", border, len(text))]
    monkeypatch.setattr(page_module, "sections_of", lambda *document: sections)
    shown = page.nearest_pair(2, x=639, y=0)
    assert shown[1:3] != shown[4:]  # the passage, and what follows it


def test_a_strip_shows_the_highest_score_of_each_cell(page):
    answer = page.ask(QUESTION)
    best_passage = answer.passages[0]
    document = page.library.document_of(best_passage)
    strip = page.strip(document, answer)
    cells = page.cells(document)
    assert strip.shape == (1, len(cells), 3)
    cell = page.passages(document).tolist().index(best_passage)  # each cell is one passage
    assert strip[0, cell].tolist() == ORANGE  # the best of all
    x = cell * (1000 // len(cells)) + 5
    assert page.best_in_cell(document, answer, x=x) == best_passage
    assert page.best_passage(document, answer) == best_passage
    rows = page.document_rows(document, answer)
    best, _ = answer.documents[0]
    data = re.search('base64,([^"]+)', rows[0][3])[1]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
    strip = page.strip(best, answer)
    np.testing.assert_array_equal(pixels[:, :: pixels.shape[1] // strip.shape[1]][:1], strip)
    for row, (other, _) in zip(rows, answer.documents, strict=True):
        assert row[1] == page.library.names[other]
    assert page.passage_rows(answer)[0][1].startswith("at ")


def test_without_a_question_similar_documents_are_shown(page):
    assert page.ask(" ") is None
    vectors = page.library.document_vectors
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = directions @ directions[1]
    [(first, best), (second, worse)] = page.ranked(1, None)
    assert {first, second} == {0, 2}
    assert best == pytest.approx(cosines[first], abs=1e-6)
    assert worse == pytest.approx(cosines[second], abs=1e-6)
    assert best >= worse
    assert page.best_passage(1, None) == page.library.starts[1]
    assert [row[3] for row in page.document_rows(1, None)] == ["", ""]


def test_the_text_shows_a_passage_in_its_context(page):
    start = page.library.starts[1]
    before, (marked, label), after = page.text(start + 3, heading="two · ")
    passage = page.library.passage(start + 3)
    assert (marked, label) == (passage.text, "passage")
    context = before[0].partition("… ")[2]
    assert context + marked + after[0].removesuffix(" …\n\n") == KITCHEN
    assert before[0].startswith(f"two · {passage.characters}, {passage.position}\n")
    assert page.text(start)[0][0].startswith("characters 0 to ")


def test_without_gradio(command, books, encoded, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    said = command("app", books)
    assert said.status == 1
    assert "pip install 'gradio>=6.31,<7'" in said.err
    assert encoded == []


def test_the_space(tmp_path):
    """Its header names the release of Gradio that the tests run with; it shows `documents`, or
    Python's manual."""
    header = yaml.safe_load(
        (ROOT / "app" / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    )
    assert f"gradio=={header['sdk_version']}" in (ROOT / "constraints.txt").read_text().split()
    assert (header["sdk"], header["app_file"]) == ("gradio", "app.py")
    assert (ROOT / "app" / "requirements.txt").read_text() == "nextlevelbert[app]\n"
    assert len(header["short_description"]) <= 60  # the Hub refuses more
    shutil.copytree(ROOT / "app", tmp_path / "app")
    documents = runpy.run_path(str(tmp_path / "app" / "app.py"))["documents"]

    assert documents() == "python-manual"
    (tmp_path / "app" / "documents").mkdir()
    assert documents() == str(tmp_path / "app" / "documents")
