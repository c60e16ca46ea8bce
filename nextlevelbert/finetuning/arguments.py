"""The options that tasks share: plain dataclasses, of which each task parses those that it uses."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from ..training.trainer import BaseTrainingArguments, safe_name

Data = TypeVar("Data")


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A field of a dataclass with its help."""
    return field(default=default, metadata={"help": help, **metadata})


@dataclass
class FinetuningArguments(BaseTrainingArguments):
    """`TrainingArguments` for small supervised sets: several seeds, the best evaluation kept, early stopping."""

    seeds: list[int] = field(
        default_factory=lambda: [0],
        metadata={"help": "A training for each seed; the mean is reported, and the best one kept."},
    )
    learning_rate: float | None = option(  # type: ignore[assignment]
        None, "By default 5e-5, for models trained from text 3e-5, and 1e-3 for a head or adapters alone."
    )
    num_train_epochs: float = option(20.0, "Maximum number of epochs.")
    per_device_eval_batch_size: int = option(32, "Batch size per device.")
    warmup_steps: float = option(0.1, "Number of steps, or a share of them if below 1.")
    label_smoothing_factor: float = option(0.0, "For single labels only.")
    seed: int = option(42, "Seed of the documents that are held out; trainings use --seeds.")
    logging_strategy: str = option("epoch", "no, steps or epoch.")
    eval_strategy: str = option("epoch", "no, steps or epoch.")
    save_strategy: str = option("epoch", "no, steps or epoch.")
    save_total_limit: int | None = option(1, "Checkpoints to keep besides the best one.")
    load_best_model_at_end: bool = option(True, "Keep the weights of the best evaluation.")
    metric_for_best_model: str | None = option("loss", "Validation score that selects the best evaluation.")
    early_stopping_patience: int = option(3, "Evaluations without progress after which training stops.")
    # Without this, a resumed run would forget how long it has made no progress.
    restore_callback_states_from_checkpoint: bool = option(True, argparse.SUPPRESS)

    # Not options: every row is trained on and scored, and a killed run goes on by itself.
    label_names: list[str] | None = field(init=False, default_factory=lambda: ["labels"])  # an adapter hides them
    prediction_loss_only: bool = field(init=False, default=False)
    dataloader_drop_last: bool = field(init=False, default=False)
    resume_from_checkpoint: str | None = field(init=False, default=None)
    do_train: bool = field(init=False, default=False)
    do_eval: bool = field(init=False, default=False)
    do_predict: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"--seeds names a seed twice: {self.seeds}.")
        if self.n_gpu > 1:
            raise ValueError(f"Start a process for each of the {self.n_gpu} GPUs: torchrun --nproc_per_node N ...")

    def for_seed(self, seed: int, folder: Path) -> Self:
        """The arguments of one training; its model is published at the end, not by the training."""
        args = copy.copy(self)
        args.output_dir, args.seed, args.data_seed, args.push_to_hub = str(folder), seed, seed, False
        return args


@dataclass(kw_only=True)
class DataArguments:
    """Files or splits of a training set, and of sets to validate and to report on."""

    _argument_group_name = "data"

    train_file: str | None = option(
        None,
        "Training set: .jsonl, .json, .csv or .parquet (also .gz), a quoted pattern, or a folder of save_to_disk.",
    )
    validation_file: str | None = option(None, "Validation set, which selects the epoch; by default, it is held out.")
    test_file: str | None = option(None, "Test set, which is only reported; by default, the validation set is.")
    dataset_name: str | None = option(None, "A dataset on the Hub, instead of files.")
    dataset_config_name: str | None = option(None, "Configuration of that dataset.")
    train_split: str | None = option(None, "Split of the dataset, or of a folder, to train on; by default train.")
    validation_split: str | None = option(None, "Split to validate on.")
    test_split: str | None = option(None, "Split to report on.")
    validation_share: float = option(0.15, "Share to hold out if there is no validation set.")

    def __post_init__(self) -> None:
        files = {name: getattr(self, f"{name}_file") for name in ("train", "validation", "test")}
        if bool(self.dataset_name) == any(files.values()) or not (self.dataset_name or self.train_file):
            raise ValueError("Give the training set with --train_file or with --dataset_name, not with both.")
        if self.dataset_config_name and not self.dataset_name:
            raise ValueError("--dataset_config_name needs --dataset_name.")
        for name, file in files.items():
            folder = Path(file or self.train_file or "").is_dir()
            if getattr(self, f"{name}_split") and not (self.dataset_name or folder):
                raise ValueError(f"--{name}_split is of --dataset_name or a folder; give a file with --{name}_file.")

    def place(self, name: str) -> tuple[str, str] | None:
        """File, folder or dataset of the set `name`, and its split; None for a set that was not given."""
        file, split = getattr(self, f"{name}_file"), getattr(self, f"{name}_split")
        if name != "train" and file is None and split is None:
            return None
        return self.dataset_name or file or self.train_file or "", split or "train"

    def read_sets(self, read: Callable[[str, str, str], Data], hold_out: Callable[..., Any]) -> dict[str, Data]:
        """The sets by name, from `read(name, source, split)`; without a validation set, ``hold_out(train, share)``."""
        places = {name: self.place(name) for name in ("train", "validation", "test")}
        sets = {name: read(name, *place) for name, place in places.items() if place is not None}
        if "validation" not in sets:
            rest, held_out = hold_out(sets["train"], self.validation_share)
            sets = {**sets, "train": rest, "validation": held_out}
        return sets


