"""Rankings and their scores: against TREC's own evaluation, and by hand."""

from dataclasses import replace

import numpy as np
import pytest
import pytrec_eval
import torch

from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from nextlevelbert.evaluation import retrieval as module
from nextlevelbert.evaluation.retrieval import trec_run


def task_of(queries: int, documents: int, relevant: dict[int, dict[int, int]]) -> RetrievalTask:
    grades: dict[str, dict[str, int]] = {}
    for query, row in relevant.items():
        grades[f"q{query}"] = {f"d{document}": grade for document, grade in row.items()}
    return RetrievalTask(
        "toy",
        queries=dict.fromkeys(map("q{}".format, range(queries)), "?"),
        documents=dict.fromkeys(map("d{}".format, range(documents)), "!"),
        relevant=grades,
    )


def random_task(seed: int) -> tuple[RetrievalTask, torch.Tensor, torch.Tensor]:
    """Twenty queries with one to five relevant documents among 60; queries lean a little towards
    those."""
    rng = np.random.default_rng(seed)
    documents = torch.from_numpy(rng.normal(size=(60, 8)))
    queries = torch.from_numpy(0.7 * rng.normal(size=(20, 8)))
    relevant = {}
    for query in range(20):
        chosen = rng.choice(60, rng.integers(1, 6), replace=False).tolist()
        relevant[query] = dict(zip(chosen, rng.integers(1, 3, len(chosen)).tolist(), strict=True))
        queries[query] += documents[chosen].mean(dim=0)
    return task_of(20, 60, relevant), queries, documents


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_trec_eval(seed, monkeypatch):
    monkeypatch.setattr(module, "_SCORES_PER_PASS", 60 * 7)  # three passes
    task, queries, documents = random_task(seed)
    scores = retrieval_scores(rank_documents(task, queries, documents), k=5)
    assert 0.1 < scores["mrr"] < 0.9  # neither hopeless nor perfect, so that an error would show
    cosines = torch.cosine_similarity(queries[:, None], documents[None], dim=2).numpy()
    assert retrieval_scores(rank_by_scores(task, cosines), k=5) == pytest.approx(scores)

    run = {}
    for query, row in zip(task.queries, cosines, strict=True):
        run[query] = dict(zip(task.documents, row.tolist(), strict=True))

    measures = {"map": "map", "recip_rank": "mrr", "ndcg_cut_5": "ndcg@5"}
    measures |= {"recall_5": "recall@5", "success_5": "hit_rate@5"}
    by_query = pytrec_eval.RelevanceEvaluator(task.relevant, set(measures)).evaluate(run)
    for measure, name in measures.items():
        values = np.array([row[measure] for row in by_query.values()])
        assert scores[name] == pytest.approx(values.mean())
        if name == "mrr":
            assert scores["mrr@5"] == pytest.approx(np.where(values >= 0.2, values, 0).mean())
    assert scores["queries"] == 20


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
    for ranking in rankings.values():
        assert ranking.documents[-1] == "d1"
        assert len(ranking.scores) == len(ranking.documents) == 100


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
    candidates = {"q0": ["d3", "d1", "d2"], "q1": ["d0", "d1"]}
    task = replace(task_of(2, 6, {0: {0: 1, 3: 1}, 1: {5: 1}}), candidates=candidates)
    torch.manual_seed(0)
    queries = torch.randn(2, 4)
    documents = torch.randn(6, 4)
    rankings = rank_documents(task, queries, documents)
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
    [
        ({"q": {"a": 1}}, "'b'"),
        ({"q": {"q": 1}, "b": {"a": 1}}, "'q'"),
        ({"q": {"z": 1}, "b": {"a": 1}}, "'z'"),
        ({"q": {"a": 0}, "b": {"a": 1}}, "0"),
    ],
)
def test_relevance_that_does_not_fit(relevant, culprit):
    documents = {"a": "A", "q": "B"}
    with pytest.raises(ValueError, match=culprit):
        RetrievalTask("toy", {"q": "?", "b": "!"}, documents=documents, relevant=relevant)
