"""Fine-tuning, the same for every task: read the sets, train one model per seed, report, publish the best."""

from __future__ import annotations

import json
import logging
import math
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import set_seed

from ..data._old import check_source
from ..data.rows import fingerprint
from ..training.cards import repository, safe_name, upload, write_card
from ..training.plots import results_table
from ..training.recipes import against_paper
from ..training.resuming import check_settings, only_run_in, read_whole, store_settings, unreadable, write_whole
from .task import DataT, Row, SeedResult, Sets, Source, Task, mean_and_deviation

logger = logging.getLogger(__name__)

_RESULTS = "results.json"
# Predictions hold ids of the user's rows; safetensors leaves .tmp* where it is killed.
_UNPUBLISHED = ["seed-*", "*.jsonl", ".tmp*", _RESULTS]


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

    # 3. The table, the pictures, and the model of the best seed with its card. The results are written last, so that
    # whatever was killed before is made again.
    choose = max if task.greater_is_better else min
    best = choose(results, key=lambda result: result.scores["validation"].get(task.metric, 0.0))
    folder, name = output / f"seed-{best.seed}", repository(args)
    summary, table = report(task, results, best, {"settings": settings, "model": name})
    print(f"\n{table}\n")
    if read_whole(output / _RESULTS) == summary and _published(folder, output):
        logger.info("Finished already; nothing to do.")
        upload(args, name, _UNPUBLISHED)
        return
    task.draw(results, output)
    for file in folder.glob("*_predictions.jsonl"):
        write_whole(output / file.name, file.read_bytes())
    task.publish(best, folder, output)
    facts = task.card(safe_name(name), best, table, settings)
    if facts is not None:
        paper = against_paper(f"{task.name} {options.model_type}", options, args)
        write_card(output, replace(facts, training={**facts.training, **paper}))
    write_whole(output / _RESULTS, json.dumps(summary, indent=2))
    if facts is not None:
        upload(args, name, _UNPUBLISHED)


def _published(folder: Path, output: Path) -> bool:
    """Whether the weights of the best seed were published, and can be read."""
    return all(unreadable(output / file.name) is None for file in folder.glob("*.safetensors"))


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
        ValueError: if the folder holds a run with other settings (named), or another process is training there.
    """
    with only_run_in(folder) if task.args.should_save else nullcontext():
        check_settings(folder, settings)
        result, told = task.result.read(folder), "finished already"
        if result is None:
            if task.args.should_save:
                store_settings(folder, settings)
            result, told = task.train(seed, folder), task.sets.reported
            if task.args.should_save:
                result.write(folder)
        if task.args.should_save:  # also what a kill has left of them
            for checkpoint in [*folder.glob("checkpoint-*"), folder / "best"]:
                shutil.rmtree(checkpoint, ignore_errors=True)
    logger.info("seed %d, %s: %s", seed, told, json.dumps(result.scores[task.sets.reported]))
    return result


def report(
    task: Task[Any, Any], results: list[SeedResult], best: SeedResult, facts: dict[str, object]
) -> tuple[dict[str, object], str]:
    """What ``results.json`` holds, beside these `facts`, and the table of results in markdown."""
    reported = task.sets.reported
    seeds = f", {len(results)} seeds" if len(results) > 1 else ""
    name = f"{task.options.title}{seeds}, {reported}"
    scores = mean_and_deviation([result.scores[reported] for result in results])
    baselines = task.baselines(results)
    rows: dict[str, Row] = {name: scores, **task.rows(name, results), **baselines}
    rows = {title: {key: value for key, value in row.items() if key != "loss"} for title, row in rows.items()}
    summary = {
        **facts,
        "reported": reported,
        "best_seed": best.seed,
        "mean_and_deviation": scores,
        "trivial_baseline": baselines,
        "seeds": {result.seed: {**result.scores[reported], **result.config} for result in results},
        "rows": rows,
        **task.details(results),
    }
    return json.loads(json.dumps(_without_nan(summary))), results_table(rows)


def _without_nan(value: Any) -> Any:
    """NaN (a correlation that does not exist) as null, which every reader of JSON knows."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value
