"""Data for document ranking: a retrieval task, perhaps with candidates, from pairs, BEIR or MS MARCO's document files.

MS MARCO's layout (its document ranking task; every file also ``.gz``)::

    msmarco-docs.tsv               document id, URL, title, body
    msmarco-<split>-queries.tsv    query id, query               <split> is doctrain, docdev
    msmarco-<split>-qrels.tsv      query id, 0, document id, grade
    msmarco-<split>-top100         query id, Q0, document id, rank, score, run
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...data._old import find_packed, held_out_count, read_lines
from ...evaluation.retrieval import RetrievalTask
from ..retrieval.data import read_retrieval_task

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RankingData:
    """What to rank.

    Attributes:
        task: queries, documents and which are relevant.
        candidates: for each query the documents to rank; None where that is the whole collection.
    """

    task: RetrievalTask
    candidates: Mapping[str, Sequence[str]] | None = None

    def content(self) -> Iterator[object]:
        """Everything that a run depends on, for `fingerprint`."""
        relevant = {query: dict(grades) for query, grades in self.task.relevant.items()}
        yield from (dict(self.task.queries), dict(self.task.documents), relevant, self.candidates)


def read_ranking(
    source: str | Path,
    split: str,
    candidates_file: str | Path | None = None,
    query_column: str | None = None,
    document_column: str | None = None,
    dataset_config: str | None = None,
) -> RankingData:
    """Reads a ranking task.

    Args:
        source: a folder with ``msmarco-docs.tsv``, or anything that `read_retrieval_task` reads: a ``.jsonl`` of
            pairs ``query``, ``document``, a folder as BEIR's, a dataset on the Hub.
        split: ``doctrain`` or ``docdev`` for MS MARCO; else as in `read_retrieval_task`.
        candidates_file: which documents to rank for which query, a line each: query id, Q0, document id, and more
            that is not looked at (TREC's format of runs; MS MARCO's top 100 is one).
        query_column, document_column, dataset_config: as in `read_retrieval_task`.

    Raises:
        FileNotFoundError: for a file that is missing.
        ValueError: for a line that cannot be read, or ids that are not there (named).
    """
    path = Path(source)
    if path.is_dir() and find_packed(path / "msmarco-docs.tsv"):
        return read_msmarco(path, split, candidates_file)
    task = read_retrieval_task(source, query_column, document_column, split, dataset_config)
    if candidates_file is None:
        return RankingData(task)
    candidates = read_candidates(candidates_file, task.queries)
    if unknown := {document for found in candidates.values() for document in found} - task.documents.keys():
        raise ValueError(
            f"{candidates_file} names {len(unknown)} documents that do not exist, such as {min(unknown)!r}."
        )
    return RankingData(task, candidates)


def read_msmarco(folder: Path, split: str, candidates_file: str | Path | None = None) -> RankingData:
    """Reads one split of MS MARCO's document ranking.

    Of the collection (3.2 million documents) only those are kept that a judgement or a candidate names. Without
    candidates, a split that is not for training keeps them all.

    Args:
        folder: where the files lie, by their own names.
        split: ``doctrain`` or ``docdev``.
        candidates_file: as in `read_ranking`. By default the ``top100`` of the split if there is one, but not for
            training.

    Raises:
        FileNotFoundError, ValueError: as `read_ranking`.
    """
    if not find_packed(folder / f"msmarco-{split}-qrels.tsv"):
        there = sorted({file.name.split("-")[1] for file in folder.glob("msmarco-*-qrels.tsv*")})
        raise FileNotFoundError(
            f"No msmarco-{split}-qrels.tsv in {folder}. Splits with judgements there: {', '.join(there) or 'none'}; "
            "name one of them (--train_split, --validation_split, --test_split)."
        )
    relevant: dict[str, dict[str, int]] = {}
    for where, (query, _, document, grade) in _columns(folder / f"msmarco-{split}-qrels.tsv", None, 4):
        if not grade.lstrip("-").isdigit():
            raise ValueError(f"{where}: the grade must be a whole number, got {grade!r}.")
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = int(grade)
    queries: dict[str, str] = {}
    for where, (query, text) in _columns(folder / f"msmarco-{split}-queries.tsv", "\t", 2):
        _add(queries, query, text, where)
    kept = {query: queries[query] for query in relevant if query in queries}
    if lost := len(relevant) - len(kept):
        raise ValueError(f"{lost} queries of msmarco-{split}-qrels.tsv have no text in msmarco-{split}-queries.tsv.")
    training = "train" in split
    run = candidates_file or (None if training else find_packed(folder / f"msmarco-{split}-top100"))
    candidates = read_candidates(run, kept) if run else None
    answers = {document for grades in relevant.values() for document in grades}
    ranked = {document for found in (candidates or {}).values() for document in found}
    everything = candidates is None and not training
    documents, blank = _msmarco_documents(folder, answers, None if everything else ranked)
    if blank and candidates is not None:
        candidates = {query: [each for each in found if each not in blank] for query, found in candidates.items()}
    logger.info("%s: %d queries, %d documents kept", split, len(kept), len(documents))
    return RankingData(RetrievalTask(f"msmarco-{split}", kept, documents, relevant), candidates)


def _msmarco_documents(folder: Path, answers: set[str], ranked: set[str] | None) -> tuple[dict[str, str], set[str]]:
    """Title and body by document, and the ids of those that have no text.

    Args:
        folder: of ``msmarco-docs.tsv``.
        answers: documents that must be there, with a text.
        ranked: further documents that must be there; None for the whole collection.
    """
    documents: dict[str, str] = {}
    blank = set()
    for where, (document, _, title, body) in _columns(folder / "msmarco-docs.tsv", "\t", 4):
        if ranked is not None and document not in ranked and document not in answers:
            continue
        if f"{title} {body}".strip() or document in answers:
            _add(documents, document, f"{title} {body}".strip(), where)
        else:
            blank.add(document)
    if blank:
        logger.warning("%d documents without a text, which answer no query, are left out.", len(blank))
    if missing := (answers | (ranked or set())) - documents.keys() - blank:
        raise ValueError(f"msmarco-docs.tsv lacks {len(missing)} documents that are named, such as {min(missing)!r}.")
    return documents, blank


def _add(texts: dict[str, str], name: str, text: str, where: str) -> None:
    if name in texts:
        raise ValueError(f"{where}: the id {name!r} occurs twice.")
    if not text.strip():
        raise ValueError(f"{where}: {name!r} has no text; remove it and its judgements.")
    texts[name] = text


def read_candidates(path: str | Path, queries: Collection[str]) -> dict[str, list[str]]:
    """Candidates of each query, in the order of the file; those of other queries are left out.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a line that is no run, or a query without candidates (named).
    """
    found: dict[str, list[str]] = {query: [] for query in queries}
    for _, (query, _, document, *_) in _columns(Path(path), None, 3, more=True):
        if query in found:
            found[query].append(document)
    if bare := [query for query, documents in found.items() if not documents]:
        raise ValueError(f"{path} has no candidates for {len(bare)} queries, such as {bare[0]!r}; leave them out.")
    return found


def hold_out_queries(data: RankingData, share: float, seed: int) -> tuple[RankingData, RankingData]:
    """Training and validation part, which share no relevant document; validation ranks the whole collection.

    Raises:
        ValueError: where nothing would be left on one side.
    """
    task = data.task
    documents = sorted({document for grades in task.relevant.values() for document in grades})
    count = held_out_count(len(documents), share, f"relevant documents of {task.name}")
    held = set(np.random.default_rng(seed).choice(documents, count, replace=False).tolist())
    sides: tuple[list[str], list[str]] = ([], [])
    for query in task.queries:
        inside = [document in held for document in task.relevant[query]]
        if all(inside) or not any(inside):
            sides[all(inside)].append(query)
    if not sides[0] or not sides[1]:
        raise ValueError(
            f"{task.name}: holding out {len(held)} of {len(documents)} documents leaves {len(sides[0])} queries for "
            f"training and {len(sides[1])} for validation. Give --validation_file."
        )
    if lost := len(task.queries) - len(sides[0]) - len(sides[1]):
        logger.warning(
            "%s: %d queries have relevant documents on both sides of the split and are left out.", task.name, lost
        )
    parts = []
    for side, name in zip(sides, ("train", "validation"), strict=True):
        relevant = {query: task.relevant[query] for query in side}
        texts = {query: task.queries[query] for query in side}
        parts.append(RankingData(RetrievalTask(f"{task.name} {name}", texts, task.documents, relevant)))
    return parts[0], parts[1]


def _columns(path: Path, delimiter: str | None, columns: int, more: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Where a line stands (for messages) and its columns; between those is a delimiter, or any white space for None.

    Only a line feed ends a line, because bodies of documents may hold carriage returns. Blank lines are left out.
    """
    there = find_packed(path)
    if there is None:
        raise FileNotFoundError(f"No {path.name} (or {path.name}.gz) in {path.parent}.")
    for number, line in read_lines(there):
        row = line.rstrip("\n").split(delimiter)
        if not line.strip():
            continue
        if len(row) < columns or (len(row) > columns and not more):
            raise ValueError(f"Line {number} of {there.name} must have {columns} columns, got {len(row)}: {row[:4]}.")
        yield f"Line {number} of {there.name}", row
