"""Pretraining a CDLM: sets of related documents → a CDLM with its card."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, set_seed

from ..data.rows import fingerprint
from ..models.chunk_encoder import weights_fingerprint
from ..models.modeling_cdlm import CdlmForMaskedLM
from ..models.processing_cdlm import CdlmProcessor
from ..training.trainer import (
    CURVE,
    CardTrainer,
    claim,
    last_whole_checkpoint,
    model_card,
    parse,
    plot_curves,
    read_json,
    results_table,
    safe_name,
    write_whole,
)
from .arguments import PretrainingArguments, option
from .document_sets import (
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
    hold_out_sets,
    read_document_sets,
)

logger = logging.getLogger(__name__)

SUMMARY = """\
A [CDLM](https://arxiv.org/abs/2101.00406): a Longformer that reads a set of related documents in one sequence, with
global attention on what it has to predict."""
LIMITS = (
    (
        "Sets that are longer than a sequence are cut, the longest documents first; the processor"
        " says how much is lost."
    ),
    "The language and domain are those of the encoder and of the training documents.",
)
_SNIPPET = """\
from transformers import AutoModelForMaskedLM

import nextlevelbert  # registers the architecture

model = AutoModelForMaskedLM.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
texts = [f"One document with a {processor.tokenizer.mask_token}.", "Another one about the same."]
batch = processor(texts)
scores = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits"""


@dataclass(kw_only=True)
class CdlmModelArguments:
    """Which model."""

    _argument_group_name = "model"

    model: str = field(
        metadata={
            "help": (
                "A CDLM, a Longformer, or a BERT or RoBERTa to turn into one: folder or name on the"
                " Hub."
            )
        }
    )
    model_type: Literal["cdlm"] = option("cdlm", "Other model types have their own options.")
    max_length: int | None = option(
        None, "Tokens in a sequence; usually 4096, or as many as a saved model reads."
    )
    attention_window: int | None = option(
        None, "Tokens that each token attends to; usually 512, or a saved model's."
    )

    def load(self, model_class: Any) -> tuple[Any, CdlmProcessor]:
        """The model in float32, opened as `model_class` or made from an encoder, and its
        processor."""
        window = (
            {} if self.attention_window is None else {"attention_window": self.attention_window}
        )
        if AutoConfig.from_pretrained(self.model).model_type in ("cdlm", "longformer"):
            model = model_class.from_pretrained(self.model, dtype=torch.float32, **window)
        else:
            model = model_class.from_encoder(
                self.model, max_length=self.max_length or 4096, **window
            )
        return model, CdlmProcessor.from_model(model, self.max_length)


@dataclass
class CdlmMaskingArguments:
    """How sequences are drawn and masked."""

    _argument_group_name = "masked words"

    document_share: float = option(1 / 3, "Largest share of a sequence for one document.")
    global_attention: Literal["masked", "prefix", "none"] = option(
        "masked",
        "Tokens with global attention: those to predict (the paper's), as many first ones (prefix),"
        " or none.",
    )
    random_clusters: bool = option(
        False, "Train on sets of unrelated documents (the paper's Rand CDLM)."
    )
    mlm_probability: float = option(0.15, "Share of the words to predict.")


@dataclass
class CdlmDataArguments:
    """Which documents."""

    _argument_group_name = "documents"

    train_file: str | None = option(
        None,
        "A .jsonl, .json or .parquet (also .gz), a quoted pattern, or Multi-News's .src: a document"
        " or a set a row.",
    )
    validation_file: str | None = option(
        None, "The same, to evaluate on; usually some of the sets are held out."
    )
    test_file: str | None = option(None, "The same, to report the perplexity on at the end.")
    dataset_name: str | None = option(None, "A dataset on the Hub, instead of files.")
    dataset_config_name: str | None = option(None, "Configuration of that dataset.")
    train_split: str = option("train", "Split to train on.")
    validation_split: str | None = option(None, "Split to evaluate on.")
    test_split: str | None = option(None, "Split to report on.")
    cluster_column: str | None = option(
        None, "Column that names a document's set; leave it out if a row is a set."
    )
    text_column: str | None = option(
        None, "Column of a document's text (usually text), or of a set's (document)."
    )
    validation_share: float = option(
        0.05, "Share of the sets that is held out without a validation set."
    )

    def read(self, args: PretrainingArguments) -> dict[str, dict[str, list[str]]]:
        """Sets by ``train``, ``validation``, ``test``; some of the first are held out where the
        second is missing."""
        sets = {}
        for name in ("train", "validation", "test"):
            source, split = getattr(self, f"{name}_file"), getattr(self, f"{name}_split")
            if source := source or (split and self.dataset_name):
                columns = self.cluster_column, self.text_column
                sets[name] = read_document_sets(
                    source, *columns, split or "train", self.dataset_config_name
                )
        if not sets or (args.do_train and "train" not in sets):
            raise ValueError(
                "Give documents: --train_file or --dataset_name with --do_train, or --test_file"
                " without."
            )
        if "train" in sets and "validation" not in sets:
            sets["train"], sets["validation"] = hold_out_sets(
                sets["train"], self.validation_share, args.seed
            )
        return sets


def main(words: list[str]) -> None:
    """Pretrains a CDLM, or tells the perplexity of one; a run that was killed goes on where it
    stopped."""
    classes = (CdlmModelArguments, CdlmDataArguments, CdlmMaskingArguments, PretrainingArguments)
    options, data_args, masking, args = parse(classes, words, about=__doc__, recipes="")
    set_seed(args.seed)
    args.check_best_metric([])
    sets = data_args.read(args)
    args.prediction_loss_only = True  # scores of all words would fill the memory

    # 1. The model, and sequences of documents.
    model, processor = options.load(CdlmForMaskedLM)
    model.config.sparse_prediction = True  # only masked words are scored
    if (
        masking.global_attention == "none"
    ):  # no gradient would reach these, and several processes would wait for one
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("_global." not in name)
    rows = {}
    for name, texts in sets.items():
        # Whatever a model has learned from, it is evaluated on related documents (paper, section
        # 3.1).
        related = name != "train" or not masking.random_clusters
        rows[name] = ClusterDataset(
            [*texts.values()], processor, None, related, args.seed, masking.document_share
        )
    collator = DataCollatorForCrossDocumentMasking(
        processor, masking.global_attention, masking.mlm_probability
    )
    trainer = CardTrainer(
        model, args, collator, rows.get("train"), rows.get("validation", rows.get("test"))
    )

    # 2. Training, and the perplexity on held-out sets.
    output = Path(str(args.output_dir))
    hub = None if Path(options.model).exists() else options.model
    settings = {
        "model": safe_name(hub or Path(options.model).resolve().name),
        **args.signature(),
        **vars(masking),
    }
    settings |= {
        "attention_window": model.config.attention_window,
        "tokens in a sequence": processor.max_length,
    }
    prints = {f"{name} documents": fingerprint(texts.items()) for name, texts in sets.items()}
    weights = weights_fingerprint(model.base_model)
    claim(output, {**settings, **prints, "weights": weights, "do_train": args.do_train})
    if args.do_train:
        if read_json(output / "results.json") is not None:
            args.upload(output)
            logger.info(
                "%s is finished already: nothing to do. Give another --output_dir for another run.",
                output,
            )
            return
        checkpoint = last_whole_checkpoint(output)
        args.eval_on_start = (
            args.eval_on_start and checkpoint is None
        )  # else the log would have one more
        trainer.train(resume_from_checkpoint=checkpoint)
    scores = {}
    for name in ("validation", "test"):
        if name in rows:
            loss = trainer.evaluate(rows[name], metric_key_prefix=name)[f"{name}_loss"]
            scores[name] = {"loss": loss, "perplexity": math.exp(loss)}
    logger.info("Cross-document perplexity:\n%s", results_table(scores))
    if not args.do_train:
        if args.should_save:
            write_whole(output / "results.json", json.dumps({"rows": scores}, indent=2))
        logger.info("Results are in %s. Nothing was trained: add --do_train for that.", output)
        return

    # 3. A checkpoint that needs nothing else; the results are written last.
    model.config.sparse_prediction = False  # whoever opens it expects scores at all positions
    if masking.global_attention == "none":
        model.requires_grad_(True)
        # for what is fine-tuned on it, as a Longformer's (paper, "Baseline LMs")
        model.copy_local_to_global()
    trainer.save_model(_internal_call=True)  # without an upload
    if args.should_save:
        processor.save_pretrained(output)
        steps = [entry for entry in trainer.state.log_history if "train_loss" not in entry]
        log = [
            {k: v for k, v in entry.items() if not k.endswith(("_runtime", "_per_second"))}
            for entry in steps
        ]
        counts = {f"{name} set": f"{len(texts)} sets of documents" for name, texts in sets.items()}
        _write_card(args, hub, log, {**counts, **settings}, scores)
        write_whole(
            output / "results.json",
            json.dumps({"rows": scores, "log": log}, indent=2, sort_keys=True),
        )
        args.upload(output)
        logger.info("The model is in %s, with its card (README.md) and results.json.", output)


def _write_card(args: Any, hub: str | None, log: list, facts: dict[str, Any], scores: dict) -> None:
    """The card and the learning curve."""
    name, losses = args.repository(), [entry["eval_loss"] for entry in log if "eval_loss" in entry]
    plot_curves([log], None, Path(args.output_dir) / CURVE, x="step")
    if losses:
        scores = {
            "first evaluation": {"loss": losses[0], "perplexity": math.exp(losses[0])},
            **scores,
        }
    model_card(
        name=name,
        summary=SUMMARY,
        snippet=_SNIPPET.replace("{name}", name),
        pipeline_tag="fill-mask",
        tags=("cdlm", "longformer", "multi-document", "fill-mask"),
        base_model=hub,
        training={name: value for name, value in facts.items() if value is not None},
        pictures={CURVE: "Loss over training"},
        measured=(
            "Masked words of sets of related documents that were held out, with the attention"
            " pattern of the training; perplexity is the exponential of the"
            f" loss.\n\n{results_table(scores)}"
        ),
        scores={"perplexity": scores["validation"]["perplexity"]},
        dataset="held-out sets",
        limits=LIMITS,
    ).save(f"{args.output_dir}/README.md")
