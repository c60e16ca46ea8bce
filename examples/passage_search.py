"""Where do long documents speak of something? Passages with their place, by plain and by contextual chunk vectors.

python examples/passage_search.py --model MODEL --documents my_books/ \\
    --question "Who saw the white whale first?" --output places.png

MODEL is a checkpoint of ``run_pretraining.py --objective passages``, whose contextual chunk vectors know what stands
around a chunk and lie in one space with those of a question. The picture has a line for each kind of vector along the
documents that are nearest, and dots at the best passages.
"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from transformers import AutoModel

import nextlevelbert

COLORS = {"plain": "tab:gray", "contextual": "tab:red"}


@dataclass(frozen=True)
class Found:
    """A document and the cosines ``[n]`` of its chunks with the question, by kind of vector."""

    document: nextlevelbert.Document
    spans: np.ndarray  # [n, 2]
    scores: dict[str, np.ndarray]


def cosines(question: torch.Tensor, chunks: torch.Tensor) -> np.ndarray:
    """``[n]`` cosines of the mean of a question's vectors ``[q, D]`` and each chunk of ``[n, D]``."""
    return torch.cosine_similarity(question.mean(dim=0, keepdim=True), chunks).numpy()


def search(model: nextlevelbert.NextLevelBertModel, documents: list[nextlevelbert.Document], text: str) -> list[Found]:
    """The documents with their scores; plain vectors are whitened, as the model reads them."""
    found: list[Found] = []
    embeddings: Any = model.encode([text, *(each.text for each in documents)])  # a list for a list
    question, *books = embeddings
    for document, book in zip(documents, books, strict=True):
        with torch.no_grad():
            plain = [model.prepare_chunks(each.plain) for each in (question, book)]
        scores = {"plain": cosines(*plain), "contextual": cosines(question.chunks, book.chunks)}
        found.append(Found(document, book.spans, scores))
    return found


def best(found: list[Found], kind: str, top: int) -> list[tuple[float, int, int]]:
    """Score, document and chunk of the passages with the highest scores."""
    scored = ((float(score), number, chunk)
              for number, each in enumerate(found) for chunk, score in enumerate(each.scores[kind]))  # fmt: skip
    return sorted(scored, key=lambda hit: -hit[0])[:top]


def draw(found: list[Found], hits: dict[str, list[tuple[float, int, int]]], question: str, path: str) -> None:
    """A panel for each document in which a passage was found, at most four."""
    numbers = list(dict.fromkeys(number for kind in hits.values() for _, number, _ in kind))[:4]
    figure = Figure(figsize=(11, 1 + 1.7 * len(numbers)), dpi=120, layout="constrained")
    for axes, number in zip(figure.subplots(len(numbers), 1, squeeze=False)[:, 0], numbers, strict=True):
        each = found[number]
        middles = each.spans.mean(axis=1) / 1000
        for kind, color in COLORS.items():
            own = [chunk for _, document, chunk in hits[kind] if document == number]
            axes.plot(middles, each.scores[kind], color=color, linewidth=0.8, label=f"{kind} chunk vectors")
            axes.plot(middles[own], each.scores[kind][own], "o", color=color, markersize=5)
        axes.set(ylabel="cosine", title=each.document.id, xlim=(0, 1.01 * len(each.document.text) / 1000))
    figure.legend(handles=axes.lines[::2], loc="outside lower center", ncols=2, fontsize=8)  # where it hides no dot
    axes.set_xlabel("position in the document (thousand characters)")
    figure.suptitle(f"“{textwrap.shorten(question, 90, placeholder='…')}”", fontsize=11)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint of --objective passages")
    parser.add_argument("--documents", required=True, help='file, folder or pattern, or "python-manual"')
    parser.add_argument("--question", required=True, help="what to look for")
    parser.add_argument("--top", type=int, default=3, help="passages to print; default 3")
    parser.add_argument("--output", required=True, help="the picture to write (.png)")
    args = parser.parse_args()

    matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a question is one
    model = AutoModel.from_pretrained(args.model)
    if getattr(model.config, "neighbours", None) is None:
        parser.error(
            f"{args.model} did not learn to find passages; give one of run_pretraining.py --objective passages"
        )
    if model.plan(args.question).tokens == 0:
        parser.error("the question is blank")
    documents = [each for each in nextlevelbert.read_documents(args.documents) if model.plan(each.text).tokens]
    found = search(model, documents, args.question)
    hits = {kind: best(found, kind, args.top) for kind in COLORS}
    for kind, passages in hits.items():
        print(f"\nBest by {kind} chunk vectors:")
        for rank, (score, number, chunk) in enumerate(passages, start=1):
            document, (start, end) = found[number].document, found[number].spans[chunk].tolist()
            place = f"characters {start}-{end}, at {100 * start / len(document.text):.0f}%"
            print(f"  {rank}. {score:.2f} {document.id}, {place}:")
            passage = textwrap.shorten(document.text[start:end], 300, placeholder=" …")
            print(textwrap.indent(textwrap.fill(passage), "     "))
    draw(found, hits, args.question, args.output)


if __name__ == "__main__":
    main()
