"""Draws docs/nextlevelbert.png, the model on one line: `python docs/draw_model.py`."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

BLUE, GREEN, GREY, WHITE = "#cfe0f5", "#d3ecd5", "#ececec", "#ffffff"


def draw(path: Path) -> None:
    figure = Figure(figsize=(9.2, 3.5), dpi=110)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 92)
    axes.set_ylim(0, 35)
    axes.axis("off")

    def box(
        x: float, y: float, width: float, height: float, text: str, colour: str, size: float = 9
    ) -> None:
        style = "round,pad=0.1,rounding_size=0.7"
        axes.add_patch(
            FancyBboxPatch(
                (x, y), width, height, boxstyle=style, facecolor=colour, edgecolor="#555555"
            )
        )
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size)

    def arrow(x: float, y: float, to_x: float, to_y: float) -> None:
        axes.annotate(
            "", (to_x, to_y), (x, y), arrowprops={"arrowstyle": "-|>", "color": "#555555", "lw": 1}
        )

    labels = ("chunk 1", "chunk 2", "[MASK]", "…", "chunk n")
    for number, label in enumerate(labels):
        y = 28 - 6.4 * number
        masked = label == "[MASK]"
        box(1, y, 15, 4, "chunk 3" if masked else label, GREY)
        arrow(16.3, y + 2, 20.5, y + 2)
        box(36.5, y, 8, 4, "[MASK]" if masked else "vector", WHITE if masked else BLUE)
        arrow(33.3, y + 2, 36.2, y + 2)
        arrow(44.7, y + 2, 48.8, y + 2)
        box(65, y, 8, 4, "vector", GREEN)
        arrow(61.3, y + 2, 64.7, y + 2)
    box(21, 2.4, 12, 29.6, "frozen\nsentence\nencoder,\n\neach chunk\nby itself", GREY)
    box(49, 2.4, 12, 29.6, "NextLevelBERT:\nBERT over\nvectors,\n\n[CLS] … [SEP]", GREEN)
    axes.plot(
        (73.5, 74.2, 74.2, 73.5), (31.8, 31.8, 2.6, 2.6), color="#555555", lw=1
    )  # all vectors
    arrow(74.2, 26, 77.7, 26)
    arrow(74.2, 8.5, 77.7, 8.5)
    box(78, 23.5, 13, 5, "their mean: the\ndocument vector", GREEN, 8.5)
    box(78, 14.7, 13, 5, "pretraining: the\nmasked vector", WHITE, 8.5)
    box(78, 6, 13, 5, "contextual\nchunk vectors", GREEN, 8.5)
    arrow(73.3, 17.2, 77.7, 17.2)  # of the masked chunk
    axes.text(8.5, 33.2, "a book, cut into chunks", ha="center", fontsize=8.5, color="#555555")
    axes.text(40.5, 33.2, "chunk vectors", ha="center", fontsize=8.5, color="#555555")
    figure.savefig(path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("nextlevelbert.png"))
