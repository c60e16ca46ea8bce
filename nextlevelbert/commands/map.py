"""``nextlevelbert map``: a picture of a folder, in which every document is a point."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from .search import open_library
from .shelf import MAP_CREATOR, open_model


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Vectors ``[n, H]``, scaled to length 1, on two principal components ``[n, 2]``; their share
    of the variance.
    """
    components = PCA(min(2, *vectors.shape))
    with np.errstate(invalid="ignore"):  # documents that are all equal have no variance
        points = components.fit_transform(normalize(vectors))
    share = float(np.nan_to_num(components.explained_variance_ratio_).sum())
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))), share


def write_names(figure: Figure, axes: Axes, names: Sequence[str], points: np.ndarray) -> None:
    """Writes each name beside its point ``[n, 2]``, right or left, where there is room; first come,
    first served.
    """
    figure.draw_without_rendering()  # lays the axes out, so that positions in pixels are final
    taken: list[Bbox] = []
    for name, point in zip(names, points, strict=True):
        short = name if len(name) <= 36 else f"{name[:35]}…"
        for side in (1, -1):
            place: dict[str, Any] = {
                "xytext": (7 * side, 0),
                "ha": "left" if side > 0 else "right",
                "va": "center",
            }
            note = axes.annotate(
                short, point, textcoords="offset points", fontsize=7, parse_math=False, **place
            )
            box = note.get_window_extent()
            if not box.count_overlaps(taken) and axes.bbox.count_contains(box.corners()) == 4:
                taken.append(box)
                break
            note.remove()


def draw_map(names: Sequence[str], vectors: np.ndarray, chunks: Sequence[int]) -> Figure:
    """A scatter plot of documents; the area of a point grows with its chunks, and names stand where
    there is room.
    """
    points, share = principal_components(vectors)
    figure = Figure(figsize=(10, 7), dpi=130, layout="constrained")
    axes = figure.subplots()
    areas = 20 + 90 * np.asarray(chunks) / max(*chunks, 1)
    axes.scatter(points[:, 0], points[:, 1], s=areas, alpha=0.55, edgecolors="white")
    axes.set(xlabel="first principal component", ylabel="second principal component")
    axes.set_title(
        f"{len(names)} documents by document vector; the two components hold {share:.0%} of the"
        " variance"
    )
    axes.margins(0.12)
    write_names(figure, axes, names, points)
    return figure


def run(arguments: argparse.Namespace) -> None:
    """Writes the map of the documents of a source."""
    model = open_model(arguments)
    library = open_library(model, arguments)
    figure = draw_map(library.places, library.summaries, np.diff(library.first).tolist())
    metadata = None
    if arguments.output.suffix.lower() == ".pdf":
        metadata = {"Creator": MAP_CREATOR}  # so that the map is not taken for a document
    figure.savefig(arguments.output, metadata=metadata)
    print(f"Wrote {arguments.output}: {len(library.places)} documents.")
