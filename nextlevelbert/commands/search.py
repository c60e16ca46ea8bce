"""``nextlevelbert search``: the passages and documents that are nearest to a question, by vectors and by words."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from ..models.modeling_nextlevelbert import NextLevelBertModel
from .opening import open_model
from .printing import Printer, print_json, print_unreadable
from .shelf import Shelf, ShelvedDocument, open_shelf
from .words import bm25

# The mean of so many best passages ranked stories for questions better than the best one, and than document vectors.
_PASSAGES_OF_A_DOCUMENT = 3


@dataclass(frozen=True)
class FoundPassage:
    """A passage, with its scores (see `ChunkScores`), its characters in the text of its document, and the metadata of
    that."""

    place: str
    score: float
    cosine: float
    bm25: float
    start: int
    end: int
    percent: float  # of the document that stands before it
    text: str
    metadata: dict[str, Any]


@dataclass(frozen=True)
class FoundDocument:
    place: str
    score: float
    characters: int
    chunks: int
    metadata: dict[str, Any]


class ChunkScores(NamedTuple):
    """How near N chunks are to a question, each ``[N]`` float32.

    Attributes:
        both: the mean of the two others, of which each is scaled: its highest to 1, its lowest to 0.
        cosine: of the vectors of chunk and question.
        bm25: of their words.
    """

    both: torch.Tensor
    cosine: torch.Tensor
    bm25: torch.Tensor


def find(
    model: NextLevelBertModel, shelf: Shelf, question: str, documents: int, passages: int
) -> tuple[list[FoundDocument], list[FoundPassage]]:
    """The best documents and passages for a question, best first.

    A passage is ranked by cosine and BM25 together (`ChunkScores`). Its vector and that of the question are as the
    encoder over chunks reads them: whitened, if the model whitens.
    The score of a document is the mean of its three best passages.

    Args:
        model: encodes the question; made the vectors of the shelf.
        shelf: is gone through once; then the records of what was found are read again.
        question: a long one has several chunks, of which the mean is taken.
        documents, passages: how many to give at most.

    Raises:
        SystemExit: with a message, for a question without a token.
    """
    try:
        wanted = question_vector(model, question)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
    cosines: list[torch.Tensor] = []
    origins: list[tuple[int, int]] = []  # record, and row there, of each document that has chunks
    for record in range(len(shelf.records)):
        for row, document in enumerate(shelf.documents(record)):
            if len(document.plain) > 0:
                cosines.append(comparable(model, document.plain) @ wanted)  # [n]
                origins.append((record, row))
    if not origins:
        return [], []
    scores = chunk_scores(torch.cat(cosines), bm25(map(shelf.words, range(len(shelf.records))), question))
    first = np.cumsum([0, *map(len, cosines)])
    best_documents, best_passages = rank(scores.both, first, documents, passages)
    found_documents: dict[int, FoundDocument] = {}
    found_passages: dict[tuple[int, int], FoundPassage] = {}
    chunks: dict[int, list[int]] = {number: [] for number, _ in best_documents}
    for number, chunk, _ in best_passages:
        chunks.setdefault(number, []).append(chunk)
    for number, document in _read_again(shelf, origins, chunks):
        size = (len(document.text), len(document.plain))
        score = dict(best_documents).get(number, 0.0)
        found_documents[number] = FoundDocument(document.place, score, *size, document.metadata)
        for chunk in chunks[number]:
            values = [each[first[number] + chunk].item() for each in scores]
            found_passages[number, chunk] = _passage(document, chunk, *values)
    return (
        [found_documents[number] for number, _ in best_documents],
        [found_passages[number, chunk] for number, chunk, _ in best_passages],
    )


def question_vector(model: NextLevelBertModel, question: str) -> torch.Tensor:
    """The vector ``[D]`` of a question, as it is compared with those of `comparable`; several chunks give their mean.

    Raises:
        ValueError: for a question without a token.
    """
    if model.plan(question).tokens == 0:  # type: ignore[union-attr]  # one plan for one text
        raise ValueError(f"the question {question!r} holds no word that the model can read.")
    return comparable(model, model.encode(question).plain.mean(dim=0, keepdim=True))[0]  # type: ignore[union-attr]


def document_score(scores: torch.Tensor) -> float:
    """The score of a document whose chunks have the scores ``[n]``, n > 0: the mean of the three best."""
    return scores.topk(min(_PASSAGES_OF_A_DOCUMENT, len(scores))).values.mean().item()


def chunk_scores(cosine: torch.Tensor, bm25: np.ndarray) -> ChunkScores:
    """Puts the scores ``[N]`` of vectors and of words together, N > 0.

    Example:
        >>> chunk_scores(torch.tensor([0.1, 0.5, 0.3]), np.float32([0, 2, 4])).both.tolist()
        [0.0, 0.75, 0.75]
    """
    words = torch.from_numpy(bm25)
    return ChunkScores((scaled(cosine) + scaled(words)) / 2, cosine, words)


def scaled(scores: torch.Tensor) -> torch.Tensor:
    """``[..., N]``, the lowest of each row 0 and the highest 1; all 0 where all are equal."""
    low, high = scores.aminmax(dim=-1, keepdim=True)
    return (scores - low) / (high - low).clamp(min=1e-9)


def rank(
    scores: torch.Tensor, first: np.ndarray, documents: int, passages: int
) -> tuple[list[tuple[int, float]], list[tuple[int, int, float]]]:
    """The best documents and chunks; of equal ones, the first is first.

    Args:
        scores: ``[N]`` of all chunks.
        first: ``[n + 1]``, the first chunk of each document, and N; each has one.
        documents, passages: how many to give at most.

    Returns:
        Documents with their scores; and document, chunk of that document, and score.
    """
    every = np.array([document_score(each) for each in scores.split(np.diff(first).tolist())])  # [n]
    chunks = scores.argsort(descending=True, stable=True)[:passages].numpy()
    numbers = np.searchsorted(first, chunks, side="right") - 1
    best = np.argsort(-every, kind="stable")[:documents]
    return (
        list(zip(best.tolist(), every[best].tolist(), strict=True)),
        list(zip(numbers.tolist(), (chunks - first[numbers]).tolist(), scores[chunks].tolist(), strict=True)),
    )


@torch.no_grad()
def comparable(model: NextLevelBertModel, plain: torch.Tensor) -> torch.Tensor:
    """Chunk vectors ``[n, D]`` of a document as they are compared, of length 1.

    Plain ones, whitened if the model does that.
    """
    return F.normalize(model.prepare_chunks(plain.to(model.dtype)).float(), dim=-1)


def _read_again(
    shelf: Shelf, origins: Sequence[tuple[int, int]], numbers: Iterable[int]
) -> Iterator[tuple[int, ShelvedDocument]]:
    """Documents by number, in order; each record is read once."""
    for record, group in itertools.groupby(sorted(numbers), key=lambda number: origins[number][0]):
        rows = {origins[number][1]: number for number in group}
        for row, document in enumerate(shelf.documents(record)):
            if row in rows:
                yield rows[row], document


def _passage(document: ShelvedDocument, chunk: int, both: float, cosine: float, bm25: float) -> FoundPassage:
    start, end = document.spans[chunk].tolist()
    percent = round(100 * start / len(document.text), 1)
    text = document.text[start:end]
    return FoundPassage(document.place, both, cosine, bm25, start, end, percent, text, document.metadata)


def run(arguments: argparse.Namespace) -> None:
    model = open_model(arguments.model, arguments.chunk_encoder)
    shelf = open_shelf(model, arguments.source, arguments.cache_dir)
    documents, passages = find(model, shelf, arguments.question, arguments.documents, arguments.passages)
    if arguments.json:
        answer = {"question": arguments.question, "model": model.name_or_path, "source": str(Path(arguments.source))}
        found = {"documents": [asdict(each) for each in documents], "passages": [asdict(each) for each in passages]}
        print_json({**answer, **found}, shelf.unreadable)
        return
    out = Printer()
    if documents:
        out.line("Nearest documents", "bold")
        rows = [(f"{each.score:.3f}", each.place, f"{each.characters:,}", f"{each.chunks:,}") for each in documents]
        out.table(("score", "document", "characters", "chunks"), rows, left=(1,))
        out.line("")
    if passages:
        out.line("Nearest passages", "bold")
        for each in passages:
            where = f"characters {each.start:,} to {each.end:,}, at {each.percent:.0f}%"
            out.line(f"{each.score:.3f}  {each.place}  {where}", "cyan")
            out.paragraph(each.text)
    print_unreadable(shelf.unreadable)
