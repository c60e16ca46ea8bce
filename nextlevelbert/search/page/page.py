"""What the page of ``nextlevelbert app`` shows of a library, for the template ``page.html``."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np

from ..library import Library, SearchResult
from ..rerank import Reranker
from .highlights import CUT_LINE, bold_words, marked_text, running_lines, snippet

_ROWS = 30
_MOST_ROWS = 960
_MOST_CELLS = 100  # of a strip
_BEFORE = 500  # characters that are shown before a passage
_AFTER = 20_000  # characters that are shown from its beginning on
# Spreadsheets compute cells that begin like this (OWASP, "CSV injection").
_FORMULA = re.compile(r"\A(?=\s*[=+\-@＝＋－＠]|[\t\r\n])")


class Address(NamedTuple):
    """A state of the page: the values of its address, which are texts.

    Args:
        q: the question.
        document: name of the open document.
        passage: number of the open passage in the document (default: the first one).
        within: name of the document whose passages are listed (default: all documents).
        rows: number of rows in the list.
    """

    q: str = ""
    document: str = ""
    passage: str = ""
    within: str = ""
    rows: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Address:
        """Reads the query of an address."""
        return cls(*(query.get(name, "").strip() for name in cls._fields))

    def link(self, path: str = "/", document: str = "", passage: str = "", **changes: str) -> str:
        """Returns a link to other rows or another document; none is open unless it is given."""
        values = {**self._asdict(), "document": document, "passage": passage, **changes}
        return f"{path}?{urlencode({name: value for name, value in values.items() if value})}"


class Page:
    """A state of the page over a library.

    Args:
        library: the library.
        address: the state.
        rerank: ranks the first passages of a question again, by a second model.

    Raises:
        ValueError: if the library does not hold a document of the address, or the question holds no
            word that the model can read.
    """

    def __init__(self, library: Library, address: Address, rerank: Reranker | None = None) -> None:
        self.library = library
        self.address = address
        self.answer: SearchResult | None = None
        self.score = np.zeros(library.starts[-1], np.float32)  # of each passage, [N]
        self.words = library.telling_words(address.q)
        self.most_rows = min(max(_whole(address.rows), _ROWS), _MOST_ROWS)
        # The nearest passages; without a question, the first one of each document.
        self.found: list[int] = library.starts[:-1][: self.most_rows].tolist()
        for name in (address.document, address.within):
            if name and name not in library.names:
                raise ValueError(f"The folder holds no document {name!r}.")
        if address.q:
            self.answer = library.ask(address.q, 0, self.most_rows, rerank=rerank)
            self.score = self.answer.score
            self.found = self.answer.passages
        if address.q and address.within:
            passages = self._passages_of(library.names.index(address.within))
            order = np.argsort(-self.score[passages], kind="stable")
            self.found = passages[order][: self.most_rows].tolist()

    def _passages_of(self, document: int) -> np.ndarray:
        """Returns the indices of a document's passages."""
        return np.arange(*self.library.starts[document : document + 2])

    @cached_property
    def opened(self) -> int:
        """Returns the open passage: the chosen one, or else the first of the list."""
        if not self.address.document:
            return self.found[0]
        passages = self._passages_of(self.library.names.index(self.address.document))
        return int(passages[min(_whole(self.address.passage), len(passages) - 1)])

    @property
    def open_row(self) -> int:
        """Returns the passage whose row is marked; a row of a document has its first passage."""
        if self.answer is not None:
            return self.opened
        return int(self.library.starts[self.library.document_of(self.opened)])

    def _passage_link(self, index: int) -> str:
        """Returns a link that opens a passage."""
        document = self.library.document_of(index)
        number = index - self.library.starts[document]
        return self.address.link(document=self.library.names[document], passage=str(number))

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Returns what the list shows of each passage or document."""
        rows = []
        for index in self.found:
            document = self.library.document_of(index)
            name = self.library.names[document]
            row = {"id": index, "link": self._passage_link(index), "name": name}
            if self.answer is None:
                last = self._passages_of(document)[-1]
                row["position"] = f"{self.library.spans[last, 1]:,} characters"
            else:
                passage = self.library.passage(index)
                row["position"] = passage.position
                row["score"] = f"{self.score[index]:.3f}"
                row["text"] = bold_words(snippet(passage.text, self.words), self.words)
            rows.append(row)
        return rows

    def strip(self, document: int) -> list[dict[str, Any]]:
        """Returns the cells of a document's strip, from its beginning to its end.

        Returns:
            For each cell, its share of the colour, from 0 for the mean score of all passages to 1
            for the highest, and a link to its best passage.
        """
        passages = self._passages_of(document)
        low = max(float(self.score.mean()), 0.0)
        high = max(float(self.score.max()), low + 1e-6)
        cells = []
        for cell in np.array_split(passages, min(_MOST_CELLS, len(passages))):
            best = int(cell[self.score[cell].argmax()])
            share = np.clip((self.score[best] - low) / (high - low), 0, 1)
            cells.append({"share": f"{share**1.5:.2f}", "link": self._passage_link(best)})
        return cells

    def reading(self) -> dict[str, Any]:
        """Returns the open passage in the text around it; for a question, it is marked."""
        document = self.library.document_of(self.opened)
        stored = self.library.document(document)
        passage = self.library.passage(self.opened)
        before = stored.text[max(0, passage.start - _BEFORE) : passage.start]
        if len(before) < passage.start:
            before = CUT_LINE.sub("", before)
        end = passage.start + _AFTER
        marked = (passage.start, passage.end)
        if self.answer is None:
            marked = (0, 0)
        cells = self.strip(document)
        return {
            "name": self.library.names[document],
            "position": f"{passage.position}, {passage.characters}",
            "cells": cells,
            "place": f"{passage.share * len(cells):.2f}",
            "text": marked_text(
                stored.text,
                (passage.start - len(before), min(end, len(stored.text))),
                marked=marked,
                running=running_lines(stored.text, stored.page_starts or []),
                words=self.words,
            ),
            "has_end": end >= len(stored.text),
        }

    def table(self) -> str:
        """Returns the listed passages as CSV, with the question in each row.

        An apostrophe precedes texts that a spreadsheet would compute.
        """
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(["question", "document", "position", "characters", "score", "passage"])
        for index in self.found:
            passage = self.library.passage(index)
            row = [
                _FORMULA.sub("'", self.address.q),
                _FORMULA.sub("'", self.library.names[self.library.document_of(index)]),
                passage.position,
                passage.characters,
                f"{self.score[index]:.4f}",
                _FORMULA.sub("'", passage.text),
            ]
            writer.writerow(row)
        return file.getvalue()


def _whole(text: str) -> int:
    """Reads a number of an address, of at most nine digits; other texts are 0."""
    if text.isdecimal() and len(text) < 10:
        return int(text)
    return 0
