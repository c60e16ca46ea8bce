"""Search: scores against cosines by hand and bm25s's BM25, and what is printed."""

import re
from itertools import pairwise

import bm25s
import numpy as np
import pytest
import torch
from scipy import sparse

from nextlevelbert import NextLevelBertModel, static_checkpoint
from nextlevelbert.search.index import book_words, count_words
from nextlevelbert.search.library import Library, ranking, shorten, show_passage
from nextlevelbert.search.shelf import open_shelf, passage_borders

from ..toys.books import write_pdf
from .conftest import COURT, KITCHEN, SEA

QUESTION = "Where does the captain hunt the whale?"
TEXTS = {"far/court.txt": COURT, "kitchen.txt": KITCHEN, "sea.txt": SEA}


def by_words(pieces: list[str], question: str) -> tuple[np.ndarray, float]:
    """BM25 as bm25s indexes it in Robertson's form, at least a tenth of Lucene's (k1 1.5, b 0.75),
    and the length of the question's rarities."""
    words = [re.findall(r"\w+", piece.lower()) for piece in pieces]
    reference = bm25s.BM25(method="robertson")
    lucene = bm25s.BM25(method="lucene")
    for index in (reference, lucene):
        index.index(words, show_progress=False)
    asked = [word for word in re.findall(r"\w+", question.lower()) if word in reference.vocab_dict]
    containing = np.array([sum(word in piece for piece in words) for word in asked])
    odds = (len(pieces) - containing + 0.5) / (containing + 0.5)
    rarities = np.maximum(np.log(np.maximum(odds, 1)), np.log1p(odds) / 10)
    scores = [
        np.maximum(reference.get_scores([word]), lucene.get_scores([word]) / 10) for word in asked
    ]
    return np.sum(scores, axis=0), float(np.linalg.norm(rarities))


@pytest.fixture
def model_of_words() -> NextLevelBertModel:
    """The installed model, for which a word of any length is one token."""
    return NextLevelBertModel.from_pretrained(static_checkpoint())


@pytest.mark.parametrize("whitened", [False, True])
def test_scores(toy_encoder_path, books, tmp_path, whitened):
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=16, whiten_chunks=whitened
    )
    mean = np.zeros(32)
    matrix = np.eye(32)
    if whitened:
        mean = np.random.default_rng(0).normal(size=32) / 9
        matrix = np.random.default_rng(1).normal(size=(32, 32))
        model.whitening.mean.copy_(torch.from_numpy(mean))
        model.whitening.weight.copy_(torch.from_numpy(matrix))
    parts = open_shelf(model, str(books), tmp_path / "cache")
    library = Library(model, parts)
    answer = library.ask(QUESTION)

    def unit(plain: torch.Tensor) -> np.ndarray:
        vectors = (plain.double().numpy() - mean) @ matrix.T
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    query = unit(model.encode(QUESTION).plain)[0]
    cosines = []
    pieces = []
    owners = []
    for number, text in enumerate(TEXTS.values()):
        encoded = model.encode(text)
        cosines.extend(unit(encoded.plain.half()) @ query)
        for start, end in passage_borders(text, encoded.spans):
            pieces.append(text[start:end])
            owners.append(number)
    counts, starts, vocabulary, *_ = count_words(parts)
    names = np.array(list(vocabulary))
    added = book_words(counts, starts)
    for number, owner in enumerate(owners):
        pieces[number] = " ".join([pieces[number], *names[added[[owner]].indices]])
    words, length = by_words(pieces, QUESTION)
    both = (np.array(cosines) + words / length) / 2
    np.testing.assert_allclose(answer.cosine, cosines, atol=1e-5)
    np.testing.assert_allclose(answer.bm25, words, atol=1e-5)
    np.testing.assert_allclose(answer.score, both, atol=1e-5)


def test_the_order_of_documents_and_passages(toy, books, open_library):
    """A document's score is the mean of its three best passages; equal passages count once."""
    library = open_library(toy, books)
    answer = library.ask(QUESTION, documents=2, passages=7)
    best = []
    for start, end in pairwise(library.starts):
        best.append(np.sort(answer.score[start:end])[-3:].mean())
    for number, score in answer.documents:
        assert score == pytest.approx(max(best))
        assert best.index(max(best)) == number
        best[number] = -1.0

    texts = []
    for passage in np.argsort(-answer.score, kind="stable"):
        text = library.passage(passage).text
        if text not in texts:
            texts.append(text)
    assert [library.passage(passage).text for passage in answer.passages] == texts[:7]
    assert library.names == list(TEXTS)
    for number, text in enumerate(TEXTS.values()):
        assert library.document(number).text == text
        np.testing.assert_allclose(
            library.document_vectors[number], toy.encode(text).document, atol=1e-5
        )


