"""BookSum's retrieval: the pool, the rows of the table against other libraries, scores by length."""

import json

import bm25s
import numpy as np
import pytest
import pytrec_eval
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, util
from sklearn.feature_extraction.text import TfidfVectorizer

from nextlevelbert import NextLevelBertModel
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores

from ...toys.finetuning import BREAD, SEA, predictions, write
from ..scripts import load_script

script = load_script("next_level_bert/retrieve_booksum.py")
COLUMNS = ("chapter", "summary_text")


def booksum_rows():
    """Rows with columns of kmfoda/booksum: two chapters, the first with two summaries."""
    row = {"bid": 27681, "summary_id": "chapters 1-2", "content": None}
    return [
        {**row, "chapter": "One. " * 300, "summary_text": "s1"},
        {**row, "chapter": "Two. " * 600, "summary_text": "s2"},
        {**row, "chapter": "One. " * 300, "summary_text": "s3"},
    ]


def test_a_chapter_is_the_query_for_its_summaries(tmp_path):
    path = write(tmp_path / "booksum.jsonl", booksum_rows())

    task = script.read_task(path, *COLUMNS)
    turned = script.read_task(path, *COLUMNS[::-1])

    assert [text[:4] for text in task.queries.values()] == ["One.", "Two."]  # equal texts are one
    assert list(task.documents.values()) == ["s1", "s2", "s3"]
    assert task.relevant == {
        "query-000000": {"document-000000": 1, "document-000002": 1},
        "query-000001": {"document-000001": 1},
    }
    assert list(turned.queries.values()) == ["s1", "s2", "s3"]


def test_booksum_on_the_hub_is_read_whole(monkeypatch):
    calls = []

    def load_dataset(name, *args, split, **kwargs):
        calls.append((name, split))
        return Dataset.from_list(booksum_rows())

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    args = script.parse_arguments(["--model", "m"])

    task = script.read_task(args.dataset, args.query_column, args.document_column)

    assert calls == [("kmfoda/booksum", "train+validation+test")]
    assert task.name == "booksum"


@pytest.mark.parametrize(
    ("row", "culprit"),
    [({"chapter": "c", "summary_text": " "}, "'summary_text'"), ({}, "--query_column")],
)
def test_rows_without_a_text(row, culprit, tmp_path):
    path = write(tmp_path / "booksum.jsonl", [{"chapter": "a", "summary_text": "b"}, row])

    with pytest.raises(ValueError, match=rf"booksum\.jsonl, line 2.*{culprit}"):
        script.read_task(path, *COLUMNS)


# --- The whole script


@pytest.fixture(scope="module")
def chapters(tmp_path_factory):
    """Chapters of 3 to 60 chunks. Half of them lack the word by which their summaries name them, so
    that no row of the table is perfect."""
    rows = []
    for index, word in enumerate((*SEA, *BREAD)):
        other = (*BREAD, *SEA)[index]
        chapter = f"Tale{index % 5}. "
        chapter += f"The {word} of the {other}. The {other} was there. " * (3 + 20 * (index % 4))
        rows += [
            {
                "chapter": chapter,
                "summary_text": f"On {word} and tale{index} " + "and more" * index,
            },
            {
                "chapter": chapter,
                "summary_text": f"About the {other}, tale{index}, {word * index}.",
            },
        ]
    return rows


