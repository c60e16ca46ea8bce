"""Pictures and tables of a training: learning curves, a confusion matrix, scores side by side."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .cards import plain
from .resuming import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = "learning_curve.png"
LOSS_CURVE = "loss_curve.png"  # of pretraining on chunk vectors
CONFUSION = "confusion_matrix.png"


@dataclass(frozen=True)
class _Line:
    """A line of a plot: a key of `trainer.state.log_history`, and how it is drawn."""

    key: str
    label: str
    color: str
    style: str = "o-"


_LOSSES = (_Line("loss", "training", "tab:blue", "-"), _Line("eval_loss", "validation", "tab:orange"))
_PRETRAINING_SCORES = (
    _Line("eval_masked_accuracy", "masked vector found", "tab:green"),
    _Line("eval_masked_cosine", "cosine to target", "tab:purple"),
    _Line("eval_pair_accuracy", "segment of the same document found", "tab:green"),
    _Line("eval_passage_accuracy", "chunk of a removed sentence found", "tab:green"),
    _Line("eval_perplexity", "perplexity of masked words", "tab:green"),
    _Line("eval_chance_accuracy", "chance to find", "tab:gray", "--"),
)

Log = Sequence[Mapping[str, float]]
"""`trainer.state.log_history`: what was logged, with its ``epoch`` and ``step``."""


def plot_pretraining(log: Log, path: str | Path) -> None:
    """Training and evaluation loss, and the scores of held-out documents, over optimiser steps, as a PNG.

    Args:
        log: `trainer.state.log_history`.
        path: where the picture goes.
    """
    scores = [line for line in _PRETRAINING_SCORES if any(line.key in entry for entry in log)]
    panels = {"Loss": _LOSSES, "On held-out documents": scores}
    _plot([log], "step", "optimiser step", panels, path, from_zero="On held-out documents")


def plot_curves(logs: Sequence[Log], metric: str | None, path: str | Path) -> None:
    """Loss and a score over epochs, one thin line per seed, as a PNG.

    Args:
        logs: the `trainer.state.log_history` of each seed.
        metric: the score to show beside the loss; None for the loss alone.
        path: where the picture goes.
    """
    scores = [] if metric is None else [_Line(f"eval_{metric}", f"validation {metric}", "tab:green")]
    title = f"Loss, {len(logs)} seed{'s' if len(logs) > 1 else ''}"
    _plot(logs, "epoch", "epoch", {title: _LOSSES, "Validation score": scores}, path)


def _plot(
    logs: Sequence[Log],
    x: str,
    x_label: str,
    panels: Mapping[str, Sequence[_Line]],
    path: str | Path,
    from_zero: str | None = None,
) -> None:
    """A panel for each title that has lines, drawn over the values of the key `x`; one may show zero."""
    from matplotlib.figure import Figure  # no pyplot: a library must not touch a global figure

    panels = {title: lines for title, lines in panels.items() if lines}
    figure = Figure(figsize=(4.5 * len(panels), 3.4), layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for line in lines:
            for number, log in enumerate(logs):
                points = [(entry[x], entry[line.key]) for entry in log if line.key in entry]
                xs, ys = zip(*points, strict=True) if points else ((), ())
                label = line.label if number == 0 else None
                axes.plot(xs, ys, line.style, color=line.color, label=label, alpha=0.7, markersize=3)
        axes.set(xlabel=x_label, title=title)
        if title == from_zero:
            axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(figure, path)


def plot_confusion(labels: np.ndarray, predictions: np.ndarray, names: Sequence[str], path: str | Path) -> None:
    """Counts of true against predicted classes as a PNG, each row shaded by its share.

    Args:
        labels, predictions: ``[N]`` class numbers, of all seeds together.
        names: of the classes.
        path: where the picture goes.
    """
    from matplotlib.figure import Figure
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(labels, predictions, labels=list(range(len(names))))
    shares = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    size = max(3.4, 0.45 * len(names) + 2.0)
    figure = Figure(figsize=(size + 0.8, size), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for row in range(len(names)):
        for column in range(len(names)):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{counts[row, column]}", ha="center", va="center", color=color, fontsize=9)
    axes.set_xticks(range(len(names)), names, rotation=45 if len(names) > 3 else 0, parse_math=False)
    axes.set_yticks(range(len(names)), names, parse_math=False)  # a $ in a name is no formula
    axes.set(xlabel="predicted", ylabel="true", title="Predictions of all seeds")
    figure.colorbar(image, ax=axes, label="share of the true class")
    save_figure(figure, path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a picture as a PNG, completely or not at all."""
    figure.savefig(picture := io.BytesIO(), format="png", dpi=120)
    write_whole(Path(path), picture.getvalue())


def results_table(rows: Mapping[str, Mapping[str, tuple[float, float] | float]]) -> str:
    """A markdown table: one row a model (or evaluation), one column a score; pairs are mean ± standard deviation."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for name, row in rows.items():
        cells = []
        for column in columns:
            value = row.get(column)
            if value is None:
                cells.append("")
            elif isinstance(value, tuple):
                cells.append(f"{value[0]:.4f} ± {value[1]:.4f}")
            else:
                cells.append("" if math.isnan(value) else f"{value:.4f}")
        lines.append(f"| {plain(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)
