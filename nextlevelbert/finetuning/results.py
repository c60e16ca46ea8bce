"""Until every task is a `Task`: results on disk of the older pipelines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_RESULT, _SETTINGS = "result.json", "settings.json"


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


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Stores the result of a seed."""
    plain = {**result, "logits": {name: rows.tolist() for name, rows in result["logits"].items()}}
    write_whole(folder / _RESULT, json.dumps(plain))


def write_whole(path: Path, text: str) -> None:
    """The whole file or none, whenever the process is killed."""
    partial = path.with_suffix(".partial")
    partial.write_text(text + "\n")
    partial.replace(path)


def _short(value: Any) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else str(value)


def mean_and_deviation(results: Sequence[dict[str, Any]], evaluation: str) -> dict[str, tuple[float, float] | float]:
    """Mean and sample standard deviation over seeds of each score; the score itself where there is one seed."""
    table = {name: np.array([result[evaluation][name] for result in results]) for name in results[0][evaluation]}
    if len(results) == 1:
        return {name: float(values[0]) for name, values in table.items()}
    return {name: (float(values.mean()), float(values.std(ddof=1))) for name, values in table.items()}