def test_a_word_that_is_asked_twice_counts_as_once(toy, books, open_library):
    """BM25 doubles, and so does the length of the question's rarities."""
    library = open_library(toy, books)
    once = library.ask("whale")
    twice = library.ask("whale whale")
    np.testing.assert_allclose(twice.bm25, 2 * once.bm25, rtol=1e-5)
    by_words = 2 * once.score - once.cosine
    np.testing.assert_allclose(2 * twice.score - twice.cosine, by_words, atol=1e-5)


def test_of_equal_scores_the_first_in_the_folder_is_first():
    scores = np.tile([0.25, 0.5], 200)
    assert ranking(scores, np.arange(400)) == [*range(1, 400, 2), *range(0, 400, 2)]
    assert ranking(scores, np.arange(400) // 4) == list(range(1, 400, 4))


def test_a_passage_is_whole_sentences_of_its_chunk():
    """In a very long sentence, it is whole words. White space between sentences belongs to none."""
    text = "One  two.\n\nThree four. Five six. " + "longish " * 200
    spans = np.array([[0, 3], [7, 14], [11, 16], [30, 40], [700, 702], [1630, 1631]])
    passages = passage_borders(text, spans)
    shown = [text[start:end] for start, end in passages]
    assert shown[:3] == ["One  two.", "One  two.\n\nThree four.", "Three four."]
    assert shown[3:] == ["Five six. longish", "longish", "longish"]
    assert passage_borders("\u200b", np.zeros((0, 2), int)).shape == (0, 2)
    assert passage_borders("渡輪。海港。燈塔。", np.array([[3, 6]])).tolist() == [[3, 6]]


def test_a_word_that_two_chunks_share_is_found(model_of_words, tmp_path):
    """It is a word of both, as the sentence is."""
    sentence = "The harbour pilot counted the phalaropes. "
    (tmp_path / "a.txt").write_text(sentence * 60)
    parts = open_shelf(model_of_words, str(tmp_path), tmp_path / "cache")
    matrix, _, vocabulary, *_ = count_words(parts)
    counts = matrix[:, [vocabulary["phalaropes"]]].toarray()
    assert len(counts) > 1
    assert counts.sum() == 60 + len(counts) - 1  # a sentence on a border counts twice


def test_the_words_of_a_book_are_those_that_are_its_own():
    """Often in the book, in few other books and in few passages; once or twice does not count."""
    passages = [[1, 1, 1, 9], [1, 9, 9, 5], [2, 2, 2, 9], [9, 2, 6, 6]]
    counts = sparse.csr_array(
        np.stack([np.bincount(row, minlength=10) for row in passages]).astype(np.float32)
    )
    assert book_words(counts, [0, 2, 4]).indices.tolist() == [1, 2]
    assert book_words(counts, [0, 4]).nnz == 0  # one book: nothing tells it apart


def test_the_index_of_words_follows_the_files(toy, books, open_library, tmp_path):
    assert open_library(toy, books).ask("moon").bm25.max() == 0
    (books / "moon.txt").write_text("A walk on the moon.")
    library = open_library(toy, books)
    assert library.ask("moon").bm25.argmax() == library.starts[2]
    assert len(list(tmp_path.rglob("index-*"))) == 1


def test_one_passage_without_words(command, tmp_path):
    """Nothing is nearer than another."""
    (tmp_path / "one.txt").write_text("!!!")
    [passage] = command("search", tmp_path / "one.txt", "whale", "--json").json["passages"]
    assert (passage["score"], passage["bm25"]) == (passage["cosine"] / 2, 0)


def test_json(command, books):
    answer = command("search", books, SEA[:60], "--documents", 2, "--passages", 3, "--json").json
    assert answer["question"] == SEA[:60]
    assert (len(answer["documents"]), len(answer["passages"])) == (2, 3)
    facts = {"place", "also_in", "score", "characters", "chunks", "metadata"}
    assert answer["documents"][0].keys() == facts
    facts = {"place", "also_in", "score", "cosine", "bm25", "start", "end", "page", "pages", "text"}
    assert answer["passages"][0].keys() == facts | {"share"}


def test_a_passage_of_a_pdf_has_its_pages(command, tmp_path):
    sentences = ["The preface of the almanac is short.", "The table of the moonrise stands here."]
    write_pdf(tmp_path / "a.pdf", sentences)
    answer = command("search", tmp_path / "a.pdf", "moonrise", "--json", "--passages", 99).json
    for passage in answer["passages"]:
        pages = [page for page in (1, 2) if sentences[page - 1][:20] in passage["text"]]
        assert passage["pages"] == [pages[0], pages[-1]]
        assert passage["page"] in pages
    assert answer["documents"][0]["metadata"] == {}
    assert ", page 2, at " in command("search", tmp_path / "a.pdf", "moonrise").out


def test_a_passage_on_two_pages_names_both_and_the_page_that_holds_most():
    text = "One. This sentence begins on a page and ends on another one. Three."
    passage = show_passage(text, 5, end=60, page_starts=[0, 12, len(text) - 2])
    assert passage.text == "This sentence begins on a page and ends on another one."
    assert (passage.pages, passage.page) == ((1, 2), 2)
    assert passage.characters == "characters 5 to 60"
    assert passage.position == "pages 1 to 2, at 7%"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A sentence of words. " * 300, "A sentence of words. " * 95),
        ("G" * 5_000, "G" * 2_000),
    ],
)
def test_a_long_passage_is_cut_with_a_mark(text, shown):
    left_out = len(text) - len(shown.strip())
    assert shorten(text) == f"{shown.strip()} [… {left_out:,} more characters]"


