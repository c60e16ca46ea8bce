"""What all training here shares: arguments, our model cards, no pickled arguments, resuming at whole checkpoints."""

from __future__ import annotations

import argparse
import logging
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging as transformers_logging

from ..corpus.files import remove_leftovers
from ..models.pretrained import store_weights_as
from .precision import precision_that_pays
from .resuming import damage, last_whole_checkpoint, only_run_in, read_whole

logger = logging.getLogger(__name__)

# Arguments that determine the result of a training, given the model and the data; a folder belongs to their values.
SIGNED = (
    "learning_rate", "num_train_epochs", "max_steps", "weight_decay", "warmup_steps", "lr_scheduler_type",
    "lr_scheduler_kwargs", "optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    "label_smoothing_factor", "bf16", "fp16", "neftune_noise_alpha", "dataloader_drop_last", "train_sampling_strategy",
    "tf32", "optim_target_modules", "load_best_model_at_end", "full_determinism", "ignore_data_skip",
    "auto_find_batch_size", "average_tokens_across_devices",
)  # fmt: skip
# These do, too, where an evaluation is chosen.
SIGNED_CHOICE = (
    "eval_strategy", "eval_steps", "save_strategy", "save_steps", "metric_for_best_model", "greater_is_better"
)  # fmt: skip


@dataclass
class BaseTrainingArguments(TrainingArguments):
    """`TrainingArguments` that suit everything trained here; pretraining and fine-tuning add their own defaults."""

    _argument_group_name = "training"

    output_dir: str = field(
        default="trainer_output", metadata={"help": "Folder of the model; default trainer_output."}
    )
    max_steps: int = field(default=-1, metadata={"help": "Number of optimiser steps, instead of epochs."})
    per_device_train_batch_size: int = field(default=8, metadata={"help": "Batch size per device; default 8."})
    gradient_accumulation_steps: int = field(default=1, metadata={"help": "Batches per optimiser step; default 1."})
    weight_decay: float = field(default=0.01, metadata={"help": "Not applied to biases and LayerNorm; default 0.01."})
    bf16: bool = field(default=False, metadata={"help": "Train in bfloat16, with the weights in float32."})
    seed: int = field(default=42, metadata={"help": "Seed of everything random; default 42."})
    use_cpu: bool = field(default=False, metadata={"help": "Use the CPU even if there is an accelerator."})
    push_to_hub: bool = field(default=False, metadata={"help": "Upload the model and its card to the Hub."})
    hub_model_id: str | None = field(
        default=None, metadata={"help": "Repository to upload to; default: the name of the output folder."}
    )
    hub_private_repo: bool | None = field(default=None, metadata={"help": "Make that repository private."})
    # Uploads at every save would publish arguments with local paths.
    hub_strategy: str = field(default="end", metadata={"help": argparse.SUPPRESS})
    # Processes wait for each other while documents are encoded, which may take days.
    ddp_timeout: int = field(default=7 * 24 * 3600, metadata={"help": argparse.SUPPRESS})
    dataloader_pin_memory: bool = field(default=True, metadata={"help": argparse.SUPPRESS})
    # The collators need columns that the forward pass does not take.
    remove_unused_columns: bool = field(default=False, metadata={"help": argparse.SUPPRESS})

    def __post_init__(self) -> None:
        if not torch.accelerator.is_available():
            self.use_cpu = True  # stated outright, this allows bf16 on a CPU
            self.dataloader_pin_memory = False
        if self.bf16 and self.use_cpu:
            self.bf16 = precision_that_pays("bfloat16", "cpu", "--bf16") == "bfloat16"
        super().__post_init__()
        if Path(str(self.output_dir)).is_file():
            raise ValueError(f"--output_dir {self.output_dir} is a file; give a folder.")
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"--{name} must be 1 or more, got {value}.")
        for seed in (self.seed, *getattr(self, "seeds", ())):
            if not 0 <= seed < 2**32:  # what NumPy takes
                raise ValueError(f"A seed must be from 0 to 4294967295, got {seed}.")
        if self.dataloader_persistent_workers:
            raise ValueError(
                "--dataloader_persistent_workers keeps copies of the dataset that never see a new epoch, so every "
                "epoch would repeat the draws of the first; leave it out."
            )

    def training_signature(self) -> dict[str, object]:
        """The arguments that determine the result, given the model and the data."""
        chosen = SIGNED_CHOICE if self.load_best_model_at_end else ()
        return self.signature_of(*SIGNED, "seed", "data_seed", "per_device_train_batch_size", *chosen)

    def signature_of(self, *names: str) -> dict[str, object]:
        """The values of these arguments, and how many examples an optimiser step sees."""
        batch = self.train_batch_size * self.gradient_accumulation_steps * self.world_size
        values = {name: getattr(self, name) for name in names}
        return {**{name: getattr(value, "value", value) for name, value in values.items()}, "batch_size": batch}


