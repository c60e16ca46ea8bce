"""Retrieval: tasks from tables, the Hub and BEIR's files, word counts and lengths by hand, and the script."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset

from nextlevelbert import NextLevelBertModel
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from nextlevelbert.tasks import main
from nextlevelbert.tasks.retrieval import (
    bm25_scores,
    document_vectors,
    read_retrieval_task,
    scores_by_length,
    task_of_pairs,
    tfidf_scores,
)

from ..finetuning_toys import BREAD, SEA, predictions, write

POOL = ["the whale and the sea the sea", "the ball in Bath", "the ship at sea"]
ROWS = [("who?", "A whale."), ("where?", "At sea."), ("again who?", "A whale."), ("where?", "In Bath.")]


# --- Tasks


def test_a_table_of_pairs(tmp_path):
    path = write(tmp_path / "pairs.jsonl", [{"question": query, "context": text, "more": 1} for query, text in ROWS])
    task = read_retrieval_task(path, "question", "context")
    assert list(task.queries.values()) == ["who?", "where?", "again who?"]
    assert list(task.documents.values()) == ["A whale.", "At sea.", "In Bath."]
    names = [[task.documents[document] for document in grades] for grades in task.relevant.values()]
    assert names == [["A whale."], ["At sea.", "In Bath."], ["A whale."]]


def booksum_rows() -> list[dict]:
    """Rows with columns of kmfoda/booksum: two chapters, the first with two summaries."""
    pairs = [("One. " * 300, "s1"), ("Two. " * 600, "s2"), ("One. " * 300, "s3")]
    return [
        {"bid": 27681, "summary_id": "chapters 1-2", "chapter": chapter, "summary_text": summary, "content": None}
        for chapter, summary in pairs
    ]


def test_booksum_is_known_by_its_columns():
    task = task_of_pairs(booksum_rows(), "booksum")
    # The paper's direction: a chapter looks for its summaries, and a chapter that stands twice is one query.
    assert [text[:4] for text in task.queries.values()] == ["One.", "Two."]
    assert list(task.documents.values()) == ["s1", "s2", "s3"]
    assert [list(grades) for grades in task.relevant.values()] == [
        ["document-000000", "document-000002"],
        ["document-000001"],
    ]
    turned = task_of_pairs(booksum_rows(), "booksum", "summary_text", "chapter")
    assert (turned.name, list(turned.queries.values())) == ("booksum-reversed", ["s1", "s2", "s3"])


def test_booksum_on_the_hub_is_read_whole(monkeypatch):
    splits = []

    def load_dataset(*args, split, **kwargs):
        splits.append(split)
        return Dataset.from_list(booksum_rows())

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert read_retrieval_task("kmfoda/booksum").name == "booksum"
    read_retrieval_task("someone/pairs", "chapter", "summary_text")
    assert splits == ["train+validation+test", "test"]


@pytest.mark.parametrize(("row", "culprit"), [(("c", "  "), "'document'"), ((3, "b"), "'query'")])
def test_rows_without_a_text(row, culprit):
    rows = [dict(zip(("query", "document"), pair, strict=True)) for pair in (("a", "b"), row)]
    with pytest.raises(ValueError, match=rf"Row 1 .*{culprit}"):
        task_of_pairs(rows, "x")


def test_the_layout_of_beir(tmp_path):
    (tmp_path / "books" / "qrels").mkdir(parents=True)
    corpus = [{"_id": "10", "title": "Moby-Dick", "text": "A whale."}, {"_id": "11", "title": "", "text": "A ball."}]
    with gzip.open(tmp_path / "books" / "corpus.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in corpus)
    write(tmp_path / "books" / "queries.jsonl", [{"_id": "1", "text": "whale?"}, {"_id": "2", "text": "of train"}])
    (tmp_path / "books" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\t10\t2\n\n1\t11\t0\n")
    documents = {"10": "Moby-Dick A whale.", "11": "A ball."}
    assert read_retrieval_task(tmp_path / "books") == RetrievalTask(
        "books", {"1": "whale?"}, documents, {"1": {"10": 2}}
    )


# --- Words and lengths


def test_tfidf_by_hand():
    """Only words of a single document are left (half of three is 1.5), so all have one weight but for their counts."""
    scores = tfidf_scores(["whale whale ball", "nothing known"], POOL)
    # Documents keep {whale, and}, {ball, in, bath}, {ship, at}; the query {whale: 1 + ln 2, ball: 1}.
    whale, ball = 1 + np.log(2), 1.0
    row = np.array([whale / np.sqrt(2), ball / np.sqrt(3), 0]) / np.hypot(whale, ball)
    np.testing.assert_allclose(scores, [row, [0, 0, 0]], rtol=1e-6)


def test_bm25_by_hand():
    """Lucene's formula: ln(1 + (N - n + 0.5) / (n + 0.5)) · f / (f + k1 (1 - b + b · length / mean length))."""
    scores = bm25_scores(["The sea!", "sea whale", "of the"], POOL)
    lengths = np.asarray([3, 2, 2])  # whale sea sea; ball bath; ship sea: without stop words
    counts = {"sea": np.asarray([2, 0, 1]), "whale": np.asarray([1, 0, 0])}

    def weight(word):
        documents = (counts[word] > 0).sum()
        idf = np.log(1 + (3 - documents + 0.5) / (documents + 0.5))
        return idf * counts[word] / (counts[word] + 1.5 * (0.25 + 0.75 * lengths / lengths.mean()))

    np.testing.assert_allclose(scores, [weight("sea"), weight("sea") + weight("whale"), np.zeros(3)], rtol=1e-5)


