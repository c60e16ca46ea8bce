"""Document retrieval: the order of a pool for each query, and the scores that follow from it.

Notation for shapes: Q queries, N documents in the pool, D size of a vector, r relevant documents of
a query.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

_SCORES_PER_PASS = 2**22  # float64 numbers, 32 MiB
_DECIMALS = (
    9  # of a cosine: equal vectors may differ in the last bit, by their place in a matrix product
)


@dataclass(frozen=True)
class RetrievalTask:
    """Queries, the pool of documents to search, and which documents answer which query.

    A query whose id is also a document's id is never its own answer: that document is left out of
    the query's pool. So a pool can be searched with its own documents.

    Args:
        queries, documents: id → text.
        relevant: query id → document id → grade, a whole number from 1 upwards; every query needs
            one, of the pool.

    Example:
        >>> task = RetrievalTask("toy", {"q": "a whale"}, {"a": "Moby-Dick", "b": "Emma"}, {"q": {"a": 1}})
        >>> retrieval_scores(rank_documents(task, [[1.0, 0.0]], [[0.9, 0.1], [0.0, 1.0]]))["mrr"]
        1.0
    """

    name: str
    queries: Mapping[str, str]
    documents: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]

    def __post_init__(self) -> None:
        if not self.queries:
            raise ValueError(f"Task {self.name!r} has no queries.")
        for query in self.queries:
            grades = self.relevant.get(query, {})
            if not set(grades) - {query}:
                raise ValueError(
                    f"Query {query!r} of task {self.name!r} has no relevant document; leave it out."
                )
            for document, grade in grades.items():
                where = f"document {document!r}, relevant for query {query!r} of task {self.name!r}"
                if document not in self.documents:
                    raise ValueError(f"The {where}, is not in its pool.")
                if not isinstance(grade, int) or grade < 1:
                    raise ValueError(
                        f"Grades are whole numbers from 1, got {grade!r} for {where}; leave it out."
                    )


class Ranking(NamedTuple):
    """Ranks ``[r]`` of a query's relevant documents, from 1, rising (infinity where not ranked),
    and their grades."""

    ranks: np.ndarray
    grades: np.ndarray


def rank_documents(
    task: RetrievalTask,
    query_vectors: Any,
    document_vectors: Any,
    candidates: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Ranking]:
    """Ranks the pool for each query by cosine, which is computed in float64, some queries at a
    time.

    A tie counts against the model: among documents with the same cosine, to nine decimals, the
    relevant ones come last, those of higher grades after those of lower ones. So a model that gives
    every document the same vector gets the worst scores there are, not perfect ones. A zero vector
    has cosine 0 with everything.

    Args:
        query_vectors, document_vectors: ``[Q, D]`` and ``[N, D]``, in the order of the task's ids.
        candidates: query id → the documents to rank for it, in place of the whole pool. A relevant
            document that is not among them has rank infinity, and counts 0 in every score.
    """
    queries, documents = (
        _unit_vectors(query_vectors, task.queries),
        _unit_vectors(document_vectors, task.documents),
    )
    parts = queries.split(max(_SCORES_PER_PASS // len(documents), 1))
    rows = (row for part in parts for row in np.round((part @ documents.T).numpy(), _DECIMALS))
    return _rank(task, rows, candidates)


def rank_by_scores(task: RetrievalTask, scores: np.ndarray) -> dict[str, Ranking]:
    """As `rank_documents`, from ready scores ``[Q, N]`` (of `chunk_similarity`, say) in the order
    of the task."""
    if np.shape(scores) != (shape := (len(task.queries), len(task.documents))):
        raise ValueError(
            f"scores of task {task.name!r} must be [queries, documents] {shape}, got"
            f" {np.shape(scores)}."
        )
    if not np.isfinite(scores).all():
        raise ValueError(f"scores of task {task.name!r} contain NaN or infinity.")
    return _rank(task, np.asarray(scores), None)


def _unit_vectors(vectors: Any, ids: Mapping[str, str]) -> torch.Tensor:
    """Vectors ``[n, D]`` of length 1 in float64 on the CPU; zero vectors stay zero."""
    rows = vectors if isinstance(vectors, torch.Tensor) else torch.from_numpy(np.asarray(vectors))
    if rows.ndim != 2 or len(rows) != len(ids):
        raise ValueError(
            f"Give a vector for each of the {len(ids)} ids, in the task's order; got"
            f" {[*rows.shape]}."
        )
    rows = rows.detach().cpu().double()
    if bad := (~torch.isfinite(rows).all(dim=1)).nonzero().flatten().tolist():
        raise ValueError(
            f"The vector of {list(ids)[bad[0]]!r} contains NaN or infinity; encode it again."
        )
    return F.normalize(rows, dim=1)


def _rank(
    task: RetrievalTask,
    scores: Iterable[np.ndarray],
    candidates: Mapping[str, Collection[str]] | None,
) -> dict[str, Ranking]:
    ids = list(task.documents)
    place = {document: number for number, document in enumerate(ids)}
    rankings = {}
    for query, row in zip(task.queries, scores, strict=True):
        relevant = {
            place[name]: grade for name, grade in task.relevant[query].items() if name != query
        }
        grades = np.zeros(len(ids), dtype=np.int64)
        grades[list(relevant)] = list(relevant.values())
        pool = np.arange(len(ids))
        if candidates is not None:
            pool = np.array(sorted({place[name] for name in candidates[query]}), dtype=np.int64)
        pool = pool[pool != place.get(query, -1)]
        order = pool[
            np.lexsort((grades[pool], -row[pool]))
        ]  # by score, in a tie the lower grade first
        ranks = np.flatnonzero(grades[order])  # [r], from 0
        missing = sorted(set(relevant) - set(order[ranks].tolist()))
        rankings[query] = Ranking(
            np.concatenate([ranks + 1.0, np.full(len(missing), np.inf)]),
            np.concatenate([grades[order[ranks]], grades[missing]]),
        )
    return rankings


def retrieval_scores(rankings: Mapping[str, Ranking], k: int = 10) -> dict[str, float]:
    """The usual scores by name, each the mean over all queries, from 0 to 1, and the number of
    ``queries``.

    ``mrr`` is 1 / rank of the first relevant document, over the whole ranking; ``mrr@k`` counts 0
    where that rank is above k; ``hit_rate@k`` (also called accuracy@k) tells whether it is not;
    ``map`` is the mean of precision at the rank of every relevant document; ``recall@k`` the share
    of them among the first k. In ``ndcg@k`` a document of grade g at rank r adds g / log2(r + 1),
    as in trec_eval, and the sum is divided by that of the best possible order (Järvelin and
    Kekäläinen 2002).
    """
    first = np.array([ranking.ranks[0] for ranking in rankings.values()])  # [Q]
    precision = [np.mean(np.arange(1, len(ranks) + 1) / ranks) for ranks, _ in rankings.values()]
    gains = [
        _gain(grades, ranks, k) / _gain(np.sort(grades)[::-1], None, k)
        for ranks, grades in rankings.values()
    ]
    return {
        "mrr": float(np.mean(1 / first)),
        f"mrr@{k}": float(np.mean(np.where(first <= k, 1 / first, 0.0))),
        f"hit_rate@{k}": float(np.mean(first <= k)),
        "map": float(np.mean(precision)),
        f"recall@{k}": float(
            np.mean([np.mean(ranking.ranks <= k) for ranking in rankings.values()])
        ),
        f"ndcg@{k}": float(np.mean(gains)),
        "queries": float(len(rankings)),
    }


def _gain(grades: np.ndarray, ranks: np.ndarray | None, k: int) -> float:
    places = np.arange(1, len(grades) + 1) if ranks is None else ranks
    return sum(
        grade / math.log2(rank + 1) for grade, rank in zip(grades, places, strict=True) if rank <= k
    )
