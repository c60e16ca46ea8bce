"""What a task adds to fine-tuning (`Task`), the sets it reads (`Sets`), and the result of a run (`SeedResult`)."""

from __future__ import annotations

import copy
import json
import logging
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, set_seed

from ..training.cards import CardFacts
from ..training.plots import CURVE, plot_curves
from ..training.resuming import last_whole_checkpoint, read_whole, unreadable, write_whole
from ..training.trainer import count_parameters
from .arguments import FinetuningArguments, TaskOptions

logger = logging.getLogger(__name__)

Scores = dict[str, float]
Row = dict[str, tuple[float, float] | float]
"""Scores in a table; a pair is a mean and a standard deviation."""

_RESULT = "result.json"
OptionsT = TypeVar("OptionsT", bound=TaskOptions)


class TaskSet(Protocol):
    """The data of a set, in the class that a task has for it."""

    def content(self) -> Iterable[object]:
        """Everything in it that a run depends on, as JSON values."""


DataT = TypeVar("DataT", bound=TaskSet)


@dataclass(frozen=True)
class Source:
    """Where a set comes from.

    Attributes:
        name: ``"train"``, ``"validation"`` or ``"test"``.
        path: a file, a folder, or the name of a dataset on the Hub.
        split: of the folder or dataset; None if none was named.
    """

    name: str
    path: str
    split: str | None


@dataclass
class Sets(Generic[DataT]):
    """The sets of a task. `reported` names the one whose scores are reported: the test set if it has labels."""

    train: DataT
    validation: DataT
    test: DataT | None = None
    reported: str = "validation"

    @property
    def by_name(self) -> dict[str, DataT]:
        """The sets that exist, under ``"train"``, ``"validation"`` and ``"test"``."""
        sets = {"train": self.train, "validation": self.validation}
        return sets if self.test is None else {**sets, "test": self.test}

    @property
    def scored(self) -> DataT:
        """The reported set."""
        return self.by_name[self.reported]


