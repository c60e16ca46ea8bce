"""Document retrieval: which rank the relevant documents get among all, and the scores that follow from it.

Two steps: vectors or scores to ranks, ranks to scores, so that one pass over a pool serves every metric.

Notation for shapes: Q queries, N documents in the pool, D size of a vector, r relevant documents of a query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from tqdm.auto import tqdm

# Scores in memory at once: 2**22 float64 numbers are 32 MiB, and a pool of 100,000 documents takes 40 queries a time.
_SCORES_PER_PASS = 2**22

# Cosines that differ by less are one: equal vectors may differ in the last bit, by their place in a matrix product.
_DECIMALS = 9

# Most ids that a message names.
_NAMED = 5


@dataclass(frozen=True)
class RetrievalTask:
    """Queries, the pool of documents to search, and which documents answer which query.

    A query whose id is also a document's id is never its own answer: that document is left out of the
    query's pool. So a pool can be searched with its own documents.

    Args:
        name: for tables and file names.
        queries: query id → text.
        documents: document id → text.
        relevant: query id → document id → grade, a whole number from 1 upwards.

    Raises:
        ValueError: naming the ids, for a query without a relevant document (itself does not count), a
            relevant document that is not in the pool, judgements of an unknown query, or a grade below 1.

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
        if not self.queries or not self.documents:
            raise ValueError(
                f"Task {self.name!r} has {len(self.queries)} queries and {len(self.documents)} documents."
            )
        if unknown := [query for query in self.relevant if query not in self.queries]:
            raise ValueError(f"Task {self.name!r} has judgements of queries it does not have: {_names(unknown)}.")
        judged = [(query, document) for query, grades in self.relevant.items() for document in grades]
        if missing := [pair for pair in judged if pair[1] not in self.documents]:
            raise ValueError(
                f"Relevant documents of task {self.name!r} are not in its pool: "
                f"{_names(f'{document} (of query {query})' for query, document in missing)}."
            )
        for query, document in judged:
            grade = self.relevant[query][document]
            if not isinstance(grade, int) or grade < 1:
                raise ValueError(
                    f"Grades must be whole numbers of at least 1, got {grade!r} for query {query!r} and document "
                    f"{document!r} of task {self.name!r}; leave out what is not relevant."
                )
        if alone := [query for query in self.queries if not set(self.relevant.get(query, ())) - {query}]:
            raise ValueError(
                f"Queries of task {self.name!r} have no relevant document: {_names(alone)}. Leave such queries out."
            )


# Query id → the ranks ``[r]`` of its relevant documents, from 1, rising.
Ranks = dict[str, np.ndarray]


def rank_documents(
    task: RetrievalTask,
    query_vectors: torch.Tensor | np.ndarray | Iterable,
    document_vectors: torch.Tensor | np.ndarray | Iterable,
    grades: Collection[int] | None = None,
    candidates: Mapping[str, Collection[str]] | None = None,
) -> Ranks:
    """Ranks of the relevant documents by cosine, which is computed in float64, some queries at a time.

    A tie counts against the model: among documents with the same cosine the relevant ones come last. So a
    model that gives every document the same vector gets the worst scores there are, not perfect ones.
    Cosines are equal if they agree to nine decimals; a zero vector has cosine 0 with everything.

    Args:
        task: what to search for.
        query_vectors: ``[Q, D]`` in the order of `task.queries`.
        document_vectors: ``[N, D]`` in the order of `task.documents`.
        grades: only documents of these grades are relevant, all others are not; queries without one are left
            out. All grades by default.
        candidates: query id → the documents to rank for it, in place of the whole pool. A relevant document that
            is not among them has rank infinity, and counts 0 in every score.

    Returns:
        For each query id the ranks ``[r]`` of its relevant documents, from 1, rising.

    Raises:
        ValueError: for vectors of another number or size, NaN or infinity (ids named), or unused grades.
    """
    return _ranks(task, passes_of_vectors(task, query_vectors, document_vectors), grades, candidates)


def rank_by_scores(task: RetrievalTask, scores: np.ndarray, grades: Collection[int] | None = None) -> Ranks:
    """As `rank_documents`, from ready scores ``[Q, N]`` (of `tfidf_scores`, say), in the order of the task's ids."""
    return _ranks(task, passes_of_scores(task, scores), grades)


def passes_of_vectors(task: RetrievalTask, query_vectors: Any, document_vectors: Any) -> Iterator[np.ndarray]:
    """Cosines ``[q, N]`` of some queries at a time, in the order of the task; arguments as for `rank_documents`."""
    queries = _unit_vectors(query_vectors, list(task.queries), f"query_vectors of task {task.name!r}")
    documents = _unit_vectors(document_vectors, list(task.documents), f"document_vectors of task {task.name!r}")
    if queries.shape[1] != documents.shape[1]:
        raise ValueError(
            f"Vectors of queries and documents must have the same size, got {queries.shape[1]} and "
            f"{documents.shape[1]}."
        )
    for part in queries.split(_queries_per_pass(len(documents))):
        yield np.round((part @ documents.T).numpy(), _DECIMALS)


