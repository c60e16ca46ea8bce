"""The tasks of `benchmarks.studies.document_vectors` over the novels that were set aside."""

import gzip
import json
import re

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from benchmarks.studies import document_vectors, hold_out
from nextlevelbert import NextLevelBertModel


def novel(name, chapters, words):
    """A novel whose chapters have a heading of two lines."""
    text = ""
    spans = []
    for number in range(1, chapters + 1):
        start = len(text)
        text += f"CHAPTER {number}.\n\nOF {name.upper()}\n\n{name}{number} " + "one " * words
        heading = f"CHAPTER {number}. OF {name.upper()}"
        spans.append({"heading": heading, "start": start, "end": len(text)})
        text += "\n\n"
    return {"id": name, "text": text, "chapters": spans}


def test_chapters_have_no_headings_and_enough_words(monkeypatch):
    monkeypatch.setattr(document_vectors, "SHORTEST", 3)

    chapters = document_vectors.chapters_of(novel("ann", 4, words=2))

    assert [*chapters] == ["ann#1", "ann#2", "ann#3", "ann#4"]
    assert chapters["ann#2"] == "ann2 one one "
    assert document_vectors.chapters_of(novel("ann", 3, words=2)) == {}
    assert document_vectors.chapters_of(novel("ann", 4, words=1)) == {}


def test_neighbours_are_the_chapters_before_and_after():
    texts = {"a#1": "one", "a#2": "two", "a#3": "three", "b#1": "four", "b#2": "five"}

    books = document_vectors.same_novel_task("books", texts)
    neighbours = document_vectors.same_novel_task("neighbours", texts, furthest=1)

    assert books.relevant["a#1"] == {"a#2": 1, "a#3": 1}
    assert neighbours.relevant["a#1"] == {"a#2": 1}
    assert neighbours.relevant["a#2"] == {"a#1": 1, "a#3": 1}
    assert books.relevant["b#1"] == {"b#2": 1}


def test_the_tasks_are_over_the_novels_that_were_set_aside(monkeypatch, tmp_path):
    monkeypatch.setattr(hold_out, "BOOKS", 2)
    monkeypatch.setattr(document_vectors, "SHORTEST", 3)
    monkeypatch.setattr(document_vectors, "SOME", 2)
    (tmp_path / "novels").mkdir()
    with gzip.open(tmp_path / "novels" / "train.jsonl.gz", "wt") as file:
        for name in ("ann", "bob", "cid"):
            file.write(json.dumps(novel(name, 4, words=6)) + "\n")
    [trained_on] = {"ann", "bob", "cid"} - hold_out.held_out_ids(["ann", "bob", "cid"])

    tasks = {task.name: task for task in document_vectors.load_held_out(tmp_path)}

    assert tasks.keys() <= document_vectors.COLUMNS.keys()
    assert len(tasks["books"].queries) == 8
    assert f"{trained_on}#1" not in tasks["books"].documents
    some = " ".join(tasks["books, six chapters"].documents)
    assert re.sub("[a-z]", "", some) == "#1 #3 #1 #3"
    assert len(tasks["excerpts"].documents) == 16
    for text in tasks["books, letters only"].documents.values():
        assert text.replace(" ", "").isalpha()


def test_scores_are_those_of_scikit_learn(toy_encoder_path):
    texts = {}
    for word in ("whale", "ship", "sea", "train", "bread", "book"):
        texts |= {f"{word}#1": f"the {word} again", f"{word}#2": f"a {word} again and again"}
    task = document_vectors.same_novel_task("toy", texts)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=12).eval()

    figures = document_vectors.score_task(task, [document_vectors.DocumentVectors("toy", model)])

    vectors = np.stack([read.document.numpy() for read in model.iter_encode(texts.values())])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = []
    for index, cosines in enumerate(vectors @ vectors.T):
        others = np.delete(np.arange(len(texts)), index)
        expected.append(average_precision_score(others == index ^ 1, cosines[others]))
    mean, low, high = figures["toy"]["toy"]
    assert mean == pytest.approx(np.mean(expected))
    assert low < mean < high
    assert figures["TF-IDF"]["toy, minus TF-IDF"] == [0, 0, 0]
