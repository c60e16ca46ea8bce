"""What every task of `run_finetune.py` does around its training: a run a seed, a table of them, a place on the Hub."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from ..training.plots import results_table
from .legacy import FinetuningArguments
from .results import mean_and_deviation, read_result, write_result, write_settings, write_whole

logger = logging.getLogger(__name__)


def run_seeds(
    seeds: Sequence[int],
    args: FinetuningArguments,
    settings: dict[str, Any],
    reported: str,
    train: Callable[[int, Path], dict[str, Any]],
) -> list[dict[str, Any]]:
    """One run a seed; a seed that was finished before is not run again, and one that was killed goes on.

    Args:
        seeds: of the runs.
        args: of the whole fine-tuning; a run gets a folder in its output folder.
        settings: what decides the results.
        reported: name of the set whose scores are told.
        train: makes the result of a seed in its folder: scores by name of the set, logits under ``"logits"``.

    Raises:
        ValueError: for a folder begun with other settings.
    """
    results = []
    for seed in seeds:
        folder = Path(args.output_dir) / f"seed-{seed}"
        result = read_result(folder, settings)
        if result is None:
            if args.should_save:
                write_settings(folder, settings)
            result = train(seed, folder)
            if args.should_save:
                write_result(folder, result)
        logger.info("seed %d, %s: %s", seed, reported, json.dumps(result[reported]))
        results.append(result)
    return results


def row_of_seeds(name: str, results: Sequence[dict[str, Any]], reported: str) -> dict[str, Any]:
    """The row of a model in the table, under its name, with what the seeds come to together."""
    seeds = f", {len(results)} seeds" if len(results) > 1 else ""
    return {f"{name}{seeds}, {reported}": mean_and_deviation(results, reported)}


def write_rows(
    output: Path, settings: dict[str, Any], reported: str, best: dict[str, Any], rows: Mapping[str, Any], **more: Any
) -> str:
    """Prints the table of `rows`, writes ``results.json`` (`more` too), and returns the table in markdown."""
    table = results_table(rows)
    print(f"\n{table}\n")
    summary = {"settings": settings, "reported": reported, "best_seed": best["seed"], "rows": rows, **more}
    write_whole(output / "results.json", json.dumps(summary, indent=2))
    return table


def repo_name(args: FinetuningArguments) -> str:
    """Name of the model: of its repository on the Hub, which is made here, or of its folder if it stays here."""
    name = Path(args.output_dir).name
    if args.push_to_hub:
        api = HfApi(token=args.hub_token)
        name = api.create_repo(args.hub_model_id or name, private=args.hub_private_repo, exist_ok=True).repo_id
    return name


def upload(args: FinetuningArguments, name: str) -> None:
    """Puts the model with its card into the repository `name`, where that is asked for; runs and results stay here."""
    if args.push_to_hub:
        unpublished = ["seed-*", "*.jsonl", "results.json"]  # predictions hold ids of the user's rows
        HfApi(token=args.hub_token).upload_folder(
            repo_id=name, folder_path=args.output_dir, ignore_patterns=unpublished
        )
