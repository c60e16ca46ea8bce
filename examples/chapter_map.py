r"""Which chapters of a novel are alike, and how does the book develop? A heat map, with the book's arc below it.

python examples/chapter_map.py --model demo/model --documents novels.jsonl --id moby-dick --output chapters.png
python examples/chapter_map.py --model demo/model --documents moby-dick.txt --heading_pattern "^CHAPTER \d+.*" ...

Chapters come from the field `chapters` of a .jsonl ([{"heading", "start", "end"}]), or begin at each line that matches
--heading_pattern. A chapter's vector is the mean of its contextual chunk vectors, each weighted by how many of its
characters are in the chapter. The mean of all chapters is subtracted before cosines are computed. The encoder reads a
chunk in the context of its neighbours, so adjacent chapters come out more alike than they are by their words alone.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize
from transformers import AutoModel

import nextlevelbert
from nextlevelbert.commands.app_library import overlap


def split_at_headings(text: str, pattern: str) -> list[dict[str, Any]]:
    """Chapters of a text, each from one matching line to the next; text before the first one is a chapter, too."""
    found = [(" ".join(match.group().split()), match.start()) for match in re.finditer(pattern, text, re.MULTILINE)]
    if found and text[: found[0][1]].strip():
        found.insert(0, ("(before the first heading)", 0))
    ends = [start for _, start in found[1:]] + [len(text)]
    return [{"heading": name, "start": start, "end": end} for (name, start), end in zip(found, ends, strict=False)]


def read_book(source: str, wanted: str | None, pattern: str | None) -> tuple[nextlevelbert.Document, list]:
    """The document with the id `wanted` (or the first) and its chapters."""
    for document in nextlevelbert.read_documents(source):
        if wanted in (None, document.id):
            if not pattern and "chapters" not in document.metadata:
                raise SystemExit(f"{source} does not say where chapters begin: give a --heading_pattern, or a .jsonl.")
            chapters = split_at_headings(document.text, pattern) if pattern else document.metadata["chapters"] or []
            if len(chapters) < 3:
                way = "another --heading_pattern" if pattern else 'a --heading_pattern, such as "^CHAPTER .*"'
                raise SystemExit(f"{document.id!r} has {len(chapters)} chapter(s); a map needs three. Give {way}.")
            return document, chapters
    raise SystemExit(f"There is no document {wanted!r} in {source}; without --id the first is taken.")


def chapter_vectors(book: nextlevelbert.DocumentEmbedding, chapters: list) -> np.ndarray:
    """``[chapters, D]``: means of the contextual chunk vectors, weighted by their characters in the chapter."""
    borders = [(it["start"], it["end"]) for it in chapters]
    weights = overlap(book.spans[: len(book.chunks)], borders)  # [chapters, n]
    if missing := [it["heading"] for it, row in zip(chapters, weights, strict=True) if not row.any()]:
        raise SystemExit(
            f"The model read nothing of {', '.join(missing)}: these chapters are blank, or were truncated."
        )
    return weights / weights.sum(axis=1, keepdims=True) @ book.chunks.numpy()


def draw(vectors: np.ndarray, headings: list[str], title: str) -> Figure:
    """The heat map of centred chapter vectors, and under it their first two principal components as curves."""
    directions = normalize(vectors - vectors.mean(axis=0))  # [chapters, D]
    cosines, count = directions @ directions.T, len(directions)
    limit = np.abs(cosines[~np.eye(count, dtype=bool)]).max()  # the diagonal is 1 in any book
    figure = Figure(figsize=(9.5, max(10.5, 2.5 + 0.2 * count)), dpi=130, layout="constrained")
    heat, arc = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    image = heat.imshow(cosines, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    figure.colorbar(image, ax=heat, label="cosine of centred chapter vectors", pad=0.01)
    short = [name if len(name) <= 40 else name[:39] + "…" for name in headings]
    labels = [f"{name}  {number}" for number, name in enumerate(short, start=1)]
    small = 9 if count <= 40 else 7
    heat.set_yticks(range(count), labels, fontsize=small)
    heat.set_title(f"{title}: which chapters are alike")

    components = PCA(2)
    curves = components.fit_transform(directions)  # [chapters, 2]
    names = [f"{share:.0%} of the variance" for share in components.explained_variance_ratio_]
    arc.plot(curves[:, 0], "o-", color="tab:purple", markersize=4, label=f"first component ({names[0]})")
    arc.plot(curves[:, 1], "o--", color="tab:green", markersize=3, lw=1, label=f"second ({names[1]})")
    arc.axhline(0, color="0.7", lw=0.8, zorder=0)
    marked = range(0, count, 1 + count // 30)
    arc.set_xticks(marked, [str(number + 1) for number in marked], fontsize=small)
    arc.set(xlabel="chapter", ylabel="principal\ncomponents")
    arc.set_title("The book's arc", fontsize=10)
    figure.legend(loc="outside lower right", ncols=2, fontsize=8, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint")
    parser.add_argument("--documents", required=True, help="a .jsonl with chapters, or with a pattern any documents")
    parser.add_argument("--id", help="id of the document; default: the first one")
    parser.add_argument("--heading_pattern", help="regular expression that matches the first line of a chapter")
    parser.add_argument("--output", required=True, help="the picture to write (.png)")
    parser.add_argument("--cache_dir", help="folder to keep chunk vectors in, so that a second run is fast")
    args = parser.parse_args()
    try:
        re.compile(args.heading_pattern or "")
    except re.error as error:
        parser.error(f"--heading_pattern {args.heading_pattern!r} is no regular expression: {error}")

    matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a title is one
    document, chapters = read_book(args.documents, args.id, args.heading_pattern)
    model = AutoModel.from_pretrained(args.model)
    encoder = model.get_chunk_encoder()
    if args.cache_dir:
        encoder = nextlevelbert.CachedEncoder(encoder, args.cache_dir)
    book = model.encode(document.text, show_progress_bar=True, chunk_encoder=encoder)
    vectors = chapter_vectors(book, chapters)
    draw(vectors, [it["heading"] for it in chapters], document.id).savefig(args.output)
    print(f"Wrote {args.output}: {len(chapters)} chapters of {document.id!r}, {len(book.plain)} chunks.")


if __name__ == "__main__":
    main()
