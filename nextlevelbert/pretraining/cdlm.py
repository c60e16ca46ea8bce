"""`run_pretraining.py --model_type cdlm`: sets of related documents → masked words → a CDLM with its card."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser, set_seed

from ..models.modeling_cdlm import CdlmForMaskedLM
from ..training.trainer import BaseTrainingArguments, CardTrainer
from .cdlm_arguments import CdlmModelArguments
from .cdlm_card import write_cdlm_card
from .document_sets import (
    PATTERNS,
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
    hold_out_clusters,
    read_document_clusters,
)

logger = logging.getLogger("run_pretraining")


@dataclass
class CdlmDataArguments:
    """Which documents, and how they are masked."""

    train_file: str | None = field(
        default=None, metadata={"help": "A .jsonl or .parquet (also .gz): a document a row, or a set of them a row."}
    )
    validation_file: str | None = field(
        default=None, metadata={"help": "The same to evaluate on; by default some of the sets are held out."}
    )
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, in place of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Its configuration."})
    train_split: str = field(default="train", metadata={"help": "Its split to train on."})
    validation_split: str | None = field(default=None, metadata={"help": "Its split to evaluate on."})
    cluster_column: str | None = field(
        default=None, metadata={"help": "Column that names the set of a document; leave it out if a row is a set."}
    )
    text_column: str | None = field(
        default=None, metadata={"help": "Column of the text (default text), or of the texts of a set (document)."}
    )
    validation_share: float = field(
        default=0.05, metadata={"help": "Share of the sets held out without a file, one at least."}
    )
    eval_samples_per_cluster: int = field(
        default=1, metadata={"help": "Sequences of each set that is evaluated; default 1."}
    )
    global_attention: str = field(
        default="masked",
        metadata={"help": "Which tokens see everything: those to predict (the paper's), as many first ones, or none.",
                  "choices": list(PATTERNS)},
    )  # fmt: skip
    random_clusters: bool = field(
        default=False, metadata={"help": "Train on sets of unrelated documents (the paper's Rand CDLM)."}
    )
    mlm_probability: float = field(default=0.15, metadata={"help": "Share of the words to predict; default 0.15."})


@dataclass
class CdlmPretrainingArguments(BaseTrainingArguments):
    """`TrainingArguments` with the paper's recipe as defaults (appendix B).

    25,000 steps of 64 sequences at a peak of 3e-5, 500 steps of warm-up, then decay with the third power; the rest as
    RoBERTa (Adam 0.9, 0.98, 1e-6, weight decay 0.01). Add ``--bf16`` or ``--fp16``, which the paper used.
    """

    learning_rate: float = field(default=3e-5)
    warmup_steps: float = field(default=500)
    lr_scheduler_type: str = field(default="polynomial")
    max_steps: int = field(default=25_000)
    per_device_eval_batch_size: int = field(default=8)
    gradient_accumulation_steps: int = field(default=8)
    adam_beta2: float = field(default=0.98)
    adam_epsilon: float = field(default=1e-6)
    logging_steps: float = field(default=10)
    eval_strategy: str = field(default="steps")
    eval_steps: float | None = field(default=500)
    eval_on_start: bool = field(default=True)
    save_strategy: str = field(default="steps")
    save_steps: float = field(default=500)
    save_total_limit: int | None = field(default=2)
    prediction_loss_only: bool = field(default=True)  # scores of all words would fill the memory
    lr_scheduler_kwargs: dict | str | None = field(default=None)  # the power is 3 where nothing is said

    def __post_init__(self) -> None:
        if self.lr_scheduler_type == "polynomial" and self.lr_scheduler_kwargs is None:
            self.lr_scheduler_kwargs = {"power": 3.0}
        super().__post_init__()


class CdlmTrainer(CardTrainer):
    """Trains on masked words; evaluates by perplexity."""

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Beside a loss of evaluation its exponential: the cross-document perplexity (paper, section 3.1)."""
        if "eval_loss" in logs:
            logs["eval_perplexity"] = math.exp(logs["eval_loss"])
        super().log(logs, *args, **kwargs)


def main() -> None:
    parser = HfArgumentParser((CdlmModelArguments, CdlmDataArguments, CdlmPretrainingArguments))
    model_args, data_args, args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    pretrain(model_args, data_args, args)


