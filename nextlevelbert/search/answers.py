"""``nextlevelbert search``: prints the passages and documents that are nearest to a question."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ..messages import names_in_line, readable_text
from .encoders.choice import SearchModel
from .library import Library, SearchResult, open_library
from .passages import NO_SPACE, join_lines, readable_json
from .reading import ReadingOptions
from .rerank import Reranker

if TYPE_CHECKING:
    from ..models.modeling_nextlevelbert import NextLevelBertModel

# Characters that a terminal would obey, and that `json` writes as they are.
_CONTROLS_IN_JSON = re.compile("[\x7f-\x9f\u202d\u202e]")


def run(
    source: str,
    question: str,
    model: NextLevelBertModel | SearchModel | None = None,
    reading: ReadingOptions | None = None,
    *,
    documents: int = 5,
    passages: int = 5,
    as_json: bool = False,
    rerank: Reranker | None = None,
) -> None:
    """Prints the passages and documents that are nearest to a question.

    Args:
        source: a file, a folder or a pattern.
        question: text of the question.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where their passages and vectors are kept.
        documents: largest number of documents to print.
        passages: largest number of passages to print.
        as_json: if true, prints JSON.
        rerank: ranks the first passages again, by a second model.
    """
    library = open_library(source, model, reading)
    note = library.question_note(question)
    if note is not None:
        print(note, file=sys.stderr)
    answer = library.ask(question, documents, passages, rerank=rerank)
    if as_json:
        rows = {
            "question": question,
            "documents": document_rows(library, answer),
            "passages": passage_rows(library, answer),
        }
        text = readable_json(rows, indent=2)
        print(_CONTROLS_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
    else:
        print_answer(library, answer)


def document_rows(library: Library, answer: SearchResult) -> list[dict[str, Any]]:
    """Returns the nearest documents in the form that is printed as JSON."""
    chunks = np.diff(library.starts).tolist()
    rows = []
    for index, score in answer.documents:
        document = library.document(index)
        row = {
            "place": document.name,
            "also_in": library.copies_of_document(index),
            "score": score,
            "characters": len(document.text),
            "chunks": chunks[index],
            "metadata": document.metadata,
        }
        rows.append(row)
    return rows


def passage_rows(library: Library, answer: SearchResult) -> list[dict[str, Any]]:
    """Returns the nearest passages in the form that is printed as JSON; NaN is printed as null."""
    rows = []
    for index in answer.passages:
        row = {
            "place": library.name(library.document_of(index)),
            "also_in": library.copies_of_passage(index),
            "score": float(answer.score[index]),
            "cosine": float(answer.cosine[index]),
            "bm25": float(answer.bm25[index]),
            **library.passage(index)._asdict(),
        }
        for name in ("late_interaction", "rerank_cosine"):
            values = getattr(answer, name)
            if values is not None:
                row[name] = float(values[index])
        rows.append(row)
    return rows


def print_answer(library: Library, answer: SearchResult) -> None:
    """Prints the nearest documents and passages for a reader."""
    documents = document_rows(library, answer)
    if documents:
        print("Nearest documents (scores are relative to the folder)")
    for row in documents:
        chunks = f"{row['chunks']:,} chunks"
        if row["chunks"] == 1:
            chunks = "1 chunk"
        print(f"{row['score']:.3f}  {row['place']}  {row['characters']:,} characters in {chunks}")
        _print_copies(row["also_in"])
    if documents and answer.passages:
        print()

    if answer.passages:
        print("Nearest passages")
    width = 10**9  # in a pipe, a paragraph is one line
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    indent = "    "
    for index in answer.passages:
        passage = library.passage(index)
        name = library.name(library.document_of(index))
        print(f"{answer.score[index]:.3f}  {name}  {passage.characters}, {passage.position}")
        _print_copies(library.copies_of_passage(index))
        text = join_lines(readable_text(passage.text)).replace(NO_SPACE, "")
        for line in text.splitlines():
            if line.strip():
                print(textwrap.fill(line, width, initial_indent=indent, subsequent_indent=indent))
        print()


def _print_copies(documents: list[str]) -> None:
    """Prints a line with the other documents of the same text, the first ten by name."""
    if documents:
        print(f"       also in: {names_in_line(documents)}")
