"""Search: scores against cosines by hand and against `bm25s`, and what is printed."""

from __future__ import annotations

import re

import bm25s
import numpy as np
import pytest
import torch

from nextlevelbert import NextLevelBertModel
from nextlevelbert.commands.search import find
from nextlevelbert.commands.shelf import open_shelf

from .conftest import KITCHEN, SEA

QUESTION = "Where does the captain hunt the whale?"


@pytest.mark.parametrize("whitened", [False, True])
def test_scores(toy_encoder_path, books, tmp_path, whitened):
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16, whiten_chunks=whitened)
    mean, matrix = np.zeros(32), np.eye(32)
    if whitened:
        mean, matrix = np.random.default_rng(0).normal(size=32) / 9, np.random.default_rng(1).normal(size=(32, 32))
        model.whitening.mean.copy_(torch.from_numpy(mean))
        model.whitening.weight.copy_(torch.from_numpy(matrix))
    shelf = open_shelf(model, str(books), tmp_path / "cache")
    documents, passages = find(model, shelf, QUESTION, documents=2, passages=7)

    def unit(text: str) -> np.ndarray:
        vectors = (model.encode(text).plain.double().numpy() - mean) @ matrix.T
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    [wanted] = unit(QUESTION)
    books = list(shelf)
    owners = [each.place for each in books for _ in each.spans]
    spans = [span for each in books for span in each.spans.tolist()]
    pieces = [each.text[start:end] for each in books for start, end in each.spans.tolist()]
    cosine = np.concatenate([unit(each.text) @ wanted for each in books])
    words = by_words(pieces, QUESTION)
    both = together(cosine, words)
    best = {each.place: np.sort(both[[owner == each.place for owner in owners]])[-3:].mean() for each in books}
    expected = sorted(best, key=best.__getitem__, reverse=True)
    assert [each.place for each in documents] == expected[:2]
    np.testing.assert_allclose([each.score for each in documents], [best[place] for place in expected[:2]], atol=1e-5)
    order = np.argsort(-both, kind="stable")[:7]
    for number, each in zip(order, passages, strict=True):
        assert (each.place, [each.start, each.end], each.text) == (owners[number], spans[number], pieces[number])
        found = (each.score, each.cosine, each.bm25)
        np.testing.assert_allclose(found, (both[number], cosine[number], words[number]), atol=1e-5)
        [text] = [book.text for book in books if book.place == each.place]
        assert each.percent == round(100 * each.start / len(text), 1)


def by_words(pieces: list[str], question: str) -> np.ndarray:
    index = bm25s.BM25(method="robertson")
    index.index([re.findall(r"\w+", piece.lower()) for piece in pieces], show_progress=False)
    return index.get_scores(re.findall(r"\w+", question.lower()))


def together(cosine: np.ndarray, words: np.ndarray) -> np.ndarray:
    return sum((each - each.min()) / np.ptp(each) for each in (cosine, words)) / 2


def test_contextual_vectors_of_a_model_that_learned_to_find_passages(toy_encoder_path, books, tmp_path):
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16, neighbours=1, pooling="mean")
    shelf = open_shelf(model, str(books), tmp_path / "cache")
    _, passages = find(model, shelf, QUESTION, documents=1, passages=99)
    asked, cosines = model.encode(QUESTION).chunks.mean(dim=0, keepdim=True), {}
    for each in shelf:
        found = torch.cosine_similarity(model.encode(each.text).chunks, asked).tolist()
        cosines |= {(each.place, *span): cosine for cosine, span in zip(found, each.spans.tolist(), strict=True)}
    assert len(passages) == len(cosines)
    for each in passages:
        assert each.cosine == pytest.approx(cosines[each.place, each.start, each.end], abs=1e-5)


