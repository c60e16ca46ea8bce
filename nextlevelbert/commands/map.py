"""``nextlevelbert map``: a picture of a folder, in which every document is a point."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from ..models.modeling_nextlevelbert import NextLevelBertModel
from .search import open_library
from .shelf import MAP_CREATOR, ReadingOptions, check_output

_LONGEST_NAME = 36  # characters on the map


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Projects vectors, scaled to length 1, on two principal components.

    Args:
        vectors: vectors to project, ``[n, H]``.

    Returns:
        The points ``[n, 2]``, and the share of the variance that the components hold.
    """
    components = PCA(min(2, *vectors.shape))
    with np.errstate(invalid="ignore"):  # documents that are all equal have no variance
        points = components.fit_transform(normalize(vectors))
    share = float(np.nan_to_num(components.explained_variance_ratio_).sum())
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))), share


def write_names(figure: Figure, axes: Axes, *, names: Sequence[str], points: np.ndarray) -> None:
    """Writes names beside their points, right or left, if there is room.

    Args:
        figure: the map.
        axes: axes of the map.
        names: names to write, in the order in which they get a free place.
        points: the point of each name, ``[n, 2]``.
    """
    figure.draw_without_rendering()  # lays the axes out, so that positions in pixels are final
    taken: list[Bbox] = []
    for name, point in zip(names, points, strict=True):
        short = name
        if len(name) > _LONGEST_NAME:
            short = f"{name[: _LONGEST_NAME - 1]}…"
        for offset, alignment in ((7, "left"), (-7, "right")):
            note = axes.annotate(
                short,
                point,
                xytext=(offset, 0),
                textcoords="offset points",
                ha=alignment,
                va="center",
                fontsize=7,
                parse_math=False,
            )

            box = note.get_window_extent()
            is_inside = axes.bbox.count_contains(box.corners()) == 4
            if is_inside and not box.count_overlaps(taken):
                taken.append(box)
                break
            note.remove()


def draw_map(names: Sequence[str], vectors: np.ndarray, chunks: Sequence[int]) -> Figure:
    """Draws a scatter plot of documents, with names if there is room.

    Args:
        names: the names of n documents.
        vectors: document vectors, ``[n, H]``.
        chunks: number of chunks in each document, by which the area of the document's point grows.
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
    write_names(figure, axes, names=names, points=points)
    return figure


def run(
    source: str,
    model: NextLevelBertModel,
    output: Path,
    **reading: Unpack[ReadingOptions],
) -> None:
    """Writes the map of the documents of a source.

    Args:
        source: a file, a folder or a pattern.
        model: the document model.
        output: the file to write; its suffix names the format.
        **reading: options for reading the source, see `ReadingOptions`.
    """
    check_output(source, output)
    library = open_library(source, model, **reading)
    chunks = np.diff(library.starts).tolist()
    figure = draw_map(library.names, library.document_vectors, chunks)
    metadata = None
    if output.suffix.lower() == ".pdf":
        metadata = {"Creator": MAP_CREATOR}  # so that the map is not taken for a document
    figure.savefig(output, metadata=metadata)
    print(f"Wrote {output}: {len(library.names)} documents.")
