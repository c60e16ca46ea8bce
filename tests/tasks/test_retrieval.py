"""Retrieval scores against sentence-transformers' and by hand; tasks from files; word counts; the evaluator."""

from __future__ import annotations

import csv
import gzip
import json
import logging

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim
from sklearn.metrics import average_precision_score

from nextlevelbert import NextLevelBertModel
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from nextlevelbert.evaluation import retrieval as module
from nextlevelbert.evaluation.sentence_evaluator import LongDocumentRetrievalEvaluator
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


def random_task(seed: int) -> tuple[RetrievalTask, torch.Tensor, torch.Tensor]:
    """Twenty queries with one to five relevant documents among 60; queries lean a little towards those."""
    draw = np.random.default_rng(seed)
    relevant = {
        query: {int(one): int(draw.integers(1, 3)) for one in draw.choice(60, draw.integers(1, 6), replace=False)}
        for query in range(20)
    }
    documents = torch.from_numpy(draw.normal(size=(60, 8)))
    queries = torch.stack(
        [
            documents[list(found)].mean(dim=0) + 0.7 * torch.from_numpy(draw.normal(size=8))
            for found in relevant.values()
        ]
    )
    return task_of(20, 60, relevant), queries, documents


class StoredVectors:
    """What `InformationRetrievalEvaluator` asks of a model, with vectors given beforehand."""

    def __init__(self, vectors: torch.Tensor) -> None:
        self.vectors = vectors

    def encode_query(self, texts, **kwargs) -> torch.Tensor:
        assert len(texts) == len(self.vectors)
        return self.vectors


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [3, 10])
def test_scores_are_those_of_sentence_transformers(seed, k, monkeypatch):
    monkeypatch.setattr(module, "_SCORES_PER_PASS", 60 * 7)  # three passes
    task, queries, documents = random_task(seed)
    ours = retrieval_scores(rank_documents(task, queries, documents), k)
    theirs = InformationRetrievalEvaluator(
        dict(task.queries), dict(task.documents), {query: set(found) for query, found in task.relevant.items()},
        mrr_at_k=[k, 60], accuracy_at_k=[k], precision_recall_at_k=[k], map_at_k=[60],
        score_functions={"cosine": cos_sim},
    ).compute_all_metrics(StoredVectors(queries), corpus_embeddings=documents)["cosine"]  # fmt: skip
    expected = {
        "mrr": theirs["mrr@k"][60],
        f"mrr@{k}": theirs["mrr@k"][k],
        f"hit_rate@{k}": theirs["accuracy@k"][k],
        "map": theirs["map@k"][60],
        f"recall@{k}": theirs["recall@k"][k],
        "queries": 20,
    }
    assert ours == pytest.approx(expected)
    assert 0.1 < ours["mrr"] < 0.9  # neither hopeless nor perfect, so that an error would show


@pytest.mark.parametrize("grades", [None, {2}])
def test_map_over_grades_is_that_of_scikit_learn(grades):
    task, queries, documents = random_task(8)
    scores = cos_sim(queries, documents).numpy()
    expected = []
    for row, found in zip(scores, task.relevant.values(), strict=True):
        truth = [int(found.get(name, 0) in (grades or {1, 2})) for name in task.documents]
        if any(truth):
            expected.append(average_precision_score(truth, row))
    ours = retrieval_scores(rank_by_scores(task, scores, grades))
    assert ours["map"] == pytest.approx(np.mean(expected))
    assert ours["queries"] == len(expected)
    assert grades is None or len(expected) < 20  # some queries have no document of grade 2


def test_by_hand():
    task = task_of(2, 5, {0: {1: 1, 3: 2}, 1: {4: 1}})
    scores = np.asarray([[0.9, 0.5, 0.7, 0.1, 0.3], [0.1, 0.2, 0.3, 0.4, 0.5]])
    ranks = rank_by_scores(task, scores)
    assert {query: found.tolist() for query, found in ranks.items()} == {"q0": [3, 5], "q1": [1]}
    assert retrieval_scores(ranks, k=3) == pytest.approx(
        {
            "mrr": (1 / 3 + 1) / 2,
            "mrr@3": (1 / 3 + 1) / 2,
            "hit_rate@3": 1.0,
            "map": ((1 / 3 + 2 / 5) / 2 + 1) / 2,
            "recall@3": (1 / 2 + 1) / 2,
            "queries": 2,
        }
    )
    assert retrieval_scores(ranks, k=2)["mrr@2"] == 0.5
    assert rank_by_scores(task, scores, {2})["q0"].tolist() == [5]
    assert list(rank_by_scores(task, scores, {2})) == ["q0"]


