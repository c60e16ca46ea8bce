"""`run_finetune.py --task summarization`: from the sets to the model of the best seed, its table and its card."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from ...data.rows import fingerprint, hold_out
from ...finetuning.legacy import FinetuningArguments, ModelArguments, TaskArguments
from ...finetuning.seeds import repo_name, row_of_seeds, run_seeds, upload, write_rows
from ...finetuning.text_models import is_saved_model
from ...finetuning.trainer import copy_adapter, with_lora
from ...models.backbones import load_tokenizer
from ...models.chunk_encoder import weights_fingerprint
from ...models.modeling_bert_al import BertAlForExtractiveSummarization
from ...training.plots import CURVE, plot_curves
from .baselines import with_extended_positions
from .card import write_summarization_card
from .data import (
    SummarizationData,
    SummarizationDataset,
    SummaryColumns,
    read_summarization,
)
from .train import train_summarizer, trivial_summaries, write_summaries

logger = logging.getLogger(__name__)

_SEGMENT_LENGTH = 128  # where --segment_length is left out


def read_sets(task: TaskArguments, tokenizer: Any, seed: int, output: Path) -> dict[str, SummarizationData]:
    """Training, validation and perhaps a test set; what the oracle finds is kept beside `output`."""
    given = task.label_column != TaskArguments.label_column
    columns = SummaryColumns(
        task.text_column, task.summary_column, task.label_column if given else None, task.id_column
    )

    def read(file: str | None, split: str | None) -> SummarizationData | None:
        source = task.dataset_name if task.dataset_name and split else file
        if source is None:
            return None
        cache = task.cache_dir or f"{output}-oracle"
        return read_summarization(source, tokenizer, columns, split or "train", task.dataset_config_name, cache)

    train = read(task.train_file, task.train_split)
    assert train is not None  # one of file and dataset is given
    validation, test = read(task.validation_file, task.validation_split), read(task.test_file, task.test_split)
    if validation is None:
        train, validation = hold_out(train, "documents", task.validation_share, seed)
    sets = {"train": train, "validation": validation} | ({} if test is None else {"test": test})
    learned = {document.text for document in train.documents}
    for name in list(sets)[1:]:
        if shared := len(learned & {document.text for document in sets[name].documents}):
            logger.warning("%d documents of the %s set are in the training set, too.", shared, name)
    return sets


def _new(arguments: ModelArguments, saved: bool, positions: int) -> Any:
    """The model at the start of a run; it cuts nothing, because the data is cut before."""
    length = _SEGMENT_LENGTH if arguments.segment_length is None else arguments.segment_length
    model: Any
    if arguments.model_type == "extended":
        model = with_extended_positions(arguments.model, length, positions)
    elif saved:
        fields = {} if arguments.segment_length is None else {"segment_length": length}
        model = BertAlForExtractiveSummarization.from_pretrained(arguments.model, dtype=torch.float32, **fields)
        model.config.check()
    else:
        recurrence = "none" if arguments.model_type == "truncated" else arguments.recurrence or "residual"
        model = BertAlForExtractiveSummarization.from_encoder(
            arguments.model, segment_length=length, recurrence=recurrence
        )
    model.config.max_training_tokens = None
    if arguments.attn_implementation:
        model.set_attn_implementation(arguments.attn_implementation)
    if arguments.lora:
        return with_lora(model, arguments.lora_r, arguments.lora_alpha, arguments.lora_target_modules)
    return model


def finetune_summarization(arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    """Reads, trains a model a seed, and publishes the best by validation loss.

    Raises:
        ValueError: for sets that cannot be read, or a folder begun with other settings.
    """
    output = Path(args.output_dir)
    args.learning_rate = args.learning_rate or (1e-3 if arguments.lora else 2e-5)
    saved, tokenizer = is_saved_model(arguments), load_tokenizer(arguments.model)
    with args.main_process_first(local=False, desc="reading"):
        sets = read_sets(task, tokenizer, args.seed, output)
    reported = "test" if "test" in sets else "validation"
    for name, data in sets.items():
        labels = "given" if data.labelled else "by the greedy oracle"
        sentences = sum(len(document.spans) for document in data.documents)
        logger.info("%s: %d documents, %d sentences, labels %s", name, len(data.documents), sentences, labels)

    # 1. Token ids; where a model cannot read on, documents are cut, which is told.
    learnt = _SEGMENT_LENGTH if arguments.segment_length is None else arguments.segment_length
    cut = arguments.max_training_tokens
    if saved and cut is None:
        cut = AutoConfig.from_pretrained(arguments.model).max_training_tokens
    limits = {name: cut if name == "train" else None for name in sets}
    if arguments.model_type == "truncated":
        limits = dict.fromkeys(sets, learnt)
    datasets = {name: SummarizationDataset(data, tokenizer, limits[name]) for name, data in sets.items()}
    for name, dataset in datasets.items():
        if lost := sum(dataset.lost):
            logger.warning(
                "%s: %d of %d documents lose %s tokens past the cut.",
                name, sum(map(bool, dataset.lost)), len(dataset), f"{lost:,}",
            )  # fmt: skip
    positions = max(len(row["input_ids"]) for dataset in datasets.values() for row in dataset.rows)
    reader = _new(replace(arguments, lora=False), saved, positions)  # adapters are drawn at random
    config = reader.config
    settings = {
        "task": task.task,
        **arguments.deciding(),
        "segment_length": config.segment_length,
        "recurrence": config.recurrence,
        "weights": weights_fingerprint(reader if saved else reader.base_model.encoder),
        **{f"{name}_sha256": fingerprint(data.content()) for name, data in sets.items()},
        **args.deciding(),
        "early_stopping_patience": task.early_stopping_patience,
        "summary_sentences": task.summary_sentences,
        "trigram_blocking": task.trigram_blocking,
    }
    if arguments.model_type == "extended":  # its new positions are drawn at random
        begun = BertAlForExtractiveSummarization.from_encoder(
            arguments.model, recurrence="none", segment_length=learnt
        )
        settings |= {"weights": weights_fingerprint(begun.model.encoder), "learnt_positions": learnt}
    chosen: Any = {"sentences": task.summary_sentences, "trigram_blocking": task.trigram_blocking}
    predictions = f"{reported}_predictions.jsonl"

    # 2. One run a seed.
    def train(seed: int, folder: Path) -> dict[str, Any]:
        new_model, patience = partial(_new, arguments, saved, positions), task.early_stopping_patience
        result = train_summarizer(seed, folder, new_model, args, datasets, reported, patience, **chosen)
        if args.should_save:
            write_summaries(folder / predictions, sets[reported], result["logits"], **chosen)
        return {**result, "logits": {}}

    results = run_seeds(task.seeds, args, settings, reported, train)
    if not args.should_save:
        return

    # 3. The table, the picture, and the model of the best seed with everything that opening it needs.
    best = min(results, key=lambda result: result["validation"]["loss"])
    shown = row_of_seeds(f"{arguments.public_name} ({arguments.model_type})", results, reported)
    rows = {
        name: {score: value for score, value in scores.items() if score != "loss"}
        for name, scores in {**shown, **trivial_summaries(sets[reported], task.summary_sentences)}.items()
    }
    checkpoints = {result["seed"]: result["checkpoints"] for result in results}
    table = write_rows(output, settings, reported, best, rows, checkpoints=checkpoints)
    folder = output / f"seed-{best['seed']}"
    (output / predictions).write_text((folder / predictions).read_text())
    if arguments.model_type != "bert-al":
        return  # a baseline is not published
    plot_curves([result["curve"] for result in results], None, output / CURVE)
    if arguments.lora:
        copy_adapter(folder, output, tokenizer, arguments.local)
    else:
        BertAlForExtractiveSummarization.from_pretrained(folder).save_pretrained(output)
    kept = ("learning_rate", "num_train_epochs", "max_steps", "batch_size", "weight_decay", "warmup_steps", "bf16")
    facts: dict[str, Any] = {
        "started from": arguments.public_name,
        "recurrence": config.recurrence,
        "segment length": config.segment_length,
        "parameters": f"{best['parameters']:,}",
        **{key: settings[key] for key in kept},
        "steps": best["steps"],
        "seed": best["seed"],
        "trigram blocking": task.trigram_blocking,
    }
    base = None if arguments.local else arguments.model
    summarize = f"sentences={task.summary_sentences}" + (", trigram_blocking=True" if task.trigram_blocking else "")
    own, name = best["checkpoints"][0], repo_name(args)  # the lowest loss comes first
    write_summarization_card(
        output, name, sets, reported, facts, table, own, len(best["checkpoints"]), summarize, base, arguments.lora
    )
    upload(args, name)
