"""Ranking: MS MARCO's files, the loss and the batches, and a whole run against pytrec_eval."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
import torch
from sentence_transformers import util
from torch.nn import functional as F
from transformers import TrainingArguments

from nextlevelbert import HateModel, NextLevelBertModel
from nextlevelbert.evaluation import RetrievalTask

from ...finetuning_toys import BREAD, SEA
from ...vector_toys import close
from ..scripts import load_script

script = load_script("hate/rank_documents.py")


# --- MS MARCO's files


@pytest.fixture
def msmarco(tmp_path):
    """The layout of the official files, in small; document d3 is named by nothing."""
    return shutil.copytree(Path(__file__).with_name("msmarco"), tmp_path / "msmarco")


def test_the_documents_of_the_top_100_and_the_judged_ones_are_read(msmarco):
    data = script.read_split(msmarco, "docdev", is_training=False)

    assert data.queries == {"q1": "what is one", "q2": "what is two"}
    assert data.relevant == {"q1": {"d1": 1}, "q2": {"d2": 1}}
    assert data.documents["d1"] == 'Title 1 Body "of\rnumber 1."'
    assert sorted(data.documents) == ["d0", "d1", "d2", "d4"]  # d5 has no text
    assert data.candidates == {"q1": ["d0", "d1"], "q2": ["d4"]}


def test_in_training_the_judged_documents_are_read(msmarco):
    data = script.read_split(msmarco, "doctrain", is_training=True)

    assert list(data.documents) == ["d0"]
    assert data.candidates is None


def test_without_a_top_100_the_whole_collection_is_read(msmarco):
    (msmarco / "msmarco-docdev-top100").unlink()

    data = script.read_split(msmarco, "docdev", is_training=False)

    assert len(data.documents) == 5
    assert data.candidates is None


@pytest.mark.parametrize(
    ("lines", "culprit"),
    [
        ("q1 0 d1", "msmarco-docdev-qrels.tsv, line 1"),
        ("q7 0 d2 1", "'q7'"),
        ("q1 0 d1 1\nq1 0 d2 high", r"qrels\.tsv, line 2, column 'grade'.*'high'"),
    ],
)
def test_files_that_do_not_fit(lines, culprit, msmarco):
    (msmarco / "msmarco-docdev-qrels.tsv").write_text(lines)

    with pytest.raises(ValueError, match=culprit):
        script.read_split(msmarco, "docdev", is_training=False)


# --- The training


def toy_task(documents=6, **relevant):
    return RetrievalTask(
        "toy",
        queries={query: f"query {query}" for query in relevant},
        documents={f"d{number}": f"document {number}" for number in range(documents)},
        relevant=relevant,
    )


@pytest.mark.parametrize("seed", range(5))
def test_queries_are_held_out_by_their_documents(seed):
    relevant = {"a": {"d0": 1}, "b": {"d0": 1}, "c": {"d1": 1}, "d": {"d2": 1}}
    task = toy_task(**relevant, e={"d3": 1, "d2": 1}, f={"d4": 1})

    train, validation = script.hold_out_queries(task, 0.5, seed)

    for_training = set().union(*train.relevant.values())
    held_out = set().union(*validation.relevant.values())
    assert for_training
    assert held_out
    assert for_training.isdisjoint(held_out)
    assert validation.documents == task.documents  # searched whole


@pytest.fixture
def model(toy_encoder_path):
    torch.manual_seed(3)
    options = {"hidden_size": 16, "num_hidden_layers": 1, "chunk_size": 16}
    return HateModel.from_chunk_encoder(toy_encoder_path, **options)


def make_trainer(task, model, folder, **arguments):
    texts = [*task.queries.values(), *task.documents.values()]
    vectors = dict(zip(texts, torch.randn(len(texts), 5, 32), strict=True))
    args = TrainingArguments(output_dir=str(folder), **arguments)
    sets = {"train": task, "validation": task}
    return script.RankingTrainer(sets, vectors, k=10, model=model, args=args)


def test_the_loss_is_the_cross_entropy_of_twenty_times_the_cosine(model, tmp_path):
    task = toy_task(a={"d0": 1}, b={"d1": 1}, c={"d2": 1})
    trainer = make_trainer(task, model, tmp_path)
    batch = trainer.collate(trainer.train_dataset)

    loss = trainer.compute_loss(model, batch)

    queries = model(**batch["query"]).pooler_output
    documents = model(**batch["document"]).pooler_output
    scores = 20 * F.cosine_similarity(queries[:, None], documents[None], dim=-1)
    close(loss, F.cross_entropy(scores, torch.arange(3)))


def batches(trainer, epoch=0):
    """The pairs of ids in each batch of an epoch."""
    loader = trainer.get_train_dataloader()
    loader.set_epoch(epoch)
    return [[trainer.train_dataset[index] for index in indices] for indices in loader.batch_sampler]


@pytest.mark.parametrize(("stories", "answers", "size"), [(10, 20, 8), (3, 5, 4)])
def test_no_query_and_no_document_stands_twice_in_a_batch(stories, answers, size, model, tmp_path):
    """Answers about a few stories: by chance nearly every batch would hold a story twice."""
    relevant = {f"q{n}": {f"d{n % stories}": 1} for n in range(stories * answers)}
    task = toy_task(documents=stories, **relevant)
    options = {"per_device_train_batch_size": size, "use_cpu": True}
    trainer = make_trainer(task, model, tmp_path, **options)
    size = min(size, stories)

    epochs = [batches(trainer, epoch) for epoch in (0, 1)]

    for epoch in epochs:
        assert len(epoch) == stories * answers // size
        for batch in epoch:
            assert len(batch) == size
            assert len(set().union(*batch)) == 2 * size
    assert epochs[0] != epochs[1]


def test_another_seed_draws_other_batches(model, tmp_path):
    task = toy_task(**{f"q{n}": {f"d{n % 6}": 1} for n in range(24)})
    drawn = [batches(make_trainer(task, model, tmp_path, seed=seed)) for seed in (1, 1, 2)]

    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_the_usual_arguments(tmp_path):
    _, args = script.parse_arguments(["--model", "m", "--data_dir", "d", "--k", "3"])

    assert args.learning_rate == 5e-5
    assert args.metric_for_best_model == "mrr@3"


def test_the_epoch_with_the_highest_score_is_kept(model, tmp_path, monkeypatch):
    """The second evaluation is worse than the first."""
    words = ["--model", "m", "--data_dir", "d", "--output_dir", str(tmp_path)]
    _, args = script.parse_arguments([*words, "--num_train_epochs", "2", "--use_cpu"])
    task = toy_task(a={"d0": 1}, b={"d1": 1}, c={"d2": 1})
    texts = [*task.queries.values(), *task.documents.values()]
    vectors = dict(zip(texts, torch.randn(len(texts), 5, 32), strict=True))
    model.detach_chunk_encoder()
    sets = {"train": task, "validation": task}
    trainer = script.RankingTrainer(sets, vectors, k=10, model=model, args=args)
    scores = iter([0.9, 0.4])
    monkeypatch.setattr(script, "retrieval_scores", lambda *args: {"mrr@10": next(scores)})

    trainer.train()

    assert trainer.state.best_metric == 0.9
    assert trainer.state.best_global_step == 1


# --- The whole script


def write_msmarco(folder):
    """Ten queries to train on; three to test on, whose candidates lack the right document once."""
    words = (*SEA, *BREAD)
    folder.mkdir()
    documents = []
    for number, word in enumerate(words):
        documents.append(f"D{number}\turl\t{word}\tThe {word} came. " + "It was late. " * number)
    (folder / "msmarco-docs.tsv").write_text("\n".join(documents))
    for split, numbers in (("doctrain", range(10)), ("docdev", (2, 5, 8))):
        queries = [f"{split}{number}\tthe {words[number]}" for number in numbers]
        grades = [f"{split}{number} 0 D{number} 1" for number in numbers]
        (folder / f"msmarco-{split}-queries.tsv").write_text("\n".join(queries))
        (folder / f"msmarco-{split}-qrels.tsv").write_text("\n".join(grades))

    candidates = {"docdev2": range(10), "docdev5": range(10), "docdev8": range(4)}
    top = []
    for query, numbers in candidates.items():
        top += [f"{query} Q0 D{number} {number + 1} 1.0 run" for number in numbers]
    (folder / "msmarco-docdev-top100").write_text("\n".join(top))
    return candidates


@pytest.fixture(scope="module")
def ranked(toy_encoder_path, tmp_path_factory):
    """A folder with the files, the model before training, the trained one and its scores."""
    folder = tmp_path_factory.mktemp("ranking")
    write_msmarco(folder / "msmarco")
    torch.manual_seed(3)
    options = {"hidden_size": 16, "num_hidden_layers": 1, "chunk_size": 16}
    HateModel.from_chunk_encoder(toy_encoder_path, **options).save_pretrained(folder / "hate")
    words = f"--model {folder}/hate --data_dir {folder}/msmarco --output_dir {folder}/ranker"
    words += " --num_train_epochs 2 --k 2 --use_cpu --per_device_train_batch_size 4"
    return folder, script.main([*words.split(), "--learning_rate", "0.01"])


def trec_mrr(folder, model, row) -> float:
    """MRR@2 of the candidates by pytrec_eval, from whole texts and nothing of the script."""
    task = script.read_split(folder / "msmarco", "docdev", is_training=False)
    run = {}
    for query, names in task.candidates.items():
        texts = [task.queries[query], *[task.documents[name] for name in names]]
        books = model.encode(texts)
        vectors = torch.stack([book.document for book in books])
        if row == "mean":
            vectors = torch.stack([book.plain.mean(dim=0) for book in books])
        cosines = util.cos_sim(vectors[:1], vectors[1:])[0].tolist()
        ranked = sorted(zip(cosines, names, strict=True), reverse=True)[:2]
        run[query] = {name: cosine for cosine, name in ranked}
    scores = pytrec_eval.RelevanceEvaluator(task.relevant, {"recip_rank"}).evaluate(run)
    return float(np.mean([values["recip_rank"] for values in scores.values()]))


@pytest.mark.parametrize(
    ("row", "checkpoint", "kind"),
    [
        ("hate", "ranker", "document"),
        ("hate, before training", "hate", "document"),
        ("mean of the sentence vectors", "hate", "mean"),
    ],
)
def test_the_table_against_pytrec_eval(row, checkpoint, kind, ranked):
    """The saved model holds its sentence encoder again; rank 2 counts, as `--k 2` says."""
    folder, scores = ranked
    model = HateModel.from_pretrained(folder / checkpoint)

    expected = trec_mrr(folder, model, kind)

    assert scores[row]["mrr@2"] == pytest.approx(expected)
    assert scores[row]["queries"] == 3


def test_bm25_finds_what_is_among_the_candidates(ranked):
    _, scores = ranked
    assert scores["BM25"]["mrr@2"] == pytest.approx(2 / 3)


def test_the_files_of_a_run(ranked):
    folder, scores = ranked
    lines = (folder / "ranker" / "predictions.trec").read_text().splitlines()
    columns = np.array(list(map(str.split, lines))).T.tolist()

    assert columns[0] == ["docdev2"] * 10 + ["docdev5"] * 10 + ["docdev8"] * 4
    assert columns[3][-4:] == ["1", "2", "3", "4"]
    assert {*columns[5]} == {"hate"}
    assert scores["hate"] != scores["hate, before training"]
    card = (folder / "ranker" / "README.md").read_text()
    assert "library_name: nextlevelbert" in card


def test_a_model_without_layers_is_refused(toy_encoder_path, tmp_path):
    plain = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16, pooling="plain")
    plain.save_pretrained(tmp_path / "plain")
    write_msmarco(tmp_path / "msmarco")
    words = ["--model", f"{tmp_path}/plain", "--data_dir", f"{tmp_path}/msmarco"]

    with pytest.raises(ValueError, match="no layers to train"):
        script.main([*words, "--output_dir", str(tmp_path / "out")])