@dataclass(kw_only=True)
class SeedResult:
    """The result of one run. Tasks that store more extend this class.

    Attributes:
        seed: of the run.
        scores: by name of the set; ``scores["validation"]`` chooses the best seed.
        logits: predictions by name of the set, if they are stored.
        curve: entries of the training log with a loss or a score.
        steps, seconds: of the training.
        trainable_parameters, parameters: of the model.
        config: fields of the model's configuration that were chosen on the validation set.
    """

    seed: int
    scores: dict[str, Scores]
    logits: dict[str, np.ndarray] = field(default_factory=dict)
    curve: list[Scores] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    trainable_parameters: int = 0
    parameters: int = 0
    config: Scores = field(default_factory=dict)

    @classmethod
    def of(cls, trainer: Trainer, trained: Any, scores: dict[str, Scores], **more: Any) -> Self:
        """The result of a training: `trained` is the output of `Trainer.train`, `more` are further fields."""
        trainable, total = count_parameters(trainer.model)
        metric = f"eval_{trainer.args.metric_for_best_model or 'loss'}"
        log = trainer.state.log_history
        return cls(
            seed=trainer.args.seed,
            scores=scores,
            curve=[entry for entry in log if "loss" in entry or "eval_loss" in entry or metric in entry],
            steps=trainer.state.global_step,
            seconds=round(trained.metrics["train_runtime"], 1),
            trainable_parameters=trainable,
            parameters=total,
            **more,
        )

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The result stored in a folder; None if there is none, or if it or the weights beside it cannot be read."""
        stored = read_whole(folder / _RESULT)
        if stored is None:
            return None
        for name in stored.pop("weights", []):
            if reason := unreadable(folder / name):
                logger.warning("The result in %s is ignored: %s.", folder, reason)
                return None
        known = {each.name for each in fields(cls)}
        scores = {name: stored.pop(name) for name in [*stored] if name not in known}
        stored["logits"] = {name: np.array(rows) for name, rows in stored["logits"].items()}
        return cls(scores=scores, **stored)

    def write(self, folder: Path) -> None:
        """Stores the result in a folder, with the scores of a set under its name, and which weights lie beside it."""
        stored = asdict(self)
        stored |= stored.pop("scores") | {"logits": {name: rows.tolist() for name, rows in self.logits.items()}}
        stored["weights"] = sorted(file.name for file in folder.glob("*.safetensors"))
        write_whole(folder / _RESULT, json.dumps(stored))


class Task(ABC, Generic[OptionsT, DataT]):
    """A task: how its sets are read, how a model is trained and scored, and what its card says.

    `finetuning.run.run` calls the methods in the order of this class. An object belongs to one call of the script:
    `prepare` stores in it what all seeds share (vectors, token ids, a tokenizer).

    Attributes:
        name: what --task calls it.
        option_classes: its options, a class for each group of model types; the first one has the default of
            --model_type. Each declares `model_type` as a `Literal`.
        result: class of a run's result.
        metric, greater_is_better: the validation score that chooses the best seed.
        curve_metric: the score in the learning curves, next to the loss.
        options, args: from the command line.
        sets: set by `run` before `prepare`.
    """

    name: ClassVar[str]
    option_classes: ClassVar[tuple[type[TaskOptions], ...]]
    result: ClassVar[type[SeedResult]] = SeedResult
    metric = "loss"
    greater_is_better = False
    curve_metric: str | None = None
    sets: Sets[DataT]

    def __init__(self, options: OptionsT, args: FinetuningArguments) -> None:
        """Tasks that check options against training arguments extend this.

        Raises:
            ValueError: naming the options.
        """
        self.options, self.args = options, args

    # --- Sets

    @abstractmethod
    def read(self, source: Source, train: DataT | None) -> DataT:
        """Reads and checks a set; `train` is the training set, once that is read."""

    @abstractmethod
    def hold_out(self, data: DataT, share: float, seed: int) -> tuple[DataT, DataT]:
        """Splits a set into one to train on and one to validate on."""

    def split(self, sets: Sets[DataT]) -> Sets[DataT]:
        """The sets as they are used, once all are read: to check them against each other or to split one."""
        return sets

    def labelled(self, data: DataT) -> bool:
        """Whether a set can be scored."""
        return True

    @abstractmethod
    def texts(self, data: DataT) -> set[str]:
        """Texts that should not be in two sets."""

    @abstractmethod
    def describe(self, data: DataT) -> str:
        """Its size and source, for the log."""

    # --- Runs

    @abstractmethod
    def prepare(self) -> dict[str, object]:
        """Prepares what all seeds share, and returns settings that determine the result besides options and sets."""

    @abstractmethod
    def train(self, seed: int, folder: Path) -> SeedResult:
        """One run, which stores the model and ``SET_predictions.jsonl`` in a folder of its own.

        Every process calls this; only those with ``args.should_save`` write files. Checkpoints are removed afterwards.
        """

    def start(
        self, seed: int, folder: Path, new_model: Callable[[], Any]
    ) -> tuple[Any, FinetuningArguments, str | None]:
        """Model and arguments of a run, and the checkpoint to resume from if it was killed."""
        set_seed(seed)
        model = new_model()
        trainable, total = count_parameters(model)
        logger.info(
            "seed %d: %s of %s parameters are trainable (%.1f %%)",
            seed, f"{trainable:,}", f"{total:,}", 100 * trainable / total,
        )  # fmt: skip
        args = copy.copy(self.args)
        args.output_dir, args.seed, args.data_seed = str(folder), seed, seed
        args.push_to_hub = False  # the best seed is published at the end
        return model, args, last_whole_checkpoint(args)

    def stopping(self) -> list[TrainerCallback]:
        """Early stopping, if the best evaluation is kept."""
        args = self.args
        return [EarlyStoppingCallback(args.early_stopping_patience)] if args.load_best_model_at_end else []

    # --- Results

    def rows(self, name: str, results: Sequence[Any]) -> dict[str, Row]:
        """Further rows of the table after that of the model, whose title is `name`, such as parts of the set."""
        return {}

    @abstractmethod
    def baselines(self, results: Sequence[Any]) -> dict[str, Row]:
        """Scores of trivial baselines on the reported set, by their titles in the table."""

    def details(self, results: Sequence[Any]) -> dict[str, object]:
        """What ``results.json`` has in addition to what it has for every task."""
        return {}

    def draw(self, results: Sequence[Any], output: Path) -> None:
        """Draws pictures: here the learning curves, if there are any."""
        if results[0].curve:
            plot_curves([result.curve for result in results], self.curve_metric, output / CURVE)

    def publish(self, best: Any, folder: Path, output: Path) -> None:
        """Saves the best seed's model from its folder to the output folder, with everything needed to open it.

        Here only the weights are copied, which is for baselines.
        """
        for file in folder.glob("*.safetensors"):
            shutil.copy(file, output)

    @abstractmethod
    def card(self, name: str, best: Any, table: str, settings: dict[str, object]) -> CardFacts | None:
        """The model card; None for a baseline, which is not published.

        Args:
            name: of the model: its repository on the Hub, or its folder.
            best: the result of the best seed.
            table: all results, in markdown.
            settings: of the runs.
        """

    def caveat(self, *chosen: str) -> str:
        """A sentence for the card where what was `chosen` on the validation set is also scored on it; else nothing."""
        if self.sets.reported != "validation" or not chosen:
            return ""
        was = "was" if len(chosen) == 1 else "were"
        return f" The {' and the '.join(chosen)} {was} chosen on this set, too, so the scores are likely too high."

    def training_facts(self, best: SeedResult, settings: dict[str, object]) -> dict[str, object]:
        """Facts about the training for every card; arguments as in `card`."""
        kept = ("learning_rate", "num_train_epochs", "max_steps", "batch_size", "weight_decay", "warmup_steps", "bf16")
        return {
            "started from": self.options.public_name,
            "parameters": f"{best.parameters:,}, of which {best.trainable_parameters:,} trained",
            **{name: settings[name] for name in kept},
            "steps": best.steps,
            "seed": best.seed,
        }


def mean_and_deviation(results: Sequence[Scores]) -> Row:
    """Mean and sample standard deviation of each score; the score itself if there is only one result."""
    table = {name: np.array([result[name] for result in results]) for name in results[0]}
    if len(results) == 1:
        return {name: float(values[0]) for name, values in table.items()}
    return {name: (float(values.mean()), float(values.std(ddof=1))) for name, values in table.items()}
