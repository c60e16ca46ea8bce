"""Retrieval tasks from files, word counts, and scores by length."""

from __future__ import annotations

import gzip
import json
import logging

import numpy as np
import pytest
from datasets import Dataset

from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, retrieval_scores
from nextlevelbert.tasks.retrieval import (
    bm25_scores,
    plot_by_length,
    read_beir_task,
    read_retrieval_task,
    retrieval_task_from_rows,
    scores_by_length,
    tfidf_scores,
)


def task_of(queries: int, documents: int, relevant: dict[int, dict[int, int]]) -> RetrievalTask:
    return RetrievalTask(
        "toy",
        {f"q{number}": f"query {number}" for number in range(queries)},
        {f"d{number}": "word " * (number + 1) for number in range(documents)},
        {
            f"q{query}": {f"d{document}": grade for document, grade in found.items()}
            for query, found in relevant.items()
        },
    )


def test_scores_by_length_and_their_plot(tmp_path):
    """Document n has n + 1 words, and only the queries for short ones find theirs first."""
    task = task_of(30, 30, {number: {number: 1} for number in range(30)})
    scores = np.eye(30)
    scores[8:] = 0.0
    ranks = rank_by_scores(task, scores)
    rows = scores_by_length(task, ranks, edges=[3, 9, 17], k=10)
    assert [(row["from_words"], row["below_words"], row["queries"]) for row in rows] == [
        (0, 3, 2), (3, 9, 6), (9, 17, 8), (17, 31, 14)
    ]  # fmt: skip
    assert [row["mrr"] for row in rows] == pytest.approx([1, 1, 1 / 30, 1 / 30])
    [default] = scores_by_length(task, ranks)
    assert {key: default[key] for key in retrieval_scores(ranks)} == retrieval_scores(ranks)
    plot_by_length({"model": rows, "other": rows}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="same buckets"):
        plot_by_length({"model": rows, "other": rows[1:]}, tmp_path / "plot.png")


def test_length_is_the_mean_of_several_relevant_documents():
    task = task_of(1, 300, {0: {199: 1, 299: 1}})  # 200 and 300 words
    [row] = scores_by_length(task, rank_by_scores(task, np.zeros((1, 300))))
    assert (row["from_words"], row["below_words"]) == (128, 256)
    own = RetrievalTask(
        "own",
        {"d0": "", "d1": ""},
        {"d0": "word", "d1": "word " * 9},
        {"d0": {"d0": 1, "d1": 1}, "d1": {"d0": 1, "d1": 1}},
    )
    rows = scores_by_length(own, rank_by_scores(own, np.zeros((2, 2))), edges=[2, 9])
    # Itself does not count, so one query looks for one word and the other for nine, which is the longest there is.
    assert [(row["from_words"], row["below_words"]) for row in rows] == [(0, 2), (9, 10)]


# -- where tasks come from

PAIRS = [("who?", "A whale."), ("where?", "At sea."), ("again who?", "A whale."), ("where?", "In Bath.")]


