"""Runs and nDCG: against scikit-learn and TREC's own evaluation, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
import torch
from sklearn.metrics import ndcg_score

from nextlevelbert.evaluation import (
    RetrievalTask,
    ndcg,
    rank_by_scores,
    retrieval_scores,
    run_by_scores,
    run_documents,
    write_run,
)

from .test_retrieval import random_task, task_of


@pytest.mark.parametrize("k", [1, 5, 60])
@pytest.mark.parametrize("seed", range(2))
def test_ndcg_is_that_of_scikit_learn(seed, k):
    task, queries, documents = random_task(seed)
    scores = torch.nn.functional.cosine_similarity(queries[:, None], documents[None], dim=2).numpy()
    truth = [[found.get(name, 0) for name in task.documents] for found in task.relevant.values()]
    run = run_by_scores(task, scores)
    assert ndcg(task, run, k) == pytest.approx(ndcg_score(truth, scores, k=k))
    assert 0.05 < ndcg(task, run, k) < 0.95
    same = run_documents(task, queries, documents)
    assert {query: list(found) for query, found in same.items()} == {
        query: list(found) for query, found in run.items()
    }


def test_a_run_file_scores_the_same_in_trec_eval(tmp_path):
    task, queries, documents = random_task(5)
    run = run_documents(task, queries, documents)
    path = tmp_path / "runs" / "toy.run"
    write_run(path, run, "our model")
    [first, *_] = path.read_text().splitlines()
    name, score = next(iter(run["q0"].items()))
    assert first == f"q0 Q0 {name} 1 {score:.9g} our_model"
    with path.open() as file:
        read = pytrec_eval.parse_run(file)
    relevant = {query: dict(found) for query, found in task.relevant.items()}
    found = pytrec_eval.RelevanceEvaluator(relevant, {"ndcg_cut_10", "map", "recip_rank"}).evaluate(read)
    theirs = {
        name: np.mean([scores[name] for scores in found.values()]) for name in ("ndcg_cut_10", "map", "recip_rank")
    }
    scores = torch.nn.functional.cosine_similarity(queries[:, None], documents[None], dim=2).numpy()
    ours = retrieval_scores(rank_by_scores(task, scores))
    assert theirs == pytest.approx({"ndcg_cut_10": ndcg(task, run), "map": ours["map"], "recip_rank": ours["mrr"]})


def test_a_run_file_is_whole_or_the_one_before(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    write_run(tmp_path / "toy.run", {"q": {"d": 1.0}}, "first")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_run(tmp_path / "toy.run", {"q": {"d": 2.0}}, "second")
    assert [path.name for path in tmp_path.iterdir()] == ["toy.run"]
    assert (tmp_path / "toy.run").read_text() == "q Q0 d 1 1 first\n"


def test_by_hand():
    task = task_of(1, 5, {0: {1: 1, 3: 2}})
    run = run_by_scores(task, np.array([[0.9, 0.5, 0.7, 0.1, 0.3]]), depth=3)
    assert run == {"q0": {"d0": 0.9, "d2": 0.7, "d1": 0.5}}
    assert ndcg(task, run, 3) == pytest.approx((1 / 2) / (2 + 1 / np.log2(3)))  # d1 is third
    assert ndcg(task, run, 2) == 0.0


def test_ties_count_against_the_relevant_and_a_document_does_not_find_itself():
    texts = dict.fromkeys("abcd", "text")
    task = RetrievalTask("toy", {"a": "text"}, texts, {"a": {"a": 1, "b": 2, "c": 1}})
    run = run_by_scores(task, np.ones((1, 4)))
    assert list(run["a"]) == ["d", "c", "b"]
    assert list(run_by_scores(task, np.ones((1, 4)), depth=2)["a"]) == ["d", "c"]
    assert ndcg(task, run, 3) == pytest.approx((1 / np.log2(3) + 2 / 2) / (2 + 1 / np.log2(3)))


def test_what_cannot_be_scored_or_written(tmp_path):
    task = task_of(2, 3, {0: {1: 1}, 1: {2: 1}})
    run = run_by_scores(task, np.eye(2, 3))
    with pytest.raises(ValueError, match="k must be 1 or more, got 0"):
        ndcg(task, run, 0)
    with pytest.raises(ValueError, match=r"no documents for 1 queries of task 'toy': \['q1'\]"):
        ndcg(task, {"q0": run["q0"]})
    with pytest.raises(ValueError, match="depth must be 1 or more, got 0"):
        run_by_scores(task, np.eye(2, 3), depth=0)
    with pytest.raises(ValueError, match="cannot hold the id 'two words'"):
        write_run(tmp_path / "x.run", {"q": {"two words": 1.0}}, "x")
    assert not (tmp_path / "x.run").exists()