def pretrain(
    model_args: CdlmModelArguments, data_args: CdlmDataArguments, args: CdlmPretrainingArguments
) -> dict[str, float]:
    """Reads, trains, evaluates and saves.

    Returns:
        Scores of the last evaluation.

    Raises:
        ValueError: for options that do not fit each other or the data.
    """
    set_seed(args.seed)
    if not (data_args.train_file or data_args.dataset_name) or (data_args.train_file and data_args.dataset_name):
        raise ValueError("Give the documents with --train_file or with --dataset_name, one of them.")
    if data_args.validation_split and not data_args.dataset_name:
        raise ValueError("--validation_split is of a --dataset_name; give a file with --validation_file.")
    if data_args.validation_split and data_args.validation_file:
        raise ValueError("Give either --validation_file or --validation_split, not both.")
    if 0 < args.max_steps <= args.warmup_steps:
        raise ValueError(
            f"--warmup_steps {args.warmup_steps:g} leaves nothing of --max_steps {args.max_steps}: give fewer, a "
            "tenth of the steps or so (the default 500 is for the paper's 25,000)."
        )

    # 1. The model and its processor.
    model, processor = model_args.load(CdlmForMaskedLM)
    model.config.sparse_prediction = True  # only masked words are scored
    if data_args.global_attention == "none":  # nothing would reach these, and several processes would wait for it
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("_global." not in name)

    # 2. Sets of documents.
    def read(file: str | None, split: str | None) -> Any:
        source = data_args.dataset_name if data_args.dataset_name and split else file
        if source is None:
            return None
        columns = data_args.cluster_column, data_args.text_column
        return read_document_clusters(source, *columns, split or "train", data_args.dataset_config_name)

    train, validation = (
        read(data_args.train_file, data_args.train_split),
        read(data_args.validation_file, data_args.validation_split),
    )
    if validation is None:
        train, validation = hold_out_clusters(train, data_args.validation_share, args.seed)
    train_dataset = ClusterDataset(train, processor, related=not data_args.random_clusters, seed=args.seed)
    # Whatever a model has learnt from, it is asked about related documents (paper, section 3.1).
    eval_dataset = ClusterDataset(
        validation, processor, samples_per_cluster=data_args.eval_samples_per_cluster, seed=args.seed
    )
    collator = DataCollatorForCrossDocumentMasking(processor, data_args.global_attention, data_args.mlm_probability)

    # 3. Training.
    def card(trainer: Any) -> None:
        schedule = getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
        recipe = {
            "documents": f"{train.source}: {len(train_dataset)} sets" + (", mixed" * data_args.random_clusters),
            "held out": f"{validation.source}: {len(eval_dataset) // eval_dataset.samples_per_cluster} sets",
            "global attention": data_args.global_attention,
            "tokens in a sequence": processor.max_length,
            "batch_size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
            "optimizer_steps": trainer.state.global_step,
            **{key: getattr(args, key) for key in ("learning_rate", "weight_decay", "warmup_steps", "seed")},
            "lr_scheduler_type": f"{schedule} {args.lr_scheduler_kwargs or ''}".strip(),
            "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        }
        name = args.hub_model_id or Path(str(args.output_dir)).name
        write_cdlm_card(
            str(args.output_dir),
            name,
            model.config,
            model_args.public_name,
            not model_args.local,
            recipe,
            trainer.state.log_history,
        )

    trainer = CdlmTrainer(
        model=model,
        args=args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=collator,
        card=card,
    )
    trainer.train_to_the_end()
    metrics = trainer.evaluate()
    if not math.isfinite(metrics["eval_loss"]):
        raise ValueError(f"Training ended with a loss of {metrics['eval_loss']}; lower --learning_rate.")
    metrics["eval_perplexity"] = math.exp(metrics["eval_loss"])
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)
    logger.info("Cross-document perplexity: %s", json.dumps(round(metrics["eval_perplexity"], 3)))

    # 4. A checkpoint that needs nothing else.
    model.config.sparse_prediction = False  # who opens it expects scores of all positions
    if data_args.global_attention == "none":
        for parameter in model.parameters():
            parameter.requires_grad_(True)
        model.copy_local_to_global()  # for what is fine-tuned on it, as a Longformer's (paper, "Baseline LMs")
    trainer.save_model()
    if trainer.is_world_process_zero():
        processor.save_pretrained(str(args.output_dir))
    trainer.create_model_card()
    if args.push_to_hub:
        trainer.push_to_hub()
    return metrics
