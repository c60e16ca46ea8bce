"""Every option of `run_finetune.py --model_type cdlm` beside those of training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..pretraining.cdlm_arguments import CdlmModelArguments
from .coreference.data import KINDS
from .coreference.pairs import CONTEXTS, GROUPS, MENTIONS_AT_ONCE

CDLM_TASKS = ("document_matching", "coreference", "multihop_qa")
_OF_COREFERENCE = ("mention_kind", "context", "mentions_at_once", "group_by", "negatives_per_positive")
_OF_LORA = ("lora_r", "lora_alpha", "lora_target_modules")
_OF_MATCHING = ("first_column", "second_column", "label_column")


@dataclass(kw_only=True)
class CdlmTaskArguments(CdlmModelArguments):
    """Which task, and which model."""

    task: str = field(metadata={"help": "What to learn.", "choices": list(CDLM_TASKS)})
    train_file: str | None = field(
        default=None,
        metadata={"help": "Coreference: ECB+'s folder, or its .jsonl; document matching: a .csv, .jsonl or .parquet "
                          "with two texts and a label; question answering: HotpotQA's JSON."},
    )  # fmt: skip
    validation_file: str | None = field(
        default=None, metadata={"help": "Set that chooses the epoch; by default a share of the training set."}
    )
    test_file: str | None = field(default=None, metadata={"help": "Set to report on; default the validation set."})
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, in place of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Its configuration."})
    train_split: str | None = field(default=None, metadata={"help": "Split to train on, of a dataset or of ECB+."})
    validation_split: str | None = field(default=None, metadata={"help": "Split to validate on."})
    test_split: str | None = field(default=None, metadata={"help": "Split to report on."})
    validation_share: float = field(
        default=0.15, metadata={"help": "Share of the training set (of its topics, for coreference) that is held out."}
    )
    seeds: list[int] = field(default_factory=lambda: [0], metadata={"help": "One run each; the best is published."})
    early_stopping_patience: int = field(default=3, metadata={"help": "Evaluations without progress; then it stops."})
    lora: bool = field(default=False, metadata={"help": "Train low-rank adapters and the heads only."})
    lora_r: int = field(default=8, metadata={"help": "Rank of the adapters."})
    lora_alpha: int = field(default=16, metadata={"help": "Scale of the adapters, before division by the rank."})
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["query", "value", "query_global", "value_global"],
        metadata={"help": "Names of the linear layers that get an adapter, or all-linear."},
    )
    mention_kind: str = field(default="event", metadata={"help": "Mentions of ECB+ to link.", "choices": list(KINDS)})
    context: str = field(
        default="document",
        metadata={"help": "What is read around mentions: whole documents, or their sentences only (Table 3).",
                  "choices": list(CONTEXTS)},
    )  # fmt: skip
    mentions_at_once: str = field(
        default="pair",
        metadata={"help": "pair: a sequence for each pair of mentions (the paper's); all: one for each pair of "
                          "documents with all their mentions, many times faster.",
                  "choices": list(MENTIONS_AT_ONCE)},
    )  # fmt: skip
    group_by: str = field(
        default="subtopic", metadata={"help": "Mentions within one of these are compared.", "choices": list(GROUPS)}
    )
    negatives_per_positive: float = field(
        default=1.0, metadata={"help": "Pairs apart drawn for each coreferent one, in training by pairs."}
    )
    first_column: str = field(default="text1", metadata={"help": "Column of the one document (document matching)."})
    second_column: str = field(default="text2", metadata={"help": "Column of the other."})
    label_column: str = field(default="label", metadata={"help": "Column that says whether they belong together."})

    def deciding(self) -> dict[str, Any]:
        """What decides the weights that come out."""
        kept = ["task", "lora", "max_length", "attention_window", "early_stopping_patience", "validation_share"]
        if self.lora:
            kept += ["lora_r", "lora_alpha", "lora_target_modules"]
        if self.task == "coreference":
            kept += _OF_COREFERENCE
        return {"model": self.public_name, **{name: getattr(self, name) for name in kept}}

    def check(self, args: Any) -> None:
        """Refuses what would be ignored.

        Raises:
            ValueError: naming the options.
        """
        plain = type(self)(task=self.task, model=self.model)
        others = [
            f"--{name}"
            for task, names in (("coreference", _OF_COREFERENCE), ("document_matching", _OF_MATCHING))
            for name in names
            if self.task != task and getattr(self, name) != getattr(plain, name)
        ]
        files = (self.train_file, self.validation_file, self.test_file)
        splits = (self.train_split, self.validation_split, self.test_split)
        folder = self.task == "coreference" and Path(self.train_file or "").is_dir()
        if self.task == "coreference" and self.mentions_at_once == "all" and self.negatives_per_positive != 1.0:
            others.append("--negatives_per_positive (with --mentions_at_once all every pair is learnt from)")
        others += [f"--{name}" for name in _OF_LORA if not self.lora and getattr(self, name) != getattr(plain, name)]
        for refused, message in (
            (bool(others), f"--task {self.task} makes no use of {', '.join(others)}; leave that out."),
            (
                bool(self.dataset_name) and any(files),
                "Give either --dataset_name with its splits or files, not both.",
            ),
            (
                self.task == "coreference" and bool(self.dataset_name),
                "ECB+ is read from a folder or a .jsonl: give --train_file, and its splits where it is a folder.",
            ),
            (
                any(splits) and not self.dataset_name and not folder,
                "--train_split, --validation_split and --test_split are of a --dataset_name or of ECB+'s folder; give "
                "files with --train_file, --validation_file and --test_file.",
            ),
            (
                folder and any(splits[1:]) and not self.train_split,
                "Say with --train_split train which topics of the folder to train on, as it holds those to report on.",
            ),
            (
                bool(self.dataset_config_name) and not self.dataset_name,
                "--dataset_config_name is of a dataset on the Hub; there is no --dataset_name.",
            ),
            (
                list(args.label_names or ["labels"]) != ["labels"],
                "Each task has labels of its own; leave out --label_names.",
            ),
            (not (self.train_file or self.dataset_name), "Give the training set with --train_file or --dataset_name."),
            (len(set(self.seeds)) < len(self.seeds), f"--seeds names a seed twice: {self.seeds}."),
            (
                bool(args.resume_from_checkpoint),
                "A killed run goes on by itself, given the same --output_dir; leave out --resume_from_checkpoint.",
            ),
            (
                args.dataloader_drop_last or args.prediction_loss_only or bool(args.label_smoothing_factor),
                "Leave out --dataloader_drop_last, --prediction_loss_only and --label_smoothing_factor: every row is "
                "scored, with a loss of the task's own.",
            ),
        ):
            if refused:
                raise ValueError(message)