def test_length_is_that_of_the_chapter_in_either_direction():
    """NextLevelBERT's figure 2: chapters of 300 and 600 words, summaries of one."""
    for columns in (("chapter", "summary_text"), ("summary_text", "chapter")):
        task = task_of_pairs(booksum_rows(), "booksum", *columns)
        right = np.array([[float(d in task.relevant[q]) for d in task.documents] for q in task.queries])
        rows = scores_by_length(task, rank_by_scores(task, right))
        assert [(row["from_words"], row["below_words"]) for row in rows] == [(256, 512), (512, 1024)]
        assert [row["queries"] for row in rows] == ([1, 1] if columns[0] == "chapter" else [2, 1])
        assert [row["mrr"] for row in rows] == [1.0, 1.0]


def test_scores_by_length():
    """A document that is its own query counts for nothing; short pairs are together; the mean of several counts."""
    documents = {"a": "word " * 5, "b": "word " * 100, "c": "word " * 199, "d": "word " * 321}
    task = RetrievalTask("toy", {"a": "?", "q": "?"}, documents, {"a": {"a": 1, "b": 1}, "q": {"c": 1, "d": 1}})
    rows = scores_by_length(task, rank_by_scores(task, np.array([[0.0, 1.0, 0, 0], [1.0, 0.5, 0, 0]])))
    assert [(row["from_words"], row["below_words"], row["mrr"]) for row in rows] == [(0, 128, 1), (256, 512, 1 / 3)]


# --- The script


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    rows = [{"query": f"the {word}", "document": f"The {word} of the {word}. " * 20} for word in (*SEA, *BREAD)]
    return write(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", rows)


def run(folder: Path, model: str, *words: str) -> dict:
    main(["--task", "retrieval", "--model", model, "--output_dir", str(folder), *words])
    return json.loads((folder / "results.json").read_text())


def test_the_script(toy_checkpoint, toy_encoder_path, pairs, tmp_path):
    """Rows of the model, of the mean of the same chunk vectors, and of word counts; one run each for the baselines."""
    results = run(tmp_path / "toy", toy_checkpoint, "--test_file", pairs, "--run_file", str(tmp_path / "toy.run"))
    assert list(results["rows"]) == ["toy", "mean of the chunk vectors"]
    task, model = read_retrieval_task(pairs), NextLevelBertModel.from_pretrained(toy_checkpoint)
    books = [model.encode(list(texts.values())) for texts in (task.queries, task.documents)]
    by_hand = rank_documents(task, *(torch.stack([book.document for book in side]) for side in books))
    assert results["rows"]["toy"]["mrr"] == pytest.approx(retrieval_scores(by_hand)["mrr"], abs=0.02)  # float16
    [line, *_] = predictions(tmp_path / "toy" / "predictions.jsonl")
    assert line == {"query": "query-000000", "ranks_of_relevant_documents": by_hand["query-000000"].ranks.tolist()}
    assert (tmp_path / "toy" / "mrr_by_length.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "toy.run").read_text().startswith("query-000000 Q0 document-")
    words = ["--chunk_encoder", toy_encoder_path, "--chunk_size", "16", "--test_file", pairs]
    rows = {name: run(tmp_path / name, name, *words)["rows"] for name in ("bm25", "avg_sbert", "sbert")}
    assert [[*row] for row in rows.values()] == [["bm25"], ["avg_sbert"], ["sbert"]]
    assert rows["bm25"]["bm25"]["mrr"] == 1.0
    assert rows["avg_sbert"]["avg_sbert"] == pytest.approx(results["rows"]["mean of the chunk vectors"])
    first = rank_documents(task, *(torch.stack([book.plain[0] for book in side]) for side in books))
    assert rows["sbert"]["sbert"] == pytest.approx(retrieval_scores(first), abs=0.02)


def test_documents_of_any_length_beside_each_other(toy_checkpoint):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    books = model.encode([f"The {word} of the {word}. " * count for count, word in enumerate((*SEA, *BREAD), 1)])
    vectors = document_vectors(model, [book.plain for book in books])
    torch.testing.assert_close(vectors, torch.stack([book.document for book in books]), atol=1e-5, rtol=1e-5)
