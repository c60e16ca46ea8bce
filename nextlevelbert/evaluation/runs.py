"""The first documents of a ranking by name and score: nDCG, and run files that TREC's tools read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch

from ..corpus.files import write_atomically
from .retrieval import RetrievalTask, passes_of_scores, passes_of_vectors

# Query id → document id → score, best first.
Run = dict[str, dict[str, float]]

# The usual depth of a run at TREC.
DEPTH = 1_000


def run_documents(
    task: RetrievalTask,
    query_vectors: torch.Tensor | np.ndarray | Iterable,
    document_vectors: torch.Tensor | np.ndarray | Iterable,
    depth: int = DEPTH,
) -> Run:
    """The documents with the highest cosines for each query, best first; see `rank_documents`.

    In a tie the relevant ones come last, those of higher grades after those of lower ones. A query's own document is
    left out.

    Args:
        task: what to search for.
        query_vectors, document_vectors: ``[Q, D]`` and ``[N, D]``, in the order of the task.
        depth: documents for each query, or all where there are fewer.

    Raises:
        ValueError: as `rank_documents`, and for a depth below 1.
    """
    return _run(task, passes_of_vectors(task, query_vectors, document_vectors), depth)


def run_by_scores(task: RetrievalTask, scores: np.ndarray, depth: int = DEPTH) -> Run:
    """As `run_documents`, from ready scores ``[Q, N]`` (of `chunk_similarity`, say), in the order of the task."""
    return _run(task, passes_of_scores(task, scores), depth)


def _run(task: RetrievalTask, passes: Iterable[np.ndarray], depth: int) -> Run:
    if depth < 1:
        raise ValueError(f"depth must be 1 or more, got {depth}.")
    documents = list(task.documents)
    place = {document: number for number, document in enumerate(documents)}
    ids = iter(task.queries)
    run: Run = {}
    for scores in passes:
        for row, query in zip(scores, ids, strict=False):
            grades = np.zeros(len(documents), np.int64)
            for document, grade in task.relevant[query].items():
                grades[place[document]] = grade
            order = [number for number in np.lexsort((grades, -row))[: depth + 1] if documents[number] != query]
            run[query] = {documents[number]: float(row[number]) for number in order[:depth]}
    return run


def ndcg(task: RetrievalTask, run: Mapping[str, Mapping[str, float]], k: int = 10) -> float:
    """Normalised discounted cumulative gain of the first k documents, the mean over queries, from 0 to 1.

    A document of grade g at rank r adds g / log2(r + 1), as in trec_eval, and the sum is divided by that of the best
    possible order (Järvelin and Kekäläinen 2002).

    Args:
        task: of the run.
        run: of `run_documents` or `run_by_scores`, at least `k` documents deep.
        k: where the ranking is cut.

    Raises:
        ValueError: for a k below 1, or a run without one of the task's queries.
    """
    if k < 1:
        raise ValueError(f"k must be 1 or more, got {k}.")
    if missing := [query for query in task.queries if query not in run]:
        raise ValueError(f"The run has no documents for {len(missing)} queries of task {task.name!r}: {missing[:5]}.")
    found = []
    for query in task.queries:
        grades = {document: grade for document, grade in task.relevant[query].items() if document != query}
        best = sorted(grades.values(), reverse=True)[:k]
        found.append(_gain([grades.get(document, 0) for document in [*run[query]][:k]]) / _gain(best))
    return float(np.mean(found))


def _gain(grades: list[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def write_run(path: str | Path, run: Mapping[str, Mapping[str, float]], tag: str) -> None:
    """Writes a run in TREC's format: ``query Q0 document rank score tag``, a line for each document.

    The scores have nine digits. trec_eval sorts by score and, in a tie, by id; so it may count a tie in the model's
    favour, where `rank_documents` does not.

    Args:
        path: of the file; its folder is made if it is missing.
        run: of `run_documents` or `run_by_scores`.
        tag: name of the run; white space in it becomes ``_``.

    Raises:
        ValueError: for an id that is empty or contains white space, which the format cannot hold.
    """
    lines = []
    tag = "_".join(tag.split()) or "run"
    for query, documents in run.items():
        for rank, (document, score) in enumerate(documents.items(), 1):
            for name in (query, document):
                if name.split() != [name]:
                    raise ValueError(f"A run file cannot hold the id {name!r}: ids must be without white space.")
            lines.append(f"{query} Q0 {document} {rank} {score:.9g} {tag}\n")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(lines).encode())
