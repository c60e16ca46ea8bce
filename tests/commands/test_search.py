"""Search: scores against cosines by hand, and what is printed."""

from __future__ import annotations

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
    scores = {each.place: unit(each.text) @ wanted for each in shelf}
    best = {place: np.sort(values)[-3:].mean() for place, values in scores.items()}
    expected = sorted(best, key=best.__getitem__, reverse=True)
    assert [each.place for each in documents] == expected[:2]
    np.testing.assert_allclose([each.score for each in documents], [best[place] for place in expected[:2]], atol=1e-5)
    every = np.sort(np.concatenate(list(scores.values())))[::-1]
    np.testing.assert_allclose([each.score for each in passages], every[:7], atol=1e-5)
    texts = {each.place: (each.text, each.spans.tolist()) for each in shelf}
    for each in passages:
        text, spans = texts[each.place]
        number = spans.index([each.start, each.end])
        assert scores[each.place][number] == pytest.approx(each.score, abs=1e-5)
        assert each.text == text[each.start : each.end]
        assert each.percent == round(100 * each.start / len(text), 1)


def test_contextual_vectors_of_a_model_that_learned_to_find_passages(toy_encoder_path, books, tmp_path):
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16, neighbours=1, pooling="mean")
    shelf = open_shelf(model, str(books), tmp_path / "cache")
    _, passages = find(model, shelf, QUESTION, documents=1, passages=3)
    asked, scores = model.encode(QUESTION).chunks.mean(dim=0, keepdim=True), {}
    for each in shelf:
        cosines = torch.cosine_similarity(model.encode(each.text).chunks, asked).tolist()
        scores |= {(each.place, *span): cosine for cosine, span in zip(cosines, each.spans.tolist(), strict=True)}
    expected = sorted(scores, key=scores.__getitem__, reverse=True)[:3]
    assert [(each.place, each.start, each.end) for each in passages] == expected
    np.testing.assert_allclose([each.score for each in passages], [scores[each] for each in expected], atol=1e-5)


def test_json_and_plain_text(command, books, tmp_path):
    found = command("search", books, SEA[:60], "--documents", 2, "--passages", 3, "--json").json
    assert found["question"] == SEA[:60]
    assert found["unreadable"] == []
    assert (len(found["documents"]), len(found["passages"])) == (2, 3)
    assert found["documents"][0].keys() == {"place", "score", "characters", "chunks", "metadata"}
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
    """The question is a whole chunk of one document, so their cosine is 1."""
    start, end = NextLevelBertModel.from_pretrained(toy_checkpoint).encode(KITCHEN).spans[2].tolist()
    [passage] = command("search", books, KITCHEN[start:end], "--passages", 1, "--documents", 0, "--json").json[
        "passages"
    ]
    assert passage["place"] == "kitchen.txt"
    assert passage["score"] == pytest.approx(1, abs=1e-4)


def test_one_file_and_a_pattern(command, books):
    found = command("search", books / "sea.txt", "whales?", "--json").json
    assert {each["place"] for each in found["passages"]} == {"sea.txt"}
    found = command("search", books / "**" / "*t.txt", "whales?", "--json").json
    assert [each["place"].endswith("court.txt") for each in found["documents"]] == [True]


def test_a_question_without_a_token(command, books):
    said = command("search", books, "\u200b")
    assert said.status == 1
    assert "holds no word" in said.err
