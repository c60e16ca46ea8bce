"""Retrieval scores: against sentence-transformers and scikit-learn, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.util import cos_sim
from sklearn.metrics import average_precision_score

from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from nextlevelbert.evaluation import retrieval as module


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
