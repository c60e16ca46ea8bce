"""MS MARCO's document ranking (Nguyen et al., 2016), as its official files hold it."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..files import packed
from ..tables import columns_of, short

logger = logging.getLogger(__name__)

DOCUMENTS = "msmarco-docs.tsv"

Texts = dict[str, str]
Grades = dict[str, dict[str, int]]
Candidates = dict[str, list[str]]


class MsMarco(NamedTuple):
    """Holds a split: texts by id, and for each query the grades of relevant documents.

    Args:
        queries: the judged queries by id.
        documents: the documents by id, each a title and a body.
        relevant: query id → document id → grade, without grades of 0.
        candidates: query id → the documents to rank; None for the whole collection.
    """

    queries: Texts
    documents: Texts
    relevant: Grades
    candidates: Candidates | None


def load(folder: str | Path, split: str) -> MsMarco:
    """Loads a split of MS MARCO's document ranking.

    Only judged documents and candidates are read. If there is no ``…-top100`` file, the whole
    collection is read and ranked. In training only judged documents are read. Documents without a
    text are left out.

    Args:
        folder: folder with ``msmarco-docs.tsv`` (id, URL, title, body),
            ``msmarco-<split>-queries.tsv`` (id, query), ``…-qrels.tsv`` (query, 0, document, grade)
            and ``…-top100`` (query, Q0, document, rank, …), the candidates, which training does not
            read. All may be ``.gz``.
        split: name of the split, for example ``doctrain`` or ``docdev``.

    Raises:
        ValueError: for lines with too few columns, or ids without a text.
    """
    folder = Path(folder)
    in_training = "train" in split
    relevant = _read_grades(folder / f"msmarco-{split}-qrels.tsv")
    named = set().union(*relevant.values())
    candidates = None
    top = packed(folder / f"msmarco-{split}-top100")
    if top.exists() and not in_training:
        candidates = _read_candidates(top, relevant)
        named.update(*candidates.values())

    documents = {}
    is_whole = candidates is None and not in_training
    for _, (name, _, title, body) in columns_of(folder / DOCUMENTS, delimiter="\t", count=4):
        if is_whole or name in named:
            documents[name] = f"{title} {body}".strip()
    all_queries = {}
    queries_file = folder / f"msmarco-{split}-queries.tsv"
    for _, (query, text) in columns_of(queries_file, delimiter="\t", count=2):
        all_queries[query] = text

    unknown = (named - documents.keys()) | (relevant.keys() - all_queries.keys())
    if unknown:
        raise ValueError(
            f"{folder.name}, {split}: {len(unknown)} ids have no text, such as {min(unknown)!r}."
        )

    queries = {query: all_queries[query] for query in relevant}
    documents = {name: text for name, text in documents.items() if text}
    if candidates is not None:
        for query, names in candidates.items():
            candidates[query] = [name for name in names if name in documents]
    logger.info("%s: %d queries, %d documents", split, len(queries), len(documents))
    return MsMarco(
        queries=queries,
        documents=documents,
        relevant=relevant,
        candidates=candidates,
    )


def _read_grades(path: Path) -> Grades:
    relevant: Grades = {}
    for location, (query, _, document, grade) in columns_of(path, delimiter=None, count=4):
        if not grade.removeprefix("-").isdecimal():
            raise location.error("grade", f"must be a whole number, got {short(grade)}.")
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = int(grade)
    return relevant


def _read_candidates(path: Path, queries: Iterable[str]) -> Candidates:
    candidates: Candidates = {query: [] for query in queries}
    for _, (query, _, document) in columns_of(path, delimiter=None, count=3):
        if query in candidates:
            candidates[query].append(document)
    return candidates
