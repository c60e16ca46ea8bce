"""Fine-tuning, the same for every task: read the sets, train one model per seed, report, publish the best."""

from __future__ import annotations

import json
import logging
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from transformers import set_seed

from ..data.files import check_source
from ..data.rows import fingerprint
from ..training.cards import safe_name, write_card
from ..training.plots import results_table
from ..training.recipes import against_paper
from .arguments import FinetuningArguments
from .task import DataT, Row, SeedResult, Sets, Source, Task, mean_and_deviation, write_whole

logger = logging.getLogger(__name__)

_SETTINGS = "settings.json"


def run(task: Task[Any, Any]) -> None:
    """Fine-tunes and publishes; another call with the same settings and output folder resumes what was killed.

    The output folder gets a ``seed-N`` per run, ``results.json``, the learning curves, and the predictions, model and
    card of the best seed.

    Raises:
        FileNotFoundError, ValueError: for sets that cannot be read, before anything is loaded or written.
        ValueError: for a folder that holds runs with other settings.
    """
    options, args, output = task.options, task.args, Path(task.args.output_dir)
    for name in ("train", "validation", "test"):
        check_source(getattr(options, f"{name}_file"))
    set_seed(args.seed)
    args.learning_rate = options.usual_learning_rate if args.learning_rate is None else args.learning_rate

    # 1. Sets, and what all runs share.
    with args.main_process_first(local=False, desc="reading"):
        task.sets = read_sets(task)
    settings = {
        "task": task.name,
        **options.training_signature(),
        **task.prepare(),
        **{f"{name}_sha256": fingerprint(data.content()) for name, data in task.sets.by_name.items()},
        **args.training_signature(),
    }

    # 2. One run per seed.
    results = [run_seed(task, seed, output / f"seed-{seed}", settings) for seed in args.seeds]
    if not args.should_save:
        return

    # 3. The table, the pictures, and the model of the best seed with its card.
    choose = max if task.greater_is_better else min
    best = choose(results, key=lambda result: result.scores["validation"].get(task.metric, 0.0))
    table = report(task, results, best, settings)
    print(f"\n{table}\n")
    task.draw(results, output)
    folder = output / f"seed-{best.seed}"
    for file in folder.glob("*_predictions.jsonl"):
        shutil.copy(file, output)
    task.publish(best, folder, output)
    name = repository(args)
    facts = task.card(safe_name(name), best, table, settings)
    if facts is not None:
        paper = against_paper(f"{task.name} {options.model_type}", options, args)
        write_card(output, replace(facts, training={**facts.training, **paper}))
        upload(args, name)


def read_sets(task: Task[Any, DataT]) -> Sets[DataT]:
    """Reads the sets; without a validation set, part of the training set is held out."""
    options = task.options
    found: dict[str, DataT] = {}
    for name in ("train", "validation", "test"):
        if place := options.place(name):
            found[name] = task.read(Source(name, *place), found.get("train"))
    if "validation" not in found:
        found["train"], found["validation"] = task.hold_out(found["train"], options.validation_share, task.args.seed)
    sets = task.split(Sets(found["train"], found["validation"], found.get("test")))
    learned = task.texts(sets.train)
    for name, data in sets.by_name.items():
        logger.info("%s: %s", name, task.describe(data))
        if name != "test" and not task.labelled(data):
            raise ValueError(f"The {name} set has no labels ({task.describe(data)}); give one with labels.")
        if name != "train" and (shared := len(learned & task.texts(data))):
            logger.warning("%d texts of the %s set are in the training set, too.", shared, name)
    if sets.test is not None and task.labelled(sets.test):
        sets.reported = "test"
    return sets


def run_seed(task: Task[Any, Any], seed: int, folder: Path, settings: dict[str, object]) -> SeedResult:
    """The result of a seed: a stored one, or that of a run, which is resumed if it was killed.

    Raises:
        ValueError: if the folder holds a run with other settings (named).
    """
    check_settings(folder, settings)
    result = task.result.read(folder)
    if result is None:
        if task.args.should_save:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / _SETTINGS, json.dumps(settings, indent=2))
        result = task.train(seed, folder)
        if task.args.should_save:
            result.write(folder)
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
    reported = task.sets.reported
    logger.info("seed %d, %s: %s", seed, reported, json.dumps(result.scores[reported]))
    return result


def check_settings(folder: Path, settings: dict[str, object]) -> None:
    """Refuses a folder that holds a run with other settings.

    Raises:
        ValueError: naming them.
    """
    if not (folder / _SETTINGS).exists():
        return
    ours = json.loads(json.dumps(settings))
    theirs = json.loads((folder / _SETTINGS).read_text())
    if different := [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]:
        pairs = ", ".join(f"{key}: {_short(theirs.get(key))} there, {_short(ours.get(key))} now" for key in different)
        raise ValueError(
            f"{folder} holds a run with other settings ({pairs}). Give another --output_dir, or remove that folder."
        )


def report(task: Task[Any, Any], results: list[SeedResult], best: SeedResult, settings: dict[str, object]) -> str:
    """Writes ``results.json`` and returns the table of results in markdown."""
    reported = task.sets.reported
    seeds = f", {len(results)} seeds" if len(results) > 1 else ""
    name = f"{task.options.title}{seeds}, {reported}"
    scores = mean_and_deviation([result.scores[reported] for result in results])
    baselines = task.baselines(results)
    rows: dict[str, Row] = {name: scores, **task.rows(name, results), **baselines}
    rows = {title: {key: value for key, value in row.items() if key != "loss"} for title, row in rows.items()}
    summary = {
        "settings": settings,
        "reported": reported,
        "best_seed": best.seed,
        "mean_and_deviation": scores,
        "trivial_baseline": baselines,
        "seeds": {result.seed: {**result.scores[reported], **result.config} for result in results},
        "rows": rows,
        **task.details(results),
    }
    write_whole(Path(task.args.output_dir) / "results.json", json.dumps(_without_nan(summary), indent=2))
    return results_table(rows)


def repository(args: FinetuningArguments) -> str:
    """Name of the model: that of its repository on the Hub, which is created here, or of its folder."""
    name = Path(args.output_dir).name
    if args.push_to_hub:
        api = HfApi(token=args.hub_token)
        name = api.create_repo(args.hub_model_id or name, private=args.hub_private_repo, exist_ok=True).repo_id
    return name


def upload(args: FinetuningArguments, name: str) -> None:
    """Uploads the model and its card to the repository `name`, if that was asked for; runs and results stay local."""
    if args.push_to_hub:
        # Predictions hold ids of the user's rows; safetensors leaves .tmp* where it is killed.
        unpublished = ["seed-*", "*.jsonl", "results.json", ".tmp*"]
        HfApi(token=args.hub_token).upload_folder(
            repo_id=name, folder_path=args.output_dir, ignore_patterns=unpublished
        )


def _without_nan(value: Any) -> Any:
    """NaN (a correlation that does not exist) as null, which every reader of JSON knows."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _short(value: object) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else str(value)
