"""Cards and pictures of fine-tuned models: what was trained on what, what was measured, over how many seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..tasks.classification.data import TaskData

CURVE = "learning_curve.png"
CONFUSION = "confusion_matrix.png"

_PIPELINES = {
    "single_label_classification": "text-classification",
    "multi_label_classification": "text-classification",
    "regression": "text-classification",
    "multiple_choice": "multiple-choice",
}


@dataclass(frozen=True)
class CardWords:
    """What a card says of a kind of model.

    Attributes:
        name: of the kind, a link to its paper.
        reads: a sentence: what it reads.
        limits: a sentence each.
        tags: of the kind, for the Hub.
        settings: of the model, worth telling.
        uncounted: said behind the number of parameters, where some are left out.
        base_arguments: to open a base checkpoint with, under an adapter.
    """

    name: str
    reads: str
    limits: Sequence[str]
    tags: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    uncounted: str = ""
    base_arguments: str = ""


def plot_curves(results: Sequence[Mapping[str, Any]], metric: str | None, path: str | Path) -> None:
    """Loss and a score over epochs, a thin line a seed, as a PNG.

    Args:
        results: of `train_one_seed`.
        metric: the score to show beside the loss; None for the loss alone.
        path: where the picture goes.
    """
    from matplotlib.figure import Figure  # no pyplot: a library must not touch a global figure

    panels = 1 if metric is None else 2
    figure = Figure(figsize=(4.5 * panels, 3.4), layout="constrained")
    losses, *scores = figure.subplots(1, panels, squeeze=False)[0]

    def draw(axes: Any, key: str, color: str, label: str) -> None:
        for number, result in enumerate(results):
            rows = [(entry["epoch"], entry[key]) for entry in result["curve"] if key in entry]
            axes.plot(*zip(*rows, strict=True), color=color, alpha=0.6, label=label if number == 0 else None)

    draw(losses, "loss", "tab:blue", "training")
    draw(losses, "eval_loss", "tab:orange", "validation")
    losses.set(xlabel="epoch", ylabel="loss", title=f"Loss, {len(results)} seed(s)")
    for axes in scores:
        draw(axes, f"eval_{metric}", "tab:green", f"validation {metric}")
        axes.set(xlabel="epoch", title="Validation score")
    for axes in (losses, *scores):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


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
    axes.set_xticks(range(len(names)), names, rotation=45 if len(names) > 3 else 0)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted", ylabel="true", title="Predictions of all seeds")
    figure.colorbar(image, ax=axes, label="share of the true class")
    figure.savefig(path, dpi=120)


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
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_finetuning_card(
    folder: str | Path,
    name: str,
    train: TaskData,
    reported: TaskData,
    facts: Mapping[str, Any],
    table: str,
    published: Mapping[str, float],
    choice: str,
    words: CardWords,
    base_model: str | None = None,
    adapter: bool = False,
) -> ModelCard:
    """Writes ``README.md`` beside a fine-tuned model; the pictures lie there already.

    Args:
        folder: the model's folder.
        name: the model's name, or its repository on the Hub.
        train: what it was trained on.
        reported: the set that the scores are from.
        facts: what it is made of, and the training arguments worth telling.
        table: of `results_table`, all seeds.
        published: scores of the model in this folder.
        choice: a sentence that says how this model was chosen, and on which set.
        words: on its kind.
        base_model: where that has a name on the Hub.
        adapter: whether the folder holds a LoRA adapter.
    """
    folder, problem_type = Path(folder), train.problem_type
    data = ModelCardData(
        license="apache-2.0",
        library_name="peft" if adapter else "nextlevelbert",
        pipeline_tag=_PIPELINES[problem_type],
        tags=[*words.tags, "long-documents", *(["lora"] if adapter else [])],
        base_model=base_model,
        model_name=name,
        eval_results=[
            EvalResult(
                task_type=_PIPELINES[problem_type],
                task_name=problem_type.replace("_", " "),
                dataset_type="custom",
                dataset_name=reported.source,
                metric_type=metric,
                metric_value=round(value, 4),
            )
            for metric, value in published.items()
            if metric != "loss" and not math.isnan(value)
        ],
    )
    pictures = f"![Loss and score over epochs]({CURVE})\n"
    if (folder / CONFUSION).exists():
        pictures += f"\n![Confusion matrix]({CONFUSION})\n"
    limits = "\n".join(f"- {limit}" for limit in words.limits)
    text = f"""---
{data.to_yaml()}
---
# {name}

A {words.name} fine-tuned on {train.source}. {words.reads}

```python
{_snippet(name, train, base_model or "the base checkpoint", words.base_arguments if adapter else None)}
```

## What was measured

{table}

{choice}

{pictures}
## What it is, and how it was trained

{_two_columns(facts)}

## Limits

- Small sets have wide margins, and the deviation over seeds does not cover the choice of the set.
{limits}
"""
    card = ModelCard(text)
    card.save(folder / "README.md")
    return card


def _snippet(name: str, train: TaskData, base: str, base_arguments: str | None) -> str:
    """Code that opens the model (an adapter on `base`) and reads a document, with a question or candidates."""
    adapter = base_arguments is not None
    choice, pair = train.problem_type == "multiple_choice", train.examples[0].question is not None
    auto_class = "AutoModelForMultipleChoice" if choice else "AutoModelForSequenceClassification"
    lines = ["import nextlevelbert  # registers the architecture"]
    if adapter:
        lines.append("from peft import PeftModel")
    lines += [f"from transformers import {auto_class}, AutoTokenizer", ""]
    if adapter:
        lines.append(f'base = {auto_class}.from_pretrained("{base}"{base_arguments})')
        lines.append(f'model = PeftModel.from_pretrained(base, "{name}").eval()')
    else:
        lines.append(f'model = {auto_class}.from_pretrained("{name}")')
    lines.append(f'tokenizer = AutoTokenizer.from_pretrained("{name}")')
    if not (choice or pair):
        lines.append('scores = model(**tokenizer("the text of a whole document", return_tensors="pt")).logits')
        return "\n".join(lines)
    lines.append('document = tokenizer("the text of a whole document", return_tensors="pt")')
    texts = '["the question? one answer", "the question? another"]' if choice else '["a question about it"]'
    lines.append(f'pair = tokenizer({texts}, padding=True, return_tensors="pt")')
    ids = ['pair_input_ids=pair["input_ids"]', 'pair_attention_mask=pair["attention_mask"]']
    ids = [f"{part}[None]" for part in ids] if choice else ids
    lines.append(f"scores = model(**document, {', '.join(ids)}).logits")
    return "\n".join(lines)


def _two_columns(rows: Mapping[str, Any]) -> str:
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())])
