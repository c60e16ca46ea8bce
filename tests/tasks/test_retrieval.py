"""Retrieval and ranking: data sets, word counts and lengths by hand, batches without duplicates,
and the scripts."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from torch.nn import functional as F

from nextlevelbert import HateModel, NextLevelBertModel
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from nextlevelbert.evaluation.scores import scores_by_length
from nextlevelbert.evaluation.words import count_words
from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.tasks import main, multihop_qa, ranking, retrieval
from nextlevelbert.tasks.ranking import read_ranking
from nextlevelbert.tasks.retrieval import PairArguments, read_retrieval_task
from nextlevelbert.training.runs import read_json

from ..finetuning_toys import BREAD, SEA, predictions, write
from ..vector_toys import close

PAIRS = PairArguments()
POOL = ["the whale and the sea the sea", "the ball in Bath", "the ship at sea"]
ROWS = [
    ("who?", "A whale."),
    ("where?", "At sea."),
    ("again who?", "A whale."),
    ("where?", "In Bath."),
]


# --- Tasks


def test_a_table_of_pairs(tmp_path):
    rows = [{"question": query, "context": text, "more": 1} for query, text in ROWS]
    path = write(tmp_path / "pairs.jsonl", rows)
    task = read_retrieval_task(path, PairArguments("question", "context"))
    assert list(task.queries.values()) == ["who?", "where?", "again who?"]
    assert list(task.documents.values()) == ["A whale.", "At sea.", "In Bath."]
    assert task.relevant == {
        "query-000000": {"document-000000": 1},
        "query-000001": {"document-000001": 1, "document-000002": 1},
        "query-000002": {"document-000000": 1},
    }


def booksum_rows():
    """Rows with columns of kmfoda/booksum: two chapters, the first with two summaries."""
    row = {"bid": 27681, "summary_id": "chapters 1-2", "content": None}
    return [
        {**row, "chapter": "One. " * 300, "summary_text": "s1"},
        {**row, "chapter": "Two. " * 600, "summary_text": "s2"},
        {**row, "chapter": "One. " * 300, "summary_text": "s3"},
    ]


def booksum(folder):
    return write(folder / "booksum.jsonl", booksum_rows())


def test_booksum_is_known_by_its_columns(tmp_path):
    task = read_retrieval_task(booksum(tmp_path), PAIRS)
    # The paper's direction: a chapter looks for its summaries, and a chapter that stands twice is
    # one query.
    assert [text[:4] for text in task.queries.values()] == ["One.", "Two."]
    assert list(task.documents.values()) == ["s1", "s2", "s3"]
    assert task.relevant == {
        "query-000000": {"document-000000": 1, "document-000002": 1},
        "query-000001": {"document-000001": 1},
    }
    turned = read_retrieval_task(booksum(tmp_path), PairArguments("summary_text", "chapter"))
    assert (turned.name, list(turned.queries.values())) == ("booksum-reversed", ["s1", "s2", "s3"])


def test_booksum_on_the_hub_is_read_whole(monkeypatch):
    splits = []

    def load_dataset(*args, split, **kwargs):
        splits.append(split)
        return Dataset.from_list(booksum_rows())

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert read_retrieval_task("kmfoda/booksum", PAIRS).name == "booksum"
    read_retrieval_task("someone/pairs", PairArguments("chapter", "summary_text"))
    assert splits == ["train+validation+test", "test"]


@pytest.mark.parametrize(
    ("row", "culprit"), [({"query": "c", "document": " "}, "'document'"), ({}, "--query_col")]
)
def test_rows_without_a_text(row, culprit, tmp_path):
    path = write(tmp_path / "pairs.jsonl", [{"query": "a", "document": "b"}, row])
    with pytest.raises(ValueError, match=rf"line 2.*{culprit}"):
        read_retrieval_task(path, PAIRS)


@pytest.fixture
def msmarco(tmp_path):
    """The layout of the official files, in small; document d3 is named by nothing."""
    return shutil.copytree(Path(__file__).with_name("msmarco"), tmp_path / "msmarco")


def test_ms_marco_s_files(msmarco):
    data = read_ranking(msmarco, "docdev", PAIRS)
    assert data.queries == {"q1": "what is one", "q2": "what is two"}
    assert data.relevant == {"q1": {"d1": 1}, "q2": {"d2": 1}}
    assert data.documents["d1"] == 'Title 1 Body "of\rnumber 1."'
    assert sorted(data.documents) == [
        "d0",
        "d1",
        "d2",
        "d4",
    ]  # named by a judgement or a candidate, with a text
    assert data.candidates == {"q1": ["d0", "d1"], "q2": ["d4"]}
    train = read_ranking(msmarco, "doctrain", PAIRS)
    assert (list(train.documents), train.candidates) == (["d0"], None)
    (msmarco / "msmarco-docdev-top100").unlink()
    assert len(read_ranking(msmarco, "docdev", PAIRS).documents) == 5  # the whole collection


@pytest.mark.parametrize(
    ("line", "culprit"), [("q1 0 d1", "msmarco-docdev-qrels.tsv, line 1"), ("q7 0 d2 1", "'q7'")]
)
def test_ms_marco_files_that_do_not_fit(msmarco, line, culprit):
    (msmarco / "msmarco-docdev-qrels.tsv").write_text(line)
    with pytest.raises(ValueError, match=culprit):
        read_ranking(msmarco, "docdev", PAIRS)


def toy_task(stories=6, **relevant):
    documents = {f"d{n}": f"document {n}" for n in range(stories)}
    queries = {query: f"query {query}" for query in relevant}
    return RetrievalTask("toy", queries=queries, documents=documents, relevant=relevant)


@pytest.mark.parametrize(
    ("task", "module", "model"),
    [
        ("retrieval", retrieval, "toy_checkpoint"),
        ("ranking", retrieval, "toy_checkpoint"),
        ("multihop_qa", multihop_qa, "encoder"),
    ],
)
def test_the_configuration_of_a_dataset_is_read(
    task, module, model, request, monkeypatch, tmp_path
):
    monkeypatch.setattr(
        module, "open_rows", lambda source, split, config: pytest.fail(f"{source} {config}")
    )
    options = [
        "--model",
        request.getfixturevalue(model),
        "--dataset_name",
        "me/pairs",
        "--dataset_config_name",
        "small",
    ]
    with pytest.raises(pytest.fail.Exception, match="me/pairs small"):
        main(["--task", task, *options, "--output_dir", str(tmp_path)])


def test_queries_are_held_out_by_their_documents():
    task = toy_task(
        a={"d0": 1}, b={"d0": 1}, c={"d1": 1}, d={"d2": 1}, e={"d3": 1, "d2": 1}, f={"d4": 1}
    )
    for seed in range(5):
        train, validation = ranking.hold_out_queries(task, 0.5, seed)
        for_training = set().union(*train.relevant.values())
        held_out = set().union(*validation.relevant.values())
        assert for_training
        assert held_out
        assert for_training.isdisjoint(held_out)
        assert validation.documents == task.documents  # searched whole
    with pytest.raises(ValueError, match="no queries"):
        ranking.hold_out_queries(toy_task(a={"d0": 1, "d1": 1}), 0.5, 42)


# --- Words and lengths


def test_tfidf_by_hand():
    """Only words of a single document are left (half of three is 1.5), so all have one weight but
    for their counts."""
    scores = retrieval.tfidf_scores(["whale whale ball", "nothing known"], POOL)
    # Documents keep {whale, and}, {ball, in, bath}, {ship, at}; the query {whale: 1 + ln 2, ball:
    # 1}.
    whale, ball = 1 + np.log(2), 1.0
    row = np.array([whale / np.sqrt(2), ball / np.sqrt(3), 0]) / np.hypot(whale, ball)
    np.testing.assert_allclose(scores, [row, [0, 0, 0]], rtol=1e-6)


def test_bm25_by_hand():
    """Lucene's formula: ln(1 + (N - n + 0.5) / (n + 0.5)) · f / (f + k1 (1 - b + b · length / mean
    length))."""
    scores = retrieval.bm25_scores(["The sea!", "sea whale", "of the"], POOL)
    lengths = np.asarray([3, 2, 2])  # whale sea sea; ball bath; ship sea: without stop words
    counts = {"sea": np.asarray([2, 0, 1]), "whale": np.asarray([1, 0, 0])}

    def weight(word):
        documents = (counts[word] > 0).sum()
        idf = np.log(1 + (3 - documents + 0.5) / (documents + 0.5))
        return idf * counts[word] / (counts[word] + 1.5 * (0.25 + 0.75 * lengths / lengths.mean()))

    np.testing.assert_allclose(
        scores, [weight("sea"), weight("sea") + weight("whale"), np.zeros(3)], rtol=1e-5
    )


def test_words_of_other_scripts_are_counted():
    """A word that both texts share is found, also if it is one character of a clause."""
    pool = ["猫坐在垫子上。", "बिल्ली बैठी थी।", "Кошка спала."]
    queries = ["垫", "थी", "КОШКА"]
    for scores in (retrieval.tfidf_scores(queries, pool), retrieval.bm25_scores(queries, pool)):
        assert (scores > 0).tolist() == np.eye(3, dtype=bool).tolist()


def test_length_in_a_script_without_spaces():
    """Each character counts; a mark of punctuation belongs to the word before it."""
    assert list(map(count_words, ("猫坐在。", "the cat, 猫が", " a  b\n"))) == [3, 4, 2]
    task = RetrievalTask("toy", {"q": "猫"}, {"d": "猫坐在垫子上。" * 50}, {"q": {"d": 1}})
    rows = retrieval.scores_by_length(task, rank_by_scores(task, np.ones((1, 1))))
    assert [row["from_words"] for row in rows] == [256]


def test_scores_by_length():
    """NextLevelBERT's figure 2. A document that is its own query counts for nothing; short pairs
    are together; the mean of several counts, and the longer of both sides."""
    documents = {"a": "word " * 5, "b": "word " * 100, "c": "word " * 199, "d": "word " * 321}
    relevant = {"a": {"a": 1, "b": 1}, "q": {"c": 1, "d": 1}, "long": {"a": 1}}
    task = RetrievalTask("toy", {"a": "?", "q": "?", "long": "w " * 600}, documents, relevant)
    scores = np.array([[0.0, 1.0, 0, 0], [1.0, 0.5, 0, 0], [0.5, 1.0, 0, 0]])
    rows = retrieval.scores_by_length(task, rank_by_scores(task, scores))
    found = [(row["from_words"], row["below_words"], row["queries"], row["mrr"]) for row in rows]
    assert found == [(0, 128, 1, 1), (256, 512, 1, 1 / 3), (512, 1024, 1, 1 / 2)]


# --- The search by its command line


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    rows = [
        {"query": f"the {word}", "document": f"The {word} of the {word}. " * 20}
        for word in (*SEA, *BREAD)
    ]
    return write(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", rows)


def run(folder, model, *words, task="retrieval"):
    main(["--task", task, "--model", str(model), "--output_dir", str(folder), *words])
    return read_json(folder / "results.json")


def rankings_of(task, checkpoint, which):
    """By the vectors of the documents, the means of their chunks, or their first chunks."""
    model = NextLevelBertModel.from_pretrained(checkpoint)
    vectors = []
    for texts in (task.queries, task.documents):
        rows = []
        for book in model.encode(list(texts.values())):
            choice = {"document": book.document, "mean": book.plain.mean(dim=0)}
            rows.append(choice.get(which, book.plain[0]))
        vectors.append(torch.stack(rows))
    return rank_documents(task, *vectors)


def test_the_search(toy_checkpoint, pairs, tmp_path):
    """Scores of the model and of the mean of the same chunk vectors, and all files."""
    folder = tmp_path / "toy"
    results = run(folder, toy_checkpoint, "--test_file", pairs)
    model_scores, mean_scores = results["rows"].values()
    assert list(results["rows"]) == ["toy", "mean of the chunk vectors"]

    task = read_retrieval_task(pairs, PAIRS)
    rankings = rankings_of(task, toy_checkpoint, "document")
    expected = retrieval_scores(rankings_of(task, toy_checkpoint, "mean"))
    assert mean_scores == pytest.approx(expected, abs=0.02)  # vectors are stored in float16
    assert model_scores["mrr"] == pytest.approx(retrieval_scores(rankings)["mrr"], abs=0.02)
    [by_length] = scores_by_length(task, rankings)
    assert results["by_length"] == [pytest.approx(by_length, abs=0.02)]

    nearest = rankings["query-000000"]
    [line, *_] = predictions(folder / "predictions.jsonl")
    ranks = nearest.ranks.tolist()
    assert line == {"query": "query-000000", "ranks_of_relevant_documents": ranks}
    run_lines = (folder / "predictions.trec").read_text().splitlines()
    assert len(run_lines) == len(task.queries) * len(task.documents)
    *place, score, name = run_lines[0].split()
    assert place == ["query-000000", "Q0", nearest.documents[0], "1"]
    assert float(score) == pytest.approx(nearest.scores[0], abs=1e-3)
    assert name == "toy"
    assert (folder / "mrr_by_length.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("name", "vectors"), [("avg_sbert", "mean"), ("sbert", "first chunk")])
def test_the_search_by_frozen_vectors(
    name, vectors, toy_checkpoint, toy_encoder_path, pairs, tmp_path
):
    words = ["--chunk_encoder", toy_encoder_path, "--chunk_size", "16", "--test_file", pairs]
    results = run(tmp_path, name, *words)
    rankings = rankings_of(read_retrieval_task(pairs, PAIRS), toy_checkpoint, vectors)
    assert results["rows"] == {name: pytest.approx(retrieval_scores(rankings), abs=0.02)}


def test_the_search_by_words(toy_checkpoint, pairs, tmp_path, capsys):
    results = run(tmp_path, "bm25", "--test_file", pairs)
    assert list(results["rows"]) == ["bm25"]
    assert results["rows"]["bm25"]["mrr"] == 1.0
    with pytest.raises(SystemExit):
        run(tmp_path, toy_checkpoint, "--test_file", pairs)  # would write over these results
    assert "holds another run" in capsys.readouterr().err


def test_documents_of_any_length_beside_each_other(toy_checkpoint, monkeypatch):
    monkeypatch.setattr(retrieval, "_BATCH", 4)
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    texts = []
    for number, word in enumerate((*SEA, *BREAD)):
        texts.append(f"The {word} of the {word}. " * (number * 7 % 10 + 1))
    books = model.encode(texts)
    vectors = retrieval.document_vectors(model, [book.plain for book in books])
    for vector, book in zip(vectors, books, strict=True):
        close(vector, book.document)


# --- Training to rank


@pytest.mark.parametrize(("stories", "answers", "size"), [(10, 20, 8), (3, 5, 4)])
def test_no_query_and_no_document_stands_twice_in_a_batch(stories, answers, size):
    """Answers about a few stories: by chance nearly every batch would hold a story twice."""
    pairs = [(f"q{n}", f"d{n % stories}") for n in range(stories * answers)]
    sampler = ranking.batches_of(pairs, size, 0)
    size = min(size, stories)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
        assert len(epochs[-1]) == len(sampler) == len(pairs) // size
        for batch in epochs[-1]:
            assert len(batch) == size
            assert len(set().union(*map(pairs.__getitem__, batch))) == 2 * size
    assert epochs[0] != epochs[1] == list(sampler)


@pytest.fixture
def model(toy_encoder_path):
    torch.manual_seed(3)
    options = {"hidden_size": 16, "num_hidden_layers": 1, "chunk_size": 16}
    return HateModel.from_chunk_encoder(toy_encoder_path, **options)


def test_the_loss_is_the_cross_entropy_of_twenty_times_the_cosine(model, tmp_path):
    task = toy_task(a={"d0": 1}, b={"d1": 1}, c={"d2": 1})
    texts = [*task.queries.values(), *task.documents.values()]
    vectors = dict(zip(texts, torch.randn(len(texts), 5, 32), strict=True))
    args = FinetuningArguments(output_dir=str(tmp_path), report_to=[])
    trainer = ranking.RankingTrainer(task, vectors, lambda model: {}, model=model, args=args)
    batch = trainer.collate(trainer.train_dataset)
    queries = model(**batch["query"]).pooler_output
    documents = model(**batch["document"]).pooler_output
    scores = 20 * F.cosine_similarity(queries[:, None], documents[None], dim=-1)
    close(trainer.compute_loss(model, batch), F.cross_entropy(scores, torch.arange(3)))


def test_ranking_ms_marco_s_files(model, msmarco, tmp_path):
    """Splits of one folder, its top 100 as candidates: d2 is no candidate of q2, so its reciprocal
    rank is 0."""
    model.save_pretrained(tmp_path / "base")
    folder = tmp_path / "ranker"
    words = "--train_split doctrain --validation_split docdev --test_split docdev".split()
    words += ["--train_file", str(msmarco), "--num_train_epochs", "1"]
    results = run(folder, tmp_path / "base", *words, task="ranking")
    assert results["rows"]["base, test"]["hit_rate@10"] == 0.5
    card = (folder / "README.md").read_text()
    # Nothing was chosen on the test set, so no warning follows.
    assert "2 queries of msmarco-docdev. For each, its candidates are ranked.\n" in card
    # The ranked lists of the best seed: candidates only.
    run_lines = (folder / "test_predictions.trec").read_text().splitlines()
    queries, _, documents, ranks, _, names = np.array(list(map(str.split, run_lines))).T.tolist()
    assert queries == ["q1", "q1", "q2"]
    assert sorted(documents) == ["d0", "d1", "d4"]
    assert ranks == ["1", "2", "1"]
    assert names == ["base"] * 3


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        ("avg_sbert --push_to_hub", "avg_sbert is a baseline, which is not published"),
        ("sbert --metric_for_best_model accuracy", "give one of loss, mrr@10"),
    ],
)
def test_what_ranking_refuses(words, culprit, pairs, toy_encoder_path, tmp_path, capsys):
    words = [*words.split(), "--chunk_encoder", toy_encoder_path, "--train_file", pairs]
    with pytest.raises(SystemExit):
        run(tmp_path, *words, task="ranking")
    assert culprit in capsys.readouterr().err


@pytest.mark.parametrize("task", [["ranking"], ["classification", "--lora"]])
def test_a_mean_of_chunk_vectors_has_no_layers_to_train(
    task, pairs, sea_files, toy_encoder_path, tmp_path, capsys
):
    plain = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16, pooling="plain")
    plain.save_pretrained(tmp_path / "plain")
    rows = {"ranking": pairs, "classification": sea_files["--train_file"]}[task[0]]
    words = [*task[1:], "--train_file", rows, "--test_file", rows]
    with pytest.raises(SystemExit):
        run(tmp_path / "out", tmp_path / "plain", *words, task=task[0])
    assert "no layers to train" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def rank_frozen(folder, model, pairs, *words):
    """Trains a linear map over the vectors of an encoder; the rows of the table."""
    options = ["--train_file", pairs, "--test_file", pairs, "--num_train_epochs", "1"]
    options += ["--per_device_train_batch_size", "2"]
    results = run(folder, model, *options, *words, task="ranking")
    weights = load_file(folder / "seed-0" / "model.safetensors")["map.weight"]
    assert not torch.allclose(weights, torch.eye(len(weights)), atol=1e-4)
    assert read_json(folder / "settings.json")["learning_rate"] == 1e-3
    assert not (folder / "README.md").exists()  # a baseline is not published
    return results["rows"]


def test_a_linear_map_of_the_mean_of_chunk_vectors(pairs, toy_encoder_path, tmp_path):
    words = ["--chunk_encoder", toy_encoder_path, "--chunk_size", "16"]
    rows = rank_frozen(tmp_path, "avg_sbert", pairs, *words)
    assert list(rows) == ["avg_sbert, test", "before training", "mean of the chunk vectors"]
    assert rows["before training"] == rows["mean of the chunk vectors"]


def test_a_linear_map_of_the_vectors_of_any_encoder(encoder, pairs, tmp_path):
    rows = rank_frozen(tmp_path, encoder, pairs)
    assert list(rows) == [f"{Path(encoder).name}, test", "before training"]
