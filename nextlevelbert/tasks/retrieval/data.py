"""Where retrieval tasks come from: a table of pairs, BookSum from the Hub, or the three files of BEIR."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...data._old import file_rows, open_saved_dataset, read_lines
from ...data.rows import TABLES, find_paths, hub_dataset, is_saved_dataset, suffix
from ...evaluation.retrieval import RetrievalTask

logger = logging.getLogger(__name__)

_DEFAULT_COLUMNS = ("query", "document")
# Columns of kmfoda/booksum on the Hub that tell it from any other table; a row has many more.
_BOOKSUM_COLUMNS = ("chapter", "summary_text")
_BOOKSUM_MARKS = {"bid", "book_id", "summary_id", *_BOOKSUM_COLUMNS}


def read_retrieval_task(
    source: str | Path,
    query_column: str | None = None,
    document_column: str | None = None,
    split: str | None = None,
    dataset_config: str | None = None,
) -> RetrievalTask:
    """Reads a retrieval task from a file, a folder, or the Hub.

    A table of pairs becomes one query for each different text of the query column, and one document for each
    different text of the document column; all documents that stand in a row with a query are relevant for it,
    with grade 1. BookSum (`kmfoda/booksum`), whose columns are known, is the task of the NextLevelBERT paper (section
    3.2): a chapter looks for its summaries among those of all splits. With ``query_column="summary_text"`` and
    ``document_column="chapter"`` a summary looks for its chapter; that task is called ``booksum-reversed``.

    Args:
        source: a table in a ``.jsonl``, ``.json``, ``.csv`` or ``.parquet`` file (``.gz`` too), in several that match
            a pattern, or in a folder of ``save_to_disk``; a folder in the layout
            of BEIR (``corpus.jsonl``, ``queries.jsonl``, ``qrels/<split>.tsv``, each also ``.gz``; see
            `read_beir_task`); or, if there is no such path, the name of a dataset on the Hub.
        query_column, document_column: the columns of a table. By default ``query`` and ``document``, or those
            of BookSum.
        split: of BEIR's qrels or of the dataset; on the Hub also ``"validation+test"`` and the like. By default
            ``"test"``, and of BookSum all three.
        dataset_config: configuration of the dataset on the Hub.

    Raises:
        FileNotFoundError: for a path that is not there, or a BEIR file that is missing.
        ValueError: for an unknown kind of file, a column that is not there, a blank query or document (row and
            column are named), or relevance that does not fit (see `RetrievalTask`).
    """
    path = Path(source)
    if is_saved_dataset(path):
        _, saved = open_saved_dataset(path, split or "test")
        return retrieval_task_from_rows(saved, path.resolve().name, query_column, document_column)
    if path.is_dir():
        return read_beir_task(
            _beir_file(path / "corpus.jsonl"),
            _beir_file(path / "queries.jsonl"),
            _beir_file(path / "qrels" / f"{split or 'test'}.tsv"),
            name=path.resolve().name,
        )
    if files := find_paths(source):
        table = itertools.chain.from_iterable(map(_file_rows, files))
        return retrieval_task_from_rows(table, path.name.split(".")[0], query_column, document_column)
    if path.suffix in {*TABLES, ".gz", ".tsv"} or len(path.parts) > 2 or path.is_absolute():
        raise FileNotFoundError(
            f"No file or folder {str(source)!r}. Give a .jsonl or .parquet of pairs, a folder with corpus.jsonl, "
            "queries.jsonl and qrels/, or the name of a dataset on the Hub."
        )
    default = "train+validation+test" if path.name == "booksum" else "test"
    rows = hub_dataset(str(source), dataset_config, split=split or default)
    return retrieval_task_from_rows(rows, path.name, query_column, document_column)


def retrieval_task_from_rows(
    rows: Iterable[dict[str, Any]], name: str, query_column: str | None = None, document_column: str | None = None
) -> RetrievalTask:
    """A task from rows with a query and a relevant document each; see `read_retrieval_task`.

    Ids are ``query-000000`` and ``document-000000`` in the order of first occurrence.
    """
    queries: dict[str, str] = {}  # text → id
    documents: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    count = 0
    for number, row in enumerate(rows):
        booksum = row.keys() >= _BOOKSUM_MARKS
        standard = _BOOKSUM_COLUMNS if booksum else _DEFAULT_COLUMNS
        columns = (query_column or standard[0], document_column or standard[1])
        if booksum and columns == _BOOKSUM_COLUMNS[::-1] and number == 0:
            name = f"{name}-reversed"
        if missing := [column for column in columns if column not in row]:
            raise ValueError(
                f"Row {number} of {name!r} has no column {missing[0]!r}; it has {', '.join(row)}. "
                "Name the columns with query_column and document_column."
            )
        query, document = (_text(row[column], f"Row {number} of {name!r}", column) for column in columns)
        query_id = queries.setdefault(query, f"query-{len(queries):06d}")
        document_id = documents.setdefault(document, f"document-{len(documents):06d}")
        relevant.setdefault(query_id, {})[document_id] = 1
        count += 1
    if count > len(queries):
        logger.info("%s: %d rows, but %d different queries; equal ones are merged.", name, count, len(queries))
    return RetrievalTask(name, _by_id(queries), _by_id(documents), relevant)


def read_beir_task(corpus: str | Path, queries: str | Path, qrels: str | Path, name: str = "") -> RetrievalTask:
    """A task from the three files of BEIR (Thakur et al. 2021).

    Queries that `qrels` does not name are left out, since BEIR keeps those of all splits in one file; how many
    is logged. A judgement with score 0 says that a document is not relevant.

    Args:
        corpus: JSON lines or Parquet (``.gz`` too) with ``_id`` or ``id``, ``text`` and perhaps ``title``, which
            is put before the text.
        queries: the same with ``_id`` or ``id`` and ``text``.
        qrels: tab-separated query id, document id and score; with or without a line of headings.
        name: of the task; by default that of the qrels file.

    Raises:
        FileNotFoundError, ValueError: as `read_retrieval_task`; an id that occurs twice.
    """
    judged = _read_qrels(Path(qrels))
    relevant = {
        query: positive
        for query, grades in judged.items()
        if (positive := {document: grade for document, grade in grades.items() if grade > 0})
    }
    everything = _read_texts(Path(queries))
    if unknown := [query for query in relevant if query not in everything]:
        raise ValueError(f"{qrels} names query {unknown[0]!r}, which is not in {queries}.")
    kept = {query: text for query, text in everything.items() if query in relevant}
    if len(kept) < len(everything):
        logger.info("%s: %d queries have no relevant document in %s.", queries, len(everything) - len(kept), qrels)
    return RetrievalTask(name or Path(qrels).name.split(".")[0], kept, _read_texts(Path(corpus)), relevant)


def _beir_file(path: Path) -> Path:
    """The file, or the same with .gz."""
    packed = path.with_name(path.name + ".gz")
    if path.exists() or packed.exists():
        return path if path.exists() else packed
    there = sorted(file.name for file in path.parent.iterdir()) if path.parent.is_dir() else []
    raise FileNotFoundError(
        f"No {path.name} in {path.parent} (there: {', '.join(there) or 'nothing'}). A folder needs corpus.jsonl, "
        "queries.jsonl and qrels/<split>.tsv; files of other names are read with read_beir_task."
    )


def _file_rows(path: Path) -> Iterator[dict[str, Any]]:
    if suffix(path) not in TABLES:
        raise ValueError(f"Cannot read {path.name}. Supported: {', '.join(TABLES)} (all also .gz).")
    if not path.exists():
        raise FileNotFoundError(f"No file {str(path)!r}.")
    return file_rows(path)


def _read_texts(path: Path) -> dict[str, str]:
    """Id → title and text of a file in BEIR's layout."""
    texts: dict[str, str] = {}
    for number, row in enumerate(_file_rows(path)):
        id_column = "_id" if "_id" in row else "id"
        if missing := [column for column in (id_column, "text") if column not in row]:
            raise ValueError(f"Row {number} of {path.name!r} has no column {missing[0]!r}; it has {', '.join(row)}.")
        key = str(row[id_column])
        if key in texts:
            raise ValueError(f"Row {number} of {path.name!r} has the id {key!r}, which an earlier row already has.")
        whole = f"{row.get('title') or ''} {row['text'] or ''}".strip()
        texts[key] = _text(whole, f"Row {number} of {path.name!r}", "text")
    return texts


