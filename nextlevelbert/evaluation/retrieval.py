"""Document retrieval: the order of a pool for each query, and the scores that follow from it.

Notation for shapes: Q queries, N documents in the pool, D size of a vector, r relevant documents of
a query.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

_SCORES_PER_PASS = 2**22  # float64 numbers, 32 MiB
# Cosines of equal vectors may differ in the last bit, by their position in a matrix product.
_DECIMALS = 9
_LISTED = 100  # documents of a query in a run file, as in MS MARCO's "top100"

Vectors = torch.Tensor | np.ndarray | Sequence[Sequence[float]]


@dataclass(frozen=True)
class RetrievalTask:
    """Holds queries, the pool of documents to search, and which documents answer which query.

    A query whose id is also the id of a document is never its own answer: that document is left out
    of the query's pool. So a pool can be searched with its own documents.

    Args:
        name: the name of the task in tables.
        queries: id → text.
        documents: id → text.
        relevant: query id → document id → grade, a whole number from 1 upwards. Every query needs a
            relevant document in the pool.
        candidates: query id → the documents to rank for the query; by default the whole pool. A
            relevant document that is no candidate has rank infinity, and counts 0 in every score.

    Raises:
        ValueError: a query or document does not fit; the message names it.

    Example:
        >>> queries, documents = {"q": "a whale"}, {"a": "Moby-Dick", "b": "Emma"}
        >>> task = RetrievalTask("toy", queries, documents, relevant={"q": {"a": 1}})
        >>> retrieval_scores(rank_documents(task, [[1.0, 0.0]], [[0.9, 0.1], [0.0, 1.0]]))["mrr"]
        1.0
    """

    name: str
    queries: Mapping[str, str]
    documents: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]
    candidates: Mapping[str, Collection[str]] | None = None

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
                name = f"document {document!r}, relevant for query {query!r} of task {self.name!r}"
                if document not in self.documents:
                    raise ValueError(f"The {name}, is not among the task's documents.")
                if not isinstance(grade, Integral) or grade < 1:  # of numpy, too
                    raise ValueError(
                        f"Grades are whole numbers from 1, got {grade!r} for {name}; leave it out."
                    )


class Ranking(NamedTuple):
    """Holds the order of the pool for one query.

    Attributes:
        ranks: rank of each of the r relevant documents, from 1, ascending, ``[r]``; infinity for a
            relevant document that is not a candidate.
        grades: grade of each relevant document, in the order of `ranks`, ``[r]``.
        documents: ids of the first 100 documents, in order.
        scores: scores of these documents.
    """

    ranks: np.ndarray
    grades: np.ndarray
    documents: list[str]
    scores: np.ndarray


def rank_documents(
    task: RetrievalTask,
    query_vectors: Vectors,
    document_vectors: Vectors,
) -> dict[str, Ranking]:
    """Ranks the pool for each query by cosine, in float64, some queries at a time.

    A tie counts against the model: among documents with the same cosine, to nine decimals, relevant
    documents come last, and the higher their grade, the later. A model that gives every document
    the same vector therefore gets the worst possible scores instead of perfect scores. A zero
    vector has cosine 0 with every vector.

    Args:
        task: the queries and the pool.
        query_vectors: vectors of the queries, ``[Q, D]``, in the order of the task's ids.
        document_vectors: vectors of the documents, ``[N, D]``, in the order of the task's ids.

    Returns:
        The ranking of each query, by its id.

    Raises:
        ValueError: for vectors that are not finite, or too few or too many.
    """
    queries = _unit_vectors(query_vectors, task.queries)
    documents = _unit_vectors(document_vectors, task.documents)
    queries_per_pass = max(_SCORES_PER_PASS // len(documents), 1)

    def cosines() -> Iterable[np.ndarray]:
        for some_queries in queries.split(queries_per_pass):
            yield from np.round((some_queries @ documents.T).numpy(), _DECIMALS)

    return _rank(task, cosines())


def rank_by_scores(task: RetrievalTask, scores: np.ndarray) -> dict[str, Ranking]:
    """Ranks the pool for each query by scores, for example BM25's.

    Args:
        task: the queries and the pool.
        scores: score of each document for each query, ``[Q, N]``, in the order of the task's ids.
            Ties are resolved as in `rank_documents`.

    Returns:
        The ranking of each query, by its id.

    Raises:
        ValueError: for scores of another shape, or that are not finite.
    """
    shape = (len(task.queries), len(task.documents))
    if np.shape(scores) != shape:
        raise ValueError(
            f"scores of task {task.name!r} must be [queries, documents] {shape}, got"
            f" {np.shape(scores)}."
        )
    if not np.isfinite(scores).all():
        raise ValueError(f"scores of task {task.name!r} contain NaN or infinity.")
    return _rank(task, np.asarray(scores))


def _unit_vectors(vectors: Vectors, ids: Mapping[str, str]) -> torch.Tensor:
    """Returns vectors ``[n, D]`` of length 1 in float64 on the CPU; zero vectors stay zero."""
    if isinstance(vectors, torch.Tensor):
        rows = vectors.detach().cpu()
    else:
        rows = torch.from_numpy(np.asarray(vectors))

    if rows.ndim != 2 or len(rows) != len(ids):
        raise ValueError(
            f"Give a vector for each of the {len(ids)} ids, in the task's order; got"
            f" {[*rows.shape]}."
        )

    rows = rows.double()
    is_finite = torch.isfinite(rows).all(dim=1)
    if not is_finite.all():
        first = int((~is_finite).nonzero()[0])
        raise ValueError(
            f"The vector of {list(ids)[first]!r} contains NaN or infinity; encode it again."
        )

    return F.normalize(rows, dim=1)


def _rank(task: RetrievalTask, scores: Iterable[np.ndarray]) -> dict[str, Ranking]:
    """Ranks by rows ``[N]`` of scores, one for each query."""
    ids = list(task.documents)
    index_of = {document: index for index, document in enumerate(ids)}
    rankings = {}
    for query, row in zip(task.queries, scores, strict=True):
        grades = np.zeros(len(ids), dtype=np.int64)
        for document, grade in task.relevant[query].items():
            grades[index_of[document]] = grade

        # The pool has all documents, or the candidates, but never the query itself.
        in_pool = np.full(len(ids), task.candidates is None)
        if task.candidates is not None:
            in_pool[[index_of[document] for document in task.candidates[query]]] = True
        if query in index_of:
            in_pool[index_of[query]] = False
            grades[index_of[query]] = 0
        pool = np.flatnonzero(in_pool)

        # The highest score comes first; of equal scores, that of the lowest grade.
        order = pool[np.lexsort((grades[pool], -row[pool]))]
        positions = np.flatnonzero(grades[order])  # of relevant documents, from 0
        unranked = np.flatnonzero((grades > 0) & ~in_pool)  # relevant, but no candidates
        relevant = np.concatenate([order[positions], unranked])
        listed = order[:_LISTED]
        rankings[query] = Ranking(
            ranks=np.concatenate([positions + 1.0, np.full(len(unranked), np.inf)]),
            grades=grades[relevant],
            documents=[ids[index] for index in listed],
            scores=row[listed],
        )

    return rankings


def trec_run(rankings: Mapping[str, Ranking], name: str) -> str:
    """Returns ranked lists in TREC's format, which `trec_eval`, `ranx` and others read.

    Args:
        rankings: query id → ranking, from `rank_documents` or `rank_by_scores`.
        name: the name of the run; white space becomes ``-``.

    Returns:
        One line for each query and each of its first 100 documents: ``query Q0 document rank score
        name``.
    """
    tag = "-".join(name.split())
    lines = []
    for query, ranking in rankings.items():
        pairs = zip(ranking.documents, ranking.scores, strict=True)
        for rank, (document, score) in enumerate(pairs, start=1):
            lines.append(f"{query} Q0 {document} {rank} {score:.{_DECIMALS}f} {tag}")
    return "\n".join(lines)


def retrieval_scores(rankings: Mapping[str, Ranking], k: int = 10) -> dict[str, float]:
    """Computes the usual scores, each from 0 to 1 and the mean over all queries.

    Args:
        rankings: query id → ranking, from `rank_documents` or `rank_by_scores`.
        k: the cut-off rank.

    Returns:
        ``mrr``: 1 / rank of the first relevant document, over the whole ranking. ``mrr@k`` counts
        0 if that rank is above k. ``hit_rate@k`` (also called accuracy@k) counts 1 if it is not.
        ``map``: the mean of precision at the rank of every relevant document. ``recall@k``: the
        share of relevant documents among the first k. ``ndcg@k``: a document of grade g at rank r
        adds g / log2(r + 1), as in trec_eval, and the sum is divided by the sum of the best
        possible order (Järvelin and Kekäläinen 2002). ``queries``: the number of queries.
    """
    rows = [_scores_of_query(ranking, k) for ranking in rankings.values()]
    scores = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    scores["queries"] = float(len(rankings))
    return scores


def _scores_of_query(ranking: Ranking, k: int) -> dict[str, float]:
    ranks = ranking.ranks
    reciprocal = 1 / ranks[0]
    is_hit = ranks[0] <= k
    reciprocal_at_k = 0.0
    if is_hit:
        reciprocal_at_k = reciprocal

    count = np.arange(1, len(ranks) + 1)
    best_order = np.sort(ranking.grades)[::-1]
    best_gain = _gain(best_order, ranks=count, k=k)
    return {
        "mrr": reciprocal,
        f"mrr@{k}": reciprocal_at_k,
        f"hit_rate@{k}": is_hit,
        "map": np.mean(count / ranks),
        f"recall@{k}": np.mean(ranks <= k),
        f"ndcg@{k}": _gain(ranking.grades, ranks=ranks, k=k) / best_gain,
    }


def _gain(grades: np.ndarray, ranks: np.ndarray, k: int) -> float:
    pairs = zip(grades, ranks, strict=True)
    return sum(grade / math.log2(rank + 1) for grade, rank in pairs if rank <= k)
