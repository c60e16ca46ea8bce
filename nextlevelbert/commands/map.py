"""``nextlevelbert map``: a picture of a shelf, in which every document is a point."""

from __future__ import annotations

import argparse
import html
import io
import itertools
import math
from collections.abc import Sequence
from xml.etree import ElementTree

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from ..corpus.files import remove_leftovers_of, write_atomically
from .opening import open_model
from .printing import Printer, print_json, print_unreadable
from .shelf import open_shelf

# Places around a point that are tried for its name: distances in points, directions in eighths of a turn.
DISTANCES = (7, 14, 24, 36, 50)
DIRECTIONS = (0, 4, 1, 7, 3, 5, 2, 6)

_FEWEST = 3
_NEIGHBOURS = 3
_NAME_LENGTH = 44
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ margin: 2em auto; max-width: 80em; font-family: sans-serif }} svg {{ width: 100%; height: auto }}
g[id^="document-"]:hover path, g[id^="document-"]:hover use {{ stroke: #d95f0e !important; stroke-width: 3 }}
</style></head><body>
{picture}
<p>Each point is a document; its area is the number of its chunks. The mouse on a point tells its name and the
documents whose vectors are nearest.</p>
</body></html>
"""


def draw_map(names: Sequence[str], vectors: np.ndarray, chunks: Sequence[int]) -> tuple[Figure, int]:
    """Documents by the first two principal components of their vectors ``[n, H]``, scaled to length 1.

    Returns:
        The figure, in which point number k has the gid ``document-k``, and how many names found a place.
    """
    components = PCA(2)
    points = components.fit_transform(normalize(vectors))  # [n, 2]
    figure = Figure(figsize=(10, 7), dpi=130, layout="constrained")
    axes = figure.subplots()
    area = 20 + 90 * np.asarray(chunks) / max(*chunks, 1)
    for number, (x, y) in enumerate(points):
        axes.scatter(
            x, y, s=area[number], c="tab:blue", alpha=0.55, edgecolors="white", gid=f"document-{number}", zorder=2
        )
    first, second = components.explained_variance_ratio_
    axes.set(xlabel=f"first principal component ({first:.0%} of the variance)")
    axes.set(ylabel=f"second principal component ({second:.0%} of the variance)")
    title = f"{len(names)} documents by document vector; two components hold {first + second:.0%} of the variance"
    axes.set_title(f"{title}\n(area of a point: number of chunks)", fontsize=11)
    axes.margins(0.12)
    axes.grid(alpha=0.25)
    short = [name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…" for name in names]
    return figure, place_names(figure, axes, points, short)


def place_names(figure: Figure, axes: Axes, points: np.ndarray, names: list[str]) -> int:
    """Writes each name at the nearest free place around its point ``[n, 2]``; returns how many names found a place."""
    figure.draw_without_rendering()  # lays the axes out, so that positions in pixels are final
    pixels, unit = axes.transData.transform(points), figure.dpi / 72
    lows, highs = pixels - 6 * unit, pixels + 6 * unit  # corners of what is placed already: [taken, 2]
    line = {"arrowstyle": "-", "color": "0.6", "lw": 0.6, "shrinkA": 0, "shrinkB": 7}
    placed = 0
    for point, pixel, name in zip(points, pixels, names, strict=True):
        note = axes.annotate(
            name,
            point,
            (0, 0),
            textcoords="offset points",
            fontsize=8,
            va="bottom",
            arrowprops=line,
            zorder=1,
            parse_math=False,  # a dollar sign in a name is one
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


def page_of(figure: Figure, tooltips: Sequence[str], title: str) -> str:
    """A map as one HTML page that needs nothing else; each point has its tooltip."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg")
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)  # HTML knows this prefix only; without, no point is drawn
    picture = ElementTree.fromstring(buffer.getvalue())
    points = {group.get("id"): group for group in picture.iter(f"{{{_SVG}}}g")}
    for number, tooltip in enumerate(tooltips):
        ElementTree.SubElement(points[f"document-{number}"], f"{{{_SVG}}}title").text = tooltip
    return _PAGE.format(title=html.escape(title), picture=ElementTree.tostring(picture, encoding="unicode"))


def _tooltips(names: Sequence[str], vectors: np.ndarray, chunks: Sequence[int]) -> list[str]:
    cosines = normalize(vectors) @ normalize(vectors).T  # [n, n]
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :_NEIGHBOURS]
    return [
        "\n".join(
            [f"{name} ({chunks[number]:,} chunks)", "Nearest:"]
            + [f"  {names[other]} {cosines[number, other]:.2f}" for other in nearest[number] if other != number]
        )
        for number, name in enumerate(names)
    ]


def run(arguments: argparse.Namespace) -> None:
    model = open_model(arguments.model, arguments.chunk_encoder)
    shelf = open_shelf(model, arguments.source, arguments.cache_dir)
    names, rows, chunks = [], [], []
    for document in shelf:
        names.append(document.place)
        rows.append(document.vector.numpy())
        chunks.append(len(document.plain))
    if len(names) < _FEWEST:
        raise SystemExit(
            f"error: {arguments.source} holds {len(names)} document(s) that can be read; a map needs at least "
            f"{_FEWEST}."
        )
    vectors = np.stack(rows)  # [n, H]
    figure, placed = draw_map(names, vectors, chunks)
    if arguments.output.suffix == ".html":
        picture = page_of(figure, _tooltips(names, vectors, chunks), f"Map of {arguments.source}").encode()
    else:
        figure.savefig(buffer := io.BytesIO(), format="png")
        picture = buffer.getvalue()
    remove_leftovers_of(arguments.output)
    write_atomically(arguments.output, picture)
    if arguments.json:
        print_json({"output": str(arguments.output), "documents": len(names), "named": placed}, shelf.unreadable)
    else:
        Printer().line(f"Wrote {arguments.output}: {len(names)} documents, {placed} with room for their name.")
        print_unreadable(shelf.unreadable)
