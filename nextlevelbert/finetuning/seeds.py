"""One training per seed, resumed where it was killed; then one table, and the best seed's model with its card."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from transformers import EarlyStoppingCallback, set_seed

from ..training.cards import CURVE, model_card, plot_curves, results_table
from ..training.trainer import CardTrainer, claim, count_parameters, last_whole_checkpoint, read_json, write_whole
from .arguments import FinetuningArguments

logger = logging.getLogger(__name__)

Scores = dict[str, float]
Row = dict[str, float | tuple[float, float]]
"""Scores in a table; a pair is a mean and a standard deviation."""
MakeTrainer = Callable[[FinetuningArguments], CardTrainer]
Score = Callable[[CardTrainer, Path], tuple[dict[str, Scores], Scores]]

# Predictions hold ids of the user's rows; safetensors leaves .tmp* where it is killed.
_NOT_PUBLISHED = ["seed-*", "vectors/*", "*.jsonl", ".tmp*", "results.json"]


@dataclass
class Result:
    """One seed, as ``result.json`` in its folder holds it: scores by set, and what was chosen for its configuration.

    `log` is what the trainer logged; `parameters` how many were trained, and how many there are.
    """

    seed: int
    scores: dict[str, Scores]
    config: Scores = field(default_factory=dict)
    log: list[Scores] = field(default_factory=list)
    steps: int = 0
    parameters: tuple[int, int] = (0, 0)


def run_seeds(
    args: FinetuningArguments, settings: Mapping[str, object], make_trainer: MakeTrainer, score: Score
) -> list[Result]:
    """Trains once per seed, in ``OUTPUT_DIR/seed-N``; a finished seed is read, a killed one goes on.

    Args:
        args: of the whole fine-tuning.
        settings: everything that decides the result; a folder with others is refused.
        make_trainer: a new model with its sets, for the arguments of one seed.
        score: scores by set of a trained model (``"validation"`` chooses the best seed), and what was chosen for its
            configuration; it writes predictions to the seed's folder where ``args.should_save``.
    """
    results = []
    for seed in args.seeds:
        folder = Path(str(args.output_dir)) / f"seed-{seed}"
        claim(folder, settings)
        stored = read_json(folder / "result.json")
        result = train_seed(args.for_seed(seed, folder), make_trainer, score) if stored is None else Result(**stored)
        if args.should_save:
            write_whole(folder / "result.json", json.dumps(asdict(result)))
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        logger.info("seed %d%s: %s", seed, "" if stored is None else ", finished already", json.dumps(result.scores))
        results.append(result)
    return results


def train_seed(args: FinetuningArguments, make_trainer: MakeTrainer, score: Score) -> Result:
    """Trains one seed from its last whole checkpoint, if there is one; arguments as in `run_seeds`."""
    set_seed(args.seed)
    folder, trainer = Path(str(args.output_dir)), make_trainer(args)
    trainable, total = count_parameters(trainer.model)
    logger.info(f"seed {args.seed}: {trainable:,} of {total:,} parameters are trainable ({trainable / total:.1%})")
    if args.load_best_model_at_end:
        trainer.add_callback(EarlyStoppingCallback(args.early_stopping_patience))
    trainer.train(resume_from_checkpoint=last_whole_checkpoint(folder))
    trainer.save_model(str(folder))
    scores, config = score(trainer, folder)
    if not math.isfinite(loss := scores["validation"].get("loss", 0.0)):
        raise ValueError(f"Seed {args.seed} ended with a validation loss of {loss}; lower the --learning_rate.")
    log, steps = trainer.state.log_history, trainer.state.global_step
    return Result(args.seed, scores, config, log, steps, (trainable, total))


def mean_and_deviation(rows: Sequence[Mapping[str, float]]) -> Row:
    """Mean and sample standard deviation of each score but the loss; the score itself if there is one row."""
    values = {name: [row[name] for row in rows] for name in rows[0] if name != "loss"}
    if len(rows) == 1:
        return {name: value for name, [value] in values.items()}
    return {name: (float(np.mean(column)), float(np.std(column, ddof=1))) for name, column in values.items()}


def report(
    args: FinetuningArguments,
    results: Sequence[Result],
    reported: str,
    name: str,
    baselines: Mapping[str, Mapping[str, Any]],
    metric: str = "loss",
    greater_is_better: bool = False,
) -> tuple[Result, str]:
    """The best seed by its validation score and a Markdown table, which ``results.json`` holds, too.

    The table has the scores of the set `reported`, in the row `name`, and further rows (`baselines`) by their titles.
    """
    output = Path(str(args.output_dir))
    best = (max if greater_is_better else min)(results, key=lambda result: result.scores["validation"][metric])
    seeds = f", {len(results)} seeds" if len(results) > 1 else ""
    rows = {f"{name}{seeds}, {reported}": mean_and_deviation([result.scores[reported] for result in results])}
    table = results_table(rows | dict(baselines))
    by_seed = {result.seed: result.scores[reported] | result.config for result in results}
    stored = {"reported": reported, "best_seed": best.seed, "seeds": by_seed, "rows": rows | dict(baselines)}
    write_whole(output / "results.json", json.dumps(stored, indent=2))
    if best.log:
        plot_curves([result.log for result in results], None if metric == "loss" else metric, output / CURVE)
    print(f"\n{table}\n")
    return best, table


def publish(
    args: FinetuningArguments, best: Result, open_model: Callable[[Path], Any] | None, card: Mapping[str, Any]
) -> None:
    """Saves the best seed's model whole, with its card and predictions, and uploads it where that is asked for.

    `open_model` opens the folder of a seed as what has `save_pretrained`; None for a baseline, of which there are only
    predictions. `card` has the arguments of `model_card`.
    """
    output, folder = Path(str(args.output_dir)), Path(str(args.output_dir)) / f"seed-{best.seed}"
    for predictions in folder.glob("*_predictions.jsonl"):
        write_whole(output / predictions.name, predictions.read_bytes())
    if open_model is not None:
        file, text = output / "README.md", str(model_card(**card)).encode()
        # Written last and removed first: where this card stands, the model beside it is whole.
        if not any(output.glob("*.safetensors")) or not file.exists() or file.read_bytes() != text:
            file.unlink(missing_ok=True)
            open_model(folder).save_pretrained(output)
            write_whole(file, text)
        args.upload(output, leave=_NOT_PUBLISHED)
    logger.info("Written to %s: results.json, predictions%s.", output, "" if open_model is None else ", model, card")


def training_facts(args: FinetuningArguments, best: Result, started_from: str) -> dict[str, object]:
    """What every card tells of the training."""
    names = ("learning_rate", "num_train_epochs", "max_steps", "weight_decay", "warmup_steps", "bf16")
    trained, total = best.parameters
    batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    facts = {"started from": started_from, "parameters": f"{total:,}, of which {trained:,} trained"}
    values = {name: getattr(args, name) for name in names}
    return {**facts, **values, "batch_size": batch, "steps": best.steps, "seed": best.seed}


def caveat(reported: str, *chosen: str) -> str:
    """A sentence for the card where what was `chosen` on the validation set is scored on it, too; else nothing."""
    if reported != "validation" or not chosen:
        return ""
    return f" Chosen on this set, too: {', '.join(chosen)}; so the scores are likely too high."
