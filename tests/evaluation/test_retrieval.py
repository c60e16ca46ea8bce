"""Rankings and their scores: against scikit-learn and TREC's own evaluation, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
import torch
from sklearn.metrics import average_precision_score

from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from nextlevelbert.evaluation import retrieval as module
from nextlevelbert.evaluation.retrieval import trec_run


def task_of(queries: int, documents: int, relevant: dict[int, dict[int, int]]) -> RetrievalTask:
    grades = {
        f"q{query}": {f"d{n}": grade for n, grade in row.items()} for query, row in relevant.items()
    }
    return RetrievalTask(
        "toy",
        {f"q{n}": "?" for n in range(queries)},
        {f"d{n}": "!" for n in range(documents)},
        grades,
    )


def random_task(seed: int) -> tuple[RetrievalTask, torch.Tensor, torch.Tensor]:
    """Twenty queries with one to five relevant documents among 60; queries lean a little towards
    those."""
    draw = np.random.default_rng(seed)
    relevant = {
        query: {
            int(one): int(draw.integers(1, 3))
            for one in draw.choice(60, draw.integers(1, 6), replace=False)
        }
        for query in range(20)
    }
    documents = torch.from_numpy(draw.normal(size=(60, 8)))
    noise = torch.from_numpy(draw.normal(size=(20, 8)))
    queries = (
        torch.stack([documents[list(grades)].mean(dim=0) for grades in relevant.values()])
        + 0.7 * noise
    )
    return task_of(20, 60, relevant), queries, documents


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_trec_eval_and_scikit_learn(seed, monkeypatch):
    monkeypatch.setattr(module, "_SCORES_PER_PASS", 60 * 7)  # three passes
    task, queries, documents = random_task(seed)
    scores = retrieval_scores(rank_documents(task, queries, documents), k=5)
    cosines = torch.cosine_similarity(queries[:, None], documents[None], dim=2).numpy()
    by_document = [dict(zip(task.documents, row, strict=True)) for row in cosines.tolist()]
    run = dict(zip(task.queries, by_document, strict=True))
    relevant = {query: dict(grades) for query, grades in task.relevant.items()}
    measures = {"map": "map", "recip_rank": "mrr", "ndcg_cut_5": "ndcg@5"}
    measures |= {"recall_5": "recall@5", "success_5": "hit_rate@5"}
    rows = pytrec_eval.RelevanceEvaluator(relevant, set(measures)).evaluate(run).values()
    expected = {
        metric: np.mean([row[measure] for row in rows]) for measure, metric in measures.items()
    }
    firsts = np.array([row["recip_rank"] for row in rows])
    assert scores == pytest.approx(
        {**expected, "mrr@5": np.where(firsts >= 0.2, firsts, 0).mean(), "queries": 20}
    )
    assert 0.1 < scores["mrr"] < 0.9  # neither hopeless nor perfect, so that an error would show
    truth = [[grades.get(name, 0) for name in task.documents] for grades in task.relevant.values()]
    precisions = [
        average_precision_score(np.sign(row), cosine)
        for row, cosine in zip(truth, cosines, strict=True)
    ]
    assert scores["map"] == pytest.approx(np.mean(precisions))
    assert retrieval_scores(rank_by_scores(task, cosines), k=5) == pytest.approx(scores)


def test_by_hand():
    task = task_of(2, 5, {0: {1: 1, 3: 2}, 1: {4: 1}})
    rankings = rank_by_scores(
        task, np.asarray([[0.9, 0.5, 0.7, 0.1, 0.3], [0.1, 0.2, 0.3, 0.4, 0.5]])
    )
    assert {query: ranking.ranks.tolist() for query, ranking in rankings.items()} == {
        "q0": [3, 5],
        "q1": [1],
    }
    assert rankings["q0"].grades.tolist() == [1, 2]
    scores = {
        "mrr": 2 / 3,
        "mrr@3": 2 / 3,
        "hit_rate@3": 1.0,
        "map": ((1 / 3 + 2 / 5) / 2 + 1) / 2,
        "queries": 2,
    }
    scores |= {"recall@3": (1 / 2 + 1) / 2, "ndcg@3": ((1 / 2) / (2 + 1 / np.log2(3)) + 1) / 2}
    assert retrieval_scores(rankings, k=3) == pytest.approx(scores)
    assert retrieval_scores(rankings, k=2)["mrr@2"] == 0.5


def test_a_run_has_the_first_hundred_documents_in_trec_s_format():
    task = task_of(1, 3, {0: {1: 1}})
    rankings = rank_by_scores(task, np.asarray([[0.5, 0.5, 0.9]]))
    assert trec_run(rankings, "my model").splitlines() == [
        "q0 Q0 d2 1 0.900000000 my-model",
        "q0 Q0 d0 2 0.500000000 my-model",
        "q0 Q0 d1 3 0.500000000 my-model",  # the relevant one comes last in a tie
    ]
    large = task_of(2, 101, {0: {1: 1}, 1: {2: 1}})
    rankings = rank_by_scores(large, np.arange(202.0).reshape(2, 101))
    assert [ranking.documents[-1] for ranking in rankings.values()] == ["d1", "d1"]
    assert [len(ranking.scores) for ranking in rankings.values()] == [100, 100]


def test_a_document_is_not_the_answer_to_itself():
    texts = {"a": "one", "b": "two", "c": "three"}
    task = RetrievalTask(
        "chapters", texts, texts, {"a": {"a": 1, "b": 1}, "b": {"c": 1}, "c": {"a": 1}}
    )
    vectors = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    rankings = rank_documents(task, vectors, vectors)
    # Without themselves, b (0.8 to a, 0.6 to c) has c second, and c (0 to a, 0.6 to b) has a
    # second.
    assert {query: ranking.ranks.tolist() for query, ranking in rankings.items()} == {
        "a": [1],
        "b": [2],
        "c": [2],
    }


@pytest.mark.parametrize("lengths", [torch.zeros(60), torch.linspace(0.5, 1.5, 60)])
def test_a_constant_vector_gets_the_worst_scores_there_are(lengths):
    """The last one only up to its length: its cosines differ in the last bits, by rounding."""
    task, queries, _ = random_task(0)
    rankings = rank_documents(
        task, queries, lengths.double()[:, None] * torch.randn(8, dtype=torch.float64)
    )
    for query, ranking in rankings.items():
        assert ranking.ranks.tolist() == list(range(61 - len(task.relevant[query]), 61))
    assert retrieval_scores(rankings)["hit_rate@10"] == 0


def test_ties_count_against_relevant_documents_and_most_against_the_best():
    task = task_of(1, 6, {0: {1: 2, 2: 1, 4: 1}})
    [ranking] = rank_by_scores(task, np.asarray([[0.5, 0.5, 0.9, 0.5, 0.5, 0.1]])).values()
    # 2 comes first; 0 and 3 before 4 and 1, with which they tie; 5 is last.
    assert ranking.ranks.tolist() == [1, 4, 5]
    assert ranking.grades.tolist() == [1, 1, 2]


def test_ranking_candidates_is_ranking_a_smaller_pool():
    task = task_of(2, 6, {0: {0: 1, 3: 1}, 1: {5: 1}})
    torch.manual_seed(0)
    queries, documents = torch.randn(2, 4), torch.randn(6, 4)
    rankings = rank_documents(
        task, queries, documents, {"q0": ["d3", "d1", "d2"], "q1": ["d0", "d1"]}
    )
    cosines = torch.cosine_similarity(queries[:1], documents[[3, 1, 2]])
    assert rankings["q0"].ranks.tolist() == [
        1 + int((cosines > cosines[0]).sum()),
        np.inf,
    ]  # d0 is no candidate
    assert rankings["q1"].ranks.tolist() == [np.inf]
    scores = retrieval_scores(rankings)
    assert scores["mrr@10"] == pytest.approx(1 / rankings["q0"].ranks[0] / 2)
    assert scores["recall@10"] == pytest.approx(0.25)


def test_what_cannot_be_ranked():
    task, queries, documents = random_task(0)
    documents[3, 1] = float("nan")
    with pytest.raises(ValueError, match="'d3'"):
        rank_documents(task, queries, documents)
    with pytest.raises(ValueError, match=r"\(60, 20\)"):
        rank_by_scores(task, np.zeros((60, 20)))


@pytest.mark.parametrize(
    ("relevant", "culprit"),
    [({"a": 1, "q": 0}, "'b'"), ({"q": 1}, "'q'"), ({"z": 1}, "'z'"), ({"a": 0}, "0")],
)
def test_relevance_that_does_not_fit(relevant, culprit):
    judged = {"q": {"a": 1}} if culprit == "'b'" else {"q": relevant, "b": {"a": 1}}
    with pytest.raises(ValueError, match=culprit):
        RetrievalTask("toy", {"q": "?", "b": "!"}, {"a": "A", "q": "B"}, judged)
