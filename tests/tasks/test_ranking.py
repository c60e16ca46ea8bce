"""Document ranking: MS MARCO's files, candidates, batches without duplicates, training, and the script."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from nextlevelbert import HateModel
from nextlevelbert.evaluation import RetrievalTask
from nextlevelbert.finetuning.seeds import FinetuningArguments
from nextlevelbert.tasks.ranking import (
    RankingArguments,
    RankingData,
    RankingTrainer,
    batches_of,
    hold_out_queries,
    read_ranking,
)

from ..finetuning_toys import run_here


def write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def msmarco(tmp_path) -> Path:
    """The layout of the official files, in small; document d3 is named by nothing."""
    docs = [f'd{n}\thttp://x/{n}\tTitle {n}\tBody "of\rnumber {n}."' for n in range(5)]
    with gzip.open(tmp_path / "msmarco-docs.tsv.gz", "wt", encoding="utf-8", newline="\n") as file:
        file.write("\n".join([*docs, "d5\tu\t\t"]) + "\n")
    write(tmp_path / "msmarco-docdev-queries.tsv", ["q1\twhat is one", "q2\twhat is two", "q9\tnobody judged this"])
    write(tmp_path / "msmarco-docdev-qrels.tsv", ["q1 0 d1 1", "", "q2 0 d2 1", "q2 0 d4 0"])
    top = ["q1 Q0 d0 1 -4.8 run", "q1 Q0 d1 2 -5 run", "q2 Q0 d4 1 -3 run", "q2 Q0 d5 2 -3 run"]
    write(tmp_path / "msmarco-docdev-top100", top)
    write(tmp_path / "msmarco-doctrain-queries.tsv", ["q5\twhat is zero"])
    write(tmp_path / "msmarco-doctrain-qrels.tsv", ["q5 0 d0 1"])
    return tmp_path


def test_ms_marco_s_files(msmarco):
    data = read_ranking(msmarco, "docdev", RankingArguments())
    assert data.task.queries == {"q1": "what is one", "q2": "what is two"}
    assert data.task.relevant == {"q1": {"d1": 1}, "q2": {"d2": 1}}
    assert data.task.documents["d1"] == 'Title 1 Body "of\rnumber 1."'
    assert sorted(data.task.documents) == ["d0", "d1", "d2", "d4"]  # named by a judgement or a candidate, with a text
    assert data.candidates == {"q1": ["d0", "d1"], "q2": ["d4"]}
    train = read_ranking(msmarco, "doctrain", RankingArguments())
    assert (list(train.task.documents), train.candidates) == (["d0"], None)
    (msmarco / "msmarco-docdev-top100").unlink()
    assert len(read_ranking(msmarco, "docdev", RankingArguments()).task.documents) == 5  # the whole collection


@pytest.mark.parametrize(
    ("name", "line", "culprit"),
    [
        ("docdev-qrels.tsv", "q1 0 d1", "Line 1 of msmarco-docdev-qrels"),
        ("docdev-qrels.tsv", "q7 0 d2 1", "'q7'"),
        ("docdev-qrels.tsv", "q1 0 d77 1", "'d77'"),
        ("docdev-top100", "q1 Q0 d0 1 -4.8 run", "'q2'"),
    ],
)
def test_ms_marco_files_that_do_not_fit(msmarco, name, line, culprit):
    write(msmarco / f"msmarco-{name}", [line])
    with pytest.raises(ValueError, match=culprit):
        read_ranking(msmarco, "docdev", RankingArguments())
    with pytest.raises(FileNotFoundError, match="msmarco-dev-qrels"):
        read_ranking(msmarco, "dev", RankingArguments())


def toy_task(stories=6, **relevant) -> RetrievalTask:
    documents = {f"d{n}": f"document {n}" for n in range(stories)}
    return RetrievalTask("toy", {query: f"query {query}" for query in relevant}, documents, relevant)


def test_queries_are_held_out_by_their_documents():
    task = toy_task(a={"d0": 1}, b={"d0": 1}, c={"d1": 1}, d={"d2": 1}, e={"d3": 1, "d2": 1}, f={"d4": 1})
    for seed in range(5):
        parts = hold_out_queries(RankingData(task), 0.5, seed)
        named = [{document for grades in part.task.relevant.values() for document in grades} for part in parts]
        assert not named[0] & named[1]
        assert all(named)
        assert parts[1].task.documents == task.documents  # searched whole
    with pytest.raises(ValueError, match="--validation_file"):
        hold_out_queries(RankingData(toy_task(a={"d0": 1, "d1": 1})), 0.5)


# --- Training


def vectors_of(task: RetrievalTask, size=32, length=5) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    texts = [*task.queries.values(), *task.documents.values()]
    return {text: F.normalize(torch.randn(length, size), dim=-1) for text in texts}


@pytest.mark.parametrize(("stories", "answers", "size"), [(10, 20, 8), (3, 5, 4)])
def test_no_query_and_no_document_stands_twice_in_a_batch(stories, answers, size):
    """Answers about a few stories: by chance nearly every batch would hold a story twice."""
    task = toy_task(stories, **{f"q{n}": {f"d{n % stories}": 1} for n in range(stories * answers)})
    pairs = [(query, document) for query, grades in task.relevant.items() for document in grades]
    sampler = batches_of(pairs, size, 0)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
        assert len(epochs[-1]) == len(sampler) == len(pairs) // min(size, stories)
        for batch in epochs[-1]:
            names = [name for index in batch for name in pairs[index]]
            assert len(set(names)) == len(names) == 2 * min(size, stories)
    assert epochs[0] != epochs[1] == list(sampler)


@pytest.fixture
def model(toy_encoder_path):
    torch.manual_seed(3)
    options = {"hidden_size": 16, "num_hidden_layers": 1, "chunk_size": 16}
    return HateModel.from_chunk_encoder(toy_encoder_path, **options)


def trainer_of(model, task, folder, **values):
    args = FinetuningArguments(output_dir=str(folder), report_to=[], learning_rate=1e-3, **values)
    return RankingTrainer(task, vectors_of(task), lambda model: {}, model=model, args=args)


def test_the_loss_is_the_cross_entropy_of_twenty_times_the_cosine(model, tmp_path):
    trainer = trainer_of(model, toy_task(a={"d0": 1}, b={"d1": 1}, c={"d2": 1}), tmp_path)
    batch = trainer.collate(trainer.train_dataset)
    loss = trainer.compute_loss(model, batch)
    queries, documents = (model(**batch[name]).pooler_output for name in ("query", "document"))
    scores = 20 * F.cosine_similarity(queries[:, None], documents[None], dim=-1)
    torch.testing.assert_close(loss, F.cross_entropy(scores, torch.arange(3)))


# --- The script


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
            rows += [{"query": f"What of the {subject}, {who}?", "document": story} for who in ("Ann", "Bo", "Cy")]
        write(folder / f"{name}.jsonl", [json.dumps(row) for row in rows])
    return folder


def files(pairs: Path) -> list[str]:
    return ["--train_file", str(pairs / "train.jsonl"), "--test_file", str(pairs / "test.jsonl")]


def run(*words: str) -> None:
    run_here("--task", "ranking", "--disable_tqdm", "true", *words)


def test_the_script_on_ms_marco_s_files(model, msmarco, tmp_path, capsys):
    """Splits of one folder, its top 100 as candidates: d2 is no candidate of q2, so its reciprocal rank is 0."""
    model.save_pretrained(tmp_path / "base")
    splits = ["--train_split", "doctrain", "--validation_split", "docdev", "--test_split", "docdev"]
    words = ["--model", str(tmp_path / "base"), "--train_file", str(msmarco), *splits]
    run(*words, "--output_dir", str(tmp_path / "ranker"), "--num_train_epochs", "1")
    results = json.loads((tmp_path / "ranker" / "results.json").read_text())
    assert results["rows"]["base, test"]["hit_rate@10"] == 0.5
    card = (tmp_path / "ranker" / "README.md").read_text()
    assert "2 queries of msmarco-docdev, each ranking its candidates" in card


@pytest.mark.parametrize("name", ["encoder", "avg_sbert"])
def test_frozen_encoders_get_a_linear_map(name, pairs, request, toy_encoder_path, tmp_path):
    """Of any kind of encoder; before training they rank by their own vectors, and they are not published."""
    path = request.getfixturevalue(name) if name == "encoder" else name
    encoder = ["--chunk_encoder", toy_encoder_path, "--chunk_size", "16"]
    run("--model", path, *files(pairs), *encoder, "--num_train_epochs", "1", "--output_dir", str(tmp_path / "out"))
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    means = [] if name == "encoder" else ["mean of the chunk vectors"]
    assert list(rows) == [f"{Path(path).name}, test", "before training", *means]
    weights = load_file(tmp_path / "out" / "seed-0" / "model.safetensors")["map.weight"]
    assert not torch.allclose(weights, torch.eye(len(weights)), atol=1e-4)
    assert not (tmp_path / "out" / "README.md").exists()
    assert not means or rows["before training"] == rows["mean of the chunk vectors"]
