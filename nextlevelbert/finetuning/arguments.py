"""The options that tasks share. Each task adds its own, beside itself; see `finetuning.task.Task`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

from transformers import TrainingArguments

from ..training.command_line import group_of
from ..training.trainer import BaseTrainingArguments

# Training arguments that decide what comes out; a run is only continued with the same ones.
_SIGNED = (
    "learning_rate", "num_train_epochs", "max_steps", "weight_decay", "warmup_steps", "lr_scheduler_type",
    "lr_scheduler_kwargs", "optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    "label_smoothing_factor", "bf16", "fp16", "neftune_noise_alpha", "eval_strategy", "eval_steps", "save_strategy",
    "save_steps", "dataloader_drop_last", "train_sampling_strategy", "tf32", "optim_target_modules",
    "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "full_determinism",
)  # fmt: skip
_LORA_DETAILS = ("lora_r", "lora_alpha", "lora_target_modules")


@dataclass
class FinetuningArguments(BaseTrainingArguments):
    """`TrainingArguments` for small supervised sets: the paper's learning rate, the best epoch kept (section 4.1)."""

    learning_rate: float | None = field(  # type: ignore[assignment]
        default=None,
        metadata={"help": "Default: 5e-5 for a whole model (3e-5 for one trained from text, 2e-5 for summaries), "
                          "1e-3 if only a head or adapters are trained."},
    )  # fmt: skip
    num_train_epochs: float = field(default=20.0, metadata={"help": "Maximum number of epochs; default 20."})
    per_device_eval_batch_size: int = field(default=32, metadata={"help": "Batch size per device; default 32."})
    warmup_steps: float = field(
        default=0.1, metadata={"help": "Number of steps, or a share of them if below 1; default 0.1."}
    )
    label_smoothing_factor: float = field(default=0.0, metadata={"help": "For single labels only; default 0."})
    seed: int = field(default=42, metadata={"help": "Seed for choosing the held-out documents; the runs use --seeds."})
    logging_strategy: str = field(default="epoch", metadata={"help": "no, steps or epoch (the default)."})
    eval_strategy: str = field(default="epoch", metadata={"help": "no, steps or epoch (the default)."})
    save_strategy: str = field(default="epoch", metadata={"help": "no, steps or epoch (the default)."})
    save_total_limit: int | None = field(
        default=1, metadata={"help": "Checkpoints to keep besides the best one; default 1."}
    )
    load_best_model_at_end: bool = field(default=True, metadata={"help": "Keep the weights of the best evaluation."})
    metric_for_best_model: str | None = field(
        default="loss", metadata={"help": "Validation score that selects the best evaluation; default loss."}
    )
    # Without this a run that is killed would forget how long it has made no progress.
    restore_callback_states_from_checkpoint: bool = field(default=True, metadata={"help": argparse.SUPPRESS})

    # Not options: every row is scored, collators need all columns, and a killed run goes on by itself.
    prediction_loss_only: bool = field(init=False, default=False)
    dataloader_drop_last: bool = field(init=False, default=False)
    batch_eval_metrics: bool = field(init=False, default=False)
    eval_do_concat_batches: bool = field(init=False, default=True)
    remove_unused_columns: bool = field(init=False, default=False)
    label_names: list[str] | None = field(init=False, default_factory=lambda: ["labels"])  # an adapter hides them
    resume_from_checkpoint: str | None = field(init=False, default=None)
    do_train: bool = field(init=False, default=False)
    do_eval: bool = field(init=False, default=False)
    do_predict: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_gpu > 1:
            raise ValueError(
                f"One process with {self.n_gpu} GPUs would separate documents from their questions. Start one process "
                "per GPU: torchrun --nproc_per_node N run_finetune.py ..."
            )

    def training_signature(self) -> dict[str, object]:
        """What decides the weights that come out, beside the model and the data."""
        batch = self.train_batch_size * self.gradient_accumulation_steps * self.world_size
        values = {name: getattr(self, name) for name in _SIGNED}
        return {**{name: getattr(value, "value", value) for name, value in values.items()}, "batch_size": batch}


@dataclass
class NotUploaded:
    """Hides the options of an upload."""

    push_to_hub: bool = field(init=False, default=False)
    hub_model_id: str | None = field(init=False, default=None)
    hub_private_repo: bool | None = field(init=False, default=None)


@dataclass
class BaselineArguments(NotUploaded, FinetuningArguments):
    """Of models that are only compared with: they are not uploaded."""


@dataclass
class OwnLossArguments(FinetuningArguments):
    """Of tasks that have a loss of their own, and choose the best evaluation themselves."""

    label_smoothing_factor: float = field(init=False, default=0.0)
    metric_for_best_model: str | None = field(init=False, default="loss")


@dataclass(kw_only=True)
class Options:
    """Options beside the training arguments: what a task's own option classes are put together from.

    `_argument_group_name` is the title of a class's options in the help. Those titled ``data`` or ``runs`` are not
    part of `training_signature`.
    """

    arguments: ClassVar[type[TrainingArguments]] = FinetuningArguments

    def __post_init__(self) -> None:
        """Refuses values that do not go together; classes with more options extend this.

        Raises:
            ValueError: naming the options.
        """

    def training_signature(self) -> dict[str, object]:
        """The options that decide what comes out; sets are told by their contents, a local model without its path."""
        names = [each.name for each in fields(self) if group_of(type(self), each.name) not in ("data", "runs")]
        return {name: getattr(self, name) for name in names}