def test_a_document_is_not_the_answer_to_itself():
    texts = {"a": "one", "b": "two", "c": "three"}
    task = RetrievalTask("chapters", texts, texts, {"a": {"a": 1, "b": 1}, "b": {"c": 1}, "c": {"a": 1}})
    vectors = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    ranks = {query: found.tolist() for query, found in rank_documents(task, vectors, vectors).items()}
    # Without themselves, b (0.8 to a, 0.6 to c) has c second, and c (0 to a, 0.6 to b) has a second.
    assert ranks == {"a": [1], "b": [2], "c": [2]}


@pytest.mark.parametrize("lengths", [torch.zeros(60), torch.ones(60), torch.linspace(0.5, 1.5, 60)])
def test_a_constant_vector_gets_the_worst_scores_there_are(lengths):
    """The last one only up to its length: its cosines differ in the last bits, by rounding."""
    task, queries, _ = random_task(0)
    ranks = rank_documents(task, queries, lengths.double()[:, None] * torch.randn(8, dtype=torch.float64))
    for query, found in ranks.items():
        count = len(task.relevant[query])
        assert found.tolist() == list(range(61 - count, 61))
    assert retrieval_scores(ranks)["hit_rate@10"] == 0


def test_ties_count_against_the_relevant_document():
    task = task_of(1, 6, {0: {1: 1, 2: 1, 4: 1}})
    ranks = rank_by_scores(task, np.asarray([[0.5, 0.5, 0.9, 0.5, 0.5, 0.1]]))
    # 2 comes first; 0 and 3 before 1 and 4, with which they tie; 5 is last.
    assert ranks["q0"].tolist() == [1, 4, 5]


def test_what_vectors_may_be_given_as():
    task, queries, documents = random_task(1)
    expected = rank_documents(task, queries, documents)
    for form in (torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.float, lambda v: list(v.float().numpy())):
        found = rank_documents(task, form(queries), form(documents))
        assert all(np.array_equal(found[query], ranks) for query, ranks in expected.items())


def test_unusable_vectors_and_scores_are_named(monkeypatch):
    task, queries, documents = random_task(0)
    holed = documents.clone()
    holed[3, 1] = float("nan")
    with pytest.raises(ValueError, match=r"document_vectors of task 'toy' contain NaN or infinity for d3;"):
        rank_documents(task, queries, holed)
    endless = queries.clone()
    endless[:7] = float("inf")
    with pytest.raises(ValueError, match=r"infinity for q0, q1, q2, q3, q4 and 2 more"):
        rank_documents(task, endless, documents)
    with pytest.raises(ValueError, match=r"must be \[60, size\].*got \[59, 8\]"):
        rank_documents(task, queries, documents[1:])
    with pytest.raises(ValueError, match="the same size, got 8 and 7"):
        rank_documents(task, queries, documents[:, 1:])
    with pytest.raises(ValueError, match="of grade \\[3\\]"):
        rank_documents(task, queries, documents, {3})
    scores = np.zeros((20, 60))
    with pytest.raises(ValueError, match=r"\(20, 60\), got \(60, 20\)"):
        rank_by_scores(task, scores.T)
    scores[19, 2] = np.inf
    monkeypatch.setattr(module, "_SCORES_PER_PASS", 60 * 7)  # it is in the third pass
    with pytest.raises(ValueError, match="queries q19"):
        rank_by_scores(task, scores)
    with pytest.raises(ValueError, match="k of at least 1"):
        retrieval_scores(rank_documents(task, queries, documents), k=0)


