"""Draws docs/folders.png: the folders of the package in their order, and three walks through them.

python docs/folders.py --output docs/folders.png
"""

from __future__ import annotations

import argparse

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

FOLDERS = [  # from the bottom to the top: a folder imports only what is below it
    ("models/", "all that a checkpoint carries"),
    ("data/", "documents, and rows of tasks"),
    ("corpus/", "chunk vectors on disk"),
    ("evaluation/", "metrics, no files or models"),
    ("training/", "Trainer, cards, plots"),
    ("pretraining/", "objectives, masks, sequences"),
    ("finetuning/", "one driver for all tasks"),
    ("tasks/", "one folder per task"),
    ("commands/", "search, embed, map, plan"),
    ("scripts", "run_pretraining, run_finetune"),
]
WALKS = [  # (what is done, colour, [(folder, what happens there)])
    (
        "model.encode(text)",
        "#2c7fb8",
        [
            ("models/", "chunks"),
            ("models/", "chunk\nvectors"),
            ("models/", "document\nvector"),
        ],
    ),
    (
        "pretraining on novels",
        "#d95f0e",
        [
            ("scripts", "options"),
            ("data/", "novels"),
            ("corpus/", "chunk\nvectors"),
            ("pretraining/", "sequences,\nmasks"),
            ("training/", "steps"),
            ("models/", "loss"),
            ("evaluation/", "scores"),
            ("training/", "card"),
        ],
    ),
    (
        "fine-tuning multiple choice",
        "#238b45",
        [
            ("scripts", "options"),
            ("data/", "rows"),
            ("tasks/", "stored\nvectors"),
            ("finetuning/", "a run\nper seed"),
            ("training/", "steps"),
            ("models/", "loss"),
            ("evaluation/", "scores"),
            ("training/", "card"),
        ],
    ),
]
LEFT, STEP = 4.8, 1.0  # where the walks begin, and the room for one step, in units of a floor's height


def draw_folders(axes: Axes, right: float) -> dict[str, float]:
    """Draws a floor for each folder.

    Returns:
        The height of each folder's floor.
    """
    heights: dict[str, float] = {}
    for floor, (name, holds) in enumerate(FOLDERS):
        carried = name == "models/"
        axes.add_patch(
            FancyBboxPatch(
                (0, floor - 0.42),
                right,
                0.84,
                boxstyle="round,pad=0,rounding_size=0.1",
                facecolor="#fff3cd" if carried else "#f3f4f6" if floor % 2 else "#fafafa",
                edgecolor="#b58900" if carried else "#d0d4da",
                linewidth=1.8 if carried else 0.8,
            )
        )
        axes.text(0.18, floor + 0.16, name, va="center", fontsize=14, fontweight="bold", family="monospace")
        axes.text(0.18, floor - 0.18, holds, va="center", fontsize=11, color="#333333")
        heights[name] = floor
    axes.annotate(
        "",
        xy=(-0.25, -0.3),
        xytext=(-0.25, len(FOLDERS) - 0.7),
        arrowprops={"arrowstyle": "-|>", "color": "#555555", "linewidth": 1.6},
    )
    axes.text(
        -0.75, (len(FOLDERS) - 1) / 2, "imports point down", rotation=90, va="center", color="#555555", fontsize=12
    )
    return heights


def draw() -> Figure:
    """The picture."""
    widths = [STEP * len(steps) + 0.5 for _, _, steps in WALKS]
    widths[0] += 0.8  # room for its title
    right = LEFT + sum(widths)
    figure = Figure(figsize=(right * 0.58, 8.6))
    axes = figure.add_axes((0.005, 0.005, 0.99, 0.99))
    heights = draw_folders(axes, right)
    start = LEFT
    for (title, colour, steps), width in zip(WALKS, widths, strict=True):
        xs = [start + 0.6 + (width - 0.5) / len(steps) * number for number in range(len(steps))]
        ys = [heights[folder] + 0.2 for folder, _ in steps]
        axes.plot([start] * 2, [-0.42, len(FOLDERS) - 0.2], color="#c4c9d1", linewidth=0.8, linestyle=":")
        axes.plot(xs, ys, color=colour, linewidth=1.8, alpha=0.55, zorder=2)
        for number, (x, y, (_, happens)) in enumerate(zip(xs, ys, steps, strict=True), 1):
            axes.scatter([x], [y], s=260, color=colour, zorder=3)
            axes.text(x, y - 0.01, str(number), color="white", ha="center", va="center", fontsize=10.5, zorder=4)
            axes.text(
                x,
                y - 0.19,
                happens,
                ha="center",
                va="top",
                fontsize=10.5,
                linespacing=0.95,
                zorder=5,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6},
            )
        axes.text(start + 0.15, len(FOLDERS) - 0.35, title, color=colour, fontsize=14, fontweight="bold")
        start += width
    axes.set_xlim(-0.95, right + 0.1)
    axes.set_ylim(-0.6, len(FOLDERS))
    axes.axis("off")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="docs/folders.png", help="Where the picture is written.")
    draw().savefig(parser.parse_args().output, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
