"""A fine-tuning: its options and sets, a training per seed, one table, and the best seed's model
with its card."""

from __future__ import annotations

import argparse
import copy
import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from transformers import EarlyStoppingCallback, set_seed

from ..data.rows import hold_out
from ..training import trainer as training
from ..training.trainer import (
    BaseTrainingArguments,
    CardTrainer,
    claim,
    plot_curves,
    read_json,
    write_whole,
)

logger = logging.getLogger(__name__)

Scores = dict[str, float]
Row = dict[
    str, float | tuple[float, float]
]  # scores in a table; a pair is a mean and a standard deviation
Data = TypeVar("Data")

# Predictions hold ids of the user's rows; safetensors leaves .tmp* where it is killed.
_NOT_PUBLISHED = ["seed-*", "vectors/*", "*.jsonl", "*.trec", ".tmp*"]
_NOT_PUBLISHED += ["settings.json", "results.json"]


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A field of a dataclass with its help."""
    return field(default=default, metadata={"help": help, **metadata})


@dataclass
class FinetuningArguments(BaseTrainingArguments):
    """`TrainingArguments` for small supervised sets: several seeds, the best evaluation kept, early
    stopping."""

    seeds: list[int] = field(
        default_factory=lambda: [0], metadata={"help": "One training each; the best is kept."}
    )
    learning_rate: float | None = option(  # type: ignore[assignment]
        None,
        "By default 5e-5; from text 3e-5, for summaries 2e-5; for a head or adapters alone 1e-3.",
    )
    num_train_epochs: float = option(20.0, "Maximum number of epochs.")
    per_device_eval_batch_size: int = option(32, "Batch size per device.")
    warmup_steps: float = option(0.1, "Number of steps, or a share of them if below 1.")
    seed: int = option(42, "Seed of the documents that are held out; trainings use --seeds.")
    logging_strategy: str = option("epoch", "no, steps or epoch.")
    eval_strategy: str = option("epoch", "no, steps or epoch.")
    save_strategy: str = option("epoch", "no, steps or epoch.")
    save_total_limit: int | None = option(1, "Checkpoints to keep besides the best one.")
    load_best_model_at_end: bool = option(True, "Keep the weights of the best evaluation.")
    metric_for_best_model: str | None = option(
        "loss", "Validation score that selects the best evaluation."
    )
    early_stopping_patience: int = option(
        3, "Evaluations without progress after which training stops."
    )
    # Without this, a resumed run would forget how long it has made no progress.
    restore_callback_states_from_checkpoint: bool = option(True, argparse.SUPPRESS)

    # Not options: every run trains and scores, all rows of it.
    do_train: bool = field(init=False, default=True)
    do_eval: bool = field(init=False, default=True)
    do_predict: bool = field(init=False, default=True)
    label_names: list[str] | None = field(
        init=False, default_factory=lambda: ["labels"]
    )  # an adapter hides them
    prediction_loss_only: bool = field(init=False, default=False)
    dataloader_drop_last: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"--seeds names a seed twice: {self.seeds}.")
        if self.n_gpu > 1:
            raise ValueError(
                f"Start a process for each of the {self.n_gpu} GPUs: torchrun --nproc_per_node"
                " N ..."
            )

    def for_seed(self, seed: int, folder: Path) -> Self:
        """The arguments of one training; its model is published at the end, not by the training."""
        args = copy.copy(self)
        args.output_dir, args.seed, args.data_seed, args.push_to_hub = (
            str(folder),
            seed,
            seed,
            False,
        )
        return args


@dataclass(kw_only=True)
class DataArguments:
    """Files or splits of a training set, and of sets to validate and to report on."""

    _argument_group_name = "data"

    train_file: str | None = option(
        None, "Training set: any table, a quoted pattern, or a folder of save_to_disk."
    )
    validation_file: str | None = option(
        None, "Validation set, which selects the epoch; by default, held-out rows."
    )
    test_file: str | None = option(
        None, "Test set, which is only reported on; by default, the validation set."
    )
    dataset_name: str | None = option(None, "A dataset on the Hub, instead of files.")
    dataset_config_name: str | None = option(None, "Configuration of that dataset.")
    train_split: str | None = option(
        None, "Split of the dataset, or of a folder, to train on; by default train."
    )
    validation_split: str | None = option(None, "Split to validate on.")
    test_split: str | None = option(None, "Split to report on.")
    validation_share: float = option(0.15, "Share to hold out if there is no validation set.")

    def __post_init__(self) -> None:
        files = {name: getattr(self, f"{name}_file") for name in ("train", "validation", "test")}
        if bool(self.dataset_name) == any(files.values()) or not (
            self.dataset_name or self.train_file
        ):
            raise ValueError(
                "Give the training set, either with --train_file or with --dataset_name."
            )
        for name, file in files.items():
            folder = Path(file or self.train_file or "").is_dir()
            if getattr(self, f"{name}_split") and not (self.dataset_name or folder):
                raise ValueError(
                    f"--{name}_split is for --dataset_name or a folder; give a file with"
                    f" --{name}_file."
                )

    def place(self, name: str) -> tuple[str, str] | None:
        """File, folder or dataset of the set `name`, and its split; None for a set that was not
        given."""
        file, split = getattr(self, f"{name}_file"), getattr(self, f"{name}_split")
        if name != "train" and file is None and split is None:
            return None
        return self.dataset_name or file or self.train_file or "", split or "train"

    def read_sets(
        self, read: Callable[[str, str, str], Data], seed: int, hold_out: Any = hold_out
    ) -> dict[str, Data]:
        """The sets by name, from ``read(name, source, split)``; without one for validation, a share
        of training."""
        places = {name: self.place(name) for name in ("train", "validation", "test")}
        sets = {name: read(name, *place) for name, place in places.items() if place is not None}
        if "validation" not in sets:
            sets["train"], sets["validation"] = hold_out(sets["train"], self.validation_share, seed)
        return sets


# --- A training per seed


@dataclass
class Result:
    """One seed, as ``result.json`` in its folder holds it: scores by set, and what was chosen for
    its configuration.

    `log` is what the trainer logged; `parameters` how many were trained, and how many there are.
    """

    seed: int
    scores: dict[str, Scores]
    config: Scores = field(default_factory=dict)
    log: list[Scores] = field(default_factory=list)
    steps: int = 0
    parameters: tuple[int, int] = (0, 0)


def run_seeds(
    args: FinetuningArguments,
    settings: Mapping[str, object],
    make_trainer: Callable[[FinetuningArguments], CardTrainer],
    score: Callable[[CardTrainer, Path], tuple[dict[str, Scores], Scores]],
    validated: Sequence[str] = (),
) -> list[Result]:
    """Trains once per seed, in ``OUTPUT_DIR/seed-N``; a finished seed is read, a killed one goes
    on.

    Args:
        settings: everything that decides the result; a folder with others is refused.
        make_trainer: a new model with its sets, for the arguments of one seed.
        score: scores by set of a trained model (``"validation"`` chooses the best seed), and what
            was chosen for its configuration; it writes predictions to the seed's folder where
            ``args.should_save``.
        validated: names of the scores of an evaluation in training, beside its loss.
    """
    args.check_best_metric(validated)
    results = []
    # on the Hub, if it is asked for: what cannot be published should not be trained first
    args.repository()
    claim(str(args.output_dir), settings)
    for seed in args.seeds:
        folder = Path(str(args.output_dir)) / f"seed-{seed}"
        claim(folder, settings)
        stored = read_json(folder / "result.json")
        result = (
            train_seed(args.for_seed(seed, folder), make_trainer, score)
            if stored is None
            else Result(**stored)
        )
        if args.should_save:
            write_whole(folder / "result.json", json.dumps(asdict(result)))
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        logger.info(
            "seed %d%s: %s",
            seed,
            "" if stored is None else ", finished already",
            json.dumps(result.scores),
        )
        results.append(result)
    return results


def train_seed(
    args: FinetuningArguments, make_trainer: Callable[..., CardTrainer], score: Callable[..., Any]
) -> Result:
    """Trains one seed from its last whole checkpoint, if there is one; arguments as in
    `run_seeds`."""
    set_seed(args.seed)
    folder, trainer = Path(str(args.output_dir)), make_trainer(args)
    trainable, total = training.count_parameters(trainer.model)
    logger.info(
        f"seed {args.seed}: {trainable:,} of {total:,} parameters are trainable"
        f" ({trainable / total:.1%})"
    )
    if args.load_best_model_at_end:
        trainer.add_callback(EarlyStoppingCallback(args.early_stopping_patience))
    trainer.train(resume_from_checkpoint=training.last_whole_checkpoint(folder))
    trainer.save_model(str(folder))
    scores, config = score(trainer, folder)
    if not math.isfinite(loss := scores["validation"].get("loss", 0.0)):
        raise ValueError(
            f"Seed {args.seed} ended with a validation loss of {loss}; lower the --learning_rate."
        )
    log, steps = trainer.state.log_history, trainer.state.global_step
    return Result(args.seed, scores, config, log, steps, (trainable, total))


def mean_and_deviation(rows: Sequence[Mapping[str, float]]) -> Row:
    """Mean and sample standard deviation of each score but the loss; the score itself if there is
    one row."""
    values = {name: [row[name] for row in rows] for name in rows[0] if name != "loss"}
    if len(rows) == 1:
        return {name: value for name, [value] in values.items()}
    return {
        name: (float(np.mean(column)), float(np.std(column, ddof=1)))
        for name, column in values.items()
    }


def report(
    args: FinetuningArguments,
    results: Sequence[Result],
    reported: str,
    name: str,
    baselines: Mapping[str, Mapping[str, Any]],
    metric: str = "loss",
) -> tuple[Result, str]:
    """The best seed by its validation score (a loss or one that grows) and a Markdown table, as in
    ``results.json``.

    The table has the scores of the set `reported`, in the row `name`, and further rows
    (`baselines`) by their titles.
    """
    best = (min if metric == "loss" else max)(
        results, key=lambda result: result.scores["validation"][metric]
    )
    seeds = f", {len(results)} seeds" if len(results) > 1 else ""
    trained = {
        f"{name}{seeds}, {reported}": mean_and_deviation(
            [result.scores[reported] for result in results]
        )
    }
    output, rows = Path(str(args.output_dir)), trained | dict(baselines)
    table = training.results_table(rows)
    by_seed = {result.seed: result.scores[reported] | result.config for result in results}
    stored = {"reported": reported, "best_seed": best.seed, "seeds": by_seed, "rows": rows}
    write_whole(output / "results.json", json.dumps(stored, indent=2))
    if best.log:
        plot_curves(
            [result.log for result in results],
            None if metric == "loss" else metric,
            output / training.CURVE,
        )
    print(f"\n{table}\n")
    return best, table


def publish(
    args: FinetuningArguments,
    best: Result,
    open_model: Callable[[Path], Any] | None,
    card: Mapping[str, Any],
) -> None:
    """Saves the best seed's model whole, with its card and predictions, and uploads it where that
    is asked for.

    `open_model` opens the folder of a seed; None for a baseline. `card` has the arguments of
    `model_card`.
    """
    output, folder = Path(str(args.output_dir)), Path(str(args.output_dir)) / f"seed-{best.seed}"
    for pattern in ("*_predictions.jsonl", "*_predictions.trec"):
        for predictions in folder.glob(pattern):
            write_whole(output / predictions.name, predictions.read_bytes())
    if open_model is not None:
        file, text = output / "README.md", str(training.model_card(**card)).encode()
        # Written last and removed first: where this card stands, the model beside it is whole.
        if not any(output.glob("*.safetensors")) or not file.exists() or file.read_bytes() != text:
            file.unlink(missing_ok=True)
            open_model(folder).save_pretrained(output)
            write_whole(file, text)
        args.upload(output, leave=_NOT_PUBLISHED)
    logger.info(
        "Written to %s: results.json, predictions%s.",
        output,
        ", model, card" if open_model else "; no model",
    )


def training_facts(
    args: FinetuningArguments, best: Result, started_from: str, without: str = ""
) -> dict[str, object]:
    """What every card tells of the training; `without` says what the number of parameters leaves
    out."""
    names = (
        "learning_rate",
        "num_train_epochs",
        "max_steps",
        "weight_decay",
        "warmup_steps",
        "bf16",
    )
    trained, total = best.parameters
    batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    facts = {
        "started from": started_from,
        "parameters trained": f"{trained:,} of {total:,}{without}",
    }
    values = {name: getattr(args, name) for name in names}
    return {**facts, **values, "batch_size": batch, "steps": best.steps, "seed": best.seed}


def caveat(reported: str, *chosen: str) -> str:
    """A sentence for the card where what was `chosen` on the validation set is scored on it, too;
    else nothing."""
    if reported != "validation" or not chosen:
        return ""
    return f" Chosen on this set, too: {', '.join(chosen)}; so the scores are likely too high."
