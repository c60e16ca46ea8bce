"""Published data sets as rows of the columns that tasks read: each is known by its columns or files."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..data.rows import Place, Rows, Table, open_rows, short

logger = logging.getLogger(__name__)

MULD_CLASSES = ("Villain/Antagonist", "Hero")  # 0 and 1, as in the original code, so that F1 is the hero's
EURLEX_COLUMNS = {"celex_id", "concepts", "header", "recitals", "main_body"}
BOOK_SUMMARIES = "booksummaries.txt"
_LONGEST_FIRST_LINE = 200  # characters of a line that can be a character's name, or a question about one
_LONGEST_NAME = 6  # words


# --- Multiple choice


def choice_table(source: str | Path, split: str = "train", config: str | None = None) -> Table:
    """As `open_rows`, with QuALITY, RACE and SWAG as ``text``, ``question``, ``choices`` and ``label``, from 0.

    QuALITY: the official files (an article a line, its questions within), or a question a row; its ``gold_label``
    counts from 1. RACE: ``answer`` is a letter. SWAG: ``sent1`` is the document, ``sent2`` goes before each ending.
    """
    table = open_rows(source, split, config)
    columns = table.first.keys()
    if "article" in columns and ("questions" in columns or {"question", "options"} <= columns):
        return table._replace(rows=_article_rows(table.rows))
    return table._replace(rows=_swag_rows(table.rows)) if {"sent1", "sent2", "ending0"} <= columns else table


def _article_rows(rows: Rows) -> Rows:
    """Questions of QuALITY or RACE."""
    for place, values in rows:
        questions = values.get("questions", [values])
        if not isinstance(questions, list) or not all(isinstance(question, dict) for question in questions):
            raise place.error("questions", f"must be a list of questions, got {short(questions)}.")
        for number, question in enumerate(questions):
            where = place._replace(row=f"{place.row}, question {number}") if "questions" in values else place
            label = question.get("label")
            if (gold := question.get("gold_label")) is not None:
                if type(gold) is not int or gold < 1:
                    raise where.error("gold_label", f"must be the number of an option, from 1; got {short(gold)}.")
                label = gold - 1
            elif (answer := question.get("answer")) is not None:
                label = ord(answer) - ord("A") if isinstance(answer, str) and len(answer) == 1 else answer
            names = {"question": "question", "choices": "options", "id": "question_unique_id"}
            found = {name: question.get(column) for name, column in names.items()}
            yield where, {"text": values["article"], **found, "label": label}


def _swag_rows(rows: Rows) -> Rows:
    for place, values in rows:
        endings = [values[f"ending{number}"] for number in range(10) if f"ending{number}" in values]
        label = None if values.get("label") == -1 else values.get("label")
        yield place, {"text": values["sent1"], "question": values["sent2"], "choices": endings, "label": label}


# --- Classification


def classification_table(
    source: str | Path, split: str = "train", config: str | None = None, arrangement: str | None = None
) -> Table:
    """As `open_rows`, with MuLD, EURLEX-57K and the CMU Book Summary Corpus as ``text``, ``label`` and ``question``.

    Args:
        source, split, config: as in `open_rows`; also a folder with ``booksummaries.txt``.
        arrangement: ``"inverted"``, EURLEX-57K with the main body first; ``"paired"``, every two rows joined.

    Raises:
        ValueError: as `open_rows`; for an arrangement of something else.
    """
    if (path := Path(source) / BOOK_SUMMARIES).is_file():
        table = Table(f"{BOOK_SUMMARIES} ({split})", {"text": "", "label": []}, _book_summary_rows(path, split), {})
    else:
        table = open_rows(source, split, config)
    columns = table.first.keys()
    if columns >= EURLEX_COLUMNS:
        rows = _eurlex_rows(table.rows, inverted=arrangement == "inverted")
        table = table._replace(first={"text": "", "label": []}, rows=rows)
    elif arrangement == "inverted":
        raise ValueError(f"{table.name}: 'inverted' is of EURLEX-57K, which has {', '.join(sorted(EURLEX_COLUMNS))}.")
    elif {"input", "output"} <= columns and "text" not in columns:
        asked = _first_line(str(table.first["input"])) is not None
        first = {"text": "", "label": "", **({"question": ""} if asked else {})}
        table = table._replace(first=first, rows=_muld_rows(table.rows, asked), class_names={"label": MULD_CLASSES})
    return table._replace(rows=_paired_rows(table.rows)) if arrangement == "paired" else table


def _first_line(text: str) -> tuple[str, str] | None:
    """A first line short enough to be a name or a question, and the rest; None where there is none."""
    line, end, rest = text.partition("\n")
    return (line.strip(), rest) if end and line.strip() and len(line) <= _LONGEST_FIRST_LINE else None


def _muld_rows(rows: Rows, with_question: bool) -> Rows:
    """Rows of MuLD's character archetypes, with the question apart from the document.

    The first line of ``input``, if it has at most 200 characters, is the question and the rest the document; a bare
    name (no "?", at most 6 words) becomes the question of the NextLevelBERT paper: "Is the character <NAME> behaving
    like a hero or a villain?". This is a rule of ours, as nothing in the data marks that line; the paper's original
    code takes the first line for the name, too, but leaves it in the document. Where no row has such a line, the whole
    input is the document, without a question.
    """
    for place, values in rows:
        text = place.checked(values.get("input"), "input")
        line, rest = _first_line(text) or (None, text)
        if (line is not None) != with_question:
            raise place.error("input", "has a short first line, the character's name, or none, unlike the first row.")
        if line is not None and "?" not in line and len(line.split()) <= _LONGEST_NAME:
            line = f"Is the character {line} behaving like a hero or a villain?"
        label = values.get("output")
        if isinstance(label, list):
            if len(label) != 1:
                raise place.error("output", f"must hold one label, got {short(label)}.")
            label = label[0]
        yield place, {"text": rest, "label": label, **({} if line is None else {"question": line})}


def _eurlex_rows(rows: Rows, inverted: bool) -> Rows:
    """Laws of EURLEX-57K (Chalkidis et al. 2019), whose label is the list of their EUROVOC concepts.

    Inverted, header and recitals, which say the most, come after the main body (Inverted-EURLEX of Park et al. 2022,
    which the ChunkBERT paper takes over).
    """
    for place, values in rows:
        if missing := EURLEX_COLUMNS - values.keys():
            raise place.error(min(missing), "is missing, which the laws before have.")
        body = values["main_body"] if isinstance(values["main_body"], list) else [values["main_body"]]
        head = [values["header"], values["recitals"]]
        parts = [*body, *head[::-1]] if inverted else [*head, *body]
        text = " ".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
        yield place, {"id": values["celex_id"], "text": text, "label": values["concepts"]}


def _book_summary_rows(path: Path, split: str) -> Rows:
    """The CMU Book Summary Corpus (Bamman and Smith 2013), whose label is the list of genres of a book.

    Seven fields a line, separated by tabs. The corpus has no splits: here the SHA-256 of a book's id puts it into
    ``"train"`` (80 %), ``"validation"`` or ``"test"`` (10 % each). Books without a genre are left out and counted.
    """
    shares = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
    if split not in shares:
        raise ValueError(f"{path.name} is split into {', '.join(shares)} here, got {split!r}.")
    without = 0
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, row in enumerate(file):
            place, fields = Place(path.name, f"line {number + 1}"), row.rstrip("\r\n").split("\t")
            if len(fields) != 7:
                raise place.error("summary", f"is the last of 7 fields separated by tabs; there are {len(fields)}.")
            if int(hashlib.sha256(fields[0].encode()).hexdigest(), 16) % 10 not in shares[split]:
                continue
            if genres := list(json.loads(fields[5] or "{}").values()):
                yield place, {"id": fields[0], "text": fields[6].strip(), "label": genres}
            without += not genres
    logger.info("%s, %s: %d books without a genre are left out.", path.name, split, without)


def _paired_rows(rows: Rows) -> Rows:
    """Every two rows in a row as one: texts joined, with the labels of both (Paired Book Summary of Park et al. 2022).

    A last row without a partner is left out, with a line that says so.
    """
    for place, first in rows:
        _, second = next(rows, (None, None))
        if second is None:
            logger.warning("%s, %s has no partner and is left out.", place.source, place.row)
            return
        both: Any = (first, second)
        labels = [row.get("label") for row in both]
        if wrong := [label for label in labels if not isinstance(label, list)]:
            raise place.error("label", f"must be a list of classes to be joined, got {short(wrong[0])}.")
        text = "\n".join(place.checked(row.get("text"), "text") for row in both)
        name = "+".join(str(row.get("id", place.row)) for row in both)
        yield place, {"id": name, "text": text, "label": list(dict.fromkeys(labels[0] + labels[1]))}


# --- Ranking


def read_msmarco(
    folder: Path, split: str, candidates_file: str | Path | None = None
) -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, int]], dict[str, list[str]]]:
    """Queries, documents, judgements and candidates of a split of MS MARCO's document ranking; files also ``.gz``.

    ``msmarco-docs.tsv`` (id, URL, title, body), ``msmarco-<split>-queries.tsv`` (id, query), ``…-qrels.tsv`` (query,
    0, document, grade) and ``…-top100`` (query, Q0, document, rank, …), which is re-ranked, but not in training.
    Documents without a text, and those that neither a judgement nor a candidate names, are left out; without
    candidates the whole collection is ranked.

    Raises:
        ValueError: for a line, a query or a document that is missing; FileNotFoundError for a file.
    """
    relevant: dict[str, dict[str, int]] = {}
    for query, _, document, grade in columns_of(folder / f"msmarco-{split}-qrels.tsv", None, 4):
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = int(grade)
    queries = dict(columns_of(folder / f"msmarco-{split}-queries.tsv", "\t", 2))
    if missing := relevant.keys() - queries.keys():
        raise ValueError(f"Query {min(missing)!r} of msmarco-{split}-qrels.tsv is not in msmarco-{split}-queries.tsv.")
    training, top = "train" in split, packed(folder / f"msmarco-{split}-top100")
    run = candidates_file or (top if top.exists() and not training else None)
    candidates = read_candidates(run, relevant) if run else {}
    named = {document for rows in (relevant, candidates) for names in rows.values() for document in names}
    texts = {
        name: f"{title} {body}".strip()
        for name, _, title, body in columns_of(folder / "msmarco-docs.tsv", "\t", 4)
        if name in named or (run is None and not training)
    }
    if unknown := named - texts.keys():
        raise ValueError(f"msmarco-docs.tsv lacks {len(unknown)} documents that are named, such as {min(unknown)!r}.")
    documents = {name: text for name, text in texts.items() if text}
    logger.info(
        "%s: %d queries, %d documents, %d without a text",
        split,
        len(relevant),
        len(texts),
        len(texts) - len(documents),
    )
    kept = {query: [name for name in names if name in documents] for query, names in candidates.items()}
    return {query: queries[query] for query in relevant}, documents, relevant, kept


def read_candidates(path: str | Path, queries: Iterable[str]) -> dict[str, list[str]]:
    """Candidates of each query from a run in TREC's format, in its order; those of other queries are left out."""
    candidates: dict[str, list[str]] = {query: [] for query in queries}
    for query, _, document in columns_of(Path(path), None, 3):
        if query in candidates:
            candidates[query].append(document)
    if bare := [query for query, documents in candidates.items() if not documents]:
        raise ValueError(f"{path} has no candidates for {len(bare)} queries, such as {bare[0]!r}; leave them out.")
    return candidates


def packed(path: Path) -> Path:
    """The file, or the same with ``.gz`` where only that is there."""
    compressed = path.with_name(f"{path.name}.gz")
    return compressed if compressed.exists() and not path.exists() else path


def columns_of(path: Path, delimiter: str | None, count: int) -> Iterator[list[str]]:
    """The first columns of each line; only a line feed ends a line, because texts may hold carriage returns."""
    path = packed(path)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            row = line.rstrip("\n").split(delimiter)
            if line.strip() and len(row) < count:
                raise ValueError(f"Line {number} of {path.name} must have {count} columns, got {len(row)}: {row}.")
            if line.strip():
                yield row[:count]