@pytest.mark.parametrize(
    ("relevant", "message"),
    [
        ({"q": {"a": 1}}, "no relevant document: b"),
        ({"q": {"a": 1}, "b": {}}, "no relevant document: b"),
        ({"q": {"a": 1}, "b": {"b": 1}}, "no relevant document: b"),  # only itself
        ({"q": {"z": 1}, "b": {"a": 1}}, r"not in its pool: z \(of query q\)"),
        ({"q": {"a": 0}, "b": {"a": 1}}, "got 0 for query 'q' and document 'a'"),
        ({"q": {"a": 1}, "b": {"a": 1}, "x": {"a": 1}}, "queries it does not have: x"),
    ],
)
def test_relevance_that_does_not_fit(relevant, message):
    with pytest.raises(ValueError, match=message):
        RetrievalTask("toy", {"q": "?", "b": "!"}, {"a": "A", "b": "B"}, relevant)


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
    (tmp_path / "pairs.csv").write_text("query,document\n")
    with pytest.raises(ValueError, match=r"Cannot read pairs\.csv"):
        read_retrieval_task(tmp_path / "pairs.csv")
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


# -- the evaluator of sentence-transformers


@pytest.fixture(scope="module")
def sentence_transformer(toy_encoder_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("retriever")
    torch.manual_seed(0)
    NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=8).save_pretrained(folder)
    return SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="module")
def words_task() -> RetrievalTask:
    """Documents of several chunks; each query is a word that its document repeats, among others."""
    words = ["whale", "ball", "ship", "letter", "moor", "attic", "castle", "train"]
    documents = {f"d{number}": f"{word} and then. " * 12 for number, word in enumerate(words)}
    queries = {f"q{number}": f"the {word}" for number, word in enumerate(words)}
    return RetrievalTask("words", queries, documents, {f"q{n}": {f"d{n}": 1} for n in range(len(words))})


def test_the_evaluator(sentence_transformer, words_task, tmp_path, caplog):
    evaluator = LongDocumentRetrievalEvaluator(words_task, k=3, batch_size=4)
    metrics = evaluator(sentence_transformer, str(tmp_path / "eval"), epoch=1, steps=20)
    queries = sentence_transformer.encode(list(words_task.queries.values()))
    documents = sentence_transformer.encode(list(words_task.documents.values()))
    own = retrieval_scores(rank_documents(words_task, queries, documents), k=3)
    assert metrics == pytest.approx({f"words_{name}": value for name, value in own.items()})
    assert evaluator.primary_metric == "words_mrr"
    assert 0 < metrics["words_mrr"] < 1
    evaluator(sentence_transformer, str(tmp_path / "eval"), epoch=2, steps=40)
    with open(tmp_path / "eval" / evaluator.csv_file, newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["epoch"], line["steps"]) for line in lines] == [("1", "20"), ("2", "40")]
    assert float(lines[0]["mrr@3"]) == own["mrr@3"]
    assert "cut" not in caplog.text


def test_a_model_that_cuts_is_named(toy_encoder_path, words_task, caplog):
    model = SentenceTransformer(toy_encoder_path, device="cpu")
    model.max_seq_length = 36  # and each document has 36 words
    LongDocumentRetrievalEvaluator(words_task)(model)
    assert "cut" not in caplog.text
    model.max_seq_length = 16
    LongDocumentRetrievalEvaluator(words_task)(model)
    assert "reads at most 16 tokens of a text" in caplog.text
    assert "at least 8 of the 16 texts of task words are truncated" in caplog.text


def test_the_evaluator_in_the_trainer(toy_encoder_path, words_task, tmp_path):
    model = SentenceTransformer(toy_encoder_path, device="cpu")
    pairs = Dataset.from_dict(
        {"anchor": list(words_task.queries.values()), "positive": list(words_task.documents.values())}
    )
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=8, use_cpu=True, eval_strategy="steps",
        eval_steps=1, save_steps=1, learning_rate=1e-3, load_best_model_at_end=True, disable_tqdm=True,
        metric_for_best_model="eval_words_mrr", dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model),
        evaluator=LongDocumentRetrievalEvaluator(words_task),
    )  # fmt: skip
    trainer.train()
    logged = [entry["eval_words_mrr"] for entry in trainer.state.log_history if "eval_words_mrr" in entry]
    assert len(logged) == 2
    assert trainer.state.best_metric == max(logged)
    assert (tmp_path / "eval/Long-Document-Retrieval_evaluation_words@10_results.csv").exists()