@dataclass(kw_only=True)
class VectorModelArguments:
    """A model over the chunk vectors of a frozen sentence encoder, or a baseline over them."""

    _argument_group_name = "model"

    model: str = option(
        MISSING, "A checkpoint (folder or name on the Hub), or untrained: a new model around --chunk_encoder. "
        "Baselines: avg_sbert, the mean of the chunk vectors; sbert, the first chunk; tfidf or bm25, words where "
        "the task has them; any other encoder, one vector of what it reads.",
    )  # fmt: skip
    model_type: str = option(
        "nextlevelbert", "Of untrained and the baselines; a checkpoint has its own.", choices=["nextlevelbert", "hate"]
    )
    chunk_encoder: str = option(
        "sentence-transformers/all-MiniLM-L6-v2",
        "Sentence encoder of untrained, the baselines, and checkpoints without one: name or folder.",
    )
    chunk_encoder_name: str | None = option(None, "The encoder's name on the Hub, if --chunk_encoder is a folder.")
    chunk_size: int | None = option(
        None, "Most tokens of a chunk, for untrained and the baselines; by default 256, and for sbert what it reads."
    )
    encoder_dtype: str = option("float32", "Precision of encoding.", choices=["float32", "bfloat16", "float16"])
    cache_dir: str | None = option(None, "Encoded texts, which runs can share; by default OUTPUT_DIR/vectors.")


@dataclass(kw_only=True)
class TextModelArguments:
    """An encoder that is trained from text."""

    _argument_group_name = "model"

    model: str = option(MISSING, "Encoder to train (BERT or similar), or a saved model: folder or name on the Hub.")
    model_type: str = option("bert-al", "What is made of the encoder.")
    attn_implementation: str | None = option(None, "Attention of the encoder, as in transformers.")


@dataclass(kw_only=True)
class ChunkBertArguments:
    """A ChunkBERT: chunks of tokens through an encoder, and convolutions over them."""

    _argument_group_name = "model"

    chunk_size: int | None = option(None, "Tokens of a chunk; by default 128, or as saved with the model.")
    max_training_tokens: int | None = option(None, "Training documents are cut to this length; by default 4096.")
    chunk_batch_size: int = option(256, "Chunks to encode at a time; fewer take less memory in evaluation.")


@dataclass(kw_only=True)
class BertAlArguments:
    """A BERT-AL: an encoder that reads segment after segment, with recurrence between them."""

    _argument_group_name = "model"

    segment_length: int | None = option(None, "Tokens of a segment; by default 128, or as saved with the model.")
    recurrence: str | None = option(
        None, "From segment to segment: replace is the paper's; by default residual, or as saved with the model.",
        choices=["replace", "residual", "none"],
    )  # fmt: skip
    max_training_tokens: int | None = option(None, "Training documents are cut to this length; by default whole.")


@dataclass(kw_only=True)
class LoraArguments:
    """Low-rank adapters in place of all weights (LoRA, arXiv 2106.09685)."""

    _argument_group_name = "adapters"

    lora: bool = option(False, "Train only low-rank adapters and the head.")
    lora_r: int = option(8, "Rank of the adapters.")
    lora_alpha: int = option(16, "Scale of the adapters, before division by the rank.")
    lora_target_modules: list[str] | None = field(
        default=None, metadata={"help": "Linear layers to adapt, or all-linear; by default query and value."}
    )

    def __post_init__(self) -> None:
        if not self.lora and (self.lora_r, self.lora_alpha, self.lora_target_modules) != (8, 16, None):
            raise ValueError("--lora_r, --lora_alpha and --lora_target_modules are for adapters; add --lora.")


def public_name(model: str) -> str:
    """The model's name in tables and cards: never a local path."""
    return safe_name(Path(model).resolve().name if Path(model).exists() else model)


def hub_name(model: str) -> str | None:
    """The model's name on the Hub; None for a folder, whose path means nothing to anyone else."""
    return None if Path(model).exists() else model
