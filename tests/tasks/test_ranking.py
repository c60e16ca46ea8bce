"""Document ranking: MS MARCO's files, candidates, batches without duplicates, training, and the script."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch.nn import functional as F
from transformers import AutoModel

from nextlevelbert import HateModel, load_chunk_encoder
from nextlevelbert.corpus import pad_vectors
from nextlevelbert.data.rows import fingerprint
from nextlevelbert.evaluation import RetrievalTask, rank_documents, retrieval_scores
from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.finetuning.other_encoders import OtherEncoder
from nextlevelbert.finetuning.run import read_sets
from nextlevelbert.finetuning.task import Sets
from nextlevelbert.tasks.ranking.baselines import MeanRanker
from nextlevelbert.tasks.ranking.data import (
    RankingData,
    hold_out_queries,
    read_candidates,
    read_msmarco,
    read_ranking,
)
from nextlevelbert.tasks.ranking.task import Ranking, RankingOptions
from nextlevelbert.tasks.ranking.train import (
    DistinctBatchSampler,
    QueryDocumentPairs,
    RankingTrainer,
    RankingVectors,
    encode_ranking,
    rank,
)

from ..finetuning_toys import refusal, run_here


def write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def msmarco(tmp_path) -> Path:
    """The layout of the official files, in small; document d3 is named by nothing."""
    docs = [f'd{n}\thttp://x/{n}\tTitle {n}\tBody "of number {n}."' for n in range(5)]
    with gzip.open(tmp_path / "msmarco-docs.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(docs) + "\n")
    write(tmp_path / "msmarco-docdev-queries.tsv", ["q1\twhat is one", "q2\twhat is two", "q9\tnobody judged this"])
    write(tmp_path / "msmarco-docdev-qrels.tsv", ["q1 0 d1 1", "q2 0 d2 1", "q2 0 d4 0"])
    write(tmp_path / "msmarco-docdev-top100", ["q1 Q0 d0 1 -4.8 run", "q1 Q0 d1 2 -5 run", "q2 Q0 d4 1 -3 run"])
    write(tmp_path / "msmarco-doctrain-queries.tsv", ["q5\twhat is zero"])
    write(tmp_path / "msmarco-doctrain-qrels.tsv", ["q5 0 d0 1"])
    return tmp_path


def test_ms_marco_s_files(msmarco):
    data = read_ranking(msmarco, "docdev")
    assert data.task.queries == {"q1": "what is one", "q2": "what is two"}
    assert data.task.relevant == {"q1": {"d1": 1}, "q2": {"d2": 1}}
    assert data.task.documents["d1"] == 'Title 1 Body "of number 1."'
    assert sorted(data.task.documents) == ["d0", "d1", "d2", "d4"]  # what a judgement or a candidate names
    assert data.candidates == {"q1": ["d0", "d1"], "q2": ["d4"]}
    train = read_ranking(msmarco, "doctrain")
    assert list(train.task.documents) == ["d0"]
    assert train.candidates is None
    (msmarco / "msmarco-docdev-top100").unlink()
    assert len(read_msmarco(msmarco, "docdev").task.documents) == 5  # the whole collection


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("msmarco-docdev-qrels.tsv", ["q1 0 d1"], r"Line 1 of msmarco-docdev-qrels.tsv must have 4 columns, got 3"),
        ("msmarco-docdev-qrels.tsv", ["q1 0 d1 1", "q7 0 d2 1"], "1 queries of msmarco-docdev-qrels.tsv have no text"),
        ("msmarco-docdev-qrels.tsv", ["q1 0 d77 1"], "lacks 1 documents that are named, such as 'd77'"),
        (
            "msmarco-docdev-qrels.tsv",
            ["q1 0 d1 1.0"],
            r"Line 1 of msmarco-docdev-qrels.tsv: the grade must be a whole",
        ),
        (
            "msmarco-docdev-queries.tsv",
            ["q1\ta", "q1\tb"],
            "Line 2 of msmarco-docdev-queries.tsv: the id 'q1' occurs twice",
        ),
        ("msmarco-docdev-queries.tsv", ["q1\ta", "q2\t "], "Line 2 of msmarco-docdev-queries.tsv: 'q2' has no text"),
        (
            "msmarco-docs.tsv",
            ["d1\tu\t\t"],
            "Line 1 of msmarco-docs.tsv: 'd1' has no text; remove it and its judgements",
        ),
        ("msmarco-docdev-top100", ["q1 Q0 d0 1 -4.8 run"], "has no candidates for 1 queries, such as 'q2'"),
    ],
)
def test_ms_marco_files_that_do_not_fit(msmarco, name, lines, message):
    write(msmarco / name, lines)
    with pytest.raises(ValueError, match=message):
        read_ranking(msmarco, "docdev")


def test_what_is_odd_in_ms_marco_s_files_and_harmless(msmarco, caplog):
    """A carriage return in a body, blank lines, and a candidate without a text."""
    write(msmarco / "msmarco-docdev-qrels.tsv", ["q1 0 d1 1", "", "q2 0 d2 1", ""])
    docs = ["d0\tu\t\t", "d1\tu\tt\tbody\rone", "d2\tu\tt\tb", "d4\tu\tt\tb"]
    (msmarco / "msmarco-docs.tsv").write_bytes(("\n".join(docs) + "\n").encode())
    data = read_ranking(msmarco, "docdev")
    assert data.task.documents["d1"] == "t body\rone"
    assert data.candidates == {"q1": ["d1"], "q2": ["d4"]}
    assert "1 documents without a text" in caplog.text


def test_a_split_that_is_not_there_is_told_from_those_that_are(msmarco):
    with pytest.raises(FileNotFoundError, match="Splits with judgements there: docdev, doctrain; name one of them"):
        read_ranking(msmarco, "train")


def test_a_file_that_is_missing(msmarco):
    (msmarco / "msmarco-docdev-queries.tsv").unlink()
    with pytest.raises(FileNotFoundError, match=r"No msmarco-docdev-queries\.tsv"):
        read_ranking(msmarco, "docdev")


def test_candidates_beside_pairs(tmp_path):
    rows = [{"query": "the sea", "document": "A whale."}, {"query": "a ball", "document": "A dance at Bath."}]
    write(tmp_path / "pairs.jsonl", [json.dumps(row) for row in rows])
    lines = ["query-000000 Q0 document-000001 1 0.5 run", "query-000001 Q0 document-000001 1 0.5 run"]
    write(tmp_path / "run", lines)
    data = read_ranking(tmp_path / "pairs.jsonl", "test", tmp_path / "run")
    assert data.candidates == {"query-000000": ["document-000001"], "query-000001": ["document-000001"]}
    assert read_candidates(tmp_path / "run", ["query-000001"]) == {"query-000001": ["document-000001"]}
    write(tmp_path / "run", [lines[0], "query-000001 Q0 elsewhere 1 0.5 run"])
    with pytest.raises(ValueError, match="1 documents that do not exist, such as 'elsewhere'"):
        read_ranking(tmp_path / "pairs.jsonl", "test", tmp_path / "run")


def toy_task(stories=6, **relevant) -> RetrievalTask:
    documents = {f"d{n}": f"document {n}" for n in range(stories)}
    return RetrievalTask("toy", {query: f"query {query}" for query in relevant}, documents, relevant)


def test_queries_are_held_out_by_their_documents():
    task = toy_task(a={"d0": 1}, b={"d0": 1}, c={"d1": 1}, d={"d2": 1}, e={"d3": 1, "d2": 1})
    for seed in range(5):
        train, validation = hold_out_queries(RankingData(task), 0.5, seed)
        of = [{d for grades in part.task.relevant.values() for d in grades} for part in (train, validation)]
        assert not of[0] & of[1]
        assert of[0]
        assert of[1]
        assert validation.task.documents == task.documents  # searched whole
    # A seed draws what release 0.1.0 drew, so that a killed run finds its validation set again.
    task = toy_task(12, **{f"q{n}": {f"d{n % 12}": 1} for n in range(18)})
    held = [list(hold_out_queries(RankingData(task), 0.25, seed)[1].task.queries) for seed in (0, 42)]
    assert held == [["q4", "q5", "q6", "q16", "q17"], ["q0", "q5", "q6", "q12", "q17"]]
    with pytest.raises(ValueError, match="leaves 0 queries for training"):
        hold_out_queries(RankingData(toy_task(a={"d0": 1, "d1": 1})), 0.5, 0)
    with pytest.raises(ValueError, match="relevant documents of toy, and there is only 1"):
        hold_out_queries(RankingData(toy_task(a={"d0": 1})), 0.5, 0)


# --- training


def vectors_of(task: RetrievalTask, size=32, length=5) -> RankingVectors:
    torch.manual_seed(7)

    def rows(names):
        return [F.normalize(torch.randn(length, size), dim=-1) for _ in names]

    return RankingVectors(RankingData(task), rows(task.queries), rows(task.documents))


@pytest.fixture
def model(toy_encoder_path):
    torch.manual_seed(3)
    return HateModel.from_chunk_encoder(toy_encoder_path, hidden_size=16, num_hidden_layers=1, chunk_size=16)


def trainer_of(model, vectors, folder, **values):
    args = FinetuningArguments(
        output_dir=str(folder), per_device_train_batch_size=4, report_to=[], learning_rate=1e-3, **values
    )
    return RankingTrainer(
        model=model, args=args, train_dataset=QueryDocumentPairs(vectors), eval_dataset=vectors, callbacks=[]
    )


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize(("stories", "answers", "size"), [(4, 5, 4), (10, 20, 16), (42, 20, 8), (7, 1, 4)])
def test_batches_hold_every_pair_once_and_no_document_twice(stories, answers, size, processes, caplog):
    """Answers about a few stories: by chance nearly every batch would hold a story twice."""
    task = toy_task(stories, **{f"q{n}": {f"d{n % stories}": 1} for n in range(stories * answers)})
    pairs = QueryDocumentPairs(vectors_of(task, size=2, length=1))
    samplers = [DistinctBatchSampler(pairs, size, 0, process, processes) for process in range(processes)]
    epochs = []
    for epoch in range(2):
        pairs.epoch = epoch
        shares = [list(sampler) for sampler in samplers]
        assert {len(share) for share in shares} == {len(samplers[0])}
        batches = [batch for share in shares for batch in share]
        assert max(map(len, batches)) <= size
        assert sorted(index for batch in batches for index in batch) == list(range(len(pairs)))
        for batch in batches:
            documents = [pairs.pairs[index][1] for index in batch]
            assert len(set(documents)) == len(documents)
        epochs.append(batches)
    assert epochs[0] != epochs[1]
    assert epochs[1] == [batch for sampler in samplers for batch in sampler]  # the same epoch again
    assert ("none may be twice in a batch" in caplog.text) == (-(-len(pairs) // sum(map(len, samplers))) < size)


def test_queries_with_several_documents_do_not_meet_themselves():
    task = toy_task(6, **{f"q{n}": {f"d{n}": 1, f"d{(n + 1) % 6}": 1} for n in range(6)})
    pairs = QueryDocumentPairs(vectors_of(task, size=2, length=1))
    seen = 0
    for batch in DistinctBatchSampler(pairs, 3, 0):
        assert len(batch) <= 3
        names = [name for index in batch for name in pairs.pairs[index]]
        assert len(set(names)) == len(names)
        seen += len(batch)
    assert seen >= 11


def test_more_processes_than_pairs_are_refused():
    pairs = QueryDocumentPairs(vectors_of(toy_task(a={"d0": 1}, b={"d1": 1}), size=2, length=1))
    with pytest.raises(ValueError, match="2 pairs are too few for 3 batches, one or more for each of 3 processes"):
        DistinctBatchSampler(pairs, 4, 0, 0, 3)


def test_only_documents_of_pairs_are_kept_for_training():
    assert set(QueryDocumentPairs(vectors_of(toy_task(a={"d0": 1}, b={"d3": 2}))).documents) == {"d0", "d3"}


def test_the_loss_is_the_cross_entropy_of_twenty_times_the_cosine(model, tmp_path):
    vectors = vectors_of(toy_task(a={"d0": 1}, b={"d1": 1}, c={"d2": 1}))
    pairs = QueryDocumentPairs(vectors)
    batch = pairs.collate([pairs[number] for number in range(3)])
    loss = trainer_of(model, vectors, tmp_path).compute_loss(model, batch)
    queries, documents = (model(**batch[name]).pooler_output for name in ("query", "document"))
    scores = 20 * F.cosine_similarity(queries[:, None], documents[None], dim=-1)
    torch.testing.assert_close(loss, F.cross_entropy(scores, torch.arange(3)))


def test_a_killed_run_goes_on_where_it_stopped(toy_encoder_path, tmp_path, monkeypatch):
    data = vectors_of(toy_task(**{f"q{n}": {f"d{n % 4}": 1} for n in range(12)}))
    torch.manual_seed(3)
    model = HateModel.from_chunk_encoder(toy_encoder_path, hidden_size=16, num_hidden_layers=1, chunk_size=16)
    model.save_pretrained(tmp_path / "base")

    def train(folder):
        args = FinetuningArguments(
            output_dir="unused", per_device_train_batch_size=3, report_to=[], learning_rate=1e-3, num_train_epochs=3,
            disable_tqdm=True,
        )  # fmt: skip
        task = Ranking(RankingOptions(model=str(tmp_path / "base"), train_file="unused"), args)
        task.sets = Sets(data.data, data.data)
        task.vectors = {"train": data, "validation": data}
        return task.train(0, tmp_path / folder)

    straight = train("straight")
    evaluate, calls = RankingTrainer.evaluate, []

    def killed(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return evaluate(self, *args, **kwargs)

    monkeypatch.setattr(RankingTrainer, "evaluate", killed)
    with pytest.raises(KeyboardInterrupt):
        train("killed")
    monkeypatch.setattr(RankingTrainer, "evaluate", evaluate)
    again = train("killed")
    losses = [[entry["loss"] for entry in result.curve if "loss" in entry] for result in (again, straight)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 3
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "straight"))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    assert again.scores == straight.scores
    assert straight.before["validation"] != straight.scores["validation"]


def test_it_learns_pairs_that_have_nothing_in_common(model, tmp_path):
    vectors = vectors_of(toy_task(a={"d0": 1}, b={"d1": 1}, c={"d2": 1}, d={"d3": 1}))
    before = retrieval_scores(rank(vectors, model))["mrr@10"]
    trainer = trainer_of(
        model, vectors, tmp_path, num_train_epochs=60, eval_strategy="no", save_strategy="no", warmup_steps=0,
        load_best_model_at_end=False, disable_tqdm=True,
    )  # fmt: skip
    trainer.train()
    after = trainer.evaluate()["eval_mrr@10"]
    assert after == 1.0
    assert before < 0.9


def test_a_run_is_told_by_everything_in_its_task():
    task = toy_task(a={"d0": 1}, b={"d1": 1})
    plain = fingerprint(RankingData(task).content())
    assert plain == fingerprint(RankingData(toy_task(a={"d0": 1}, b={"d1": 1})).content())
    assert plain != fingerprint(RankingData(toy_task(a={"d0": 2}, b={"d1": 1})).content())
    assert plain != fingerprint(RankingData(task, {"a": ["d0"], "b": ["d1"]}).content())


def test_texts_without_a_token_are_named(model):
    task = RetrievalTask("blank", {"q": "the sea"}, {"d0": "A whale.", "d1": "\u200b"}, {"q": {"d0": 1}})
    with (
        pytest.warns(UserWarning, match="contain no token"),
        pytest.raises(ValueError, match=r"blank: documents \['d1'\] contain no token"),
    ):
        encode_ranking(model, {"test": RankingData(task)})


# --- the script


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """Four queries for each of twelve short documents."""
    folder, subjects = tmp_path_factory.mktemp("pairs"), "whale train bread star ship crown".split()
    draw = random.Random(0)
    for name in ("train", "test"):
        rows = []
        for n in range(12):
            subject = f"{subjects[n % 6]} {name} {n}"
            story = " ".join(f"The {subject} was {draw.choice(['old', 'red', 'far'])} again." for _ in range(6))
            rows += [
                {"query": f"What of the {subject}, {who}?", "document": story} for who in ("Ann", "Bo", "Cy", "Di")
            ]
        write(folder / f"{name}.jsonl", [json.dumps(row) for row in rows])
    return folder


@pytest.fixture
def run(capsys):
    """Runs the script in this process, which is faster than a new one; gives what it prints."""

    def script(*arguments: str) -> str:
        run_here("--task", "ranking", "--disable_tqdm", "true", *arguments)
        return capsys.readouterr().out

    return script


def test_the_script_trains_publishes_and_does_not_run_a_seed_twice(run, pairs, toy_encoder_path, tmp_path):
    torch.manual_seed(0)
    model = HateModel.from_chunk_encoder(toy_encoder_path, hidden_size=16, num_hidden_layers=1, chunk_size=16)
    model.save_pretrained(tmp_path / "base")
    files = ["--train_file", str(pairs / "train.jsonl"), "--test_file", str(pairs / "test.jsonl")]
    options = ["--num_train_epochs", "2", "--seeds", "0", "1", "--output_dir", str(tmp_path / "ranker")]
    printed = run("--model", str(tmp_path / "base"), *files, *options)
    assert "mean of the chunk vectors" in printed
    results = json.loads((tmp_path / "ranker" / "results.json").read_text())
    assert results["reported"] == "test"
    assert set(results["rows"]) == {
        "base, 2 seeds, test", "before training", "mean of the chunk vectors", "whitened mean"
    }  # fmt: skip
    card = (tmp_path / "ranker" / "README.md").read_text()
    assert re.search(r"type: mrr@10\s+value: [01]\.\d+", card)
    assert "48 queries of test" in card
    assert str(tmp_path) not in card
    document = json.loads((pairs / "test.jsonl").read_text().splitlines()[0])["document"]
    found = SentenceTransformer(str(tmp_path / "ranker"), device="cpu").encode_document([document])
    trained = AutoModel.from_pretrained(tmp_path / "ranker").encode(document).document
    np.testing.assert_allclose(found[0], trained.numpy(), atol=1e-6)
    assert not torch.allclose(trained, model.encode(document).document, atol=1e-3)
    again = run("--model", str(tmp_path / "base"), *files, *options)
    assert "train_runtime" in printed
    assert "train_runtime" not in again
    assert again.splitlines()[-5:] == printed.splitlines()[-5:]
    with pytest.raises(ValueError, match=r"holds a run with other settings \(learning_rate: .* there, 0.5 now"):
        run("--model", str(tmp_path / "base"), *files, *options, "--learning_rate", "0.5")


def test_the_script_on_ms_marco_s_files(run, msmarco, toy_encoder_path, tmp_path, capsys):
    """Splits of one folder, its top 100 as candidates: d2 is no candidate of q2, so its reciprocal rank is 0."""
    model = HateModel.from_chunk_encoder(toy_encoder_path, hidden_size=16, num_hidden_layers=1, chunk_size=16)
    model.save_pretrained(tmp_path / "base")
    splits = ["--train_split", "doctrain", "--validation_split", "docdev", "--test_split", "docdev"]
    output = ["--output_dir", str(tmp_path / "ranker"), "--num_train_epochs", "1"]
    run("--model", str(tmp_path / "base"), "--train_file", str(msmarco), *splits, *output)
    results = json.loads((tmp_path / "ranker" / "results.json").read_text())
    assert results["reported"] == "test"
    assert results["settings"]["metric_for_best_model"] == "mrr@10"
    assert results["rows"]["base, test"]["hit_rate@10"] == 0.5
    assert (
        "2 queries of msmarco-docdev, each ranking its candidates" in (tmp_path / "ranker" / "README.md").read_text()
    )
    elsewhere = ["--test_candidates", str(msmarco / "msmarco-docdev-top100")]
    options = ["--model", str(tmp_path / "base"), "--train_file", str(msmarco), *splits[:4], *output, *elsewhere]
    assert "--test_candidates belong to a test set, which is missing" in refusal(capsys, lambda: run(*options))


def test_shared_documents_are_counted(pairs, caplog):
    file = str(pairs / "train.jsonl")
    options = RankingOptions(model="untrained", train_file=file, test_file=file)
    read_sets(Ranking(options, FinetuningArguments(output_dir="unused")))
    assert "texts of the test set are in the training set, too" in caplog.text


@pytest.mark.parametrize(
    ("model", "more", "title", "controls"),
    [
        ("longformer", [], "{}", []),  # one vector a text, so there is no mean of several
        (
            "longformer",
            ["--late_chunking", "--chunk_size", "16"],
            "{}, late chunking",
            ["mean of the chunk vectors", "whitened mean"],
        ),
        ("avg_sbert", ["--chunk_size", "16"], "avg_sbert", ["mean of the chunk vectors", "whitened mean"]),
        ("sbert", ["--chunk_size", "16"], "sbert", ["mean of the chunk vectors", "whitened mean"]),
    ],
)
def test_frozen_encoders_get_a_linear_map(
    run, pairs, request, toy_encoder_path, tmp_path, model, more, title, controls
):
    """Of any kind of encoder; before training they rank by their own vectors."""
    path = request.getfixturevalue(model) if model == "longformer" else model
    files = ["--train_file", str(pairs / "train.jsonl"), "--test_file", str(pairs / "test.jsonl")]
    options = ["--num_train_epochs", "1", "--chunk_encoder", toy_encoder_path, "--output_dir", str(tmp_path / "out")]
    run("--model", path, *more, *files, *options)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    name = title.format(Path(path).name)
    assert list(results["rows"]) == [f"{name}, test", "before training", *controls]
    assert results["settings"]["learning_rate"] == 1e-3
    weights = load_file(tmp_path / "out" / "model.safetensors")
    size = 24 if model == "longformer" else 32
    assert weights["map.weight"].shape == (size, size)
    assert not torch.allclose(weights["map.weight"], torch.eye(size), atol=1e-4)
    assert not (tmp_path / "out" / "README.md").exists()  # a baseline is not published
    before, mean = (results["rows"].get(row) for row in ("before training", "mean of the chunk vectors"))
    if model == "longformer" and not more:
        encoder = OtherEncoder(path)
        task = read_ranking(pairs / "test.jsonl", "test").task
        queries, documents = (
            torch.stack([book.document for book in encoder.encode(list(part.values()))])
            for part in (task.queries, task.documents)
        )
        expected = retrieval_scores(rank_documents(task, queries, documents))
        assert before["mrr@10"] == pytest.approx(expected["mrr@10"], abs=0.02)  # stored as float16
    else:
        assert (before == mean) == (model != "sbert")


def test_two_new_layers_over_the_chunk_vectors(run, pairs, toy_encoder_path, tmp_path):
    """ToBERT (Pappagari et al. 2019), trained for queries and documents alike."""
    files = ["--train_file", str(pairs / "train.jsonl"), "--test_file", str(pairs / "test.jsonl")]
    options = ["--chunk_encoder", toy_encoder_path, "--chunk_size", "16", "--num_train_epochs", "4"]
    options += ["--learning_rate", "3e-3"]
    run("--model", "tobert", *files, *options, "--output_dir", str(tmp_path / "out"))
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(results["rows"]) == ["tobert, test", "before training", "mean of the chunk vectors", "whitened mean"]
    assert results["rows"]["tobert, test"] != results["rows"]["before training"]
    model = AutoModel.from_pretrained(tmp_path / "out")
    assert (model.config.encoder_config.num_hidden_layers, model.config.chunking) == (2, "fixed")
    assert "A ToBERT (two new layers over chunk vectors) that" in (tmp_path / "out" / "README.md").read_text()
    text = json.loads((pairs / "test.jsonl").read_text().splitlines()[0])["document"]
    assert len(model.encode(text).plain) > 1


def test_a_mean_ranker_gives_the_same_either_way():
    torch.manual_seed(0)
    ranker = MeanRanker(4)
    torch.nn.init.normal_(ranker.map.weight)
    documents = [torch.randn(3, 4), torch.randn(1, 4)]
    rows, pooled = ranker.contextualize(documents)
    assert rows[0] is documents[0]
    torch.testing.assert_close(ranker(**pad_vectors(documents)).pooler_output, pooled)
    torch.testing.assert_close(pooled[1], documents[1][0] @ ranker.map.weight.T)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "untrained", "--k", "0"], "--k must be 1 or more, got 0"),
        (
            ["--model", "untrained", "--metric_for_best_model", "map"],
            "There is no option --metric_for_best_model here",
        ),
        (["--model", "untrained", "--class_weights"], "There is no option --class_weights here"),
        (["--model", "tfidf"], "This task does not support --model tfidf. It takes a checkpoint or one of: untrained"),
        (["--model", "avg_sbert", "--push_to_hub"], "--model avg_sbert is a baseline, which is not published"),
        (["--model", "untrained", "--lora"], "There is no option --lora here"),
    ],
)
def test_what_the_script_refuses(capsys, pairs, tmp_path, arguments, message):
    options = ["--task", "ranking", "--train_file", str(pairs / "train.jsonl"), "--output_dir", str(tmp_path)]
    assert message in refusal(capsys, lambda: run_here(*options, *arguments))


def test_a_shared_encoder_serves_both_sides(toy_encoder_path, pairs):
    """Queries and documents go through one encoder: a query that is a document's text has its vector."""
    model = HateModel.from_chunk_encoder(load_chunk_encoder(toy_encoder_path), num_hidden_layers=1, chunk_size=16)
    text = json.loads((pairs / "test.jsonl").read_text().splitlines()[0])["document"]
    task = RetrievalTask("same", {"q": text}, {"d": text, "e": "Something else."}, {"q": {"d": 1}})
    vectors = encode_ranking(model, {"one": RankingData(task), "two": RankingData(task)})
    assert rank(vectors["one"], model)["q"].ranks.tolist() == [1]
    assert vectors["one"].documents[0] is vectors["two"].queries[0]  # each distinct text once
    assert vectors["one"].documents[0].dtype == torch.float16


def test_a_ranking_keeps_to_its_candidates(model):
    task = toy_task(a={"d0": 1})
    vectors = vectors_of(task)
    bare = RankingVectors(RankingData(task, {"a": ["d1", "d2"]}), vectors.queries, vectors.documents)
    assert rank(bare, model)["a"].ranks.tolist() == [np.inf]
    assert rank(bare)["a"].ranks.tolist() == [np.inf]
    assert rank(vectors, model)["a"].ranks[0] <= 6
