"""What the page of `nextlevelbert app` shows, without a browser."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import runpy
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import nextlevelbert
from nextlevelbert import NextLevelBertModel
from nextlevelbert.commands.app import Page
from nextlevelbert.commands.app_html import map_html, strip_html
from nextlevelbert.commands.app_library import CELLS, Library, Part, parts_of, strip
from nextlevelbert.commands.search import find
from nextlevelbert.commands.shelf import Shelf, open_shelf

from .conftest import COURT, KITCHEN, SEA

ROOT = Path(__file__).parents[2]
QUESTION = "Where does the captain hunt the whale?"
WORDS = "The captain hunts the whale over the sea. " * 15  # longer than the shortest part


pytestmark = pytest.mark.filterwarnings("ignore:Document.* contain no token")


@pytest.fixture(scope="module")
def model(toy_encoder_path) -> NextLevelBertModel:
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16, whiten_chunks=True)
    model.whitening.mean.copy_(torch.randn(32) / 9)
    model.whitening.weight.copy_(torch.randn(32, 32))
    return model


@pytest.fixture
def shelf(model, books, tmp_path) -> Shelf:
    (books / "blank.txt").write_text("\u200b")
    return open_shelf(model, str(books), tmp_path / "cache")


@pytest.fixture
def library(model, shelf) -> Library:
    return Library.open(model, shelf)


def test_a_library(library, model):
    assert library.places == ["far/court.txt", "kitchen.txt", "sea.txt"]
    assert library.characters == [len(COURT), len(KITCHEN), len(SEA)]
    assert [library.document(number).text for number in range(3)] == [COURT, KITCHEN, SEA]
    assert [each.place for each in library.left_out] == ["blank.txt"]
    assert np.diff(library.first).tolist() == [len(model.encode(text).plain) for text in (COURT, KITCHEN, SEA)]


def test_a_library_of_nothing(model, tmp_path):
    (tmp_path / "blank.txt").write_text("\u200b")
    with pytest.raises(SystemExit, match="no document of the folder holds a word"):
        Library.open(model, open_shelf(model, str(tmp_path / "blank.txt"), tmp_path / "cache"))


def test_rows_of_a_table_are_documents(model, tmp_path):
    rows = [{"id": name, "text": text} for name, text in (("sea", SEA), ("kitchen", KITCHEN))]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    library = Library.open(model, open_shelf(model, str(tmp_path / "in.jsonl"), tmp_path / "cache"))
    assert library.places == ["in.jsonl#sea", "in.jsonl#kitchen"]
    assert library.document(1).text == KITCHEN


def test_it_answers_as_search_does(library, model, shelf):
    answer = library.ask(QUESTION, documents=2, passages=7)
    documents, passages = find(model, shelf, QUESTION, documents=2, passages=7)
    assert [library.places[number] for number, _ in answer.documents] == [each.place for each in documents]
    np.testing.assert_allclose([score for _, score in answer.documents], [each.score for each in documents], atol=1e-5)
    found = [(library.places[number], *library.document(number).spans[chunk]) for number, chunk, _ in answer.passages]
    assert found == [(each.place, each.start, each.end) for each in passages]
    np.testing.assert_allclose([score for *_, score in answer.passages], [each.score for each in passages], atol=1e-5)
    with pytest.raises(ValueError, match="holds no word"):
        library.ask("\u200b")


def test_alike(library):
    vectors = np.stack([library.document(number).vector.numpy() for number in range(3)])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = sorted([(float(vectors[1] @ vectors[other]), other) for other in (0, 2)], reverse=True)
    assert library.alike(1) == [(number, pytest.approx(score, abs=1e-5)) for score, number in expected]


@pytest.mark.parametrize("texts", [[SEA], [SEA, KITCHEN], [SEA, SEA, SEA]])
def test_a_map_of_few_or_equal_documents(model, tmp_path, texts):
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    points, share = Library.open(model, open_shelf(model, str(tmp_path / "*.txt"), tmp_path / "cache")).map()
    assert points.shape == (len(texts), 2)
    assert np.isfinite(share)
    assert ((points >= 0) & (points <= 1)).all()


@pytest.mark.parametrize(
    "headings",
    [
        ["CHAPTER I", "Chapter 2. The Chase", "CHAPTER III: AT SEA", "Chapter the Fourth of nothing"],
        ["# One", "## Two", "### Three", "#hashtag"],
        ["I.", "II", "XIV.", "I see"],
        ["ARTICLE ONE", "Section 2 - Terms", "Item 3.", "Part of it is lost"],
    ],
)
def test_parts_between_headings(headings):
    """The last line of each list is no heading; a table of contents in front is none, either."""
    contents = "\n".join(headings[:3])
    text = f"{contents}\n\n" + "".join(f"{heading}\n\n{WORDS}\n\n" for heading in headings)
    parts = parts_of(text, np.array([[0, len(text)]]), {})
    assert [part.heading for part in parts] == [heading.strip("# ") for heading in headings[:3]]
    assert all(text[part.start :].startswith(heading) for part, heading in zip(parts, headings, strict=False))
    assert [part.end for part in parts] == [*(part.start for part in parts[1:]), len(text)]


def test_parts_of_equal_length_and_of_metadata():
    spans = np.array([[10 * number, 10 * number + 10] for number in range(95)])
    text = "x" * 950
    parts = parts_of(text, spans, {"chapters": "three"})
    assert len(parts) == 30
    assert (parts[0], parts[-1]) == (Part("part 1", 0, 40), Part("part 30", 920, 950))
    chapters = [{"heading": name, "start": at, "end": at + 300} for name, at in (("a", 0), ("b", 300), ("c", 600))]
    assert parts_of(text, spans, {"chapters": chapters}) == [
        Part("a", 0, 300),
        Part("b", 300, 600),
        Part("c", 600, 900),
    ]
    assert len(parts_of(text[:20], spans[:2], {})) == 2


def test_similarity_of_parts(library):
    parts, cosines = library.parts(2)
    spans = library.document(2).spans
    vectors = library.vectors[library.chunks(2)].double().numpy()
    means = np.stack([
        vectors[[start >= part.start and end <= part.end for start, end in spans.tolist()]].mean(axis=0)
        for part in parts
    ])  # fmt: skip
    means -= means.mean(axis=0)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(cosines, means @ means.T, atol=1e-5)


def test_nearest_pair(library):
    spans = library.document(0).spans
    half = int(spans[len(spans) // 2, 0])
    one, other = Part("one", 0, half), Part("other", half, len(COURT))
    row, column = library.nearest_pair(0, one, other)
    vectors = library.vectors[library.chunks(0)].numpy()
    pairs = {
        (first, second): vectors[first] @ vectors[second]
        for first in range(len(spans) // 2)
        for second in range(len(spans) // 2, len(spans))
    }
    assert vectors[row] @ vectors[column] == pytest.approx(max(pairs.values()), abs=1e-6)
    assert (row, column) in pairs
    assert library.nearest_pair(0, other, other) == (len(spans) // 2, len(spans) // 2)


def test_a_strip_keeps_the_highest_scores():
    scores = np.random.default_rng(0).normal(size=10 * CELLS + 7)
    values, chunks = strip(scores)
    assert len(values) == CELLS
    assert values.max() == scores.max()
    np.testing.assert_array_equal(scores[chunks], values)
    assert (np.diff(chunks) > 0).all()


def test_the_colours_of_a_strip(library):
    """The cell of the highest score of all is opaque; the values for the mouse are those of the chunks."""
    answer = library.ask(QUESTION)
    number, chunk, score = answer.passages[0]
    shown = strip_html(library, number, answer)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^)]+)", shown)[1]))))
    told = json.loads(html.unescape(re.search(r'data-values="([^"]+)"', shown)[1]))
    assert pixels.shape == (1, len(library.document(number).plain), 4)
    assert pixels[0, :, 3].argmax() == chunk
    assert pixels[0, chunk].tolist() == [234, 88, 12, 255]
    assert told["chunks"] == list(range(pixels.shape[1]))
    assert told["scores"][chunk] == pytest.approx(score, abs=1e-3)


class Tags(HTMLParser):
    """The tags of HTML, with its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_nothing_of_a_document_is_read_as_html(model, tmp_path):
    bad = "<img src=x onerror=alert(1)> ${alert(2)} {{x}} & \"quoted\" 'it' "
    (tmp_path / "books").mkdir()
    for name in ("<b onclick=x>&'\"${1}.md", "plain.md"):
        (tmp_path / "books" / name).write_text("".join(f"# {bad}\n\n{bad * 9}\n\n" for _ in range(3)))
    library = Library.open(model, open_shelf(model, str(tmp_path / "books"), tmp_path / "cache"))
    page = Page(library)
    everything = [*page.overview("x quoted", 0), *page.close_up("x quoted", 0), *page.overview("", 0)]
    everything += [page.text("", {"document": 0, "parts": [0, 1]}), page.text("x", {"document": 0, "chunk": 1})]
    seen = Tags("".join(everything))
    known = {"section", "h3", "span", "div", "button", "ol", "li", "b", "p", "mark"}
    assert {tag for tag, _ in seen.tags} <= known
    assert {name for _, attributes in seen.tags for name in attributes} <= {
        "class", "style", "data-document", "data-chunk", "data-values", "data-clicked", "title", "aria-label",
        "tabindex",
    }  # fmt: skip
    assert "<b onclick=x>&'\"${1}.md" in {attributes.get("title") for _, attributes in seen.tags}
    assert bad in seen.text


