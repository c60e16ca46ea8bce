"""Ranking: MS MARCO's files, the loss and the batches, and a whole run against pytrec_eval."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
import torch
from accelerate.utils import send_to_device
from sentence_transformers import util
from torch.nn import functional as F
from transformers import TrainingArguments

from nextlevelbert import HateModel, NextLevelBertModel
from nextlevelbert.evaluation import RetrievalTask

from ...toys.vectors import close
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
        documents={f"d{index}": f"document {index}" for index in range(documents)},
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

    batch = send_to_device(batch, trainer.args.device)

    loss = trainer.compute_loss(model, batch)

    queries = model(**batch["query"]).pooler_output
    documents = model(**batch["document"]).pooler_output
    scores = 20 * F.cosine_similarity(queries[:, None], documents[None], dim=-1)
    close(loss, F.cross_entropy(scores, torch.arange(3, device=scores.device)))


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

    first = batches(trainer, epoch=0)
    second = batches(trainer, epoch=1)

    assert first != second
    for epoch in (first, second):
        assert len(epoch) == stories * answers // size
        for batch in epoch:
            assert len(batch) == size
            assert len(set().union(*batch)) == 2 * size


def test_another_seed_draws_other_batches(model, tmp_path):
    task = toy_task(**{f"q{n}": {f"d{n % 6}": 1} for n in range(24)})
    trainer = make_trainer(task, model, tmp_path, seed=1)
    same_seed = make_trainer(task, model, tmp_path, seed=1)
    other_seed = make_trainer(task, model, tmp_path, seed=2)

    drawn = batches(trainer)

    assert batches(same_seed) == drawn
    assert batches(other_seed) != drawn


def test_the_usual_arguments(tmp_path):
    _, args = script.parse_arguments(["--model", "m", "--data_dir", "d", "--k", "3"])

    assert args.learning_rate == 5e-5
    assert args.metric_for_best_model == "mrr@3"


def test_the_epoch_with_the_highest_score_is_kept(model, tmp_path, monkeypatch):
    """The second evaluation is worse than the first."""
    argv = ["--model", "m", "--data_dir", "d", "--output_dir", str(tmp_path)]
    _, args = script.parse_arguments([*argv, "--num_train_epochs", "2", "--use_cpu"])
    task = toy_task(a={"d0": 1}, b={"d1": 1}, c={"d2": 1})
    model.detach_chunk_encoder()
    trainer = make_trainer(task, model, tmp_path)
    trainer.args = args
    scores = iter([0.9, 0.4])
    monkeypatch.setattr(script, "retrieval_scores", lambda *args: {"mrr@10": next(scores)})

    trainer.train()

    assert trainer.state.best_metric == 0.9
    assert trainer.state.best_global_step == 1


# --- The whole script


# Ten queries to train on, three to test on; the candidates of one lack the right document.
TOY = Path(__file__).with_name("toy")


@pytest.fixture(scope="module")
def ranked(toy_encoder_path, tmp_path_factory):
    """The folder of the model before and after training, and the scores."""
    folder = tmp_path_factory.mktemp("ranking")
    torch.manual_seed(3)
    options = {"hidden_size": 16, "num_hidden_layers": 1, "chunk_size": 16}
    HateModel.from_chunk_encoder(toy_encoder_path, **options).save_pretrained(folder / "hate")
    argv = f"--model {folder}/hate --data_dir {TOY} --output_dir {folder}/ranker"
    argv += " --num_train_epochs 2 --learning_rate 0.01 --per_device_train_batch_size 4"
    argv += " --k 2 --use_cpu"
    scores = script.main(argv.split())
    return folder, scores


def vector_of(text, model, kind):
    """The vector of a whole text, with nothing of the script."""
    book = model.encode(text)
    if kind == "mean":
        return book.plain.mean(dim=0)
    return book.document


def trec_mrr(model, kind) -> float:
    """MRR@2 of the candidates by pytrec_eval."""
    task = script.read_split(TOY, "docdev", is_training=False)
    run = {}
    for query, names in task.candidates.items():
        question = vector_of(task.queries[query], model, kind)
        cosines = {}
        for name in names:
            document = vector_of(task.documents[name], model, kind)
            cosines[name] = float(util.cos_sim(question, document))
        best = sorted(cosines, key=cosines.get)[-2:]
        run[query] = {name: cosines[name] for name in best}

    evaluator = pytrec_eval.RelevanceEvaluator(task.relevant, {"recip_rank"})
    scores = evaluator.evaluate(run)
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

    expected = trec_mrr(model, kind)

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


RUN = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.long
def test_a_trained_model_is_uploaded_without_its_texts(ranked, hub, fresh_process, tmp_path):
    folder, _ = ranked
    argv = f"--model {folder}/hate --data_dir {TOY} --output_dir {tmp_path}/ranker --use_cpu"
    argv += " --num_train_epochs 1 --push_to_hub --hub_model_id user/ranker"

    fresh_process(RUN, script.__file__, *argv.split())

    files = hub.files("model", "user/ranker")
    assert {"model.safetensors", "tokenizer.json", "predictions.trec"} <= files.keys()
    assert b"library_name: nextlevelbert" in files["README.md"]
    assert "parquet" not in " ".join(files)


def test_a_model_without_layers_is_refused(toy_encoder_path, tmp_path):
    plain = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16, pooling="plain")
    plain.save_pretrained(tmp_path / "plain")
    argv = f"--model {tmp_path}/plain --data_dir {TOY} --output_dir {tmp_path}/out"

    with pytest.raises(ValueError, match="no layers to train"):
        script.main(argv.split())