@pytest.fixture(scope="module")
def results(chapters, toy_checkpoint, toy_encoder_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("booksum")
    file = write(folder / "booksum.jsonl", chapters)
    argv = ["--model", toy_checkpoint, "--sbert", toy_encoder_path, "--dataset", file]
    script.main([*argv, "--encoders", toy_encoder_path, "--output_dir", str(folder)])
    return folder


def trec_scores(task: RetrievalTask, scores) -> list[float]:
    """MRR@10 and hit rate at 10 by pytrec_eval."""
    run = {}
    for query, row in zip(task.queries, scores, strict=True):
        score_of = dict(zip(task.documents, row.tolist(), strict=True))
        best = sorted(score_of, key=score_of.get)[-10:]
        run[query] = {document: score_of[document] for document in best}

    measures = ("recip_rank", "success_10")
    evaluator = pytrec_eval.RelevanceEvaluator(task.relevant, set(measures))
    means = []
    for measure in measures:
        values = [scores[measure] for scores in evaluator.evaluate(run).values()]
        means.append(np.mean(values))
    return means


def cosines_of(row: str, task: RetrievalTask, checkpoint: str, encoder_path: str) -> np.ndarray:
    """Similarities ``[Q, N]`` of one row of the table, with nothing of the script."""
    texts = [*task.queries.values(), *task.documents.values()]
    queries = len(task.queries)
    if row == "BM25":
        tokenizer = bm25s.tokenization.Tokenizer(stopwords="english")
        words = tokenizer.tokenize(texts, return_as="string", show_progress=False)
        index = bm25s.BM25()
        index.index(words[queries:], show_progress=False)
        scores = [index.get_scores(query) for query in words[:queries]]
        return np.stack(scores)
    if row == "TF-IDF":
        vectorizer = TfidfVectorizer(sublinear_tf=True, max_df=0.5)
        pool = vectorizer.fit_transform(texts[queries:])
        return (vectorizer.transform(texts[:queries]) @ pool.T).toarray()
    if row == "SBERT":
        encoder = SentenceTransformer(encoder_path, device="cpu")
        encoder.max_seq_length = 512  # its positions; it is set to fewer
        vectors = encoder.encode(texts)
    else:
        books = NextLevelBertModel.from_pretrained(checkpoint).encode(texts)
        vectors = torch.stack([book.document for book in books])
        if row == "Avg. SBERT":
            vectors = torch.stack([book.plain.mean(dim=0) for book in books])
    return util.cos_sim(vectors[:queries], vectors[queries:]).numpy()


@pytest.mark.parametrize("row", ["toy", "Avg. SBERT", "SBERT", "BM25", "TF-IDF"])
def test_the_table_against_pytrec_eval(row, results, toy_checkpoint, toy_encoder_path):
    """Chunk vectors are stored in float16, so one pair may change places in a row of vectors."""
    task = script.read_task(results / "booksum.jsonl", *COLUMNS)
    rows = json.loads((results / "results.json").read_text(encoding="utf-8"))["rows"]
    cosines = cosines_of(row, task, toy_checkpoint, toy_encoder_path)

    mrr, hit_rate = trec_scores(task, cosines)

    assert rows[row]["mrr@10"] == pytest.approx(mrr, abs=0.02)
    assert rows[row]["hit_rate@10"] == pytest.approx(hit_rate, abs=0.02)
    assert rows[row]["queries"] == len(task.queries) == 10
    assert 0.1 < rows[row]["mrr@10"] <= 1


def test_the_files_of_a_run(results, toy_encoder_path):
    written = json.loads((results / "results.json").read_text(encoding="utf-8"))
    ranks = predictions(results / "predictions.jsonl")

    names = ["toy", "Avg. SBERT", "SBERT", toy_encoder_path, "BM25", "TF-IDF"]
    assert list(written["rows"]) == names
    # The same encoder as a further one reads as many tokens as it is set to.
    assert written["rows"][toy_encoder_path] != written["rows"]["SBERT"]
    assert written["by_length"].keys() == written["rows"].keys()
    assert len(ranks) == 10
    reciprocal = [1 / min(line["ranks_of_relevant_documents"]) for line in ranks]
    assert np.mean(reciprocal) == pytest.approx(written["rows"]["toy"]["mrr"])
    assert (results / "mrr_by_length.png").read_bytes().startswith(b"\x89PNG")


def test_scores_by_length():
    """NextLevelBERT's figure 2. Short pairs are together; the mean of several summaries counts, and
    the longer of both sides."""
    documents = {"a": "word " * 5, "b": "word " * 100, "c": "word " * 300}
    relevant = {"short": {"a": 1, "b": 1}, "q": {"b": 1, "c": 1}, "long": {"a": 1}}
    task = RetrievalTask("toy", {"short": "?", "q": "?", "long": "w " * 600}, documents, relevant)
    scores = np.array([[0.0, 1.0, 0.5], [1.0, 0.5, 0.1], [0.5, 1.0, 0]])

    rows = script.scores_by_length(task, rank_by_scores(task, scores))

    found = [(row["from_words"], row["below_words"], row["queries"], row["mrr"]) for row in rows]
    assert found == [(0, 128, 1, 1), (128, 256, 1, 1 / 2), (512, 1024, 1, 1 / 2)]


def test_length_in_a_script_without_spaces():
    """Each character counts as a word."""
    task = RetrievalTask("toy", {"q": "猫"}, {"d": "猫坐在垫子上。" * 50}, {"q": {"d": 1}})

    [row] = script.scores_by_length(task, rank_by_scores(task, np.ones((1, 1))))

    assert row["from_words"] == 256


def test_a_model_that_does_not_name_its_encoder_needs_one_for_sbert(toy_encoder_path, tmp_path):
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    model.config.chunk_encoder_name = None
    model.save_pretrained(tmp_path / "model")
    file = write(tmp_path / "rows.jsonl", booksum_rows())
    argv = f"--model {tmp_path}/model --dataset {file} --output_dir {tmp_path}"

    with pytest.raises(ValueError, match="Give --sbert"):
        script.main(argv.split())


def test_a_text_without_a_token_is_refused(toy_checkpoint, toy_encoder_path, tmp_path):
    file = write(tmp_path / "rows.jsonl", [{"chapter": "One.", "summary_text": "\u200b"}])
    argv = ["--model", toy_checkpoint, "--sbert", toy_encoder_path, "--dataset", file]

    with pytest.raises(ValueError, match="1 texts contain no token, such as document-000000"):
        script.main([*argv, "--output_dir", str(tmp_path)])
