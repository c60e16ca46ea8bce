"""What the page of `nextlevelbert app` shows, without a browser."""

from __future__ import annotations

import base64
import io
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import nextlevelbert
from nextlevelbert import NextLevelBertModel
from nextlevelbert.commands.app import Page, parts_of
from nextlevelbert.commands.search import Library
from nextlevelbert.commands.shelf import open_shelf

from .conftest import KITCHEN

ROOT = Path(__file__).parents[2]
QUESTION = "Where does the captain hunt the whale?"
WORDS = "The captain hunts the whale over the sea. " * 15  # longer than the shortest part
ORANGE = [234, 88, 12]


@pytest.fixture
def page(toy_encoder_path, books, tmp_path) -> Page:
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    return Page(Library(model, open_shelf(model, str(books), tmp_path / "cache")))


def test_the_map_marks_what_was_found_and_knows_its_points(page):
    """A click on a point tells its document; ranked documents are orange there, the others blue."""
    pixels = page.map([2, 0], 1)
    height, width, _ = pixels.shape
    for number, (x, y) in enumerate((page.points + 0.06) / 1.12):
        column, row = round(x * width), round((1 - y) * height)
        assert page.nearest_point(column, row) == number
        around = pixels[row - 8 : row + 8, column - 8 : column + 8].reshape(-1, 3).tolist()
        assert (ORANGE in around) == (number in (2, 0))
    assert page.points.min() == 0
    assert page.points.max() == 1


@pytest.mark.parametrize(
    "headings",
    [
        [
            "CHAPTER I",
            "Chapter 2. The Chase",
            "CHAPTER III: AT SEA",
            "Chapter the Fourth of nothing",
        ],
        ["# One", "## Two", "### Three", "#hashtag"],
        ["I.", "II", "XIV.", "I see"],
        ["ARTICLE ONE", "Section 2 - Terms", "Item 3.", "Part of it is lost"],
    ],
)
def test_parts_between_headings(headings):
    """The last line of each list is no heading; a table of contents in front is none, either."""
    contents = "\n".join(headings[:3])
    text = f"{contents}\n\n" + "".join(f"{heading}\n\n{WORDS}\n\n" for heading in headings)
    names, starts, ends = zip(*parts_of(text, np.array([[0, len(text)]])), strict=True)
    assert [*names] == [heading.strip("# ") for heading in headings[:3]]
    assert all(
        text[start:].startswith(heading) for start, heading in zip(starts, headings, strict=False)
    )
    assert ends == (*starts[1:], len(text))


def test_parts_of_equal_length():
    spans = np.array([[10 * number, 10 * number + 10] for number in range(95)])
    text = "x" * 950
    parts = parts_of(text, spans)
    assert len(parts) == 30
    assert (parts[0], parts[-1]) == (("part 1", 0, 40), ("part 30", 920, 950))
    assert len(parts_of(text[:20], spans[:2])) == 2


def test_similarity_of_parts(page):
    parts, cosines = page.parts(2)
    spans, vectors = (
        page.library.spans[page.chunks(2)],
        page.library.vectors[page.chunks(2)].double().numpy(),
    )
    means = np.stack(
        [
            vectors[[start >= first and end <= last for start, end in spans.tolist()]].mean(axis=0)
            for _, first, last in parts
        ]
    )
    means -= means.mean(axis=0)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(cosines, means @ means.T, atol=1e-5)
    assert page.square(2).shape == (len(parts), len(parts), 3)
    chunks, headings = page.nearest_pair(2, 0, 2)
    assert headings == [parts[0][0], parts[2][0]]
    assert chunks == [0, 2]  # in a short text, every chunk is a part
    assert page.nearest_pair(2, 1, 1) == ([1], [parts[1][0]])


def test_a_strip_shows_the_highest_score_of_each_cell(page):
    answer = page.library.ask(QUESTION)
    number, chunk = page.library.locate(answer.passages[0])
    strip = page.strip(number, answer)
    assert strip.shape == (1, len(page.cells(number)), 3)
    assert strip[0, chunk].tolist() == ORANGE  # the best of all, by one chunk a cell
    rows = page.documents(answer.documents, answer)
    data = re.search('base64,([^"]+)', rows[0][3])[1]
    best = page.strip(answer.documents[0][0], answer)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
    np.testing.assert_array_equal(pixels[:, :: pixels.shape[1] // best.shape[1]][:1], best)
    assert [row[1] for row in rows] == [
        page.library.places[number] for number, _ in answer.documents
    ]


def test_the_text_shows_passages_in_their_context(page):
    text = page.text(1, [0, 3], ["one", "two"])
    marked = [piece for piece, label in text if label == "passage"]
    first = int(page.library.first[1])
    assert marked == [page.library.passage(first + chunk).text for chunk in (0, 3)]
    assert KITCHEN.strip() in "".join(piece for piece, _ in text[3:]).replace("… ", "")
    assert text[0][0].startswith("one · characters 0 to ")


def test_without_gradio(command, books, encoded, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = command("app", books)
    assert said.status == 1
    assert "pip install 'nextlevelbert[app]'" in said.err
    assert encoded == []


def test_the_space(monkeypatch, tmp_path):
    """Its header names the release of Gradio that the tests run with; it shows `documents`, or
    Python's manual."""
    header = yaml.safe_load(
        (ROOT / "app" / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    )
    assert f"gradio=={header['sdk_version']}" in (ROOT / "constraints.txt").read_text().split()
    assert (header["sdk"], header["app_file"]) == ("gradio", "app.py")
    assert (ROOT / "app" / "requirements.txt").read_text() == "nextlevelbert[app]\n"
    assert len(header["short_description"]) <= 60  # the Hub refuses more
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    monkeypatch.setattr(
        nextlevelbert, "read_documents", lambda _: [nextlevelbert.Document("module/json", "JSON")]
    )
    manual = runpy.run_path(str(ROOT / "app" / "app.py"))["documents"]()
    assert (manual / "module" / "json.txt").read_text() == "JSON"
