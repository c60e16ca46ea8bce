"""The options that say which CDLM to train."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig

from ..models.processing_cdlm import CdlmProcessor
from ..training.trainer import BaseTrainingArguments


@dataclass(kw_only=True)
class CdlmModelArguments:
    """Which model."""

    _argument_group_name = "model"

    model: str = field(
        metadata={"help": "A CDLM, a Longformer, or a BERT or RoBERTa to turn into one: folder or name on the Hub."}
    )
    model_type: str = field(
        default="cdlm",
        metadata={"help": "cdlm; other model types have their own options.", "choices": ["cdlm"]},
    )
    max_length: int | None = field(
        default=None, metadata={"help": "Tokens in a sequence; default 4096, or as many as a saved model reads."}
    )
    attention_window: int | None = field(
        default=None, metadata={"help": "Tokens that each token attends to; default 512, or that of a saved model."}
    )
    attn_implementation: str | None = field(default=None, metadata={"help": "sdpa (default) or eager."})

    @property
    def local(self) -> bool:
        """Whether the model is a folder here."""
        return Path(self.model).exists()

    @property
    def public_name(self) -> str:
        """The model's name in tables and cards: never a path of this machine."""
        return Path(self.model).resolve().name if self.local else self.model

    def load(self, model_class: Any) -> tuple[Any, CdlmProcessor]:
        """The model in float32, opened or made from an encoder, and its processor.

        Args:
            model_class: the class of CDLM to open it as.

        Raises:
            ValueError: for a length above what a saved model reads, or what `from_encoder` refuses.
        """
        window = {} if self.attention_window is None else {"attention_window": self.attention_window}
        if AutoConfig.from_pretrained(self.model).model_type in ("cdlm", "longformer"):
            model = model_class.from_pretrained(self.model, dtype=torch.float32, **window)
        else:
            length = 4096 if self.max_length is None else self.max_length
            model = model_class.from_encoder(self.model, max_length=length, **window)
        if self.attn_implementation:
            model.set_attn_implementation(self.attn_implementation)
        return model, CdlmProcessor.from_model(model, self.max_length)


@dataclass
class CdlmDataArguments:
    """Which documents, and how they are masked."""

    _argument_group_name = "documents"

    train_file: str | None = field(
        default=None,
        metadata={"help": "A .jsonl, .json, .csv or .parquet (also .gz), a quoted pattern of these, or a folder of "
                          "save_to_disk, with a document or a set of them per row."},
    )  # fmt: skip
    validation_file: str | None = field(
        default=None, metadata={"help": "The same, to evaluate on; by default some of the sets are held out."}
    )
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, instead of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of that dataset."})
    train_split: str = field(default="train", metadata={"help": "Split to train on; default train."})
    validation_split: str | None = field(default=None, metadata={"help": "Split to evaluate on."})
    cluster_column: str | None = field(
        default=None, metadata={"help": "Column that names the set of a document; leave it out if a row is a set."}
    )
    text_column: str | None = field(
        default=None,
        metadata={"help": "Column of the text of a document (default text), or of the texts of a set (default "
                          "document)."},
    )  # fmt: skip
    validation_share: float = field(
        default=0.05,
        metadata={"help": "Share of the sets that is held out without a validation set, at least one; default 0.05."},
    )
    eval_samples_per_cluster: int = field(
        default=1, metadata={"help": "Sequences from each set that is evaluated on; default 1."}
    )
    global_attention: Literal["masked", "prefix", "none"] = field(
        default="masked",
        metadata={"help": "Tokens with global attention: those to predict (masked, the paper's and the default), as "
                          "many at the start of the sequence (prefix), or none."},
    )  # fmt: skip
    random_clusters: bool = field(
        default=False, metadata={"help": "Train on sets of unrelated documents (the paper's Rand CDLM)."}
    )
    mlm_probability: float = field(default=0.15, metadata={"help": "Share of the words to predict; default 0.15."})

    def __post_init__(self) -> None:
        if bool(self.train_file) == bool(self.dataset_name):
            raise ValueError("Give the documents with either --train_file or --dataset_name.")
        if self.validation_split and not self.dataset_name:
            raise ValueError("--validation_split is a split of --dataset_name; give a file with --validation_file.")
        if self.validation_split and self.validation_file:
            raise ValueError("Give either --validation_file or --validation_split, not both.")


@dataclass
class CdlmPretrainingArguments(BaseTrainingArguments):
    """`TrainingArguments` with the paper's recipe as defaults (appendix B).

    25,000 steps of 64 sequences at a peak of 3e-5, 500 steps of warm-up, then decay with the third power; the rest as
    RoBERTa (Adam 0.9, 0.98, 1e-6, weight decay 0.01). Add ``--bf16`` or ``--fp16``, which the paper used.
    """

    _argument_group_name = "training"

    max_steps: int = field(default=25_000, metadata={"help": "Optimiser steps; default 25000."})
    gradient_accumulation_steps: int = field(default=8, metadata={"help": "Batches per optimiser step; default 8."})
    learning_rate: float = field(default=3e-5, metadata={"help": "Peak learning rate; default 3e-5."})
    lr_scheduler_type: str = field(
        default="polynomial", metadata={"help": "Default polynomial, with the third power."}
    )
    warmup_steps: float = field(
        default=500, metadata={"help": "Number of steps, or a share of them if below 1; default 500."}
    )
    adam_beta2: float = field(default=0.98, metadata={"help": "Default 0.98."})
    adam_epsilon: float = field(default=1e-6, metadata={"help": "Default 1e-6."})
    logging_steps: float = field(default=10, metadata={"help": "Default 10."})
    eval_strategy: str = field(default="steps", metadata={"help": "no, steps (default) or epoch."})
    eval_steps: float | None = field(default=500, metadata={"help": "Steps between evaluations; default 500."})
    eval_on_start: bool = field(default=True, metadata={"help": "Evaluate before the first step, too (default)."})
    save_strategy: str = field(default="steps", metadata={"help": "no, steps (default) or epoch."})
    save_steps: float = field(default=500, metadata={"help": "Steps between checkpoints; default 500."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints to keep; default 2."})
    lr_scheduler_kwargs: dict | str | None = field(default=None, metadata={"help": argparse.SUPPRESS})
    # Scores of all words would fill the memory.
    prediction_loss_only: bool = field(default=True, metadata={"help": argparse.SUPPRESS})

    def __post_init__(self) -> None:
        if self.lr_scheduler_type == "polynomial" and self.lr_scheduler_kwargs is None:
            self.lr_scheduler_kwargs = {"power": 3.0}
        super().__post_init__()
        if 0 < self.max_steps <= self.warmup_steps:
            raise ValueError(
                f"--warmup_steps {self.warmup_steps:g} leaves none of --max_steps {self.max_steps} for the decay; "
                "give fewer, such as a tenth of the steps (the default 500 is for the paper's 25,000)."
            )
