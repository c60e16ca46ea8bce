"""``nextlevelbert search``: the passages and documents that are nearest to a question."""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from ..models.modeling_vector_document import VectorDocumentModel
from .opening import open_model
from .printing import Printer, print_json, print_unreadable
from .shelf import ShelvedDocument, open_shelf

# The mean of so many best passages ranked stories for questions better than the best one, and than document vectors.
_PASSAGES_OF_A_DOCUMENT = 3


@dataclass(frozen=True)
class FoundPassage:
    """A passage, with its characters in the text of its document, and the metadata of that."""

    place: str
    score: float
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


def find(
    model: VectorDocumentModel, shelf: Iterable[ShelvedDocument], question: str, documents: int, passages: int
) -> tuple[list[FoundDocument], list[FoundPassage]]:
    """The best documents and passages for a question, best first.

    The score of a passage is the cosine of its chunk vector and the vector of the question, both contextual in a model
    with `config.neighbours`, else as the encoder over chunks reads them: whitened, if the model whitens. That of
    a document is the mean of its three best passages.

    Args:
        model: encodes the question; made the vectors of the shelf.
        shelf: is gone through once.
        question: a long one has several chunks, of which the mean is taken.
        documents, passages: how many to give at most.

    Raises:
        SystemExit: with a message, for a question without a token.
    """
    try:
        wanted = question_vector(model, question)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
    best_documents: list[FoundDocument] = []
    best_passages: list[FoundPassage] = []
    for document in shelf:
        if len(document.plain) == 0:
            continue
        scores = comparable(model, document.plain) @ wanted  # [n]
        size = (len(document.text), len(document.plain))
        found = FoundDocument(document.place, document_score(scores), *size, document.metadata)
        best_documents = _best([*best_documents, found], documents)
        top = scores.topk(min(passages, len(scores)))
        for chunk, score in zip(top.indices.tolist(), top.values.tolist(), strict=True):
            best_passages = _best([*best_passages, _passage(document, chunk, score)], passages)
    return best_documents, best_passages


def question_vector(model: VectorDocumentModel, question: str) -> torch.Tensor:
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


def _best(found: list[Any], count: int) -> list[Any]:
    return heapq.nlargest(count, found, key=lambda each: each.score)  # of equal ones, the first stays first


@torch.no_grad()
def comparable(model: VectorDocumentModel, plain: torch.Tensor) -> torch.Tensor:
    """Chunk vectors ``[n, D]`` of a document as they are compared, of length 1.

    Contextual ones of a model with `config.neighbours`, which learned to find passages by them; else plain ones,
    whitened if the model does that.
    """
    if getattr(model.config, "neighbours", None) is not None:
        [contextual], _ = model.contextualize([plain])
        return F.normalize(contextual.float(), dim=-1)
    return F.normalize(model.prepare_chunks(plain.to(model.dtype)).float(), dim=-1)


def _passage(document: ShelvedDocument, chunk: int, score: float) -> FoundPassage:
    start, end = document.spans[chunk].tolist()
    percent = round(100 * start / len(document.text), 1)
    return FoundPassage(document.place, score, start, end, percent, document.text[start:end], document.metadata)


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
