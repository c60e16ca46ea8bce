"""What the page of ``nextlevelbert app`` shows of a library, for the template ``page.html``."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np

from ...data.words import search_words
from ..library import Library, SearchResult
from ..rerank import Reranker
from .highlights import bold_words, marked_text, running_lines, snippet

_ROWS = 30
_MOST_ROWS = 960
_MOST_CELLS = 100  # of a strip
_BEFORE = 500  # characters that are shown before a passage, and after it
_AFTER = 3_000
_LONGEST_MARK = 20_000  # characters
# Of a text without its beginning: the first line if it is short, else the first word.
_FIRST_WORD = re.compile(r"\A(?:[^\n]{0,100}\n|\S*\s*)")
# A word of an example: no number, no abbreviation, and none of a heading in capitals.
_EXAMPLE_WORD = re.compile(r"\b[^\W\d_][^\W\d_A-Z]{4,}\b")
_READ_FOR_EXAMPLE = 50_000  # characters
_FREQUENT_WORDS = 40
# Spreadsheets compute cells that begin like this (OWASP, "CSV injection").
_FORMULA = re.compile(r"\A(?=\s*[=+\-@＝＋－＠]|[\t\r\n])")


class Address(NamedTuple):
    """A state of the page: the values of its address, which are texts.

    Args:
        q: the question.
        document: name of the open document.
        passage: number of the open passage in the document (default: the best one).
        within: name of the document whose passages are listed (default: all documents).
        view: ``"documents"`` lists documents for a question.
        rows: number of rows in the list.
    """

    q: str = ""
    document: str = ""
    passage: str = ""
    within: str = ""
    view: str = ""
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
        self.words = set[str]()
        self.most_rows = min(max(_whole(address.rows), _ROWS), _MOST_ROWS)
        for name in (address.document, address.within):
            if name and name not in library.names:
                raise ValueError(f"The folder holds no document {name!r}.")
        if address.q:
            self.answer = library.ask(address.q, self.most_rows, self.most_rows, rerank=rerank)
            self.words = library.telling_words(address.q)

    def _passages_of(self, document: int) -> np.ndarray:
        """Returns the indices of a document's passages."""
        return np.arange(*self.library.starts[document : document + 2])

    @cached_property
    def found(self) -> list[int]:
        """Returns the passages that are listed, the nearest first."""
        if self.answer is None or self.address.view:
            return []
        if not self.address.within:
            return self.answer.passages
        passages = self._passages_of(self.library.names.index(self.address.within))
        order = np.argsort(-self.answer.score[passages], kind="stable")
        return passages[order][: self.most_rows].tolist()

    @cached_property
    def opened(self) -> int | None:
        """Returns the open passage: the chosen one, or else the best."""
        if not self.address.document:
            return next(iter(self.found), None)
        passages = self._passages_of(self.library.names.index(self.address.document))
        if self.answer is not None and not self.address.passage:
            return int(passages[self.answer.score[passages].argmax()])
        return int(passages[min(_whole(self.address.passage), len(passages) - 1)])

    @property
    def open_row(self) -> int:
        """Returns the row of the open passage, or of its document."""
        assert self.opened is not None
        if self.address.q and not self.address.view:
            return self.opened
        return self.library.document_of(self.opened)

    def _passage_link(self, index: int) -> str:
        """Returns a link that opens a passage."""
        document = self.library.document_of(index)
        number = index - self.library.starts[document]
        return self.address.link(document=self.library.names[document], passage=str(number))

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Returns what the list shows of each passage or document."""
        names = self.library.names
        if self.answer is None:
            return [self._document_row(index) for index in range(len(names))[: self.most_rows]]
        if self.address.view:
            ranked = self.answer.documents
            return [self._document_row(index, f"{score:.3f}") for index, score in ranked]
        rows = []
        for index in self.found:
            passage = self.library.passage(index)
            row = {
                "id": index,
                "link": self._passage_link(index),
                "name": names[self.library.document_of(index)],
                "position": passage.position,
                "score": f"{self.answer.score[index]:.3f}",
                "text": bold_words(snippet(passage.text, self.words), self.words),
                "is_open": index == self.opened,
            }
            rows.append(row)
        return rows

    def _document_row(self, index: int, score: str = "") -> dict[str, Any]:
        name = self.library.names[index]
        return {
            "id": index,
            "link": self.address.link(document=name),
            "name": name,
            "position": f"{self.library.spans(index)[-1, 1]:,} characters",
            "score": score,
            "cells": self.strip(index),
            "is_open": name == self.address.document,
        }

    def strip(self, document: int) -> list[dict[str, Any]]:
        """Returns the cells of a document's strip, from its beginning to its end.

        Returns:
            For each cell, its share of the colour, from 0 for the mean score of all passages to 1
            for the highest, and a link to its best passage. Empty without a question.
        """
        if self.answer is None:
            return []
        passages = self._passages_of(document)
        score = self.answer.score
        low = max(float(score.mean()), 0.0)
        high = max(float(score.max()), low + 1e-6)
        cells = []
        for cell in np.array_split(passages, min(_MOST_CELLS, len(passages))):
            best = int(cell[score[cell].argmax()])
            share = np.clip((score[best] - low) / (high - low), 0, 1)
            cells.append({"share": f"{share**1.5:.2f}", "link": self._passage_link(best)})
        return cells

    def reading(self) -> dict[str, Any]:
        """Returns the open passage in the text around it; for a question, it is marked."""
        assert self.opened is not None
        document = self.library.document_of(self.opened)
        stored = self.library.document(document)
        passage = self.library.passage(self.opened)
        end = min(passage.end, passage.start + _LONGEST_MARK)
        before = stored.text[max(0, passage.start - _BEFORE) : passage.start]
        if len(before) == _BEFORE:
            before = _FIRST_WORD.sub("", before)
        marked = (passage.start, end)
        if self.answer is None:
            marked = (0, 0)
        cells = self.strip(document)
        reading = {
            "name": self.library.names[document],
            "position": f"{passage.position}, {passage.characters}",
            "cells": cells,
            "place": f"{passage.share * len(cells):.2f}",
            "text": marked_text(
                stored.text,
                (passage.start - len(before), min(end + _AFTER, len(stored.text))),
                marked=marked,
                running=running_lines(stored.text, stored.page_starts or []),
                words=self.words,
            ),
        }
        for name, neighbour in (("previous", self.opened - 1), ("next", self.opened + 1)):
            if neighbour in self._passages_of(document):
                reading[name] = self._passage_link(neighbour)
        return reading

    def table(self) -> str:
        """Returns the listed passages as CSV, with the question in each row.

        An apostrophe precedes texts that a spreadsheet would compute.
        """
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(["question", "document", "position", "characters", "score", "passage"])
        for index in self.found:
            passage = self.library.passage(index)
            assert self.answer is not None
            row = [
                _no_formula(self.address.q),
                _no_formula(self.library.names[self.library.document_of(index)]),
                passage.position,
                passage.characters,
                f"{self.answer.score[index]:.4f}",
                _no_formula(passage.text),
            ]
            writer.writerow(row)
        return file.getvalue()

    def examples(self) -> list[str]:
        """Returns words that are typical of some documents, as first questions."""
        last = len(self.library.names) - 1
        examples = []
        for index in sorted({0, last // 3, 2 * last // 3, last}):
            text = self.library.document(index).text[:_READ_FOR_EXAMPLE]
            words = dict(Counter(_EXAMPLE_WORD.findall(text)).most_common(_FREQUENT_WORDS))
            telling = self.library.telling_words(" ".join(words))
            typical = [word for word in words if not telling.isdisjoint(search_words(word))]
            examples.append(" ".join(typical[:3]))
        return list(filter(None, examples))


def _whole(text: str) -> int:
    """Reads a number of an address, of at most nine digits; other texts are 0."""
    if text.isdecimal() and len(text) < 10:
        return int(text)
    return 0


def _no_formula(text: str) -> str:
    """Puts an apostrophe before a text that spreadsheets would compute."""
    return _FORMULA.sub("'", text)