def write_table(path, rows):
    if path.suffix == ".parquet":
        Dataset.from_list(rows).to_parquet(path)
    else:
        with gzip.open(path, "wt") if path.suffix == ".gz" else open(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.jsonl.gz", "pairs.parquet"])
def test_a_table_of_pairs(tmp_path, name):
    rows = [{"question": query, "context": document, "more": 1} for query, document in PAIRS]
    task = read_retrieval_task(write_table(tmp_path / name, rows), "question", "context")
    assert task.name == "pairs"
    assert list(task.queries.values()) == ["who?", "where?", "again who?"]
    assert list(task.documents.values()) == ["A whale.", "At sea.", "In Bath."]
    texts = {
        task.queries[query]: {task.documents[document]: grade for document, grade in found.items()}
        for query, found in task.relevant.items()
    }
    assert texts == {
        "who?": {"A whale.": 1},
        "where?": {"At sea.": 1, "In Bath.": 1},
        "again who?": {"A whale.": 1},
    }


def booksum_rows() -> list[dict]:
    """Rows with the columns of kmfoda/booksum: two chapters, the first with two summaries."""
    rows = []
    for number, (chapter, summary) in enumerate([("One.", "s1"), ("Two.", "s2"), ("One.", "s3")]):
        row = {"bid": 27681, "is_aggregate": True, "source": "cliffnotes", "chapter_path": "all/1.txt"}
        row |= {"summary_path": "finished/1.txt", "book_id": "The Mohicans.chapters 1-2", "summary_id": "chapters 1-2"}
        row |= {"content": None, "summary": "{}", "chapter": chapter, "chapter_length": 1.0, "summary_name": None}
        row |= {"summary_url": "http://", "summary_text": summary, "summary_analysis": "", "summary_length": 1.0}
        rows.append(row | {"analysis_length": float(number)})
    return rows


def test_booksum_is_known_by_its_columns(tmp_path):
    task = read_retrieval_task(write_table(tmp_path / "booksum.jsonl", booksum_rows()))
    assert list(task.queries.values()) == ["s1", "s2", "s3"]
    assert list(task.documents.values()) == ["One.", "Two."]
    assert [list(found) for found in task.relevant.values()] == [
        ["document-000000"], ["document-000001"], ["document-000000"]
    ]  # fmt: skip
    by_analysis = retrieval_task_from_rows(
        booksum_rows(), "booksum", "summary_id", "chapter"
    )  # other columns, if asked
    assert list(by_analysis.queries.values()) == ["chapters 1-2"]


def test_a_dataset_of_the_hub(monkeypatch):
    calls = []

    def load_dataset(*args, **kwargs):
        calls.append((args, kwargs))
        return Dataset.from_list(booksum_rows())

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    task = read_retrieval_task("kmfoda/booksum", split="validation+test")
    assert calls == [(("kmfoda/booksum", None), {"split": "validation+test"})]
    assert (task.name, len(task.queries), len(task.documents)) == ("booksum", 3, 2)


def test_tables_that_do_not_fit(tmp_path):
    def rows(*pairs):
        return [{"query": query, "document": document} for query, document in pairs]

    with pytest.raises(ValueError, match=r"Row 1 of 'x' is blank in column 'document'"):
        retrieval_task_from_rows(rows(("a", "b"), ("c", "  ")), "x")
    with pytest.raises(ValueError, match=r"Row 0 of 'x' is blank in column 'query'"):
        retrieval_task_from_rows(rows((None, "b")), "x")
    with pytest.raises(ValueError, match=r"Row 0 of 'x' is int, not text in column 'query'"):
        retrieval_task_from_rows(rows((3, "b")), "x")
    with pytest.raises(ValueError, match=r"Row 0 of 'x' has no column 'title'; it has query, document"):
        retrieval_task_from_rows(rows(("a", "b")), "x", "title")
    with pytest.raises(ValueError, match="0 queries and 0 documents"):
        retrieval_task_from_rows([], "x")
    (tmp_path / "pairs.tsv").write_text("query\tdocument\n")
    with pytest.raises(ValueError, match=r"Cannot read pairs\.tsv"):
        read_retrieval_task(tmp_path / "pairs.tsv")
    with pytest.raises(FileNotFoundError, match="absent"):
        read_retrieval_task(tmp_path / "absent.jsonl")


def write_beir(folder, qrels: str, pack: bool = False):
    end = ".gz" if pack else ""
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": "10", "title": "Moby-Dick", "text": "A whale."}, {"_id": "11", "title": "", "text": "A ball."}]
    write_table(folder / f"corpus.jsonl{end}", corpus)
    write_table(folder / f"queries.jsonl{end}", [{"_id": "1", "text": "whale?"}, {"_id": "2", "text": "of train"}])
    with gzip.open(folder / "qrels/test.tsv.gz", "wt") if pack else open(folder / "qrels/test.tsv", "w") as file:
        file.write(qrels)
    return folder


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("headings", ["", "query-id\tcorpus-id\tscore\n"])
def test_the_layout_of_beir(tmp_path, pack, headings, caplog):
    folder = write_beir(tmp_path / "books", headings + "1\t10\t2\n\n1\t11\t0\n", pack)
    with caplog.at_level(logging.INFO):
        task = read_retrieval_task(folder)
    assert task == RetrievalTask(
        "books", {"1": "whale?"}, {"10": "Moby-Dick A whale.", "11": "A ball."}, {"1": {"10": 2}}
    )
    assert "1 queries have no relevant document" in caplog.text


def test_the_shared_chapters_are_a_beir_task(shared, tmp_path):
    """Ids with # and real qrels without headings."""
    source = shared / "data/retrieval"
    with gzip.open(source / "chapters.validation.jsonl.gz", "rt") as lines:
        rows = [{"id": row["doc_id"], "text": row["book"]} for row in map(json.loads, lines)]
    corpus = write_table(tmp_path / "corpus.jsonl", rows)
    task = read_beir_task(corpus, corpus, source / "chapters.validation.qrels.tsv.gz")
    assert (task.name, len(task.queries)) == ("chapters", 761)
    same_book = np.asarray(
        [[float(one == other) for other in task.documents.values()] for one in task.queries.values()]
    )
    assert retrieval_scores(rank_by_scores(task, same_book))["map"] == 1.0


def test_beir_files_that_do_not_fit(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No dev\.tsv in .*qrels \(there: test\.tsv\)"):
        read_retrieval_task(write_beir(tmp_path / "a", "1\t10\t1\n"), split="dev")
    with pytest.raises(ValueError, match=r"Line 2 of test\.tsv .* got \['1', '10'\]"):
        read_retrieval_task(write_beir(tmp_path / "b", "1\t10\t1\n1\t10\n"))
    with pytest.raises(ValueError, match=r"Line 2 of test\.tsv .* got \['1', '11', 'score'\]"):
        read_retrieval_task(write_beir(tmp_path / "b2", "1\t10\t1\n1\t11\tscore\n"))
    with pytest.raises(ValueError, match="names query '\"1'"):  # a quotation mark is part of an id
        read_retrieval_task(write_beir(tmp_path / "b3", '"1\t10\t1\n'))
    with pytest.raises(ValueError, match="names query '3'"):
        read_retrieval_task(write_beir(tmp_path / "c", "3\t10\t1\n"))
    with pytest.raises(ValueError, match=r"not in its pool: 12 \(of query 1\)"):
        read_retrieval_task(write_beir(tmp_path / "d", "1\t12\t1\n"))
    folder = write_beir(tmp_path / "e", "1\t10\t1\n")
    write_table(folder / "corpus.jsonl", [{"_id": "10", "text": "A."}, {"_id": "10", "text": "B."}])
    with pytest.raises(ValueError, match=r"Row 1 of 'corpus\.jsonl' has the id '10'"):
        read_retrieval_task(folder)
    write_table(folder / "corpus.jsonl", [{"_id": "10", "text": " "}])
    with pytest.raises(ValueError, match=r"Row 0 of 'corpus\.jsonl' is blank in column 'text'"):
        read_retrieval_task(folder)
    write_table(folder / "queries.jsonl", [{"_id": "1", "body": "A."}])
    with pytest.raises(ValueError, match=r"Row 0 of 'queries\.jsonl' has no column 'text'; it has _id, body"):
        read_retrieval_task(folder)


# -- word counts

POOL = ["the whale and the sea the sea", "the ball in Bath", "the ship at sea"]


def test_tfidf_by_hand():
    """Only words of a single document are left (half of three is 1.5), so all have one weight but for their counts."""
    scores = tfidf_scores(["whale whale ball", "nothing known"], POOL)
    assert scores.dtype == np.float32
    # Documents keep {whale, and}, {ball, in, bath}, {ship, at}; the query {whale: 1 + ln 2, ball: 1}.
    whale, ball = 1 + np.log(2), 1.0
    length = np.hypot(whale, ball)
    np.testing.assert_allclose(
        scores, [[whale / length / np.sqrt(2), ball / length / np.sqrt(3), 0], [0, 0, 0]], rtol=1e-6
    )


def test_tfidf_leaves_out_words_of_more_than_half_of_the_pool():
    pool = ["whale sea ship", "ball sea ship", "moor sea", "attic", "train"]
    assert tfidf_scores(["sea", "ship"], pool).astype(bool).tolist() == [
        [False] * 5,
        [True, True, False, False, False],
    ]
    assert tfidf_scores(["sea"], ["whale sea", "ball sea", "moor", "attic"]).any()  # just half


def test_bm25_by_hand():
    """Lucene's formula: ln(1 + (N - n + 0.5) / (n + 0.5)) · f / (f + k1 (1 - b + b · length / mean length))."""
    scores = bm25_scores(["The sea!", "sea whale"], POOL)
    assert scores.dtype == np.float32
    lengths = np.asarray([3, 2, 2])  # whale sea sea; ball bath; ship sea: without stop words
    counts = {"sea": np.asarray([2, 0, 1]), "whale": np.asarray([1, 0, 0])}

    def weight(word):
        found = (counts[word] > 0).sum()
        idf = np.log(1 + (3 - found + 0.5) / (found + 0.5))
        return idf * counts[word] / (counts[word] + 1.5 * (0.25 + 0.75 * lengths / lengths.mean()))

    np.testing.assert_allclose(scores, [weight("sea"), weight("sea") + weight("whale")], rtol=1e-5)
    for nothing in ("unheard of", "of the", "?"):  # an unknown word, stop words only, no word
        np.testing.assert_array_equal(bm25_scores([nothing], POOL), np.zeros((1, 3)))


@pytest.mark.parametrize("scorer", [tfidf_scores, bm25_scores])
def test_word_counts_of_unusable_input(scorer):
    for queries, documents in (("one text", POOL), (["one"], "one text"), ([], POOL), (["one"], POOL[:1])):
        with pytest.raises(ValueError, match="Give a list of at least one query"):
            scorer(queries, documents)


def test_a_pool_of_one_text_twice_has_no_tfidf():
    with pytest.raises(ValueError, match="No word of the 2 documents"):
        tfidf_scores(["whale"], ["a whale", "a whale"])
