"""Search: scores against cosines by hand and bm25s's BM25, and what is printed."""

from __future__ import annotations

import re
from itertools import pairwise

import bm25s
import numpy as np
import pytest
import torch
from scipy import sparse

from nextlevelbert import Document, NextLevelBertModel
from nextlevelbert.commands.search import Library, book_words, count_words, index_words, split_words
from nextlevelbert.commands.shelf import open_shelf

from .conftest import COURT, KITCHEN, SEA

QUESTION = "Where does the captain hunt the whale?"
TEXTS = {"far/court.txt": COURT, "kitchen.txt": KITCHEN, "sea.txt": SEA}


def by_words(pieces: list[str], question: str) -> tuple[np.ndarray, float]:
    """BM25 as bm25s indexes it in Robertson's form (k1 1.5, b 0.75), and the length of the
    question's rarities."""
    words, reference = (
        [re.findall(r"\w+", piece.lower()) for piece in pieces],
        bm25s.BM25(method="robertson"),
    )
    reference.index(words, show_progress=False)
    asked = [word for word in re.findall(r"\w+", question.lower()) if word in reference.vocab_dict]
    containing = np.array([sum(word in piece for piece in words) for word in asked])
    rarities = np.log(np.maximum((len(pieces) - containing + 0.5) / (containing + 0.5), 1))
    return reference.get_scores(asked), float(np.linalg.norm(rarities))


@pytest.mark.parametrize("whitened", [False, True])
def test_scores(toy_encoder_path, books, tmp_path, whitened):
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=16, whiten_chunks=whitened
    )
    mean, matrix = np.zeros(32), np.eye(32)
    if whitened:
        mean, matrix = (
            np.random.default_rng(0).normal(size=32) / 9,
            np.random.default_rng(1).normal(size=(32, 32)),
        )
        model.whitening.mean.copy_(torch.from_numpy(mean))
        model.whitening.weight.copy_(torch.from_numpy(matrix))
    library = Library(model, parts := open_shelf(model, str(books), tmp_path / "cache"))
    answer = library.ask(QUESTION, documents=2, passages=7)

    def unit(text: str, stored: bool = True) -> np.ndarray:
        plain = model.encode(text).plain
        vectors = ((plain.half() if stored else plain).double().numpy() - mean) @ matrix.T
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    spans = {place: model.encode(text).spans.tolist() for place, text in TEXTS.items()}
    pieces = [TEXTS[place][start:end] for place, rows in spans.items() for start, end in rows]
    cosine = np.concatenate(
        [unit(text) @ unit(QUESTION, stored=False)[0] for text in TEXTS.values()]
    )
    counts, _, starts, vocabulary = count_words(parts)
    names, added = list(vocabulary), book_words(counts, starts)
    rows = [
        added[[book]].indices
        for book, (start, end) in enumerate(pairwise(starts))
        for _ in range(start, end)
    ]
    added_to = [
        " ".join([piece, *(names[word] for word in row)])
        for row, piece in zip(rows, pieces, strict=True)
    ]
    words, length = by_words(added_to, QUESTION)
    both = (cosine + words / length) / 2
    for actual, expected in ((answer.cosine, cosine), (answer.bm25, words), (answer.score, both)):
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    counts = np.cumsum([0, *map(len, spans.values())])
    best = [np.sort(both[start:end])[-3:].mean() for start, end in pairwise(counts)]
    ranking = np.argsort(best)[::-1][:2].tolist()
    assert [number for number, _ in answer.documents] == ranking
    np.testing.assert_allclose(
        [score for _, score in answer.documents], np.array(best)[ranking], atol=1e-5
    )
    assert answer.passages == np.argsort(-both, kind="stable")[:7].tolist()
    assert [library.passage(number) for number in range(len(pieces))] == pieces
    assert [library.text(number) for number in range(3)] == list(TEXTS.values())
    assert library.places == list(TEXTS)
    summaries = [model.encode(text).document.numpy() for text in TEXTS.values()]
    np.testing.assert_allclose(library.summaries, summaries, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't STOP 42", ["don", "t", "stop", "42"]),
        ("Brontë, Bronte\u0308", ["bronte", "bronte"]),
        ("白鯨 Ahab", ["白", "鯨", "ahab"]),
        ("हिन्दी। किताब", ["हिन्दी", "किताब"]),
        ("ปลาวาฬใหญ่ น้ำ", ["ปลาวาฬใหญ่", "น้ำ"]),
        ("الحوت في البحر،", ["الحوت", "في", "البحر"]),
    ],
)
def test_words_of_any_language(text, words):
    assert split_words(text) == words


def test_the_words_of_a_book_are_those_that_are_its_own():
    """Often in the book, in few other books and in few passages; once or twice does not count."""
    passages = [[1, 1, 1, 9], [1, 9, 9, 5], [2, 2, 2, 9], [9, 2, 6, 6]]
    counts = sparse.csr_array(
        np.stack([np.bincount(row, minlength=10) for row in passages]).astype(np.float32)
    )
    assert book_words(counts, [0, 2, 4]).indices.tolist() == [1, 2]
    assert book_words(counts, [0, 4]).nnz == 0  # one book: nothing tells it apart


def test_the_index_of_words_follows_the_files(toy_checkpoint, books, tmp_path):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    parts = open_shelf(model, str(books), tmp_path / "cache")
    assert index_words(parts).get_scores(["moon"]).max() == 0
    (books / "moon.txt").write_text("A walk on the moon.")
    parts = open_shelf(model, str(books), tmp_path / "cache")
    assert index_words(parts).get_scores(["moon"]).argmax() == Library(model, parts).first[2]
    assert len(list(parts[0].path.parent.glob("words-*"))) == 1


def test_one_passage_without_words(command, tmp_path):
    """Nothing is nearer than another."""
    (tmp_path / "one.txt").write_text("!!!")
    [passage] = command("search", tmp_path / "one.txt", "whale", "--json").json["passages"]
    assert (passage["score"], passage["bm25"]) == (passage["cosine"] / 2, 0)


def test_json(command, books):
    answer = command("search", books, SEA[:60], "--documents", 2, "--passages", 3, "--json").json
    assert answer["question"] == SEA[:60]
    assert (len(answer["documents"]), len(answer["passages"])) == (2, 3)
    assert answer["documents"][0].keys() == {"place", "score", "characters", "chunks", "metadata"}
    facts = {"place", "score", "cosine", "bm25", "start", "end", "page", "text"}
    assert answer["passages"][0].keys() == facts


def test_a_passage_of_a_pdf_has_its_page(command, tmp_path, monkeypatch):
    """The metadata of a PDF say where its pages begin."""
    document = Document("a", SEA, {"pages": [0, len(SEA) // 2, len(SEA) // 2 + 1], "year": 1851})
    monkeypatch.setattr("nextlevelbert.commands.shelf.read_documents", lambda *_: [document])
    (tmp_path / "a.pdf").write_text(SEA)
    answer = command("search", tmp_path / "a.pdf", "a whale", "--json", "--passages", 99).json
    passages = answer["passages"]
    assert {passage["page"] for passage in passages} == {1, 3}
    assert all((passage["page"] == 3) == (passage["start"] > len(SEA) // 2) for passage in passages)
    assert answer["documents"][0]["metadata"] == {"year": 1851}
    assert (
        f", page {passages[0]['page']}, at " in command("search", tmp_path / "a.pdf", "a whale").out
    )


def test_a_question_without_a_token(command, books):
    said = command("search", books, "\u200b")
    assert said.status == 1
    assert "holds no word" in said.err