def test_the_text_of_what_was_clicked(library):
    page = Page(library)
    answer = library.ask(QUESTION)

    def marked(question, **clicked):
        return re.findall("<mark>(.*?)</mark>", page.text(question, clicked), re.DOTALL)

    def text(number, chunk):
        start, end = library.document(number).spans[chunk].tolist()
        return library.document(number).text[start:end]

    assert marked("", document=1) == [text(1, 0)]
    assert marked("", document=1, chunk=2) == [text(1, 2)]
    best = int(answer.scores[library.chunks(2)].argmax())
    assert marked(QUESTION, document=2) == [text(2, best)]
    parts, _ = library.parts(2)
    pair = library.nearest_pair(2, parts[0], parts[2])
    assert marked("", document=2, parts=[0, 2]) == [text(2, chunk) for chunk in pair]
    assert len(marked("", document=2, parts=[1, 1])) == 1
    assert f"at {library.document(1).spans[2][0] / len(KITCHEN):.0%}" in page.text("", {"document": 1, "chunk": 2})


def test_the_map_marks_what_was_found(library):
    seen = Tags(map_html(library, 1, [2, 0]))
    points = [each for tag, each in seen.tags if tag == "button"]
    assert [each["data-document"] for each in points] == ["0", "1", "2"]
    assert [each["class"] for each in points] == ["point found", "point chosen", "point found"]
    assert seen.text.count("sea.txt") == 1  # there is room for its name


def test_without_gradio(command, books, encoded, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    said = command("app", books)
    assert said.status == 1
    assert "Run pip install 'nextlevelbert[app]'" in said.err
    assert encoded == []


def test_the_space(monkeypatch, tmp_path):
    """Its header names the release of Gradio that the tests run with; it shows `documents`, or Python's manual."""
    header = yaml.safe_load((ROOT / "app" / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert f"gradio=={header['sdk_version']}" in (ROOT / "constraints.txt").read_text().split()
    assert (header["sdk"], header["app_file"]) == ("gradio", "app.py")
    assert (ROOT / "app" / "requirements.txt").read_text() == "nextlevelbert[app]\n"
    assert len(header["short_description"]) <= 60  # the Hub refuses more
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    monkeypatch.setattr(nextlevelbert, "read_documents", lambda _: [nextlevelbert.Document("module/json", "JSON")])
    manual = runpy.run_path(str(ROOT / "app" / "app.py"))["documents"]()
    assert manual == tmp_path / "python-manual"
    assert (manual / "module" / "json.txt").read_text() == "JSON"
