"""What the page of ``nextlevelbert app`` asks of a shelf: places on a map, scores for a question, parts of a document.

Chunk vectors, as they are compared, and counts of words stay in memory; texts stay in the records of the shelf until
they are shown.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from ..models.modeling_nextlevelbert import NextLevelBertModel
from .search import chunk_scores, comparable, question_vector, rank
from .shelf import Shelf, ShelvedDocument, Unreadable
from .words import WordCounts, bm25

CELLS = 200  # of a strip at most: more would be narrower than a pixel on a phone

_NUMBER = (
    r"(?:\d+|[ivxlc]+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen"
    r"|sixteen|seventeen|eighteen|nineteen|twenty)"
)
_KINDS = "act|article|book|canto|chapter|item|letter|part|section|volume"
_HEADING = re.compile(
    rf"^[ \t]*(?:\#{{1,3}}[ \t]\S.{{0,79}}|(?:{_KINDS})[ \t]+(?:the[ \t]+)?{_NUMBER}(?:[ \t.:,—–-].{{0,79}})?"
    r"|(?-i:[IVXLC]+)\.?|\d{1,3}\.?)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_SHORTEST_PART = 500  # characters; headings closer together are a table of contents
_FEWEST_HEADINGS, _MOST_HEADINGS = 3, 200
_EQUAL_PARTS = 30


class Part(NamedTuple):
    """A chapter, or another part of a document, by its characters."""

    heading: str
    start: int
    end: int


class Answer(NamedTuple):
    """What a library says to a question.

    Attributes:
        scores: ``[N]`` of every chunk in the library, by vectors and words together.
        documents: the best ones, with their scores: the means of their three best chunks.
        passages: the best chunks: document, chunk of that document, score.
    """

    scores: np.ndarray
    documents: list[tuple[int, float]]
    passages: list[tuple[int, int, float]]


@dataclass(frozen=True, eq=False)
class Library:
    """The documents of a shelf, n in all, with N chunks in all.

    Attributes:
        model: encodes questions.
        shelf: keeps the texts.
        records: for each document, its record in the shelf and its number there.
        places: their names.
        characters: their lengths.
        first: ``[n + 1]``, the first chunk of each document, and N.
        vectors: ``[N, D]``, of length 1, whitened if the model whitens.
        words: those of the chunks of each record.
        documents: ``[n, H]`` document vectors of length 1.
        left_out: files and documents that cannot be shown, and why.
    """

    model: NextLevelBertModel
    shelf: Shelf
    records: list[tuple[int, int]]
    places: list[str]
    characters: list[int]
    first: np.ndarray
    vectors: torch.Tensor
    words: list[WordCounts]
    documents: np.ndarray
    left_out: list[Unreadable]

    @classmethod
    def open(cls, model: NextLevelBertModel, shelf: Shelf) -> Library:
        """Goes through a shelf once.

        Raises:
            SystemExit: with a message, if no document of it has a chunk.
        """
        records, places, characters, chunks, vectors, documents = [], [], [], [], [], []
        left_out = list(shelf.unreadable)
        for record in range(len(shelf.records)):
            for number, document in enumerate(shelf.documents(record)):
                if len(document.plain) == 0:
                    left_out.append(Unreadable(document.place, "holds no word that the model can read"))
                    continue
                records.append((record, number))
                places.append(document.place)
                characters.append(len(document.text))
                chunks.append(len(document.plain))
                vectors.append(comparable(model, document.plain))
                documents.append(document.vector.numpy())
        if not records:
            raise SystemExit("error: no document of the folder holds a word that the model can read.")
        first = np.cumsum([0, *chunks])
        words = [shelf.words(record) for record in range(len(shelf.records))]
        stacked = normalize(np.stack(documents))
        return cls(model, shelf, records, places, characters, first, torch.cat(vectors), words, stacked, left_out)

    def document(self, number: int) -> ShelvedDocument:
        """A document with its text, read from its record."""
        record, row = self.records[number]
        return next(itertools.islice(self.shelf.documents(record), row, None))

    def chunks(self, number: int) -> slice:
        """Which of the N chunks are those of a document."""
        return slice(self.first[number], self.first[number + 1])

    def ask(self, question: str, documents: int = 5, passages: int = 5) -> Answer:
        """The nearest documents and passages, scored as `nextlevelbert search` does.

        Raises:
            ValueError: for a question without a token.
        """
        scores = chunk_scores(self.vectors @ question_vector(self.model, question), bm25(self.words, question)).both
        return Answer(scores.numpy(), *rank(scores, self.first, documents, passages))

    def alike(self, number: int, count: int = 5) -> list[tuple[int, float]]:
        """The documents whose vectors have the highest cosine with that of a document."""
        cosines = self.documents @ self.documents[number]
        nearest = [other for other in np.argsort(-cosines, kind="stable").tolist() if other != number]
        return [(other, float(cosines[other])) for other in nearest[:count]]

    def map(self) -> tuple[np.ndarray, float]:
        """Documents ``[n, 2]`` by their first two principal components, each scaled to 0 … 1, and the share of the
        variance that these hold."""
        if len(self.documents) < 2:
            return np.full((1, 2), 0.5), 1.0
        components = PCA(2)
        with np.errstate(invalid="ignore"):  # documents that are all equal have no variance
            points = components.fit_transform(self.documents)  # [n, 2]
        extent = np.ptp(points, axis=0)
        scaled = np.where(extent > 1e-6, (points - points.min(axis=0)) / np.maximum(extent, 1e-6), 0.5)
        return scaled, float(np.nan_to_num(components.explained_variance_ratio_).sum())

    def parts(self, number: int) -> tuple[list[Part], np.ndarray]:
        """The parts of a document and their similarity ``[p, p]``: cosines of the means of their chunk vectors, from
        which the mean of all parts is subtracted."""
        document, vectors = self.document(number), self.vectors[self.chunks(number)].numpy()
        parts = parts_of(document.text, document.spans, document.metadata)
        weights = overlap(document.spans, [(part.start, part.end) for part in parts])  # [p, n]
        kept: np.ndarray = weights.max(axis=1) > 0  # a chapter of the metadata may be blank
        parts = [part for part, keep in zip(parts, kept, strict=True) if keep]
        means = normalize(weights[kept], norm="l1") @ vectors  # [p, D]
        directions = normalize(means - means.mean(axis=0)) if len(means) > 1 else normalize(means)
        return parts, directions @ directions.T

    def nearest_pair(self, number: int, one: Part, other: Part) -> tuple[int, int]:
        """Of two parts of a document, the two chunks that are most alike; of a part with itself, its first chunk."""
        weights = overlap(self.document(number).spans, [(one.start, one.end), (other.start, other.end)])
        rows, columns = np.flatnonzero(weights[0]), np.flatnonzero(weights[1])
        if one == other:
            return int(rows[0]), int(rows[0])
        vectors = self.vectors[self.chunks(number)].numpy()
        cosines = vectors[rows] @ vectors[columns].T
        cosines[rows[:, None] == columns[None, :]] = -np.inf  # a chunk on the border belongs to both
        row, column = np.unravel_index(cosines.argmax(), cosines.shape)
        return int(rows[row]), int(columns[column])


def overlap(spans: np.ndarray, borders: Sequence[tuple[int, int]]) -> np.ndarray:
    """How many characters of each chunk, of spans ``[n, 2]``, lie in each part: ``[p, n]``, float32.

    Example:
        >>> overlap(np.array([[0, 10], [10, 30]]), [(0, 15), (15, 30)]).tolist()
        [[10.0, 5.0], [0.0, 15.0]]
    """
    starts, ends = spans.T
    shared = [np.minimum(ends, end) - np.maximum(starts, start) for start, end in borders]
    return np.maximum(np.stack(shared), 0).astype(np.float32)


def parts_of(text: str, spans: np.ndarray, metadata: dict[str, Any]) -> list[Part]:
    """The chapters that the metadata name, else those between headings of the text, else parts of equal length.

    Args:
        text: of a document.
        spans: ``[n, 2]``, its chunks; parts of equal length begin with one.
        metadata: of its row; its chapters are ``[{"heading", "start", "end"}]``.
    """
    try:
        chapters = [Part(str(it["heading"]), int(it["start"]), int(it["end"])) for it in metadata["chapters"]]
    except (KeyError, TypeError, ValueError):  # no such column, or one that means something else
        chapters = []
    chapters = chapters or _between_headings(text)
    if _FEWEST_HEADINGS <= len(chapters) <= _MOST_HEADINGS:
        return chapters
    groups = np.array_split(np.arange(len(spans)), min(_EQUAL_PARTS, len(spans)))
    starts = [0] + [int(spans[group[0], 0]) for group in groups[1:]]
    borders = itertools.pairwise([*starts, len(text)])
    return [Part(f"part {number}", *border) for number, border in enumerate(borders, start=1)]


def _between_headings(text: str) -> list[Part]:
    found = [(" ".join(match.group().strip("# \t").split()), match.start()) for match in _HEADING.finditer(text)]
    ends = [*(start for _, start in found), len(text)][1:]
    far = [each for each, end in zip(found, ends, strict=False) if end - each[1] >= _SHORTEST_PART]
    if far and far[0][1] >= _SHORTEST_PART:
        far.insert(0, ("before the first heading", 0))
    ends = [*(start for _, start in far), len(text)][1:]
    return [Part(heading, start, end) for (heading, start), end in zip(far, ends, strict=False)]


def strip(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores ``[n]`` of chunks in at most `CELLS` cells: the highest score of each, and the chunk that has it.

    Example:
        >>> [values.tolist() for values in strip(np.array([0.5, 0.25]))]
        [[0.5, 0.25], [0, 1]]
    """
    cells = np.array_split(np.arange(len(scores)), min(CELLS, len(scores)))
    chunks = np.array([cell[scores[cell].argmax()] for cell in cells])
    return scores[chunks], chunks
