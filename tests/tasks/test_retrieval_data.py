"""Retrieval tasks from tables, the Hub and BEIR's files."""

from __future__ import annotations

import gzip
import json
import logging

import numpy as np
import pytest
from datasets import Dataset

from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, retrieval_scores
from nextlevelbert.tasks.retrieval import read_beir_task, read_retrieval_task, retrieval_task_from_rows

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
    # The paper's direction: a chapter looks for its summaries, and a chapter that stands twice is one query.
    assert list(task.queries.values()) == ["One.", "Two."]
    assert list(task.documents.values()) == ["s1", "s2", "s3"]
    assert [list(found) for found in task.relevant.values()] == [
        ["document-000000", "document-000002"], ["document-000001"]
    ]  # fmt: skip
    turned = retrieval_task_from_rows(booksum_rows(), "booksum", "summary_text", "chapter")
    assert (turned.name, list(turned.queries.values())) == ("booksum-reversed", ["s1", "s2", "s3"])
    by_analysis = retrieval_task_from_rows(
        booksum_rows(), "booksum", "summary_id", "chapter"
    )  # other columns, if asked
    assert list(by_analysis.queries.values()) == ["chapters 1-2"]


def test_a_pattern_of_files_and_a_folder_of_save_to_disk(tmp_path):
    rows = [{"query": f"q{number}", "document": f"d{number % 2}"} for number in range(3)]
    for number, row in enumerate(rows):
        write_table(tmp_path / f"part-{number}.jsonl", [row])
    Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    for source in (tmp_path / "part-*.jsonl", tmp_path / "saved"):
        task = read_retrieval_task(source)
        assert list(task.queries.values()) == ["q0", "q1", "q2"]
        assert list(task.documents.values()) == ["d0", "d1"]


def test_a_dataset_of_the_hub(monkeypatch):
    calls = []

    def load_dataset(*args, **kwargs):
        calls.append((args, kwargs))
        return Dataset.from_list(booksum_rows())

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    task = read_retrieval_task("kmfoda/booksum", split="validation+test")
    assert (task.name, len(task.queries), len(task.documents)) == ("booksum", 2, 3)
    read_retrieval_task("kmfoda/booksum")
    read_retrieval_task("someone/pairs", "chapter", "summary_text")
    assert [call[1]["split"] for call in calls] == ["validation+test", "train+validation+test", "test"]
    assert calls[0][0] == ("kmfoda/booksum", None)


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
    with pytest.raises(ValueError, match="no queries"):
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
    with pytest.raises(ValueError, match="'12'"):
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
