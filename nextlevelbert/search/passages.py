"""Decides what a passage is: a chunk, widened to whole sentences; and shows passages."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..corpus.parts import column_values
from ..models.sentences import text_sentences
from ..spans import whole_sentences

_LONGEST_PASSAGE = 2_000  # characters of a passage that are shown


def borders_of_passages(texts: Sequence[str], spans: Sequence[np.ndarray]) -> np.ndarray:
    """Decides the passages of documents: chunks, widened to whole sentences.

    Args:
        texts: the documents.
        spans: the characters of each document's chunks, ``[n, 2]``.

    Returns:
        The characters of all passages, ``[N, 2]``.
    """
    borders = []
    for text, document_spans in zip(texts, spans, strict=True):
        if len(document_spans) == 1 and _is_whole(text, *document_spans[0].tolist()):
            borders.append(document_spans)  # sentences would take most of the time of a short text
        else:
            borders.append(whole_sentences(text, document_spans))
    return np.concatenate(borders)


def _is_whole(text: str, start: int, end: int) -> bool:
    """Returns whether a span has all of a text but the white space around it."""
    return not text[:start].strip() and not text[end:].strip()


def first_rows(table: pa.Table) -> np.ndarray:
    """Returns the index of each document's first row in a part."""
    return np.flatnonzero(column_values(table["chunk"]) == 0)


def passage_texts(table: pa.Table) -> Iterator[tuple[str, list[str]]]:
    """Yields the text of each document of a part, and the texts of its passages.

    Args:
        table: the columns text, chunk, passage_start and passage_end of a part.
    """
    rows = table.to_pylist()
    for first, stop in pairwise([*first_rows(table).tolist(), len(rows)]):
        chunks = rows[first:stop]
        text = "".join(chunk["text"] for chunk in chunks)
        passages = []
        for chunk in chunks:
            start = chunk["passage_start"]
            end = chunk["passage_end"]
            passages.append(text[start:end])
        yield text, passages


class Passage(NamedTuple):
    """A passage for display: whole sentences of a document, up to a length.

    Args:
        start: first character of the passage in the document.
        end: last character of the passage in the document, plus one.
        text: text of the passage, with a mark at the end if the passage is longer.
        share: the share of the document that comes before the passage.
        pages: first and last page of the passage in a PDF.
        page: the page that holds most of the passage.
    """

    start: int
    end: int
    text: str
    share: float
    pages: tuple[int, int] | None = None
    page: int | None = None

    @property
    def characters(self) -> str:
        return f"characters {self.start:,} to {self.end:,}"

    @property
    def position(self) -> str:
        """Says on which pages and how far down the passage is."""
        share = f"at {self.share:.0%}"
        if self.pages is None:
            return share
        first, last = self.pages
        if first == last:
            return f"page {first}, {share}"
        return f"pages {first} to {last}, {share}"


def show_passage(text: str, start: int, end: int, page_starts: list[int] | None) -> Passage:
    """Finds the pages of a passage, and shortens a passage that is too long to be shown.

    Args:
        text: the document.
        start: the first character of the passage.
        end: last character of the passage, plus one.
        page_starts: the character at which each page begins, if the document has pages.
    """
    passage = Passage(start, end, text=shorten(text[start:end]), share=start / len(text))
    if page_starts is None:
        return passage

    borders = np.clip([*page_starts, len(text)], start, end)
    characters = np.diff(borders)  # of the passage on each page
    pages = (np.flatnonzero(characters) + 1).tolist()
    return passage._replace(pages=(pages[0], pages[-1]), page=int(characters.argmax()) + 1)


def shorten(passage: str) -> str:
    """Ends a long passage after a sentence, and says how many characters are left."""
    if len(passage) <= _LONGEST_PASSAGE:
        return passage
    shown = passage[:_LONGEST_PASSAGE]
    last_sentence, _ = text_sentences(shown)[-1]
    if last_sentence > 0:
        shown = shown[:last_sentence].rstrip()
    return f"{shown} [… {len(passage) - len(shown):,} more characters]"
