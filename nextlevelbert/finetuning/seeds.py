"""A fine-tuning: options and sets, a training per seed, a table, the best model with its card."""

import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import ModelCard
from transformers import EarlyStoppingCallback, set_seed

from ..models.files import read_json, write_whole
from ..training.cards import results_table
from ..training.plots import CURVE, plot_curves
from ..training.runs import bind_folder, last_whole_checkpoint
from ..training.trainer import CardTrainer
from .arguments import FinetuningArguments

logger = logging.getLogger(__name__)

Scores = dict[str, float]
MakeTrainer = Callable[[FinetuningArguments], CardTrainer]
ScoreModel = Callable[[CardTrainer, Path], dict[str, Scores]]
# Scores in a table; a pair is a mean and a standard deviation.
Row = dict[str, float | tuple[float, float]]

_NOT_PUBLISHED = [
    "seed-*",
    "vectors/*",
    "*.jsonl",  # predictions hold ids of the user's rows
    "settings.json",
    "results.json",
]


# --- A training per seed


@dataclass
class Result:
    """The result of one seed, which ``result.json`` in its folder stores.

    Args:
        seed: seed of the training.
        scores: set name → scores.
        log: log of the trainer.
        steps: number of steps of the optimiser.
        parameters: numbers of trained parameters and of all parameters.
    """

    seed: int
    scores: dict[str, Scores]
    log: list[Scores] = field(default_factory=list)
    steps: int = 0
    parameters: tuple[int, int] = (0, 0)


def run_seeds(
    args: FinetuningArguments,
    settings: Mapping[str, object],
    make_trainer: MakeTrainer,
    score: ScoreModel,
    validated: Sequence[str] = (),
) -> list[Result]:
    """Trains once per seed, in ``OUTPUT_DIR/seed-N``.

    A finished seed is read, and an interrupted one resumes.

    Args:
        args: training arguments that all seeds share.
        settings: everything that decides the result; a folder with others is refused.
        make_trainer: makes a trainer with a new model, given the arguments of one seed.
        score: scores a trained model, and writes its predictions to the folder of the seed if
            ``args.should_save``. It returns scores by set; ``"validation"`` chooses the best seed.
        validated: names of the scores, besides the loss, of an evaluation during training.
    """
    args.check_best_metric(validated)
    args.repository()  # a model that cannot be published should not be trained first
    bind_folder(args.output_dir, settings)
    results = []
    for seed in args.seeds:
        folder = Path(args.output_dir) / f"seed-{seed}"
        bind_folder(folder, settings)
        stored = read_json(folder / "result.json")
        if stored is None:
            result = train_seed(args.for_seed(seed, folder), make_trainer, score)
        else:
            logger.info("seed %d is finished already.", seed)
            result = Result(**stored)

        if args.should_save:
            write_whole(folder / "result.json", json.dumps(asdict(result)))
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)

        logger.info("seed %d: %s", seed, json.dumps(result.scores))
        results.append(result)

    return results


def train_seed(
    args: FinetuningArguments,
    make_trainer: MakeTrainer,
    score: ScoreModel,
) -> Result:
    """Trains one seed, from its last complete checkpoint if there is one.

    Raises:
        ValueError: if the validation loss is not finite.
    """
    set_seed(args.seed)
    folder = Path(args.output_dir)
    trainer = make_trainer(args)
    trainable = trainer.get_num_trainable_parameters()
    total = sum(parameter.numel() for parameter in trainer.model.parameters())
    logger.info(
        f"seed {args.seed}: {trainable:,} of {total:,} parameters are trainable"
        f" ({trainable / total:.1%})"
    )
    if args.load_best_model_at_end:
        trainer.add_callback(EarlyStoppingCallback(args.early_stopping_patience))

    trainer.train(resume_from_checkpoint=last_whole_checkpoint(folder))
    trainer.save_model(str(folder))
    scores = score(trainer, folder)

    loss = scores["validation"].get("loss", 0.0)
    if not math.isfinite(loss):
        raise ValueError(
            f"Seed {args.seed} ended with a validation loss of {loss}. Lower --learning_rate."
        )

    return Result(
        seed=args.seed,
        scores=scores,
        log=trainer.state.log_history,
        steps=trainer.state.global_step,
        parameters=(trainable, total),
    )


def mean_and_deviation(rows: Sequence[Scores]) -> Row:
    """Returns mean and sample standard deviation of each score except the loss.

    Args:
        rows: scores of each seed; the scores of a single seed are returned unchanged.
    """
    row: Row = {}
    for name in rows[0]:
        if name == "loss":
            continue
        values = [scores[name] for scores in rows]
        if len(values) == 1:
            row[name] = values[0]
        else:
            row[name] = (float(np.mean(values)), float(np.std(values, ddof=1)))

    return row


def report(
    args: FinetuningArguments,
    results: Sequence[Result],
    reported: str,
    name: str,
    baselines: Mapping[str, Mapping[str, Any]],
    metric: str = "loss",
) -> tuple[Result, str]:
    """Writes results, learning curve and predictions of the best seed, and prints a table.

    Args:
        args: training arguments of the run.
        results: result of each seed.
        reported: set whose scores the table shows.
        name: title of the first row, the trained model.
        baselines: title → scores of each further row.
        metric: validation score that selects the best seed; except for a loss, higher is better.

    Returns:
        The result of the best seed, and the table in Markdown.
    """
    select = max
    if metric == "loss":
        select = min

    best = select(results, key=lambda result: result.scores["validation"][metric])

    title = f"{name}, {reported}"
    if len(results) > 1:
        title = f"{name}, {len(results)} seeds, {reported}"

    trained = mean_and_deviation([result.scores[reported] for result in results])
    rows = {title: trained, **baselines}
    stored = {
        "reported": reported,
        "best_seed": best.seed,
        "seeds": {result.seed: result.scores[reported] for result in results},
        "rows": rows,
    }
    output = Path(args.output_dir)
    write_whole(output / "results.json", json.dumps(stored, indent=2))
    if best.log:
        plot_curves([result.log for result in results], metrics=[], path=output / CURVE)

    for predictions in (output / f"seed-{best.seed}").glob("*_predictions.jsonl"):
        write_whole(output / predictions.name, predictions.read_bytes())

    table = results_table(rows)
    print(f"\n{table}\n")
    logger.info("Written to %s: results.json, predictions.", output)
    return best, table


def publish(
    args: FinetuningArguments,
    best: Result,
    open_model: Callable[[Path], Any],
    card: ModelCard,
) -> None:
    """Saves the model of the best seed with its card, and uploads it if asked to."""
    output = Path(args.output_dir)
    readme = output / "README.md"
    content = str(card).encode()
    has_weights = any(output.glob("*.safetensors"))
    if not has_weights or not readme.exists() or readme.read_bytes() != content:
        # The card is removed first and written last: the model beside a card is complete.
        readme.unlink(missing_ok=True)
        open_model(output / f"seed-{best.seed}").save_pretrained(output)
        write_whole(readme, content)

    args.upload(output, leave=_NOT_PUBLISHED)
    logger.info("Written to %s: model, card.", output)
