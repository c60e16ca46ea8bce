"""Pictures of trainings and scores."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..models.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVE = "learning_curve.png"
Log = Sequence[Mapping[str, float]]


def plot_curves(
    logs: Sequence[Log], metrics: Sequence[str], path: str | Path, x: str = "epoch"
) -> None:
    """Draws loss and scores of the evaluations, with a line for each seed, as a PNG."""
    from matplotlib.figure import Figure  # no pyplot: a library must not touch a global figure

    panels = {"Loss": ["loss", "eval_loss"]}
    logged: set[str] = set()
    for log in logs:
        logged.update(*log)

    scores = [f"eval_{name}" for name in metrics if f"eval_{name}" in logged]
    if scores:
        panels["Validation"] = scores

    figure = Figure(figsize=(4.5 * len(panels), 3.4), layout="constrained")
    [row] = figure.subplots(1, len(panels), squeeze=False)
    for axes, (title, keys) in zip(row, panels.items(), strict=True):
        for index, key in enumerate(keys):
            _draw_lines(axes, logs, key, x=x, color=f"C{index}")
        axes.set(xlabel=x, title=title)
        axes.grid(alpha=0.3)
        axes.legend()

    save_figure(figure, path)


def _draw_lines(axes: Axes, logs: Sequence[Log], key: str, *, x: str, color: str) -> None:
    """Draws one value over epochs or steps, with a line for each seed."""
    marker = "o"
    if key == "loss":
        marker = ""

    label = key
    for log in logs:
        entries = [entry for entry in log if key in entry]
        positions = [entry[x] for entry in entries]
        values = [entry[key] for entry in entries]
        axes.plot(
            positions, values, color=color, marker=marker, alpha=0.7, markersize=3, label=label
        )
        label = "_"  # one label for all seeds; the legend leaves this one out


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a picture as a PNG, completely or not at all."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    write_whole(path, content.getvalue())
