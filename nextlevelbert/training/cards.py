"""Model cards, from the template beside this file, and their tables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

_TEMPLATE = Path(__file__).with_name("card_template.md")
# Inputs that the Hub's page of a model offers to try.
SIMILARITY_WIDGET = (
    {
        "source_sentence": "The captain paced the deck and cursed the calm.",
        "sentences": [
            (
                "For three weeks no wind had filled the sails, and the crew spoke of nothing but"
                " water."
            ),
            "The parliament adjourned after a long debate about the price of corn.",
        ],
    },
)


def safe_name(name: str) -> str:
    """Returns a name for a heading and for strings of Python code.

    Args:
        name: in which everything but letters, digits, spaces and ``_ . - / @ +`` becomes ``-``.
    """
    return re.sub(r"[^\w ./@+-]", "-", name)


def plain(text: object) -> str:
    """Returns text from outside as Markdown that shows the text as it is, on one line.

    Args:
        text: such as a label or the name of a file.
    """
    return re.sub(r"([\\`*\[\]<>|#!~&])", r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    """Returns text from outside as Markdown's code on one line, also within a table.

    Args:
        text: such as the value of an option.
    """
    line = " ".join(str(text).split()).replace("|", "\\|")
    longest = max(map(len, re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    if not line or line.startswith("`") or line.endswith("`"):
        line = f" {line} "
    return f"{fence}{line}{fence}"


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
    base_model: str | None = None,
    scores: Mapping[str, float] | None = None,
    dataset: str = "",
    scored_task: str | None = None,
    widget: Sequence[Mapping[str, object]] = (),
) -> ModelCard:
    """Makes the card of a model, with the metadata that the Hub reads.

    Text from outside must go through `plain` or `code`, except in `training`, `name` and `dataset`.

    Args:
        name: of the model.
        summary: what the model is, in Markdown.
        snippet: Python code, which the tests run.
        training: values that are shown as code.
        measured: tables and explanations, in Markdown.
        limits: a sentence each.
        pipeline_tag: the Hub's name of the task.
        tags: of the Hub.
        model: further facts about the model, in Markdown.
        note: after the snippet, in Markdown.
        training_note: after the values of the training, in Markdown.
        pictures: captions by file name.
        base_model: a name on the Hub.
        scores: of this checkpoint on `dataset`.
        dataset: what the scores were measured on.
        scored_task: the Hub's name of the task that was scored (default: `pipeline_tag`).
        widget: inputs to try on the Hub.

    Returns:
        The card; ``card.save("FOLDER/README.md")`` writes it.
    """
    inputs = None
    if widget:
        inputs = [dict(example) for example in widget]
    data = ModelCardData(
        library_name="nextlevelbert",
        pipeline_tag=pipeline_tag,
        tags=list(tags),
        base_model=base_model,
        widget=inputs,
    )
    results = []
    for metric, value in (scores or {}).items():
        if not math.isnan(value):
            result = EvalResult(
                task_type=scored_task or pipeline_tag,
                dataset_type="custom",
                dataset_name=" ".join(dataset.split()),
                metric_type=metric,
                metric_value=round(value, 4),
            )
            results.append(result)
    if results:
        data.model_name = name
        data.eval_results = results
    facts = {
        "name": name,
        "summary": summary,
        "snippet": snippet,
        "note": note,
        "model": model or {},
        "training": training,
        "training_note": training_note,
        "pictures": pictures or {},
        "measured": measured,
        "limits": limits,
    }
    return ModelCard.from_template(data, template_path=str(_TEMPLATE), facts=facts, code=code)


def results_table(rows: Mapping[str, Mapping[str, Sequence[float] | float]]) -> str:
    """Returns a table in Markdown, with a row for each model and a column for each score.

    Args:
        rows: scores by model. Pairs are mean ± standard deviation; NaN leaves a cell empty.
    """
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [f"| | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    for name, row in rows.items():
        cells = [_cell(row.get(column)) for column in columns]
        lines.append(f"| {plain(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: Sequence[float] | float | None) -> str:
    if isinstance(value, Sequence):
        mean, deviation = value
        return f"{mean:.4f} ± {deviation:.4f}"
    if value is None or math.isnan(value):
        return ""
    return f"{value:.4f}"
