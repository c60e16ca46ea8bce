"""Model cards: one template beside this file, filled by `model_card`; tables of scores and pictures of a training."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from .trainer import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = "learning_curve.png"
# What the Hub's page of a model offers to try.
SIMILARITY_WIDGET = (
    {
        "source_sentence": "The captain paced the deck and cursed the calm.",
        "sentences": [
            "For three weeks no wind had filled the sails, and the crew spoke of nothing but water.",
            "The parliament adjourned after a long debate about the price of corn.",
        ],
    },
)


def plain(text: object) -> str:
    """Text from outside (a label, the name of a file) as Markdown that shows it as it is, on one line."""
    return re.sub(r"([\\`*\[\]<>|#!~&])", r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    """Text from outside as code on one line, also within a table."""
    line = " ".join(str(text).split()).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    padding = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def model_card(
    *,
    name: str,
    summary: str,
    snippet: str,
    training: Mapping[str, object],
    measured: str,
    limits: Sequence[str],
    pipeline_tag: str,
    tags: Sequence[str],
    model: Mapping[str, object] | None = None,
    note: str = "",
    training_note: str = "",
    pictures: Mapping[str, str] | None = None,
    adapter: bool = False,
    base_model: str | None = None,
    scores: Mapping[str, float] | None = None,
    dataset: str = "",
    scored_task: str | None = None,
    widget: Sequence[Mapping[str, object]] = (),
) -> ModelCard:
    """The card of a model, with the metadata that the Hub reads; ``.save("FOLDER/README.md")`` writes it.

    The values of `training` are shown as code; those of `model`, `summary`, `note`, `training_note` and `measured` are
    markdown, where text from outside goes through `plain` or `code`. `snippet` is Python code that the tests run,
    `pictures` has captions by file name, `limits` a sentence each. `scores` of this checkpoint on `dataset` go to the
    Hub as those of `scored_task` (by default `pipeline_tag`); `base_model` is a name there, `widget` inputs to try.
    """
    data = ModelCardData(
        license="apache-2.0",
        library_name="peft" if adapter else "nextlevelbert",
        pipeline_tag=pipeline_tag,
        tags=[*tags, *(["lora"] if adapter else [])],
        base_model=base_model,
        widget=[dict(example) for example in widget] or None,
    )
    task, name_of_set = scored_task or pipeline_tag, " ".join(dataset.split())
    numbers = {metric: round(value, 4) for metric, value in (scores or {}).items() if not math.isnan(value)}
    results = [EvalResult(task, "custom", name_of_set, metric, value) for metric, value in numbers.items()]
    if results:
        data.model_name, data.eval_results = name, results
    facts = {
        "name": name, "summary": summary, "snippet": snippet, "note": note, "model": model or {}, "training": training,
        "training_note": training_note, "pictures": pictures or {}, "measured": measured, "limits": limits,
    }  # fmt: skip
    template = str(Path(__file__).with_name("card_template.md"))
    return ModelCard.from_template(data, template_path=template, facts=facts, code=code)


def results_table(rows: Mapping[str, Mapping[str, Sequence[float] | float]]) -> str:
    """A markdown table: a row a model, a column a score; pairs are mean ± standard deviation, NaN stays empty."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))

    def cell(value: Sequence[float] | float | None) -> str:
        if isinstance(value, Sequence):
            return f"{value[0]:.4f} ± {value[1]:.4f}"
        return "" if value is None or math.isnan(value) else f"{value:.4f}"

    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    lines += [f"| {plain(name)} | {' | '.join(cell(row.get(key)) for key in columns)} |" for name, row in rows.items()]
    return "\n".join(lines)


def plot_curves(logs: Sequence[list], metrics: str | Sequence[str] | None, path: str | Path, x: str = "epoch") -> None:
    """Loss and scores of the evaluations (as logged after ``eval_``) over epochs or steps, a line a seed, as a PNG."""
    from matplotlib.figure import Figure  # no pyplot: a library must not touch a global figure

    names = [metrics] if isinstance(metrics, str) else metrics or ()
    scores = [f"eval_{name}" for name in names if any(f"eval_{name}" in entry for log in logs for entry in log)]
    panels = [("Loss", ["loss", "eval_loss"]), *([("Validation", scores)] if scores else [])]
    figure = Figure(figsize=(4.5 * len(panels), 3.4), layout="constrained")
    for axes, (title, keys) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for color, key in enumerate(keys):
            for number, log in enumerate(logs):
                points = [(entry[x], entry[key]) for entry in log if key in entry]
                style = {"color": f"C{color}", "marker": "" if key == "loss" else "o", "alpha": 0.7, "markersize": 3}
                axes.plot(*np.array(points).reshape(-1, 2).T, label=key if number == 0 else None, **style)
        axes.set(xlabel=x, title=title)
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(figure, path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a picture as a PNG, completely or not at all."""
    figure.savefig(picture := io.BytesIO(), format="png", dpi=120)
    write_whole(path, picture.getvalue())
