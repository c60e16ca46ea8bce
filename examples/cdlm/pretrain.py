"""Pretrains a CDLM on sets of related documents, and saves it with its card.

Without --do_train, the perplexity of a saved model is measured.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import torch
from transformers import set_seed

from ..models.chunk_encoder import weights_fingerprint
from ..models.modeling_cdlm import CdlmForMaskedLM, CdlmPreTrainedModel
from ..models.processing_cdlm import CdlmProcessor
from ..training.cards import CardText, collect_card, name_on_hub, public_name, results_table
from ..training.data import DataArguments
from ..training.options import open_config, option, parse
from ..training.plots import CURVE, Log, plot_curves
from ..training.runs import bind_folder, fingerprint, write_whole
from ..training.trainer import CardTrainer
from .arguments import PretrainingArguments
from .document_sets import (
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
    hold_out_sets,
    read_document_sets,
)
from .run import is_finished, train_or_resume, write_results

logger = logging.getLogger(__name__)

Model = TypeVar("Model", bound=CdlmPreTrainedModel)
Sets = dict[str, list[str]]  # sets of documents by name
Scores = dict[str, dict[str, float]]  # loss and perplexity by set

SUMMARY = """\
This model is a [CDLM](https://arxiv.org/abs/2101.00406): a Longformer that reads a set of related
documents in one sequence, with global attention on the tokens that matter for its prediction."""
LIMITS = (
    (
        "Sets that are longer than a sequence are truncated, the longest documents first; the"
        " processor says how much is lost."
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
_CARD = CardText(
    summary=SUMMARY,
    intended_use=(
        "Fine-tune it for tasks on several documents: to match documents, to link mentions across"
        " documents, or to answer questions from several paragraphs."
    ),
    measured=(
        "The model predicts masked words in sets of related documents that were held out, with the"
        " global attention of the training. Perplexity is the exponential of the loss."
    ),
    limits=LIMITS,
    snippet=_SNIPPET,
    pipeline_tag="fill-mask",
    tags=("cdlm", "longformer", "multi-document", "fill-mask"),
    caption="Loss over training",
)


@dataclass(kw_only=True)
class CdlmModelArguments:
    """Names the model to start from, and sets its sizes."""

    _argument_group_name = "model"

    model: str = field(
        metadata={
            "help": (
                "A CDLM, a Longformer, or a BERT or RoBERTa to turn into one: folder or name on the"
                " Hub."
            )
        }
    )
    model_type: Literal["cdlm"] = option(
        "cdlm", "Model family. The other families have other options or tasks."
    )
    max_length: int | None = option(
        None, "Most tokens in a sequence (default: 4096, or as many as a saved model reads)."
    )
    attention_window: int | None = option(
        None,
        "Number of tokens that a token attends to, half of them on either side (default: 512, or"
        " the value of a saved model).",
    )

    def load(self, model_class: type[Model]) -> tuple[Model, CdlmProcessor]:
        """Opens a saved model, or makes one from an encoder.

        Returns:
            The model as `model_class`, in float32, and its processor.
        """
        fields = {}
        if self.attention_window is not None:
            fields["attention_window"] = self.attention_window

        if open_config(self.model).model_type in ("cdlm", "longformer"):
            model = model_class.from_pretrained(self.model, dtype=torch.float32, **fields)
        else:
            if self.max_length is not None:
                fields["max_length"] = self.max_length
            model = model_class.from_encoder(self.model, **fields)
        return model, CdlmProcessor.from_model(model, max_length=self.max_length)


@dataclass
class CdlmMaskingArguments:
    """Sets how sequences are drawn and masked."""

    _argument_group_name = "masked words"

    document_share: float = option(1 / 3, "Largest share of a sequence for one document.")
    global_attention: Literal["masked", "prefix", "none"] | None = option(
        None,
        "Tokens with global attention: the tokens to predict (masked, as in the paper), the same"
        " number of tokens at the beginning (prefix), or no token (none). Default: as the saved"
        " model was trained, and masked for a new model.",
    )
    random_clusters: bool = option(
        default=False, help="Train on sets of unrelated documents (the paper's Rand CDLM)."
    )
    mlm_probability: float = option(0.15, "Share of the words to predict.")


@dataclass(kw_only=True)
class CdlmDataArguments(DataArguments):
    """Names the documents; a test set alone is enough to report on."""

    _argument_group_name = "documents"

    train_file: str | None = option(
        None,
        "Sets of documents to train on: a file (.jsonl, .json or .parquet, all but .parquet also as"
        " .gz; or Multi-News's .src) or a quoted pattern of files, with a document or a set of"
        " documents in each row.",
    )
    cluster_column: str | None = option(
        None, "Column that names the set of a document; leave it out if each row is a set."
    )
    text_column: str | None = option(
        None,
        "Column of the text of a document (default: text), or of the texts of a set (default:"
        " document).",
    )
    validation_share: float = option(
        0.05, "Share of the sets to hold out if there is no validation set."
    )

    def __post_init__(self) -> None:
        """Leaves the check to `read`: without ``--do_train``, no training set is needed."""

    def read(self, args: PretrainingArguments) -> dict[str, Sets]:
        """Reads the sets; a share of the training sets is held out if there is no validation set.

        Returns:
            Sets of documents by ``train``, ``validation``, ``test``.

        Raises:
            ValueError: the options name no documents, or none to train on.
        """
        read_set = partial(
            read_document_sets, set_column=self.cluster_column, text_column=self.text_column
        )
        sets = self.read_sets(read_set, args.seed, hold_out_sets)
        if not sets or (args.do_train and "train" not in sets):
            raise ValueError(
                "Give documents: --train_file or --dataset_name with --do_train, or --test_file"
                " without."
            )
        return sets


def main(argv: list[str]) -> None:
    """Pretrains a CDLM, or reports the perplexity of one; an interrupted run resumes."""
    classes = (CdlmModelArguments, CdlmDataArguments, CdlmMaskingArguments, PretrainingArguments)
    model_args, data_args, masking_args, args = parse(classes, argv, about=__doc__, recipes="")
    set_seed(args.seed)
    args.check_best_metric([])
    sets = data_args.read(args)
    args.prediction_loss_only = True  # scores of all words would fill the memory

    # 1. The model, and sequences of documents.
    model, processor = model_args.load(CdlmForMaskedLM)
    _prepare_model(model, masking_args)
    rows = {}
    for name, documents in sets.items():
        rows[name] = ClusterDataset(
            list(documents.values()),
            processor=processor,
            # A set is evaluated on related documents (section 3.1).
            related=name != "train" or not masking_args.random_clusters,
            seed=args.seed,
            document_share=masking_args.document_share,
        )
    collator = DataCollatorForCrossDocumentMasking(
        processor,
        pattern=masking_args.global_attention,
        mlm_probability=masking_args.mlm_probability,
    )
    trainer = CardTrainer(
        model=model,
        args=args.without_upload(),
        data_collator=collator,
        train_dataset=rows.get("train"),
        eval_dataset=rows.get("validation", rows.get("test")),
    )

    # 2. Training, and the perplexity on held-out sets.
    settings = {
        "model": public_name(model_args.model),
        **args.result_settings(),
        **vars(masking_args),
        "attention_window": model.config.attention_window,
        "tokens in a sequence": processor.max_length,
    }
    fingerprints = {f"{name} documents": fingerprint(texts.items()) for name, texts in sets.items()}
    weights = weights_fingerprint(model.base_model)
    bind_folder(
        args.output_dir,
        {**settings, **fingerprints, "weights": weights, "do_train": args.do_train},
    )
    if args.do_train:
        if is_finished(args):
            return
        train_or_resume(trainer)
    scores = _perplexities(trainer, rows)
    logger.info("Cross-document perplexity:\n%s", results_table(scores))

    # 3. A checkpoint that needs nothing else; the results are written last.
    if args.do_train:
        _save_model(trainer, processor)
        if args.should_save:
            counts = {f"{name} set": f"{len(row)} sets of documents" for name, row in sets.items()}
            log = trainer.state.log_history
            _write_card(
                args,
                model_args=model_args,
                data_args=data_args,
                log=log,
                settings={**counts, **settings},
                scores=scores,
            )
            write_results(args, log, {"rows": scores})
        logger.info("The model, its card and results.json are in %s.", args.output_dir)
    else:
        if args.should_save:
            content = json.dumps({"rows": scores}, indent=2)
            write_whole(Path(args.output_dir) / "results.json", content)
        logger.info(
            "Results are in %s. Nothing was trained: add --do_train for that.", args.output_dir
        )


def _prepare_model(model: CdlmForMaskedLM, masking_args: CdlmMaskingArguments) -> None:
    """Sets the pattern of global attention, and freezes weights that get no gradient with it."""
    model.config.sparse_prediction = True  # only masked words are scored
    if masking_args.global_attention is None:
        masking_args.global_attention = model.config.global_attention
    model.config.global_attention = masking_args.global_attention
    if masking_args.global_attention == "none":
        # No gradient would reach these weights, and several processes would wait for it.
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("_global." not in name)


def _perplexities(trainer: CardTrainer, rows: Mapping[str, ClusterDataset]) -> Scores:
    """Evaluates the model on the validation and test sets."""
    scores = {}
    for name in ("validation", "test"):
        if name in rows:
            loss = trainer.evaluate(rows[name], metric_key_prefix=name)[f"{name}_loss"]
            scores[name] = {"loss": loss, "perplexity": math.exp(loss)}
    return scores


def _save_model(trainer: CardTrainer, processor: CdlmProcessor) -> None:
    """Saves the model and its processor."""
    model = trainer.model
    model.config.sparse_prediction = False  # whoever opens it expects scores at all positions
    if model.config.global_attention == "none":
        model.requires_grad_(requires_grad=True)
        # For fine-tuning, as Longformer does (paper, "Baseline LMs").
        model.copy_local_to_global()
    trainer.save_model()
    if trainer.args.should_save:
        processor.save_pretrained(str(trainer.args.output_dir))


def _write_card(
    args: PretrainingArguments,
    model_args: CdlmModelArguments,
    data_args: CdlmDataArguments,
    log: Log,
    settings: Mapping[str, object],
    scores: Scores,
) -> None:
    """Writes the card and the learning curve."""
    output = Path(args.output_dir)
    plot_curves([log], metrics=[], path=output / CURVE, x="step")

    rows = dict(scores)
    losses = [entry["eval_loss"] for entry in log if "eval_loss" in entry]
    if losses:
        first = {"loss": losses[0], "perplexity": math.exp(losses[0])}
        rows = {"first evaluation": first, **scores}

    card = collect_card(
        args,
        _CARD,
        log=log,
        model_type="cdlm",
        base_model=name_on_hub(model_args.model),
        settings=settings,
        table=results_table(rows),
        scores={"perplexity": scores["validation"]["perplexity"]},
        dataset="held-out sets",
        data_name=data_args.dataset_name,
    )
    card.save(output / "README.md")
