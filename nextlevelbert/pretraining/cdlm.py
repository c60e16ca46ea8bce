"""Pretraining a CDLM: sets of related documents, read, sampled into sequences, masked → a CDLM with its card."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from transformers import AutoConfig, set_seed

from ..data.rows import Place, Rows, draw, fingerprint, open_rows, short
from ..models.chunk_encoder import weights_fingerprint
from ..models.modeling_cdlm import CdlmForMaskedLM
from ..models.processing_cdlm import DOCUMENT, CdlmProcessor
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
from .sequences import EpochDataset, draw_vector_mask

logger = logging.getLogger(__name__)

LEAST_DOCUMENTS = 3  # in a set, the paper's (section 2.3)
_MULTI_NEWS = "|||||"  # what separates the documents of a set there
SUMMARY = """\
A [CDLM](https://arxiv.org/abs/2101.00406): a Longformer that reads a set of related documents in one sequence, with
global attention on what it has to predict."""
LIMITS = (
    "Sets that are longer than a sequence are cut, the longest documents first; the processor says how much is lost.",
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


def read_document_sets(
    source: str | Path, set_column: str | None = None, text_column: str | None = None, split: str = "train",
    dataset_config: str | None = None,
) -> dict[str, list[str]]:  # fmt: skip
    """Reads sets of related documents, each under its name; blank documents are left out.

    Args:
        source: a .jsonl or .parquet (also .gz), a dataset on the Hub, or Multi-News as its authors give it: a ``.src``
            or ``.src.cleaned`` with a set a line.
        set_column: where a row is a document, what names the set it belongs to. None where a row is a set.
        text_column: the text of a document (default ``"text"``); where a row is a set, a list of texts, or one with
            ``|||||`` between documents, as Multi-News has them (default ``"document"``).
    """
    column = text_column or ("document" if set_column is None else "text")
    if ".src" in Path(source).suffixes:
        rows, set_column, column = _multi_news(Path(source)), None, "document"
    else:
        rows = open_rows(source, split, dataset_config).rows
    sets: dict[str, list[str]] = {}
    for number, (place, values) in enumerate(rows):
        value = place.value(values, column, "--text_column")
        if set_column is None:
            key, texts = str(number), value.split(_MULTI_NEWS) if isinstance(value, str) else value
        else:
            key, texts = str(place.value(values, set_column, "--cluster_column") or "").strip(), [value]
            if not key:
                raise place.error(set_column, "must name the set of the document.")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise place.error(column, f"must be text, or a list of texts, got {short(value)}.")
        sets.setdefault(key, []).extend(text.strip() for text in texts if text.strip())
    if max(map(len, sets.values()), default=0) < 2:
        raise ValueError(
            f"{Path(source).name} has no two documents of one set in column {column!r}: put {_MULTI_NEWS} between the "
            "documents of a row, or name the column of their set with --cluster_column."
        )
    return sets


def _multi_news(path: Path) -> Rows:
    """The lines of Multi-News's own files, where NEWLINE_CHAR stands for the end of a line."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            yield Place(path.name, f"row {number}"), {"document": line.replace("NEWLINE_CHAR", "\n")}


def hold_out_sets(
    sets: Mapping[str, list[str]], share: float, seed: int
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Splits off a share of the sets that have enough documents: the other sets, and those."""
    large = [name for name, texts in sets.items() if len(texts) >= LEAST_DOCUMENTS]
    held = draw(large, share, seed, f"sets with {LEAST_DOCUMENTS} documents or more")
    rest = {name: texts for name, texts in sets.items() if name not in held}
    return rest, {name: texts for name, texts in sets.items() if name in held}


class TokenSequence(NamedTuple):
    """One sequence: ``input_ids [L]``, ``maskable [L]`` bool (false at separators), and the key of its masks."""

    input_ids: np.ndarray
    maskable: np.ndarray
    mask_key: tuple[int, ...]


class ClusterDataset(EpochDataset):
    """A sequence of documents of each set, drawn anew in every epoch until the sequence is full.

    A document that is longer than its share of a sequence gives a stretch of that length, also drawn anew; the last
    document of a sequence is cut where the sequence is full.

    Args:
        sets: texts of each; those of fewer than three are left out (section 2.3).
        max_length: tokens in a sequence; by default the processor's.
        related: False draws each document of a sequence from another set (the paper's "Rand CDLM").
        document_share: of a sequence, the most that one document fills; a third, so that three documents fit.
    """

    def __init__(
        self, sets: Sequence[Sequence[str]], processor: CdlmProcessor, max_length: int | None = None,
        related: bool = True, seed: int = 42, document_share: float = 1 / LEAST_DOCUMENTS,
    ) -> None:  # fmt: skip
        self.max_length, self.related, self.seed = max_length or processor.max_length, related, seed
        tokenizer = processor.tokenizer
        kept = [texts for texts in sets if len(texts) >= LEAST_DOCUMENTS]
        needed = 1 if related else LEAST_DOCUMENTS
        if len(kept) < needed:
            raise ValueError(f"{len(kept)} sets have {LEAST_DOCUMENTS} documents; at least {needed} are needed.")
        self._longest = int((self.max_length - 2) * document_share + 1e-6) - 2  # 1e-6: a third of 30 is 10
        if self.max_length < 2 + 4 * LEAST_DOCUMENTS or self._longest < 1 or document_share > 1:
            raise ValueError(
                f"A sequence of {self.max_length} tokens has no room for {LEAST_DOCUMENTS} documents of which each "
                f"fills at most {document_share:.2f}; give a larger max_length, or another share."
            )
        self._special = tokenizer.convert_tokens_to_ids([tokenizer.cls_token, *DOCUMENT, tokenizer.sep_token])
        self._sets = [[np.array(processor.tokenize(text).ids, dtype=np.int32) for text in texts] for texts in kept]
        lengths = np.array([len(ids) for documents in self._sets for ids in documents])
        logger.info(
            "%d sets with %d tokens (%d smaller ones left out); of %d documents a sequence takes %d tokens.",
            len(kept), lengths.sum(), len(sets) - len(kept), (lengths > self._longest).sum(), self._longest,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._sets)

    def _row(self, index: int, key: tuple[int, ...]) -> TokenSequence:
        rng = np.random.default_rng([*key, 2])
        cls, begin, end, sep = self._special
        ids, room = [cls], self.max_length - 2
        for document in self._documents(index, rng):
            if room < 3:  # not even for one token between separators
                break
            start = int(rng.integers(0, max(len(document) - self._longest, 0) + 1))
            taken = document[start : start + min(self._longest, room - 2)]
            ids += [begin, *taken, end]
            room -= len(taken) + 2
        sequence = np.array([*ids, sep])
        return TokenSequence(sequence, ~np.isin(sequence, self._special), key)

    def _documents(self, number: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Documents in the order in which they fill a sequence."""
        if self.related:
            for document in rng.permutation(len(self._sets[number])):
                yield self._sets[number][document]
        else:  # at most as many, each of another set
            for other in rng.permutation(len(self._sets))[: len(self._sets[number])]:
                yield self._sets[other][int(rng.integers(len(self._sets[other])))]


class DataCollatorForCrossDocumentMasking:
    """Masks 15 % of the words, 80/10/10, and gives them global attention (CDLM, section 2.2).

    Separators and special tokens are never masked. The masks depend on each sequence's own key alone. By `pattern`,
    those to predict have global attention (``"masked"``), as many first ones (``"prefix"``), or none (``"none"``).

    Returns (on call):
        `input_ids`, `attention_mask`, `global_attention_mask` and `labels` (-100 elsewhere), ``[B, L]`` each.
    """

    def __init__(self, processor: CdlmProcessor, pattern: str = "masked", mlm_probability: float = 0.15) -> None:
        if pattern not in ("masked", "prefix", "none"):
            raise ValueError(f"pattern must be masked, prefix or none, got {pattern!r}.")
        self.processor, self.pattern, self.mlm_probability = processor, pattern, mlm_probability
        tokenizer = processor.tokenizer
        self._words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)

    def __call__(self, sequences: Sequence[TokenSequence]) -> dict[str, torch.Tensor]:
        rows = []
        for sequence in sequences:
            ids, key = np.array(sequence.input_ids), sequence.mask_key
            selected, masked, replaced = draw_vector_mask(sequence.maskable, key, self.mlm_probability)
            labels = np.where(selected, ids, -100)
            ids[masked] = self.processor.tokenizer.mask_token_id
            ids[replaced] = np.random.default_rng([*key, 1]).choice(self._words, int(replaced.sum()))
            first = round(self.mlm_probability * len(ids)) if self.pattern == "prefix" else 0
            wide = selected if self.pattern == "masked" else np.arange(len(ids)) < first
            row = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}
            rows.append({**row, "global_attention_mask": wide})
        return dict(self.processor.pad(rows))


# --- Options


@dataclass(kw_only=True)
class CdlmModelArguments:
    """Which model."""

    _argument_group_name = "model"

    model: str = field(
        metadata={"help": "A CDLM, a Longformer, or a BERT or RoBERTa to turn into one: folder or name on the Hub."}
    )
    model_type: Literal["cdlm"] = option("cdlm", "Other model types have their own options.")
    max_length: int | None = option(None, "Tokens in a sequence; usually 4096, or as many as a saved model reads.")
    attention_window: int | None = option(None, "Tokens that each token attends to; usually 512, or a saved model's.")

    def load(self, model_class: Any) -> tuple[Any, CdlmProcessor]:
        """The model in float32, opened as `model_class` or made from an encoder, and its processor."""
        window = {} if self.attention_window is None else {"attention_window": self.attention_window}
        if AutoConfig.from_pretrained(self.model).model_type in ("cdlm", "longformer"):
            model = model_class.from_pretrained(self.model, dtype=torch.float32, **window)
        else:
            model = model_class.from_encoder(self.model, max_length=self.max_length or 4096, **window)
        return model, CdlmProcessor.from_model(model, self.max_length)


@dataclass
class CdlmMaskingArguments:
    """How sequences are drawn and masked."""

    _argument_group_name = "masked words"

    document_share: float = option(1 / 3, "Most of a sequence that one document fills.")
    global_attention: Literal["masked", "prefix", "none"] = option(
        "masked", "Tokens with global attention: those to predict (the paper's), as many first ones (prefix), or none."
    )
    random_clusters: bool = option(False, "Train on sets of unrelated documents (the paper's Rand CDLM).")
    mlm_probability: float = option(0.15, "Share of the words to predict.")


@dataclass
class CdlmDataArguments:
    """Which documents."""

    _argument_group_name = "documents"

    train_file: str | None = option(
        None,
        "A .jsonl, .json or .parquet (also .gz), a quoted pattern, or Multi-News's .src: a document or a set a row.",
    )
    validation_file: str | None = option(None, "The same, to evaluate on; usually some of the sets are held out.")
    test_file: str | None = option(None, "The same, to report the perplexity on at the end.")
    dataset_name: str | None = option(None, "A dataset on the Hub, instead of files.")
    dataset_config_name: str | None = option(None, "Configuration of that dataset.")
    train_split: str = option("train", "Split to train on.")
    validation_split: str | None = option(None, "Split to evaluate on.")
    test_split: str | None = option(None, "Split to report on.")
    cluster_column: str | None = option(None, "Column that names a document's set; leave it out if a row is a set.")
    text_column: str | None = option(None, "Column of a document's text (usually text), or of a set's (document).")
    validation_share: float = option(0.05, "Share of the sets that is held out without a validation set.")

    def read(self, args: PretrainingArguments) -> dict[str, dict[str, list[str]]]:
        """Sets by ``train``, ``validation``, ``test``; some of the first are held out where the second is missing."""
        sets = {}
        for name in ("train", "validation", "test"):
            source, split = getattr(self, f"{name}_file"), getattr(self, f"{name}_split")
            if source := source or (split and self.dataset_name):
                columns = self.cluster_column, self.text_column
                sets[name] = read_document_sets(source, *columns, split or "train", self.dataset_config_name)
        if not sets or (args.do_train and "train" not in sets):
            raise ValueError("Give documents: --train_file or --dataset_name with --do_train, or --test_file without.")
        if "train" in sets and "validation" not in sets:
            sets["train"], sets["validation"] = hold_out_sets(sets["train"], self.validation_share, args.seed)
        return sets


def main(words: list[str]) -> None:
    """Pretrains a CDLM, or tells the perplexity of one; a run that was killed goes on where it stopped."""
    classes = (CdlmModelArguments, CdlmDataArguments, CdlmMaskingArguments, PretrainingArguments)
    options, data_args, masking, args = parse(classes, words, about=__doc__, recipes="")
    set_seed(args.seed)
    sets = data_args.read(args)
    args.prediction_loss_only = True  # scores of all words would fill the memory

    # 1. The model, and sequences of documents.
    model, processor = options.load(CdlmForMaskedLM)
    model.config.sparse_prediction = True  # only masked words are scored
    if masking.global_attention == "none":  # no gradient would reach these, and several processes would wait for one
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("_global." not in name)
    rows = {}
    for name, texts in sets.items():
        # Whatever a model has learned from, it is evaluated on related documents (paper, section 3.1).
        related = name != "train" or not masking.random_clusters
        rows[name] = ClusterDataset([*texts.values()], processor, None, related, args.seed, masking.document_share)
    collator = DataCollatorForCrossDocumentMasking(processor, masking.global_attention, masking.mlm_probability)
    trainer = CardTrainer(model, args, collator, rows.get("train"), rows.get("validation", rows.get("test")))

    # 2. Training, and the perplexity on held-out sets.
    output = Path(str(args.output_dir))
    hub = None if Path(options.model).exists() else options.model
    settings = {"model": safe_name(hub or Path(options.model).resolve().name), **args.signature(), **vars(masking)}
    settings |= {"attention_window": model.config.attention_window, "tokens in a sequence": processor.max_length}
    prints = {f"{name} documents": fingerprint(texts.items()) for name, texts in sets.items()}
    weights = weights_fingerprint(model.base_model)
    claim(output, {**settings, **prints, "weights": weights, "do_train": args.do_train})
    if args.do_train:
        if read_json(output / "results.json") is not None:
            args.upload(output)
            logger.info("%s is finished already: nothing to do. Give another --output_dir for another run.", output)
            return
        checkpoint = last_whole_checkpoint(output)
        args.eval_on_start = args.eval_on_start and checkpoint is None  # else the log would have one more
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
        model.copy_local_to_global()  # for what is fine-tuned on it, as a Longformer's (paper, "Baseline LMs")
    trainer.save_model(_internal_call=True)  # without an upload
    if args.should_save:
        processor.save_pretrained(output)
        steps = [entry for entry in trainer.state.log_history if "train_loss" not in entry]
        log = [{k: v for k, v in entry.items() if not k.endswith(("_runtime", "_per_second"))} for entry in steps]
        counts = {f"{name} set": f"{len(texts)} sets of documents" for name, texts in sets.items()}
        _write_card(args, hub, log, {**counts, **settings}, scores)
        write_whole(output / "results.json", json.dumps({"rows": scores, "log": log}, indent=2, sort_keys=True))
        args.upload(output)
        logger.info("The model is in %s, with its card (README.md) and results.json.", output)


def _write_card(args: Any, hub: str | None, log: list, facts: dict[str, Any], scores: dict) -> None:
    """The card and the learning curve."""
    name, losses = args.repository(), [entry["eval_loss"] for entry in log if "eval_loss" in entry]
    plot_curves([log], None, Path(args.output_dir) / CURVE, x="step")
    if losses:
        scores = {"first evaluation": {"loss": losses[0], "perplexity": math.exp(losses[0])}, **scores}
    model_card(
        name=name, summary=SUMMARY, snippet=_SNIPPET.replace("{name}", name),
        pipeline_tag="fill-mask", tags=("cdlm", "longformer", "multi-document", "fill-mask"),
        base_model=hub, training={name: value for name, value in facts.items() if value is not None},
        pictures={CURVE: "Loss over training"},
        measured="Masked words of sets of related documents that were held out, with the attention pattern of the "
        f"training; perplexity is the exponential of the loss.\n\n{results_table(scores)}",
        scores={"perplexity": scores["validation"]["perplexity"]}, dataset="held-out sets", limits=LIMITS,
    ).save(f"{args.output_dir}/README.md")  # fmt: skip