def _read_qrels(path: Path) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    for number, row in enumerate(_tsv_rows(path), start=1):
        if not row:
            continue
        if number == 1 and len(row) == 3 and not row[2].strip().lstrip("-").isdigit():
            continue  # headings
        try:
            query, document, score = row
            grade = int(score)
        except ValueError as error:
            raise ValueError(
                f"Line {number} of {path.name} must be query id, document id and a whole number, separated by tabs; "
                f"got {row!r}."
            ) from error
        grades.setdefault(query, {})[document] = grade
    return grades


def _tsv_rows(path: Path) -> Iterator[list[str]]:
    if not path.exists():
        raise FileNotFoundError(f"No file {str(path)!r}.")
    return (line.rstrip("\r\n").split("\t") if line.strip() else [] for _, line in read_lines(path))


def _text(value: Any, where: str, column: str) -> str:
    if not isinstance(value, str) or not value.strip():
        got = "blank" if value is None or isinstance(value, str) else f"{type(value).__name__}, not text"
        raise ValueError(
            f"{where} is {got} in column {column!r}. Take such rows out first, for example with "
            "datasets' filter and retrieval_task_from_rows."
        )
    return value


def _by_id(ids: dict[str, str]) -> dict[str, str]:
    return {key: text for text, key in ids.items()}
