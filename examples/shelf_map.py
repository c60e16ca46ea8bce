"""A map of a shelf: every document is a point, and similar documents are close together.

python examples/shelf_map.py --model demo/model --documents my_books/ --output shelf.png

Document vectors, scaled to length 1, are projected on their first two principal components. The title says how much of
the variance these two explain. If it is little, documents that are close together need not be alike.
"""

from __future__ import annotations

import argparse
import itertools
import math

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize
from tqdm.auto import tqdm
from transformers import AutoModel

import nextlevelbert

# Places around a point that are tried for its name: distances in points, directions in eighths of a turn.
DISTANCES = (7, 14, 24, 36, 50)
DIRECTIONS = (0, 4, 1, 7, 3, 5, 2, 6)


def place_names(figure: Figure, axes: Axes, points: np.ndarray, names: list[str]) -> int:
    """Writes each name at the nearest free place around its point ``[n, 2]``; returns how many names found a place."""
    figure.draw_without_rendering()  # lays the axes out, so that positions in pixels are final
    pixels, unit = axes.transData.transform(points), figure.dpi / 72
    lows, highs = pixels - 6 * unit, pixels + 6 * unit  # corners of what is placed already: [taken, 2]
    line = {"arrowstyle": "-", "color": "0.6", "lw": 0.6, "shrinkA": 0, "shrinkB": 7}
    placed = 0
    for point, pixel, name in zip(points, pixels, names, strict=True):
        note = axes.annotate(
            name, point, (0, 0), textcoords="offset points", fontsize=8, va="bottom", arrowprops=line, zorder=1
        )
        size = np.asarray(Text.get_window_extent(note).size)  # without its line
        for distance, eighth in itertools.product(DISTANCES, DIRECTIONS):
            way = np.round((math.cos(eighth * math.pi / 4), math.sin(eighth * math.pi / 4)), 6)
            low = pixel + way * distance * unit + (np.sign(way) - 1) * size / 2
            inside = (axes.bbox.min < low).all() and (low + size < axes.bbox.max).all()
            if inside and not ((low < highs) & (lows < low + size)).all(axis=1).any():
                note.set_position(tuple((low - pixel) / unit))
                if note.arrow_patch:  # beside the point, no line is needed
                    note.arrow_patch.set_visible(distance > DISTANCES[1])
                lows, highs = np.vstack((lows, low)), np.vstack((highs, low + size))
                placed += 1
                break
        else:
            note.remove()
    return placed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint")
    parser.add_argument("--documents", required=True, help='file, folder or pattern, or "python-manual"')
    parser.add_argument("--output", required=True, help="the picture to write (.png)")
    parser.add_argument("--cache_dir", help="folder to keep chunk vectors in, so that a second run is fast")
    args = parser.parse_args()

    matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a name is one
    model = AutoModel.from_pretrained(args.model)
    names, vectors, chunks = [], [], []
    for document in tqdm(nextlevelbert.read_documents(args.documents), unit="document"):
        embedding = model.encode(document.text, cache_dir=args.cache_dir)
        names.append(document.id)
        vectors.append(embedding.document.numpy())
        chunks.append(len(embedding.plain))
    if len(names) < 3:
        parser.error(f"{args.documents} holds {len(names)} document(s); a map needs at least three.")
    components = PCA(2)
    points = components.fit_transform(normalize(np.stack(vectors)))  # [documents, 2]

    figure = Figure(figsize=(10, 7), dpi=130, layout="constrained")
    axes = figure.subplots()
    area = 20 + 90 * np.asarray(chunks) / max(chunks)
    axes.scatter(points[:, 0], points[:, 1], s=area, c="tab:blue", alpha=0.55, edgecolors="white")
    first, second = components.explained_variance_ratio_
    axes.set(xlabel=f"first principal component ({first:.0%} of the variance)")
    axes.set(ylabel=f"second principal component ({second:.0%} of the variance)")
    title = f"{len(names)} documents by document vector; two components hold {first + second:.0%} of the variance"
    axes.set_title(f"{title}\n(area of a point: number of chunks)", fontsize=11)
    axes.margins(0.12)
    axes.grid(alpha=0.25)
    placed = place_names(figure, axes, points, [name if len(name) <= 44 else name[:43] + "…" for name in names])
    figure.savefig(args.output)
    print(f"Wrote {args.output}: {len(names)} documents, {placed} with room for their name.")


if __name__ == "__main__":
    main()
