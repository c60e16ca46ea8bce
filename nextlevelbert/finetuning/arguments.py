"""The options that tasks share; each task adds its own. See `finetuning.task.Task`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

from transformers import TrainingArguments

from ..training.cards import safe_name
from ..training.command_line import group_of
from ..training.trainer import SIGNED, SIGNED_CHOICE, BaseTrainingArguments

_UNSIGNED = ("cache_dir", "chunk_batch_size")  # options without influence on the result

# Baselines that --model can name instead of a checkpoint; not every task has all of them.
BASELINES = ("avg_sbert", "sbert", "tobert", "tfidf", "bm25")


@dataclass
class FinetuningArguments(BaseTrainingArguments):
    """`TrainingArguments` for small supervised sets: the paper's learning rate, the best epoch kept (section 3.2)."""

    seeds: list[int] = field(
        default_factory=lambda: [0],
        metadata={"help": "One run per seed; the mean is reported and the best run is kept. Default 0."},
    )
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
    early_stopping_patience: int = field(
        default=3, metadata={"help": "Number of evaluations without progress after which training stops; default 3."}
    )
    # Without this, a resumed run would forget how long it has made no progress.
    restore_callback_states_from_checkpoint: bool = field(default=True, metadata={"help": argparse.SUPPRESS})

    # Not options: every row is scored, collators need all columns, and a killed run resumes by itself.
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
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"--seeds names a seed twice: {self.seeds}.")
        if self.n_gpu > 1:
            raise ValueError(
                f"One process with {self.n_gpu} GPUs would separate documents from their questions. Start one process "
                "per GPU: torchrun --nproc_per_node N run_finetune.py ..."
            )

    def training_signature(self) -> dict[str, object]:
        # The sets are identified by their contents, and every seed has a folder of its own.
        return self.signature_of(*SIGNED, *SIGNED_CHOICE, "early_stopping_patience")


@dataclass
class NotUploaded:
    """Hides the options of an upload."""

    push_to_hub: bool = field(init=False, default=False)
    hub_model_id: str | None = field(init=False, default=None)
    hub_private_repo: bool | None = field(init=False, default=None)


@dataclass
class BaselineArguments(NotUploaded, FinetuningArguments):
    """Arguments of baselines, which are not uploaded."""


@dataclass
class OwnLossArguments(FinetuningArguments):
    """Arguments of tasks with a loss of their own, which also choose the best evaluation themselves."""

    label_smoothing_factor: float = field(init=False, default=0.0)
    metric_for_best_model: str | None = field(init=False, default="loss")


@dataclass(kw_only=True)
class ModelOptions:
    """Which model, and what all classes of options share.

    The option classes of a task inherit from the classes here. `_argument_group_name` is the title of a class's
    options in the help. A class for certain models declares `model_type` as a `Literal` of their names.
    """

    _argument_group_name = "model"
    arguments: ClassVar[type[TrainingArguments]] = FinetuningArguments
    whole_model_rate: ClassVar[float] = 5e-5

    model: str = field(metadata={"help": "Folder or name on the Hub."})
    model_type: str

    def __post_init__(self) -> None:
        """Checks values against each other; classes with more options extend this.

        Raises:
            ValueError: naming the options.
        """

    @property
    def new(self) -> bool:
        """Whether --model is no checkpoint: a new model around the chunk encoder, or a baseline."""
        return self.model in ("untrained", *BASELINES)

    @property
    def local(self) -> bool:
        """Whether the model is a local folder."""
        return not self.new and Path(self.model).exists()

    @property
    def public_name(self) -> str:
        """The model's name in tables and cards: never a local path."""
        return safe_name(Path(self.model).resolve().name if self.local else self.model)

    @property
    def title(self) -> str:
        """The model's name in a table: that of an encoder alone would not say what was made of it."""
        return f"{self.public_name} ({self.model_type})"

    @property
    def base_model(self) -> str | None:
        """The model's name on the Hub; None if it has none."""
        return None if self.new or self.local else self.model

    @property
    def usual_learning_rate(self) -> float:
        """The default of --learning_rate."""
        return self.whole_model_rate

    def training_signature(self) -> dict[str, object]:
        """The options that determine the result, but for the sets, which are identified by their contents."""
        names = [each.name for each in fields(self) if group_of(type(self), each.name) != "data"]
        return {name: getattr(self, name) for name in names if name not in _UNSIGNED} | {"model": self.public_name}


@dataclass(kw_only=True)
class LoraOptions(ModelOptions):
    """Low-rank adapters instead of all weights (LoRA, arXiv 2106.09685)."""

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
        for each in fields(self):
            default = each.default_factory() if callable(each.default_factory) else each.default
            if each.name.startswith("lora_") and not self.lora and getattr(self, each.name) != default:
                raise ValueError(f"--{each.name} is for adapters; add --lora to train them.")

    @property
    def usual_learning_rate(self) -> float:
        return 1e-3 if self.lora else super().usual_learning_rate


@dataclass(kw_only=True)
class TaskOptions(ModelOptions):
    """Options of every task with training: a training set, and sets to validate and to report on."""

    _argument_group_name = "data"

    train_file: str | None = field(
        default=None,
        metadata={"help": "Training set: a .jsonl, .json, .csv or .parquet (also .gz), a quoted pattern of these, or "
                          "a folder of save_to_disk."},
    )  # fmt: skip
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
                    f"--{name}_split is a split of --dataset_name or of a folder; give a file with --{name}_file."
                )

    def place(self, name: str) -> tuple[str, str | None] | None:
        """File, folder or dataset of the set `name`, and its split; None for a set that was not given."""
        split: str | None = getattr(self, f"{name}_split")
        if self.dataset_name:
            split = "train" if name == "train" and split is None else split
            return None if split is None else (self.dataset_name, split)
        file: str | None = getattr(self, f"{name}_file")
        if file is None and split is not None:
            file = self.train_file  # a folder with several splits
        return None if file is None else (file, split)
