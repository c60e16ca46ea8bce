"""Pretraining a CDLM: sets of related documents → masked words with global attention → a CDLM with its card."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

from transformers import set_seed

from ..data._old import check_source
from ..data.rows import fingerprint
from ..models.chunk_encoder import weights_fingerprint
from ..models.modeling_cdlm import CdlmForMaskedLM
from ..training.recipes import against_paper
from ..training.resuming import begin, finish
from ..training.trainer import CardTrainer
from .card import write_cdlm_card
from .cdlm_arguments import CdlmDataArguments, CdlmModelArguments, CdlmPretrainingArguments
from .document_sets import (
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
    DocumentClusters,
    hold_out_clusters,
    read_document_clusters,
)

logger = logging.getLogger(__name__)

# Options that determine the result beside the sets, which are identified by their contents.
_SIGNED = ("global_attention", "random_clusters", "mlm_probability", "eval_samples_per_cluster")


class CdlmTrainer(CardTrainer):
    """Trains on masked words; evaluates by perplexity."""

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Beside a loss of evaluation its exponential: the cross-document perplexity (paper, section 3.1)."""
        if "eval_loss" in logs:
            logs["eval_perplexity"] = math.exp(logs["eval_loss"])
        super().log(logs, *args, **kwargs)


def run(model_args: CdlmModelArguments, data_args: CdlmDataArguments, args: CdlmPretrainingArguments) -> None:
    """Reads, trains, evaluates and saves the model with its card.

    A run that was killed continues where it stopped, given the same options.

    Raises:
        FileNotFoundError, ValueError: for documents that cannot be read; before anything is loaded or written.
        ValueError: for options that do not fit the model or the data, or a loss that is not finite.
    """
    for source in (data_args.train_file, data_args.validation_file):
        check_source(source)
    set_seed(args.seed)

    # 1. Sets of documents.
    train, validation = read_clusters(data_args, args.seed)

    # 2. The model and its processor, and sequences of documents.
    model, processor = model_args.load(CdlmForMaskedLM)
    model.config.sparse_prediction = True  # only masked words are scored
    attends_globally = data_args.global_attention != "none"
    if not attends_globally:  # no gradient would reach these, and several processes would wait for one
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("_global." not in name)

    train_dataset = ClusterDataset(train, processor, related=not data_args.random_clusters, seed=args.seed)
    # Whatever a model has learned from, it is evaluated on related documents (paper, section 3.1).
    eval_dataset = ClusterDataset(
        validation, processor, samples_per_cluster=data_args.eval_samples_per_cluster, seed=args.seed
    )
    facts = {
        "documents": f"{train.source}: {len(train_dataset)} sets" + (", mixed" * data_args.random_clusters),
        "held out": f"{validation.source}: {len(eval_dataset) // eval_dataset.samples_per_cluster} sets",
        "global attention": data_args.global_attention,
        "tokens in a sequence": processor.max_length,
        **against_paper("cdlm", model_args, data_args, args),
    }

    settings = {
        "model_type": "cdlm",
        "weights": weights_fingerprint(model.base_model),
        "max_length": processor.max_length,
        "attention_window": model.config.attention_window,
        **{name: getattr(data_args, name) for name in _SIGNED},
        "documents": fingerprint(zip(train.names, train.clusters, strict=True)),
        "validation_documents": fingerprint(zip(validation.names, validation.clusters, strict=True)),
        **args.training_signature(),
    }
    if not begin(args, settings):
        return

    # 3. Training.
    trainer = CdlmTrainer(
        model=model,
        args=args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=DataCollatorForCrossDocumentMasking(
            processor, data_args.global_attention, data_args.mlm_probability
        ),
        card=lambda trainer: write_cdlm_card(trainer, model_args.public_name, not model_args.local, facts),
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
    model.config.sparse_prediction = False  # whoever opens it expects scores at all positions
    if not attends_globally:
        for parameter in model.parameters():
            parameter.requires_grad_(True)
        model.copy_local_to_global()  # for what is fine-tuned on it, as a Longformer's (paper, "Baseline LMs")
    if trainer.is_world_process_zero():
        processor.save_pretrained(str(args.output_dir))
    trainer.publish()
    finish(args, settings)


def read_clusters(options: CdlmDataArguments, seed: int) -> tuple[DocumentClusters, DocumentClusters]:
    """Sets of documents to train on and to evaluate on.

    Raises:
        ValueError: for rows that cannot be read, or too few sets to hold some out.
    """

    def read(source: str, split: str) -> DocumentClusters:
        columns = options.cluster_column, options.text_column
        return read_document_clusters(source, *columns, split, options.dataset_config_name)

    train = read(options.dataset_name or options.train_file or "", options.train_split)
    if options.validation_split and options.dataset_name:
        return train, read(options.dataset_name, options.validation_split)
    if options.validation_file:
        return train, read(options.validation_file, "train")
    return hold_out_clusters(train, options.validation_share, seed)
