"""Results of fine-tuning on disk: each seed's as soon as it is there, then what they come to together."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..evaluation.scores import majority_scores, predicted, task_scores
from ..tasks.classification.data import TaskData
from ..training.plots import CONFUSION, CURVE, plot_confusion, plot_curves, results_table
from .trainer import PreparedTask, labels_of

_RESULT, _SETTINGS = "result.json", "settings.json"


def fingerprint(data: TaskData) -> str:
    """SHA-256 over everything in a set that a run depends on."""
    rows = [
        [example.id, example.document, example.question, example.candidates, example.label]
        for example in data.examples
    ]
    return hashlib.sha256(json.dumps([data.label_names, data.documents, rows]).encode()).hexdigest()


def read_result(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a seed that was finished before, or None; after it, `folder` belongs to these settings.

    Raises:
        ValueError: if the folder was begun with other settings (named).
    """
    ours = json.loads(json.dumps(settings))
    if (folder / _SETTINGS).exists():
        theirs = json.loads((folder / _SETTINGS).read_text())
        if different := [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]:
            pairs = ", ".join(
                f"{key}: {_short(theirs.get(key))} there, {_short(ours.get(key))} now" for key in different
            )
            raise ValueError(
                f"{folder} holds a run with other settings ({pairs}). Give another --output_dir, or remove it."
            )
    if not (folder / _RESULT).exists():
        return None
    result = json.loads((folder / _RESULT).read_text())
    result["logits"] = {name: np.array(rows) for name, rows in result["logits"].items()}
    return result


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Marks a seed's folder as begun with these settings."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / _SETTINGS, json.dumps(settings, indent=2))


def score_long_documents(result: dict[str, Any], sets: Mapping[str, TaskData], long: Mapping[str, np.ndarray]) -> None:
    """Adds to a seed's result, under ``"long"``, its scores on the examples with long documents.

    From the same predictions, for each set with labels that has both long documents and others.

    Args:
        result: of `train_one_seed`.
        sets: the task.
        long: see `PreparedTask`.
    """
    result["long"] = {
        name: task_scores(sets[name].problem_type, logits[long[name]], labels_of(sets[name])[long[name]])
        for name, logits in result["logits"].items()
        if name in result and len(set(long[name].tolist())) == 2
    }


def write_result(folder: Path, result: dict[str, Any], sets: dict[str, TaskData]) -> None:
    """Stores the result of a seed, and its predictions as JSON lines."""
    for name, rows in result["logits"].items():
        write_predictions(folder / f"{name}_predictions.jsonl", sets[name], rows)
    plain = {**result, "logits": {name: rows.tolist() for name, rows in result["logits"].items()}}
    write_whole(folder / _RESULT, json.dumps(plain))


def write_whole(path: Path, text: str) -> None:
    """The whole file or none, whenever the process is killed."""
    partial = path.with_suffix(".partial")
    partial.write_text(text + "\n")
    partial.replace(path)


def _without_nan(value: Any) -> Any:
    """NaN (a correlation that does not exist) as null, which every reader of JSON knows."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _short(value: Any) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else str(value)


def summarize_seeds(
    output: Path,
    name: str,
    sets: dict[str, TaskData],
    results: Sequence[dict[str, Any]],
    settings: dict[str, Any],
    reported: str,
    prepared: PreparedTask,
) -> tuple[dict[str, Any], str]:
    """Writes ``results.json``, predictions of the best seed and pictures.

    Args:
        output: the folder.
        name: of the model, for the table.
        sets: the task.
        results: of every seed.
        settings: of the runs.
        reported: name of the set whose scores count.
        prepared: says which of its documents are long.

    Returns:
        The result of the seed with the lowest validation loss, and the table in markdown.
    """
    labels, train = labels_of(sets[reported]), sets["train"]
    best = min(results, key=lambda result: result["validation"].get("loss", 0.0))
    scores = mean_and_deviation(results, reported)
    classes = best["logits"][reported].shape[-1]
    chance = majority_scores(train.problem_type, labels_of(train), labels, classes)
    row = f"{name}, {len(results)} seeds, {reported}" if len(results) > 1 else f"{name}, {reported}"
    nothing = "mean of the labels" if train.problem_type == "regression" else "most frequent label"
    rows: dict[str, dict[str, tuple[float, float] | float]] = {row: scores}
    parts: dict[str, Any] = {}
    if prepared.long is not None and reported in best["long"]:
        parts["documents"], parts["of"] = int(prepared.long[reported].sum()), len(prepared.long[reported])
        parts["over_tokens"] = prepared.window
        parts["mean_and_deviation"] = mean_and_deviation([result["long"] for result in results], reported)
        parts["seeds"] = {result["seed"]: result["long"][reported] for result in results}
        counted = f"{parts['documents']} of {parts['of']} documents over {prepared.window} tokens"
        rows[f"{row}, long ({counted})"] = parts["mean_and_deviation"]
    table = results_table({**rows, nothing: chance})
    summary = {
        "settings": settings,
        "reported": reported,
        "best_seed": best["seed"],
        "mean_and_deviation": scores,
        "trivial_baseline": {nothing: chance},
        "seeds": {result["seed"]: result[reported] for result in results},
        **({"long": parts} if parts else {}),
    }
    write_whole(output / "results.json", json.dumps(_without_nan(summary), indent=2))
    for evaluation in best["logits"]:
        shutil.copy(output / f"seed-{best['seed']}" / f"{evaluation}_predictions.jsonl", output)
    if train.problem_type == "single_label_classification":
        found = np.concatenate([predicted(train.problem_type, result["logits"][reported]) for result in results])
        plot_confusion(np.tile(labels, len(results)), found, train.label_names or (), output / CONFUSION)
    if best["curve"]:
        metric = {"regression": "mse", "multi_label_classification": "micro_f1"}.get(train.problem_type, "accuracy")
        plot_curves([result["curve"] for result in results], metric, output / CURVE)
    return best, table


def mean_and_deviation(results: Sequence[dict[str, Any]], evaluation: str) -> dict[str, tuple[float, float] | float]:
    """Mean and sample standard deviation over seeds of each score; the score itself where there is one seed."""
    table = {name: np.array([result[evaluation][name] for result in results]) for name in results[0][evaluation]}
    if len(results) == 1:
        return {name: float(values[0]) for name, values in table.items()}
    return {name: (float(values.mean()), float(values.std(ddof=1))) for name, values in table.items()}


def write_predictions(path: Path, data: TaskData, logits: np.ndarray) -> None:
    """One JSON object a line: id, prediction, label (as given, where there is one), and a score for each class."""
    found = predicted(data.problem_type, logits)
    if data.problem_type in ("single_label_classification", "multiple_choice"):
        scores = torch.tensor(logits, dtype=torch.float64).softmax(-1).numpy()
    elif data.problem_type == "multi_label_classification":
        scores = torch.tensor(logits, dtype=torch.float64).sigmoid().numpy()
    else:
        scores = logits.reshape(len(logits), -1)
    names = data.label_names

    def spoken(label: Any) -> Any:
        if names is None:
            return float(label) if data.problem_type == "regression" else int(label)
        return [names[number] for number in label] if isinstance(label, (tuple, list)) else names[int(label)]

    with path.open("w", encoding="utf-8") as file:
        for example, row, given in zip(data.examples, found, scores, strict=True):
            prediction: Any = row
            if data.problem_type == "multi_label_classification":
                prediction = np.flatnonzero(row).tolist()
            record = {"id": example.id, "prediction": spoken(prediction)}
            if example.label is not None:
                record["label"] = spoken(example.label)
            record["scores"] = [round(float(score), 6) for score in given]
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