class SetEpochCallback(TrainerCallback):
    """Tells a dataset which epoch begins, so that it draws anew and a resumed run draws what a straight one did."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.dataset.epoch = int(state.epoch or 0)


class ResumeCallback(TrainerCallback):
    """Says where a resumed run goes on, and finds its best checkpoint where the output folder was moved."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step:
            logger.info("Going on from step %d of %d.", state.global_step, state.max_steps)
        best = Path(str(args.output_dir)) / f"checkpoint-{state.best_global_step}"
        if best.exists():
            state.best_model_checkpoint = str(best)


class CardTrainer(Trainer):
    """`Trainer` that writes our model card, leaves no pickle and tells its training set the epoch.

    Args:
        card: writes ``README.md`` into a folder; called with the trainer wherever `Trainer` writes its card.
    """

    def __init__(self, *args: Any, card: Callable[[CardTrainer], None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._card, self._stopped = card, False
        self.add_callback(ResumeCallback())
        if hasattr(self.train_dataset, "epoch"):
            self.add_callback(SetEpochCallback(self.train_dataset))
        self.save_dtype: torch.dtype | None = None  # of weights on disk; set it after training, before the last save

    @property
    def config(self) -> Any:
        """Configuration of the model."""
        model: Any = self.model
        return model.config

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.save_dtype is not None:
            store_weights_as(output_dir or str(self.args.output_dir), self.save_dtype)
        # A pickle that nothing here reads, and that would publish paths of this machine.
        (Path(output_dir or self.args.output_dir) / "training_args.bin").unlink(missing_ok=True)

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler | None:
        """In the order of the rows, to which predictions belong; the base class may sort them by length."""
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        # What a kill left of the same checkpoint must not be taken for part of this one.
        if self.args.should_save:
            folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
            shutil.rmtree(folder, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(*args, **kwargs)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()  # the state that is written next tells that all of them are there

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As the base class, but the mean loss of a resumed run is that of all its steps."""
        losses = [entry for entry in self.state.log_history if "loss" in entry]
        if "train_loss" in logs and self._initial_global_step and losses:
            starts = [0, *(entry["step"] for entry in losses[:-1])]
            total = sum(entry["loss"] * (entry["step"] - start) for entry, start in zip(losses, starts, strict=True))
            logs["train_loss"] = total / losses[-1]["step"]
        super().log(logs, *args, **kwargs)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As the base class, but a resumed run evaluates nothing twice, and stays stopped if it had been."""
        if isinstance(resume_from_checkpoint, str):
            self.args.eval_on_start = False
            state = read_whole(Path(resume_from_checkpoint) / "trainer_state.json") or {}
            control = state.get("stateful_callbacks", {}).get("TrainerControl", {}).get("args", {})
            early = state.get("global_step", 0) < state.get("max_steps", 0)
            self._stopped = early and control.get("should_training_stop", False)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The base class looks only after a step whether it was the last one.
        if self._stopped or self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def train_to_the_end(self) -> None:
        """Trains, from the checkpoint that is asked for or the last whole one, and stores metrics and state.

        Raises:
            ValueError: for a checkpoint that is asked for and not whole, or if another run is training in the folder.
        """
        with only_run_in(Path(str(self.args.output_dir))) if self.is_world_process_zero() else nullcontext():
            self._train_to_the_end()

    def _train_to_the_end(self) -> None:
        checkpoint = self.args.resume_from_checkpoint
        if checkpoint and (reason := damage(Path(checkpoint), self.args)):
            raise ValueError(f"--resume_from_checkpoint {checkpoint} is not a whole checkpoint: {reason}.")
        if self.is_world_process_zero():  # weights of a run that was killed, which would be uploaded
            remove_leftovers(Path(str(self.args.output_dir)), 0)
        result = self.train(checkpoint or last_whole_checkpoint(self.args))
        self.save_metrics("train", result.metrics)
        self.save_state()

    def publish(self) -> None:
        """Saves the model with its card, and uploads both where that is asked for."""
        self.save_model()
        self.create_model_card()
        if self.args.push_to_hub:
            self.push_to_hub()

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Our card in place of the generic one, also on `push_to_hub`."""
        if self._card is not None and self.is_world_process_zero():
            self._card(self)


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Trainable parameters and all of them."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trainable in sizes if trainable), sum(size for size, _ in sizes)


def open_checkpoint(model_class: Any, source: str, **arguments: Any) -> Any:
    """`from_pretrained` that tells of new and unused weights in one line, where transformers prints a table per seed.

    Args:
        model_class: a model or auto class.
        source: folder or name of the checkpoint.
        arguments: of `from_pretrained`.
    """
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        model, info = model_class.from_pretrained(source, output_loading_info=True, **arguments)
    finally:
        transformers_logging.set_verbosity(verbosity)
    new = {*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}
    for what, keys in (("New", new), ("Unused", info["unexpected_keys"])):
        if keys:
            parts = sorted({key.partition(".")[0] for key in keys})
            logger.info("%s weights for %s: %s (%d).", what, Path(source).name, ", ".join(parts), len(keys))
    return model
