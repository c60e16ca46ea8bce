"""Model cards: one template beside this file, filled by `write_card`; tables of scores and pictures of a training."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from .trainer import safe_name as safe_name
from .trainer import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE, CONFUSION = "learning_curve.png", "confusion_matrix.png"
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

Log = Sequence[Mapping[str, float]]
"""`trainer.state.log_history`: what was logged, with its ``epoch`` and ``step``."""


def plain(text: object) -> str:
    """Text from outside (a label, the name of a file) as Markdown that shows it as it is, on one line."""
    return re.sub(r"([\\`*\[\]<>|#!~&])", r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    """Text from outside as code on one line, also within a table."""
    line = " ".join(str(text).split()).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    padding = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def write_card(
    folder: str | Path,
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
    """Writes ``README.md`` into `folder`, with the metadata that the Hub reads.

    Args:
        folder: of the model.
        name: of the model: its repository on the Hub, or its folder (`BaseTrainingArguments.repository`).
        summary: what the model is, what it reads and what it was trained for.
        snippet: Python code that opens and uses it; the tests run it.
        training: what it was trained on and how, by name; the values are shown as code.
        measured: markdown: what was measured on which data, and the table of results.
        limits: a sentence each.
        pipeline_tag, tags: for the Hub.
        model: what the model is made of, by name; the values are markdown.
        note, training_note: markdown after the snippet and after the table of the training.
        pictures: captions by file name; the files lie beside the card.
        adapter: whether the folder holds a LoRA adapter in place of a whole model.
        base_model: what the training started from, where that is a name on the Hub.
        scores: of this checkpoint, for the Hub; those that are not numbers are left out.
        dataset: what these were measured on.
        scored_task: the Hub's name of the task that these measure; `pipeline_tag` by default.
        widget: inputs that the Hub's page offers to try.
    """
    data = ModelCardData(
        license="apache-2.0",
        library_name="peft" if adapter else "nextlevelbert",
        pipeline_tag=pipeline_tag,
        tags=[*tags, *(["lora"] if adapter else [])],
        base_model=base_model,
        widget=[dict(example) for example in widget] or None,
    )
    results = [
        EvalResult(
            task_type=scored_task or pipeline_tag,
            dataset_type="custom",
            dataset_name=" ".join(dataset.split()),
            metric_type=metric,
            metric_value=round(value, 4),
        )
        for metric, value in (scores or {}).items()
        if not math.isnan(value)
    ]
    if results:
        data.model_name, data.eval_results = name, results
    facts = {
        "name": name, "summary": summary, "snippet": snippet, "note": note, "model": model or {}, "training": training,
        "training_note": training_note, "pictures": pictures or {}, "measured": measured, "limits": limits,
    }  # fmt: skip
    template = str(Path(__file__).with_name("card_template.md"))
    card = ModelCard.from_template(data, template_path=template, facts=facts, code=code)
    card.save(Path(folder) / "README.md")
    return card


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


def plot_curves(logs: Sequence[Log], metrics: str | Sequence[str] | None, path: str | Path, x: str = "epoch") -> None:
    """Loss and scores of the evaluations, one thin line a seed, as a PNG.

    Args:
        logs: the `trainer.state.log_history` of each seed.
        metrics: scores to show beside the loss, as they are logged after ``eval_``.
        path: where the picture goes.
        x: what they are drawn over: ``"epoch"`` or ``"step"``.
    """
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


def plot_confusion(labels: np.ndarray, predictions: np.ndarray, names: Sequence[str], path: str | Path) -> None:
    """Counts of true against predicted classes ``[N]``, of all seeds together, as a PNG; shaded by a row's shares."""
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

    size = max(3.4, 0.45 * len(names) + 2.0)
    figure = Figure(figsize=(size + 0.8, size), layout="constrained")
    counts = confusion_matrix(labels, predictions, labels=list(range(len(names))))
    display: Any = ConfusionMatrixDisplay(counts, display_labels=[name.replace("$", r"\$") for name in names])
    display.plot(ax=figure.subplots(), cmap="Blues", colorbar=False, xticks_rotation=45 if len(names) > 3 else 0)
    save_figure(figure, path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a picture as a PNG, completely or not at all."""
    figure.savefig(picture := io.BytesIO(), format="png", dpi=120)
    write_whole(path, picture.getvalue())


# --- Until the old modules are gone: what they call

from dataclasses import dataclass, field  # noqa: E402

from huggingface_hub import HfApi  # noqa: E402
from transformers import TrainingArguments  # noqa: E402

SUMMARY_WIDGET = (
    {
        "text": "The town opened its new bridge on Monday. It cost nine million and took four years to build. A brass "
        "band played in the rain. The old bridge, which floods had closed twice, will be taken down in May."
    },
)
QUESTION_WIDGET = (
    {
        "text": "Who built the bridge that was opened on Monday?",
        "context": "The town opened the Mill Bridge on Monday. The Mill Bridge was built by Ada Miller.",
    },
)


@dataclass(frozen=True)
class CardText:
    """What a card says of a kind of model, whatever it was trained on.

    Attributes:
        name: of the kind, a link to its paper.
        reads: a sentence: what it reads.
        limits: a sentence each.
        tags: for the Hub.
        settings: of the model, worth telling.
        uncounted: follows the number of parameters, where some are left out.
        base_arguments: further arguments of ``from_pretrained`` that open the base checkpoint of an adapter.
    """

    name: str
    reads: str
    limits: Sequence[str]
    tags: Sequence[str]
    settings: Mapping[str, object] = field(default_factory=dict)
    uncounted: str = ""
    base_arguments: str = ""


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """Everything that one model card tells.

    What comes from outside, such as labels and names of files, goes through `plain` or `code` where a field is
    markdown.

    Attributes:
        name: of the model: its repository on the Hub, or its folder, as `safe_name` writes it.
        summary: what the model is, what it reads and what it was trained for.
        snippet: Python code that opens and uses it.
        note: markdown after the snippet.
        model: what the model is made of, by name; the values are markdown.
        training: what it was trained on and how, by name; the values are shown as code.
        training_note: markdown after that table.
        pictures: captions by file name, of pictures of the training; the files lie beside the card.
        measured: markdown: what was measured on which data, and the table of results.
        limits: a sentence each.
        pipeline_tag: the Hub's name of the task.
        tags: for the Hub.
        adapter: whether the folder holds a LoRA adapter in place of a whole model.
        base_model: what the training started from, where that has a name on the Hub.
        scores: of this checkpoint, for the Hub's leaderboards; those that are not numbers are left out.
        dataset: what these were measured on.
        scored_task: the Hub's name of the task that these measure; `pipeline_tag` by default.
        scored_task_name: the same in words.
        widget: inputs that the Hub's page offers to try, with the fields that its widget for `pipeline_tag` takes.
    """

    name: str
    summary: str
    snippet: str
    measured: str
    limits: Sequence[str]
    pipeline_tag: str
    tags: Sequence[str]
    training: Mapping[str, object]
    model: Mapping[str, object] = field(default_factory=dict)
    note: str = ""
    training_note: str = ""
    pictures: Mapping[str, str] = field(default_factory=dict)
    adapter: bool = False
    base_model: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    dataset: str = ""
    scored_task: str | None = None
    scored_task_name: str | None = None
    widget: Sequence[Mapping[str, object]] = ()


def repository(args: TrainingArguments) -> str:
    """Name of the model: that of its repository on the Hub, which is created here, or of its folder."""
    name = Path(str(args.output_dir)).name
    if args.push_to_hub:
        api = HfApi(token=args.hub_token)
        name = api.create_repo(args.hub_model_id or name, private=args.hub_private_repo, exist_ok=True).repo_id
    return name


def upload(args: TrainingArguments, name: str, unpublished: Sequence[str]) -> None:
    """Uploads the output folder to the repository `name`, if that was asked for; files of these patterns stay."""
    if args.push_to_hub:
        HfApi(token=args.hub_token).upload_folder(
            repo_id=name, folder_path=args.output_dir, ignore_patterns=list(unpublished)
        )


_write_card = write_card


def write_card(folder: Any, facts: Any = None, **keywords: Any) -> ModelCard:  # type: ignore[no-redef]
    if facts is not None:
        keywords = {key: value for key, value in vars(facts).items() if key != "scored_task_name"}
    return _write_card(folder, **keywords)