def test_copies_are_shown_once(command, tmp_path):
    (tmp_path / "docs").mkdir()
    for name, end in (("one", ""), ("two", "\n"), ("three", " \n\n")):
        text = f"The bilge pump of the ferry is inspected.{end}"
        (tmp_path / "docs" / f"{name}.txt").write_text(text)
    (tmp_path / "docs" / "zero.txt").write_text("In March the engineer opens the sea cock.")
    words = ("search", tmp_path / "docs", "Who inspects the bilge pump?")
    answer = command(*words, "--json").json
    for rows in (answer["documents"], answer["passages"]):
        copies = {row["place"]: row["also_in"] for row in rows}
        assert copies == {"one.txt": ["three.txt", "two.txt"], "zero.txt": []}
    assert "also in: three.txt, two.txt\n" in command(*words).out


def test_words_of_two_documents_count(command, tmp_path):
    (tmp_path / "a.txt").write_text("The constellation is a figure among the stars of the night.")
    (tmp_path / "b.txt").write_text("The almanac has the zephyrograph readings of the coast.")
    [first, second] = command("search", tmp_path, "zephyrograph", "--json").json["documents"]
    assert (first["place"], second["place"]) == ("b.txt", "a.txt")


def test_a_word_more_often_than_65535_times(model_of_words, tmp_path):
    (tmp_path / "matrix.txt").write_text("0│" * 70_000 + "0")
    parts = open_shelf(model_of_words, str(tmp_path / "matrix.txt"), tmp_path / "cache")
    assert count_words(parts).matrix.max() == 70_001


def test_a_question_without_a_token(command, books):
    said = command("search", books, "\u200b")
    assert said.status == 1
    assert "holds no word" in said.err


def test_what_a_terminal_would_obey_is_shown_and_not_sent(command, tmp_path):
    """A text may clear the screen, set the title, write the clipboard, or turn the line around."""
    text = "The observatory \x1b[2J\x1b]0;owned\x07 opened\x9b1m its dome \u202e, عربي \u202b."
    (tmp_path / "a.txt").write_text(text)
    words = ("search", tmp_path, "observatory dome")

    shown = command(*words).out

    assert (
        "The observatory \\x1b[2J\\x1b]0;owned\\x07 opened\\x9b1m its dome \\u202e, عربي \u202b."
        in shown
    )
    said = command(*words, "--json")
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said.out) is None
    assert said.json["passages"][0]["text"] == text
    (tmp_path / "b\x1b[2J.txt").write_bytes(b"caf\xe9")
    assert "\x1b" not in command("search", tmp_path / "b\x1b[2J.txt", "café").err
