"""Where does a book speak of something? The similarity of every chunk to a question, as a strip along the book.

python examples/heat_strip.py --model demo/model --documents my_books/ --id moby-dick \\
    --question "Who saw the white whale first?" --output strip.png

There are two strips, because there are two spaces. In the first, chunks and question are plain vectors of the chunk
encoder. In the second, they are contextual vectors of the encoder over chunks, which reads the question as a document
of its own. (A question of several chunks is represented by their mean.) The chunk encoder was trained to match
questions and passages, masked vector modelling was not: expect the plain strip to point at passages and the contextual
one at regions.
"""

from __future__ import annotations

import argparse
import textwrap

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from transformers import AutoModel

import nextlevelbert


def similarity(question: torch.Tensor, chunks: torch.Tensor) -> np.ndarray:
    """``[n]`` cosines of the question's mean vector, of ``[q, D]``, and each chunk of ``[n, D]``."""
    return torch.cosine_similarity(question.mean(dim=0, keepdim=True), chunks).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint")
    parser.add_argument("--documents", required=True, help='file, folder or pattern, or "python-manual"')
    parser.add_argument("--id", help="id of the document; default: the first one")
    parser.add_argument("--question", required=True, help="what to look for")
    parser.add_argument("--output", required=True, help="the picture to write (.png)")
    parser.add_argument("--cache_dir", help="folder to keep chunk vectors in, so that the next question is fast")
    args = parser.parse_args()

    matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a question is one
    documents = nextlevelbert.read_documents(args.documents)
    book = next((document for document in documents if args.id in (None, document.id)), None)
    if book is None:
        parser.error(f"no document {args.id!r} in {args.documents}; without --id the first is taken")
    model = AutoModel.from_pretrained(args.model)
    encoder = model.get_chunk_encoder()
    if args.cache_dir:
        encoder = nextlevelbert.CachedEncoder(encoder, args.cache_dir)
    found = model.encode(book.text, show_progress_bar=True, chunk_encoder=encoder)
    question = model.encode(args.question)
    if not len(found.plain) or not len(question.plain):
        parser.error("the document or the question is blank")
    scores = {
        "plain": similarity(question.plain, found.plain),
        "contextual": similarity(question.chunks, found.chunks),
    }

    figure = Figure(figsize=(11, 3.8), dpi=130, layout="constrained")
    strips = figure.subplots(2, 1, sharex=True)
    for axes, (kind, values) in zip(strips, scores.items(), strict=True):
        spans = found.spans[: len(values)]  # contextual vectors are fewer where the model truncates
        edges = np.append(spans[:, 0], spans[-1, 1]) / 1000
        heat = axes.pcolormesh(edges, [0, 1], values[None], cmap="inferno")
        figure.colorbar(heat, ax=axes, label="cosine", pad=0.01)
        axes.set(yticks=[], ylabel=f"{kind}\nchunk vectors", xlim=(0, len(book.text) / 1000))
        print(f"\nBest by {kind} chunk vectors:")
        best = np.argsort(-values, kind="stable")[:3].tolist()
        for rank, chunk in enumerate(best, start=1):
            start, end = spans[chunk].tolist()
            passage = textwrap.shorten(book.text[start:end], 300, placeholder=" …")
            print(f"  {rank}. cosine {values[chunk]:.2f}, characters {start}-{end}:")
            print(textwrap.indent(textwrap.fill(passage), "     "))
        middles = spans.mean(axis=1) / 1000
        before, height = -np.inf, 2
        for chunk in sorted(best):  # numbers of near neighbours stand above each other
            height = height + 9 if middles[chunk] - before < edges[-1] / 80 else 2
            before, place = middles[chunk], (middles[chunk], 1)
            number = str(best.index(chunk) + 1)
            axes.annotate(number, place, (0, height), textcoords="offset points", ha="center", fontsize=8)
    strips[-1].set_xlabel("position in the document (thousand characters)")
    figure.suptitle(f"{book.id}: “{textwrap.shorten(args.question, 90, placeholder='…')}”", fontsize=11)
    figure.savefig(args.output)
    print(
        f"\nWrote {args.output}: {len(found.plain)} chunks of {book.id!r}, the three best of each strip are numbered."
    )


if __name__ == "__main__":
    main()
