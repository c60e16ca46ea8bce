"""`TrainingArguments` that suit everything trained here."""

import argparse
import contextlib
import copy
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import torch
from huggingface_hub import create_repo, upload_folder
from transformers import Trainer, TrainingArguments
from transformers.integrations import get_available_reporting_integrations

from ..models.files import local_path
from .options import fixed, option
from .runs import safe_name

logger = logging.getLogger(__name__)
# Arguments that decide the result of a training, given the model and the data; an output folder
# belongs to their values.
RESULT_ARGUMENTS = (
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "weight_decay",
    "warmup_steps",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "optim",
    "optim_args",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "bf16",
    "fp16",
    "tf32",
    "seed",
    "data_seed",
    "per_device_train_batch_size",
    "load_best_model_at_end",
)
# These also change the result if the best checkpoint is kept.
CHOICE_ARGUMENTS = (
    "eval_strategy",
    "eval_steps",
    "save_strategy",
    "save_steps",
    "metric_for_best_model",
)
# Instructions of processors for matrices in bfloat16.
_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")


@dataclass
class BaseTrainingArguments(TrainingArguments):
    """`TrainingArguments` for all trainings; pretraining and fine-tuning add their own defaults."""

    _argument_group_name = "training"

    output_dir: str = option("trainer_output", "Folder to write the model to (required).")
    weight_decay: float = option(0.01, "Weight decay, except of biases and LayerNorm.")
    push_to_hub: bool = option(default=False, help="Upload the finished model to the Hub.")
    hub_model_id: str | None = option(
        None, "Repository on the Hub (default: name of --output_dir)."
    )
    # `dataclass` would write the token of a class of one's own into its `repr`.
    hub_token: str | None = field(default=None, repr=False, metadata={"help": argparse.SUPPRESS})
    license: str | None = option(None, "License of the model for its card, such as apache-2.0.")
    language: list[str] | None = field(
        default=None, metadata={"help": "Languages of the model for its card, such as en."}
    )
    datasets: list[str] | None = field(
        default=None,
        metadata={
            "help": "Data sets of the Hub for the model's card, if the files come from there"
            " (default: --dataset_name)."
        },
    )
    resume_from_checkpoint: str | None = fixed(
        None, "an interrupted run resumes if the same command is repeated"
    )
    do_eval: bool = fixed(default=False, reason="every set that is given is evaluated")
    do_predict: bool = fixed(default=False, reason="every set that is given is evaluated")
    label_smoothing_factor: float = fixed(0.0, "most losses do not support it")
    hub_strategy: str = fixed(
        "end", "only the finished model is uploaded, because checkpoints hold local paths"
    )
    hub_always_push: bool = fixed(default=False, reason="only the finished model is uploaded")
    batch_eval_metrics: bool = fixed(default=False, reason="scores need all rows of a set")
    eval_do_concat_batches: bool = fixed(default=True, reason="scores need all rows of a set")
    include_for_metrics: list[str] = field(
        init=False, default_factory=list, metadata={"reason": "scores use the outputs alone"}
    )
    use_liger_kernel: bool = fixed(default=False, reason="it has no kernels for these models")
    dataloader_drop_last: bool = fixed(default=False, reason="every row is trained and scored")
    # Processes wait for each other while documents are encoded, which may take days.
    ddp_timeout: int = option(7 * 24 * 3600, argparse.SUPPRESS)
    disable_tqdm: bool | None = option(None, argparse.SUPPRESS)
    dataloader_pin_memory: bool = option(default=True, help=argparse.SUPPRESS)
    remove_unused_columns: bool = fixed(
        default=False, reason="the collators need columns that the forward pass does not take"
    )

    def __post_init__(self) -> None:
        local_path(self.output_dir)
        if not torch.accelerator.is_available():
            self.use_cpu = True  # stated outright, this allows bf16 on a CPU
            self.dataloader_pin_memory = False
        elif torch.cuda.is_available() and self.tf32 is None:
            # Products of matrices that stay in float32 take half the time (never run on a GPU).
            torch.set_float32_matmul_precision("high")
        if self.disable_tqdm is None and not sys.stderr.isatty():
            self.disable_tqdm = True  # no bar in a log file
        if self.bf16 and self.use_cpu:
            capabilities = torch.cpu.get_capabilities()
            if not any(capabilities.get(name) for name in _BFLOAT16):
                logger.warning(
                    "--bf16: this processor has no instructions for bfloat16; float32 is many times"
                    " faster."
                )
        super().__post_init__()
        # Raises an ImportError now if the optimizer's package is missing. Some optimizers need the
        # model, which is not open yet; the trainer reports their other errors.
        with contextlib.suppress(ValueError):
            Trainer.get_optimizer_cls_and_kwargs(self)
        for name in self.report_to or ():
            if name not in get_available_reporting_integrations():
                raise ValueError(
                    f"--report_to {name}: its package is not installed; install it, or leave it"
                    " out."
                )

    def check_best_metric(self, scores: Sequence[str]) -> None:
        """Refuses a `metric_for_best_model` that no evaluation has, before the first one.

        Raises:
            ValueError: for another name.
        """
        name = self.metric_for_best_model
        choices = ["loss", *scores]
        if name is not None and name.removeprefix("eval_") not in choices:
            raise ValueError(
                f"--metric_for_best_model {name}: evaluations have no such score; give one of"
                f" {', '.join(choices)}."
            )

    def result_settings(self) -> dict[str, object]:
        """Returns the arguments that decide the result, given the model and the data."""
        names: tuple[str, ...] = RESULT_ARGUMENTS
        if self.load_best_model_at_end:
            names += CHOICE_ARGUMENTS
        values = {}
        for name in names:
            value = getattr(self, name)
            values[name] = getattr(value, "value", value)  # of an enumeration
        rows = self.train_batch_size * self.gradient_accumulation_steps * self.world_size
        return {**values, "batch_size": rows}

    def without_upload(self) -> Self:
        """Returns a copy for a `Trainer`, which would upload at every `save_model`.

        The copy has no access token either: a `Trainer` pickles its arguments.
        """
        args = copy.copy(self)
        args.push_to_hub = False
        args.hub_token = None
        return args

    def repository(self) -> str:
        """Returns the name of the model: of its repository on the Hub, or of its folder.

        If the model is to be uploaded, the repository is created here.
        """
        name = self.hub_model_id or Path(self.output_dir).resolve().name
        if self.push_to_hub and self.should_save:
            url = create_repo(
                name, token=self.hub_token, private=self.hub_private_repo, exist_ok=True
            )
            name = url.repo_id
        return safe_name(name)

    def upload(self, folder: str | Path, leave: Sequence[str] = ()) -> None:
        """Uploads a folder to `repository` if `push_to_hub` is set.

        Args:
            folder: folder to upload; checkpoints and temporary files are left out.
            leave: patterns of further files to leave out.
        """
        if self.push_to_hub and self.should_save:
            upload_folder(
                repo_id=self.repository(),
                folder_path=folder,
                token=self.hub_token,
                revision=self.hub_revision,
                ignore_patterns=["checkpoint-*", "_*", ".tmp*", *leave],
            )
