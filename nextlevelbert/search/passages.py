"""Decides what a passage is: a chunk, widened to whole sentences; stores and shows passages."""

import hashlib
import json
import re
from collections.abc import Sequence
from itertools import chain, groupby, pairwise, repeat
from typing import Any, NamedTuple

import numpy as np

from ..models.text_sentences import text_sentences
from ..spans import whole_sentences
from .reading import SourceFile

_LONGEST_PASSAGE = 2_000  # characters of a passage that are shown
# A line of a paragraph that has no room for the next word, as a share of the longest line: letters
# of a PDF have different widths.
_FULL_LINE = 0.85
_SHORTEST_LINE = 40  # characters of a line that is joined, if the longest of a paragraph
# Beginnings of lines of code, comments, tables and quotations; the dots of a table of contents.
_CODE = re.compile(r"[\s$>#|]|.*(?:\. ?){5}")
_DIVIDED = re.compile(r"[^\W\d_][-\u2010]$")
NO_SPACE = "\u200b"
"""A character without width, at which a line may end."""
_BULLET = re.compile(r"(?:[-*•–]|\d{1,3}[.)])\s|--?\w")


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


def passage_texts(texts: Sequence[str], counts: np.ndarray, spans: np.ndarray) -> list[str]:
    """Returns the texts of the passages of n documents.

    Args:
        texts: the documents.
        counts: number of passages of each document, ``[n]``.
        spans: the characters of all passages in their documents, ``[N, 2]``.
    """
    owners = chain.from_iterable(map(repeat, texts, counts.tolist()))
    return [text[start:end] for text, (start, end) in zip(owners, spans.tolist(), strict=True)]


def numbers_of_texts(texts: Sequence[str]) -> bytes:
    """Returns eight bytes for each text; texts that differ in white space have the same."""
    return b"".join(hashlib.sha256(text.strip().encode()).digest()[:8] for text in texts)


class Run(NamedTuple):
    """The documents of a file, or a run of the documents of a table.

    Attributes:
        file: the file.
        first_passage: number of its first passage.
        counts: number of passages of each of its n documents, ``[n]``.
        texts: a number for the text of each of its N passages, ``[N]``; equal for equal texts.
        document_texts: the same for its documents, ``[n]``.
    """

    file: SourceFile
    first_passage: int
    counts: np.ndarray
    texts: np.ndarray
    document_texts: np.ndarray


class StoredDocument(NamedTuple):
    """A document of a store.

    Attributes:
        name: its printed name.
        text: its text.
        metadata: the other columns of its row.
        page_starts: the character at which each page begins; None without pages.
    """

    name: str
    text: str
    metadata: dict[str, Any]
    page_starts: list[int] | None

    @classmethod
    def of(cls, file: SourceFile, name: str, text: str, metadata_text: str) -> "StoredDocument":
        """Returns a document of a file; in a table, a column may be called "pages"."""
        metadata = json.loads(metadata_text)
        page_starts = None
        if not file.is_table:
            page_starts = metadata.pop("pages", None)
        return cls(file.name_of(name), text=text, metadata=metadata, page_starts=page_starts)


def readable_json(values: dict[str, Any], indent: int | None = None) -> str:
    """Writes values as JSON that any reader accepts: NaN becomes null, half a surrogate "?"."""
    text = json.dumps(values, default=str)
    values = json.loads(text, parse_constant=lambda name: None)
    return json.dumps(values, ensure_ascii=False, indent=indent).encode(errors="replace").decode()


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


def join_lines(text: str) -> str:
    """Writes a space for each line end within a paragraph, so that a text can be laid out anew.

    Within a word that is divided, it is `NO_SPACE`. A line that begins with white space or `$` is
    code, and keeps its line ends. A bullet begins a new line, and so does what follows a line that
    had room for the next word. Characters keep their places.
    """
    blocks = []
    for has_text, block in groupby(text.split("\n"), key=lambda line: line.strip() != ""):
        lines = list(block)
        if has_text:
            blocks.append(_join_paragraph(lines))
        else:
            blocks.append("\n".join(lines))
    return "\n".join(blocks)


def _join_paragraph(lines: Sequence[str]) -> str:
    """Joins lines between two blank ones, see `join_lines`."""
    longest = max(map(len, lines))
    joined = [lines[0]]
    for line, following in pairwise(lines):
        word, _, _ = following.partition(" ")
        has_room = len(line) + 1 + len(word) <= _FULL_LINE * longest
        keeps_end = _CODE.match(line) or _CODE.match(following) or _BULLET.match(following)
        if longest < _SHORTEST_LINE or has_room or keeps_end:
            joined.append("\n")
        elif _DIVIDED.search(line):
            joined.append(NO_SPACE)
        else:
            joined.append(" ")
        joined.append(following)
    return "".join(joined)
