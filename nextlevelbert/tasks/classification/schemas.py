"""Published layouts of rows: QuALITY, MuLD's character archetypes, EURLEX-57K and the CMU Book Summary Corpus."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Literal

from ...data._old import read_lines
from ...data.rows import Place, Rows, Table, open_rows, short

logger = logging.getLogger(__name__)

MULD_CLASSES = ("Villain/Antagonist", "Hero")  # 0 and 1, as in the original code, so that F1 is the hero's
_LONGEST_FIRST_LINE = 200  # characters of a line that can be a character's name, or a question about one
_LONGEST_NAME = 6  # words
Arrangement = Literal["inverted", "paired"]
EURLEX_COLUMNS = {"celex_id", "concepts", "header", "recitals", "main_body"}
BOOK_SUMMARIES = "booksummaries.txt"


def open_layout(
    source: str | Path, split: str, config: str | None, arrangement: Arrangement | None, text: str, label: str
) -> Table:
    """As `open_rows`, with EURLEX-57K and the CMU Book Summary Corpus as ``id``, ``text`` and ``label``.

    Args:
        source, split, config: as in `open_rows`; also a folder with ``booksummaries.txt``.
        arrangement: see `eurlex_rows` and `paired_rows`.
        text, label: columns of the rows to pair.

    Raises:
        ValueError: as `open_rows`; for an arrangement of something else.
    """
    if (path := Path(source) / BOOK_SUMMARIES).is_file():
        table = Table(f"{BOOK_SUMMARIES} ({split})", {"text": "", "label": []}, book_summary_rows(path, split), {})
    else:
        table = open_rows(source, split, config)
    if table.first.keys() >= EURLEX_COLUMNS:
        rows = eurlex_rows(table.rows, inverted=arrangement == "inverted")
        table = table._replace(first={"text": "", "label": []}, rows=rows)
    elif arrangement == "inverted":
        columns = ", ".join(sorted(EURLEX_COLUMNS))
        raise ValueError(f"{table.name}: 'inverted' is an arrangement of EURLEX-57K, which has {columns}.")
    return table._replace(rows=paired_rows(table.rows, text, label)) if arrangement == "paired" else table


def quality_questions(rows: Rows) -> Rows:
    """A row for every question, of rows that hold an article with its questions."""
    for place, values in rows:
        questions = values.get("questions")
        if not isinstance(questions, list) or not questions or not all(isinstance(each, dict) for each in questions):
            raise place.error("questions", f"must be a list of questions, got {short(questions)}.")
        for number, question in enumerate(questions):
            inner = place._replace(row=f"{place.row}, question {number}")
            yield inner, {**question, "article": values.get("article")}


def first_line(text: str) -> tuple[str, str] | None:
    """A first line short enough to be a name or a question, and the rest; None where there is none."""
    line, end, rest = text.partition("\n")
    return (line.strip(), rest) if end and line.strip() and len(line) <= _LONGEST_FIRST_LINE else None


def muld_rows(rows: Rows, with_question: bool) -> Rows:
    """Rows of MuLD with the question apart from the document, and the one label out of its list.

    The first line of ``input``, if it has at most 200 characters, is the question and the rest the document; a bare
    name (no "?", at most 6 words) becomes the question of the NextLevelBERT paper: "Is the character <NAME> behaving
    like a hero or a villain?". This is a rule of ours, as nothing in the data marks that line; the paper's original
    code takes the first line for the name, too, but leaves it in the document. Where no row has such a line, the whole
    input is the document, without a question. ``metadata`` is not read.
    """
    for place, values in rows:
        text = place.checked(values.get("input"), "input")
        line, rest = first_line(text) or (None, text)
        if (line is not None) != with_question:
            here, there = ("no ", "a ") if with_question else ("a ", "no ")
            raise place.error(
                "input", f"has {here}short first line that names the character, but row 0 has {there}one."
            )
        if line is not None and "?" not in line and len(line.split()) <= _LONGEST_NAME:
            line = f"Is the character {line} behaving like a hero or a villain?"
        output = values.get("output")
        if isinstance(output, list):
            if len(output) != 1:
                raise place.error("output", f"must hold one label, got {short(output)}.")
            output = output[0]
        yield place, {**values, "input": rest, "question": line, "output": output}


def eurlex_rows(rows: Rows, inverted: bool = False) -> Rows:
    """Laws of EURLEX-57K (Chalkidis et al. 2019) as ``text`` and ``label``, the list of their EUROVOC concepts.

    Args:
        rows: a JSON object for each law, as published: a file each.
        inverted: header and recitals, which say the most, come after the main body (Inverted-EURLEX of Park et al.
            2022, which the ChunkBERT paper takes over).
    """
    for place, values in rows:
        if missing := EURLEX_COLUMNS - values.keys():
            raise place.error(min(missing), "is missing, which the laws before have.")
        body = values["main_body"]
        body = body if isinstance(body, list) else [body]
        head = [values["header"], values["recitals"]]
        parts = [*body, *head[::-1]] if inverted else [*head, *body]
        text = " ".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
        yield place, {"id": values["celex_id"], "text": text, "label": values["concepts"]}


def book_summary_rows(path: Path, split: str) -> Rows:
    """The CMU Book Summary Corpus (Bamman and Smith 2013) as ``text`` and ``label``, the list of genres of a book.

    The corpus has no splits: here the SHA-256 of a book's id puts it into ``"train"`` (80 %), ``"validation"`` or
    ``"test"`` (10 % each). Books without a genre are left out and counted.

    Args:
        path: ``booksummaries.txt``, as published: seven fields a line, separated by tabs.
        split: which of the three.
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(f"{path.name} is split into train, validation and test here, got {split!r}.")
    without = 0
    for line, row in read_lines(path):
        place, fields = Place(path.name, f"line {line}"), row.rstrip("\r\n").split("\t")
        if len(fields) != 7:
            raise place.error(
                "summary", f"stands in the last of 7 fields separated by tabs; this line has {len(fields)}."
            )
        share = int(hashlib.sha256(fields[0].encode()).hexdigest(), 16) % 10
        if split != ("train" if share < 8 else "validation" if share == 8 else "test"):
            continue
        try:
            genres = list(json.loads(fields[5] or "{}").values())
        except (ValueError, AttributeError) as error:
            raise place.error("genres", f"must be a JSON object, got {short(fields[5])}.") from error
        if not genres:
            without += 1
            continue
        yield place, {"id": fields[0], "text": fields[6].strip(), "label": genres}
    logger.info("%s, %s: %d books without a genre are left out.", path.name, split, without)


def paired_rows(rows: Rows, text: str = "text", label: str = "label") -> Rows:
    """Every two rows in a row as one: texts joined, with the labels of both (Paired Book Summary of Park et al. 2022).

    A last row without a partner is left out, with a line that says so.
    """
    for place, first in rows:
        _, second = next(rows, (None, None))
        if second is None:
            logger.warning("%s has no partner and is left out.", place)
            return
        both = (first, second)
        texts = [place.checked(place.value(row, text, "--text_column"), text) for row in both]
        labels = [place.value(row, label, "--label_column") for row in both]
        if wrong := [each for each in labels if not isinstance(each, list)]:
            raise place.error(label, f"must be a list of classes to be joined, got {short(wrong[0])}.")
        joined = {text: "\n".join(texts), label: list(dict.fromkeys(labels[0] + labels[1]))}
        yield place, {"id": "+".join(str(row.get("id", place.row)) for row in both), **joined}
