"""Options from files: a file at the beginning of a command line, and the recipes of the papers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .parser import pop_option

RECIPES = Path(__file__).with_name("recipes")


def expand_options_file(argv: Sequence[str]) -> list[str]:
    """Replaces a file of options at the beginning of a command line by the options in it.

    Raises:
        ValueError: for a file that holds no options, and another argument at the beginning.
    """
    if not argv or argv[0].startswith("-"):
        return list(argv)
    path = Path(argv[0])
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError(
            f"{argv[0]!r} is not an option; a file of options ends in .yaml, .yml or .json."
        )
    if not path.exists():
        raise ValueError(f"there is no file of options {argv[0]!r}. An option begins with --")
    return [*_as_argv(_read_options(path)), *argv[1:]]


def _read_options(path: Path) -> dict[str, Any]:
    import yaml  # most commands read no file of options

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except yaml.YAMLError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(
            f"{path} must hold options by name, such as 'seeds: [0, 1]'; got"
            f" {type(values).__name__}."
        )
    return values


def _as_argv(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields options as arguments of a command line."""
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, list):
            yield f"--{name}"
            yield from map(str, value)
        elif isinstance(value, dict | bool):
            yield f"--{name}={json.dumps(value)}"
        else:
            yield f"--{name}={value}"


def with_recipe(argv: Sequence[str], name: str) -> list[str]:
    """Replaces ``--recipe paper`` by the paper's options, which come first.

    The last of two equal options counts, so explicit options override the recipe.

    Args:
        argv: arguments of the command line, without ``--task``.
        name: the task of ``finetune``, if it is one, and the model type, such as ``"hate"`` or
            ``"classification-chunkbert"``.

    Raises:
        ValueError: if no paper names settings for the model type, or the batch of one device does
            not divide the paper's batch.
    """
    recipe, others = pop_option(argv, "recipe")
    if recipe != "paper":
        return list(argv)  # the parser rejects any other value

    path = RECIPES / f"{name}.yaml"
    if not path.exists():
        task, _, _ = name.rpartition("-")
        names = ", ".join(sorted(file.stem for file in RECIPES.glob(f"{task}*.yaml")))
        raise ValueError(f"--recipe paper: no paper names settings for {name}, only for {names}.")
    values = _read_options(path)
    if os.environ.get("RANK", "0") == "0":
        source = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        print(f"The paper's settings ({source}): {values}", file=sys.stderr)
    if "batch_size" in values:
        # Rows in a batch of all processes and steps together.
        batch_size = values.pop("batch_size")
        device_batch, _ = pop_option(others, "per_device_train_batch_size", "8")
        rows_at_once = int(device_batch) * int(os.environ.get("WORLD_SIZE", "1"))
        if batch_size % rows_at_once > 0:
            raise ValueError(
                f"The paper's batch of {batch_size} needs a --per_device_train_batch_size that"
                " divides it."
            )
        values["per_device_train_batch_size"] = device_batch
        values["gradient_accumulation_steps"] = batch_size // rows_at_once
    return [*_as_argv(values), *others]
