"""A Trainer that saves no pickle and resumes exactly.

The other files of this folder have one subject each. Their names are here, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, SequentialSampler
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from .arguments import SIGNED, SIGNED_CHOICE, BaseTrainingArguments
from .cards import SIMILARITY_WIDGET, code, model_card, plain, results_table, safe_name
from .options import RECIPES, SHOWN, parse, run_command, take_option, words_of
from .plots import CURVE, plot_by_length, plot_curves, save_figure
from .runs import claim, last_whole_checkpoint, read_json, write_whole

__all__ = [
    "CURVE",
    "RECIPES",
    "SHOWN",
    "SIGNED",
    "SIGNED_CHOICE",
    "SIMILARITY_WIDGET",
    "BaseTrainingArguments",
    "CardTrainer",
    "SetEpochCallback",
    "claim",
    "code",
    "count_parameters",
    "last_whole_checkpoint",
    "model_card",
    "parse",
    "plain",
    "plot_by_length",
    "plot_curves",
    "read_json",
    "results_table",
    "run_command",
    "safe_name",
    "save_figure",
    "take_option",
    "words_of",
    "write_whole",
]


class SetEpochCallback(TrainerCallback):
    """Sets the epoch of the training set also if `Trainer` does not.

    `Trainer` does not in several processes, and when it resumes within an epoch.
    """

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: DataLoader | None = None,
        **kwargs: object,
    ) -> None:
        """Calls `set_epoch` of the training set, if it has one."""
        dataset: Any = getattr(train_dataloader, "dataset", None)
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(int(state.epoch or 0))

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """Finds the best checkpoint also in a folder that was moved."""
        best = Path(str(args.output_dir)) / f"checkpoint-{state.best_global_step}"
        state.best_model_checkpoint = None
        if best.exists():
            state.best_model_checkpoint = str(best)


class CardTrainer(Trainer):
    """A Trainer that saves no pickle, resumes exactly, and does not write cards or upload.

    `model_card` and `BaseTrainingArguments.upload` do that.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(SetEpochCallback())

    def _get_eval_sampler(self, eval_dataset: Dataset) -> SequentialSampler | None:
        """Returns rows in their order, to which predictions belong.

        The base class may sort rows by length.
        """
        if self.args.world_size > 1:
            return None
        return SequentialSampler(eval_dataset)  # type: ignore[arg-type]

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None
    ) -> None:
        super()._save(output_dir, state_dict)
        # A pickle that nothing here reads, and that would publish paths of this machine.
        folder = Path(output_dir or self.args.output_dir or "")
        (folder / "training_args.bin").unlink(missing_ok=True)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # The state, which is written next, marks the checkpoint as complete.
        self.accelerator.wait_for_everyone()

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The base class checks only after a step whether it was the last one, or whether the run
        # had been stopped.
        control = self.state.stateful_callbacks.get("TrainerControl", {}).get("args", {})
        is_last = self.state.global_step >= self.state.max_steps
        if is_last or control.get("should_training_stop"):
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def push_to_hub(self, *args: object, **kwargs: object) -> None:
        """Does nothing when `save_model` calls it: what is uploaded has our card."""


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Counts the trainable parameters of a model, and all of its parameters.

    Args:
        model: the model.
    """
    trainable = 0
    total = 0
    for parameter in model.parameters():
        total += parameter.numel()
        if parameter.requires_grad:
            trainable += parameter.numel()
    return trainable, total
