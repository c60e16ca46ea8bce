"""What all training here shares: arguments, our model cards, no pickled arguments, resuming at whole checkpoints."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..corpus.files import remove_leftovers
from ..models.portable_checkpoint import store_weights_as

logger = logging.getLogger(__name__)


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
        super().__post_init__()
        if self.dataloader_persistent_workers:
            raise ValueError(
                "--dataloader_persistent_workers keeps copies of the dataset that never see a new epoch, so every "
                "epoch would repeat the draws of the first; leave it out."
            )


class SetEpochCallback(TrainerCallback):
    """Tells a dataset which epoch begins, so that it draws anew and a resumed run draws what a straight one did."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.dataset.epoch = int(state.epoch or 0)


class CardTrainer(Trainer):
    """`Trainer` that writes our model card, leaves no pickle and tells its training set the epoch.

    Args:
        card: writes ``README.md`` into a folder; called with the trainer wherever `Trainer` writes its card.
    """

    def __init__(self, *args: Any, card: Callable[[CardTrainer], None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._card = card
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

    def train_to_the_end(self) -> None:
        """Trains, from the checkpoint that is asked for or the last whole one, and stores metrics and state."""
        folder = str(self.args.output_dir)
        if self.is_world_process_zero():
            remove_leftovers(Path(folder), 0)  # weights of a run that was killed, which would be uploaded
        result = self.train(resume_from_checkpoint=self.args.resume_from_checkpoint or last_whole_checkpoint(folder))
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


def last_whole_checkpoint(folder: str | Path) -> str | None:
    """The newest ``checkpoint-*`` that was written to its end; warns of those that a kill has cut off.

    `Trainer` writes ``trainer_state.json`` after weights, optimizer and random state.
    """
    numbered = [path for path in Path(folder).glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    for path in sorted(numbered, key=lambda path: -int(path.name.removeprefix("checkpoint-"))):
        try:
            json.loads((path / "trainer_state.json").read_text())
            return str(path)
        except (FileNotFoundError, json.JSONDecodeError):
            logger.warning("%s is incomplete and is ignored.", path)
    return None


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Trainable parameters and all of them."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trainable in sizes if trainable), sum(size for size, _ in sizes)
