"""Options as fields of dataclasses, and those of every training.

The help of the command reads them, so this file imports neither torch nor transformers.
"""

import argparse
from dataclasses import dataclass, field
from typing import Any


def option(default: object, help: str, **metadata: object) -> Any:
    """Makes a field of a dataclass of options.

    Args:
        default: default value, or `dataclasses.MISSING` for an option that is required.
        help: text for ``--help``, which adds the default.
        **metadata: further arguments of `add_argument`, such as ``choices``.
    """
    return field(default=default, metadata={"help": help, **metadata})


def fixed(default: object, reason: str) -> Any:
    """Makes a field that is no option, because a training here decides it."""
    return field(init=False, default=default, metadata={"reason": reason})


@dataclass
class TrainingOptions:
    """The options of every training; `BaseTrainingArguments` adds the others of transformers."""

    _argument_group_name = "training"

    # The command asks for the folder, so its help shows no default.
    output_dir: str = field(
        default="trainer_output",
        metadata={
            "help": "Folder to write the model to (required).",
            "default": argparse.SUPPRESS,
        },
    )
    max_steps: int = option(
        -1, "Number of steps; if it is above 0, it replaces --num_train_epochs."
    )
    per_device_train_batch_size: int = option(8, "Batch size per device in training.")
    per_device_eval_batch_size: int = option(8, "Batch size per device in evaluation.")
    gradient_accumulation_steps: int = option(
        1, "Number of batches whose gradients are added up for one step."
    )
    bf16: bool = option(default=False, help="Train in mixed precision with bfloat16.")
    seed: int = option(42, "Seed of the training.")
    use_cpu: bool = option(default=False, help="Use the CPU even if there is an accelerator.")
    weight_decay: float = option(0.01, "Weight decay, except of biases and LayerNorm.")
    push_to_hub: bool = option(default=False, help="Upload the finished model to the Hub.")
    hub_model_id: str | None = option(
        None, "Repository on the Hub (default: name of --output_dir)."
    )
    # `dataclass` would write the token of a class of one's own into its `repr`.
    hub_token: str | None = field(default=None, repr=False, metadata={"help": argparse.SUPPRESS})
    license: str | None = option(None, "License of the model for its card, such as apache-2.0.")
    language: list[str] | None = field(
        default=None,
        metadata={"help": "Languages of the model for its card, such as en.", "nargs": "+"},
    )
    datasets: list[str] | None = field(
        default=None,
        metadata={
            "help": "Data sets of the Hub for the model's card, if the files come from there"
            " (default: --dataset_name).",
            "nargs": "+",
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