def passes_of_scores(task: RetrievalTask, scores: np.ndarray) -> Iterator[np.ndarray]:
    """Rows ``[q, N]`` of ready scores ``[Q, N]``, checked, some queries at a time."""
    shape = (len(task.queries), len(task.documents))
    if np.shape(scores) != shape:
        raise ValueError(f"scores of task {task.name!r} must be [queries, documents] {shape}, got {np.shape(scores)}.")
    scores, step, ids = np.asarray(scores), _queries_per_pass(shape[1]), list(task.queries)
    for start in range(0, shape[0], step):
        part = scores[start : start + step]
        if bad := np.flatnonzero(~np.isfinite(part).all(axis=1)).tolist():
            raise ValueError(
                f"scores of task {task.name!r} contain NaN or infinity for queries "
                f"{_names(ids[start + row] for row in bad)}."
            )
        yield part


def _queries_per_pass(documents: int) -> int:
    return max(_SCORES_PER_PASS // documents, 1)


def _unit_vectors(vectors: Any, ids: list[str], what: str) -> torch.Tensor:
    """Vectors ``[n, D]`` of length 1 in float64 on the CPU; zero vectors stay zero."""
    rows = vectors if isinstance(vectors, torch.Tensor) else torch.from_numpy(np.asarray(vectors))
    if rows.ndim != 2 or len(rows) != len(ids):
        raise ValueError(
            f"{what} must be [{len(ids)}, size], one row per id, in the task's order; got {[*rows.shape]}."
        )
    rows = rows.detach().cpu().double()
    if bad := (~torch.isfinite(rows).all(dim=1)).nonzero().flatten().tolist():
        raise ValueError(f"{what} contain NaN or infinity for {_names(ids[row] for row in bad)}; encode them again.")
    return F.normalize(rows, dim=1)


def _ranks(
    task: RetrievalTask,
    passes: Iterable[np.ndarray],
    grades: Collection[int] | None,
    candidates: Mapping[str, Collection[str]] | None = None,
) -> Ranks:
    wanted = None if grades is None else frozenset(grades)
    place = {document: number for number, document in enumerate(task.documents)}
    found: Ranks = {}
    ids = iter(task.queries)
    with tqdm(total=len(task.queries), unit="query", desc=f"ranking {task.name}", delay=2, leave=False) as bar:
        for scores in passes:
            for row, query in zip(scores, ids, strict=False):
                relevant = [
                    place[document]
                    for document, grade in task.relevant[query].items()
                    if document != query and (wanted is None or grade in wanted)
                ]
                if relevant and candidates is None:
                    found[query] = _pessimistic_ranks(row, np.asarray(relevant), place.get(query))
                elif relevant and candidates is not None:
                    found[query] = _among(row, relevant, {place[name] for name in candidates[query] if name != query})
            bar.update(len(scores))
    if not found:
        raise ValueError(f"No query of task {task.name!r} has a relevant document of grade {sorted(wanted or ())}.")
    return found


def _among(scores: np.ndarray, relevant: list[int], candidates: set[int]) -> np.ndarray:
    """Ranks ``[r]`` of the relevant places among the candidates, rising; infinity for those that are none."""
    inside = [number for number, one in enumerate(sorted(candidates)) if one in set(relevant)]
    ranks = np.full(len(relevant), np.inf)
    if inside:
        ranks[: len(inside)] = _pessimistic_ranks(scores[sorted(candidates)], np.asarray(inside), None)
    return ranks


def _pessimistic_ranks(scores: np.ndarray, relevant: np.ndarray, own: int | None) -> np.ndarray:
    """Ranks ``[r]`` of the relevant places in ``scores [N]``, rising; in a tie the others stand before them."""
    values = np.sort(scores[relevant])  # [r], rising
    count = len(values)
    reached = np.searchsorted(values, scores, side="right")  # [N], how many relevant scores each document reaches
    if own is not None:
        reached = np.delete(reached, own)
    steps = np.bincount(reached, minlength=count + 1)  # [r + 1]
    at_least = np.cumsum(steps[::-1])[::-1][1:]  # [r], documents whose score is as high or higher
    tied_before = np.arange(count) - np.searchsorted(values, values, side="left")  # [r], equal ones, left of each
    return (at_least - tied_before)[::-1]


def retrieval_scores(ranks: Mapping[str, np.ndarray], k: int = 10) -> dict[str, float]:
    """The usual scores, each the mean over all queries, from 0 to 1.

    ``mrr`` is 1 / rank of the first relevant document, over the whole ranking; ``mrr@k`` counts 0 where
    that rank is above k; ``hit_rate@k`` (also called accuracy@k) tells whether it is not; ``map`` is the mean
    of precision at the rank of every relevant document; ``recall@k`` the share of them among the first k.

    Args:
        ranks: of `rank_documents` or `rank_by_scores`.
        k: where the ranking is cut for the scores that have it in their names.

    Returns:
        The scores by name, and the number of ``queries`` they are means over.
    """
    if not ranks or k < 1:
        raise ValueError(
            f"Give the ranks of at least one query and a k of at least 1, got {len(ranks)} queries and k = {k}."
        )
    first = np.asarray([found[0] for found in ranks.values()], float)  # [Q]
    precision = [np.mean(np.arange(1, len(found) + 1) / found) for found in ranks.values()]
    return {
        "mrr": float(np.mean(1 / first)),
        f"mrr@{k}": float(np.mean(np.where(first <= k, 1 / first, 0.0))),
        f"hit_rate@{k}": float(np.mean(first <= k)),
        "map": float(np.mean(precision)),
        f"recall@{k}": float(np.mean([np.mean(found <= k) for found in ranks.values()])),
        "queries": float(len(ranks)),
    }


def _names(ids: Iterable[str]) -> str:
    """The first few ids, and how many there are besides."""
    listed = [str(one) for one in ids]
    rest = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + rest