@dataclass(kw_only=True)
class RunOptions(Options):
    """The runs of a fine-tuning."""

    _argument_group_name = "runs"

    seeds: list[int] = field(
        default_factory=lambda: [0],
        metadata={"help": "One run per seed; the mean is reported and the best run is kept."},
    )
    early_stopping_patience: int = field(
        default=3, metadata={"help": "Number of evaluations without progress after which training stops; default 3."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"--seeds names a seed twice: {self.seeds}.")

    def training_signature(self) -> dict[str, object]:
        return {**super().training_signature(), "early_stopping_patience": self.early_stopping_patience}


@dataclass(kw_only=True)
class ModelOptions(Options):
    """Which model. A class of options for certain models declares `model_type` as a `Literal` of their names."""

    _argument_group_name = "model"
    whole_model_rate: ClassVar[float] = 5e-5

    model: str = field(metadata={"help": "Folder or name on the Hub."})
    model_type: str

    @property
    def local(self) -> bool:
        """Whether the model is a folder here."""
        return Path(self.model).exists()

    @property
    def public_name(self) -> str:
        """The model's name in tables and cards: never a path of this machine."""
        return Path(self.model).resolve().name if self.local else self.model

    @property
    def title(self) -> str:
        """The model's name in a table; an encoder's name alone would not tell what was made of it."""
        return f"{self.public_name} ({self.model_type})"

    @property
    def usual_learning_rate(self) -> float:
        """Where --learning_rate is left out."""
        return self.whole_model_rate

    @property
    def base_model(self) -> str | None:
        """The model's name on the Hub, where it has one."""
        return None if self.local else self.model

    def training_signature(self) -> dict[str, object]:
        return {**super().training_signature(), "model": self.public_name}


@dataclass(kw_only=True)
class LoraOptions(ModelOptions):
    """Low-rank adapters in place of all weights (LoRA, arXiv 2106.09685)."""

    _argument_group_name = "adapters"

    lora: bool = field(default=False, metadata={"help": "Train only low-rank adapters and the head."})
    lora_r: int = field(default=8, metadata={"help": "Rank of the adapters; default 8."})
    lora_alpha: int = field(
        default=16, metadata={"help": "Scale of the adapters, before division by the rank; default 16."}
    )
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["query", "value"],
        metadata={"help": "Names of the linear layers that get an adapter, or all-linear; default query value."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults = {each.name: each for each in fields(self) if each.name in _LORA_DETAILS}
        changed = [
            name
            for name, each in defaults.items()
            if getattr(self, name) != (each.default_factory() if callable(each.default_factory) else each.default)
        ]
        if changed and not self.lora:
            raise ValueError(f"--{', --'.join(changed)}: these options are for adapters; add --lora to train them.")

    @property
    def usual_learning_rate(self) -> float:
        return 1e-3 if self.lora else super().usual_learning_rate


@dataclass(kw_only=True)
class DataOptions(Options):
    """The training set, and sets to validate and to report on."""

    _argument_group_name = "data"

    train_file: str | None = field(default=None, metadata={"help": "Training set: a .jsonl or .parquet (also .gz)."})
    validation_file: str | None = field(
        default=None,
        metadata={
            "help": "Validation set, which selects the epoch; by default, part of the training set is held out."
        },
    )
    test_file: str | None = field(
        default=None, metadata={"help": "Test set, which is only reported; default: the validation set."}
    )
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, instead of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of that dataset."})
    train_split: str | None = field(
        default=None, metadata={"help": "Split of the dataset, or of a folder, to train on; default train."}
    )
    validation_split: str | None = field(default=None, metadata={"help": "Split to validate on."})
    test_split: str | None = field(default=None, metadata={"help": "Split to report on."})
    validation_share: float = field(
        default=0.15, metadata={"help": "Share to hold out if no validation set is given; default 0.15."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        files = {name: getattr(self, f"{name}_file") for name in ("train", "validation", "test")}
        splits = {name: getattr(self, f"{name}_split") for name in files}
        if self.dataset_name and any(files.values()):
            raise ValueError("Give either --dataset_name and its splits, or files, but not both.")
        if not (self.train_file or self.dataset_name):
            raise ValueError("Give the training set with --train_file or --dataset_name.")
        if self.dataset_config_name and not self.dataset_name:
            raise ValueError("--dataset_config_name needs --dataset_name.")
        for name, split in splits.items():
            if split and not self.dataset_name and not Path(files[name] or self.train_file or "").is_dir():
                raise ValueError(
                    f"--{name}_split is a split of --dataset_name or of a folder. Give a file with --{name}_file."
                )

    def place(self, name: str) -> tuple[str, str | None] | None:
        """Where the set `name` is: a file, folder or dataset, and a split of it; None where it was not given."""
        split: str | None = getattr(self, f"{name}_split")
        if self.dataset_name:
            split = "train" if name == "train" and split is None else split
            return None if split is None else (self.dataset_name, split)
        file: str | None = getattr(self, f"{name}_file")
        if file is None and split is not None:
            file = self.train_file  # a folder with several splits
        return None if file is None else (file, split)


@dataclass(kw_only=True)
class TaskOptions(ModelOptions, DataOptions, RunOptions):
    """What every task that trains has."""
