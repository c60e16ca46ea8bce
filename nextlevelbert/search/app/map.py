"""The map of the page: a point for each document, and names if there is room."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

_LONGEST_NAME = 36  # characters on the map
_NAME_SIZE = 9  # points, like the distance of a name from its point
_NAME_OFFSET = 8
_NAME_COLOUR = "#7a7a7a"  # readable on white and on black


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


class NamePlacer:
    """Finds room on a map for names, right or left of their points.

    All names are measured once, because that takes most of the time.

    Args:
        figure: the map, laid out, so that positions in pixels are final.
        axes: axes of the map.
        names: the names of n documents.
        points: the points of the documents, ``[n, 2]``.
    """

    def __init__(
        self, figure: Figure, axes: Axes, *, names: Sequence[str], points: np.ndarray
    ) -> None:
        self._points = points
        self._short = []
        for name in names:
            short = name
            if len(name) > _LONGEST_NAME:
                short = f"{name[: _LONGEST_NAME - 1]}…"
            self._short.append(short)

        sizes = []  # in pixels
        with names_in_any_script():
            text = figure.text(0, 0, "", fontsize=_NAME_SIZE, parse_math=False)
            for short in self._short:
                text.set_text(short)
                sizes.append(text.get_window_extent().size)
            text.remove()
        pixels = axes.transData.transform(points)
        widths, heights = np.array(sizes).T
        offset = _NAME_OFFSET * figure.dpi / 72
        bottoms = pixels[:, 1] - heights / 2
        self._boxes = list[np.ndarray]()  # by side: left, bottom, right and top edge of each name
        for left in (pixels[:, 0] + offset, pixels[:, 0] - offset - widths):
            edges = [left, bottoms, left + widths, bottoms + heights]
            self._boxes.append(np.stack(edges, axis=1))
        low = axes.bbox.min
        high = axes.bbox.max
        self._is_inside = list[np.ndarray]()
        for boxes in self._boxes:
            is_inside = (boxes[:, :2] >= low) & (boxes[:, 2:] <= high)
            self._is_inside.append(np.all(is_inside, axis=1))

    def write(self, axes: Axes, order: Sequence[int]) -> dict[int, np.ndarray]:
        """Writes names that do not overlap.

        Args:
            axes: axes like those of the map that was measured.
            order: the documents, in the order in which their names get a free place.

        Returns:
            The left, bottom, right and top edges of the written names in pixels, by document.
        """
        taken = np.empty((0, 4))
        written = {}
        for index in order:
            for boxes, is_inside, side, alignment in zip(
                self._boxes, self._is_inside, (1, -1), ("left", "right"), strict=True
            ):
                box = boxes[index]
                if is_inside[index] and not overlaps(box, taken):
                    taken = np.vstack([taken, box])
                    written[index] = box
                    axes.annotate(
                        self._short[index],
                        self._points[index],
                        xytext=(side * _NAME_OFFSET, 0),
                        textcoords="offset points",
                        ha=alignment,
                        va="center",
                        fontsize=_NAME_SIZE,
                        color=_NAME_COLOUR,
                        parse_math=False,
                    )
                    break
        return written


def overlaps(box: np.ndarray, others: np.ndarray) -> bool:
    """Returns whether a box overlaps any of several others, ``[n, 4]``, given by their edges."""
    begins_before = (box[:2] < others[:, 2:]).all(axis=1)
    ends_behind = (box[2:] > others[:, :2]).all(axis=1)
    return bool((begins_before & ends_behind).any())


@contextmanager
def names_in_any_script() -> Iterator[None]:
    """Draws letters that the font lacks as boxes, without a warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support")
        yield