@pytest.mark.parametrize(
    ("question", "word"),
    [("Where is Popocatépetl?", "Popo"), ("popocatepetl", "Popo"), ("Где КОРАБЛЬ?", "корабль"), ("船在哪里", "船")],
)
def test_a_rare_word_finds_its_passage(toy_encoder_path, tmp_path, question, word):
    """Vectors know nothing here, so that words alone decide."""
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    with torch.no_grad():
        for weight in model.get_chunk_encoder().parameters():
            weight.zero_()
    volcano = "where is the volcano Popocate\u0301petl, стоит корабль, где 船?"
    (tmp_path / "a.txt").write_text(f"{KITCHEN} {SEA} {volcano} {SEA}")
    shelf = open_shelf(model, str(tmp_path / "a.txt"), tmp_path / "cache")
    _, passages = find(model, shelf, question, documents=1, passages=3)
    assert [each.cosine for each in passages] == [0, 0, 0]
    assert word in passages[0].text
    assert passages[0].score == 0.5


def test_equal_passages_keep_their_order(toy_checkpoint, tmp_path):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    for name in "ba":
        (tmp_path / f"{name}.txt").write_text(SEA)
    shelf = open_shelf(model, str(tmp_path / "*.txt"), tmp_path / "cache")
    documents, passages = find(model, shelf, QUESTION, documents=2, passages=2)
    assert [each.place for each in documents] == ["a.txt", "b.txt"]
    assert [each.place for each in passages] == ["a.txt", "b.txt"]
    assert passages[0].score == passages[1].score


def test_one_passage(command, tmp_path):
    """Nothing is nearer than another."""
    (tmp_path / "one.txt").write_text("A whale.")
    [passage] = command("search", tmp_path / "one.txt", "whale", "--json").json["passages"]
    assert (passage["score"], passage["bm25"]) == (0, 0)
    assert passage["cosine"] > 0.1


def test_json_and_plain_text(command, books, tmp_path):
    found = command("search", books, SEA[:60], "--documents", 2, "--passages", 3, "--json").json
    assert found["question"] == SEA[:60]
    assert found["unreadable"] == []
    assert (len(found["documents"]), len(found["passages"])) == (2, 3)
    assert found["documents"][0].keys() == {"place", "score", "characters", "chunks", "metadata"}
    assert found["passages"][0].keys() == {
        "place", "score", "cosine", "bm25", "start", "end", "percent", "text", "metadata",
    }  # fmt: skip
    said = command("search", books, SEA[:60], "--documents", 2, "--passages", 3).out
    assert "\x1b" not in said  # in a pipe, no colours
    lines = said.splitlines()
    first = found["documents"][0]
    assert lines[:2] == ["Nearest documents", "score\tdocument\tcharacters\tchunks"]
    assert lines[2] == f"{first['score']:.3f}\t{first['place']}\t{first['characters']}\t{first['chunks']}"
    for each in found["passages"]:
        where = f"characters {each['start']:,} to {each['end']:,}, at {each['percent']:.0f}%"
        assert f"{each['score']:.3f}  {each['place']}  {where}" in lines
        assert f"    {' '.join(each['text'].split())}" in lines


def test_a_sentence_finds_itself(command, books, toy_checkpoint):
    """The question is a whole chunk of one document, so their cosine is 1, and no other has more of its words."""
    start, end = NextLevelBertModel.from_pretrained(toy_checkpoint).encode(KITCHEN).spans[2].tolist()
    [passage] = command("search", books, KITCHEN[start:end], "--passages", 1, "--documents", 0, "--json").json[
        "passages"
    ]
    assert passage["place"] == "kitchen.txt"
    assert (passage["score"], passage["cosine"]) == pytest.approx((1, 1), abs=1e-4)


def test_one_file_and_a_pattern(command, books):
    found = command("search", books / "sea.txt", "whales?", "--json").json
    assert {each["place"] for each in found["passages"]} == {"sea.txt"}
    found = command("search", books / "**" / "*t.txt", "whales?", "--json").json
    assert [each["place"].endswith("court.txt") for each in found["documents"]] == [True]


def test_a_question_without_a_token(command, books):
    said = command("search", books, "\u200b")
    assert said.status == 1
    assert "holds no word" in said.err
