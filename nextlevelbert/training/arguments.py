"""`TrainingArguments` that suit everything trained here."""

import contextlib
import copy
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from huggingface_hub import create_repo, upload_folder
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    PreTrainedConfig,
    Trainer,
    TrainingArguments,
)
from transformers.integrations import get_available_reporting_integrations

from ..models.files import local_path
from ..models.model_names import full_name
from .options import TrainingOptions
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
class BaseTrainingArguments(TrainingOptions, TrainingArguments):
    """`TrainingArguments` for all trainings; pretraining and fine-tuning add their own options."""

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


def open_config(model: str, others: Sequence[str] = ()) -> PreTrainedConfig:
    """Opens the configuration of ``--model``.

    Raises:
        ValueError: if neither a folder here nor the Hub gives a model of that name.
    """
    try:
        return AutoConfig.from_pretrained(full_name(model))
    except (OSError, ValueError, StrictDataclassError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        message = (
            f"--model {model!r} cannot be opened ({reason}). Give the folder of a model, or a name"
            " on the Hub and a connection to it."
        )
        if others:
            message += f" It may also be {', '.join(others)}."
        raise ValueError(message) from error
