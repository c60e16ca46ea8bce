"""Decides what a passage is: a chunk, widened to whole sentences; and shows passages."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..models.sentences import text_sentences

# Characters. A passage is widened to whole sentences of up to this length, else to whole words.
_LONGEST_SENTENCE = 1_000
_WORD = re.compile(r"\S{1,100}")
_LONGEST_PASSAGE = 2_000  # characters of a passage that are shown


def borders_of_passages(texts: Sequence[str], spans: Sequence[np.ndarray]) -> np.ndarray:
    """Widens the chunks of documents to whole sentences, see `passage_borders`.

    Args:
        texts: the documents.
        spans: the characters of each document's chunks, ``[n, 2]``.

    Returns:
        The characters of all passages, ``[N, 2]``.
    """
    borders = []
    for text, document_spans in zip(texts, spans, strict=True):
        borders.append(passage_borders(text, document_spans))
    return np.concatenate(borders)


def passage_borders(text: str, spans: np.ndarray) -> np.ndarray:
    """Widens chunks to whole sentences, or to whole words in a very long sentence.

    Args:
        text: the document.
        spans: the characters of the document's chunks, ``[n, 2]``.

    Returns:
        The characters of the document's passages, ``[n, 2]``.
    """
    if len(spans) == 1 and _is_whole(text, *spans[0].tolist()):
        return spans
    units = []
    for start, end in text_sentences(text):
        if end - start <= _LONGEST_SENTENCE:
            units.append((start, end))
        else:
            units.extend(word.span() for word in _WORD.finditer(text, start, end))
    if not units:
        return spans

    unit_starts, unit_ends = np.array(units).T
    chunk_starts, chunk_ends = spans.T
    first = np.searchsorted(unit_ends, chunk_starts, side="right")
    first = first.clip(max=len(units) - 1)
    last = np.searchsorted(unit_starts, chunk_ends) - 1
    last = last.clip(min=0)
    # Some tokenizers count the space before a word.
    starts = np.minimum(unit_starts[first], chunk_starts)
    ends = np.maximum(unit_ends[last], chunk_ends)
    return np.stack([starts, ends], axis=1)


def _is_whole(text: str, start: int, end: int) -> bool:
    """Returns whether a span has all of a text but the white space around it."""
    return not text[:start].strip() and not text[end:].strip()


def passage_texts(table: pa.Table) -> Iterator[tuple[str, list[str]]]:
    """Yields the text of each document of a part, and the texts of its passages.

    Args:
        table: the columns text, chunk, passage_start and passage_end of a part.
    """
    rows = table.to_pylist()
    first_rows = np.flatnonzero(table["chunk"].to_numpy() == 0).tolist()
    for first, stop in pairwise([*first_rows, len(rows)]):
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
