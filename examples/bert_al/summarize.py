"""Trains BERT-AL, or a baseline, to select the sentences of a summary: Table 4 of the paper.

"BERT-AL: BERT for Arbitrarily Long Document Understanding" (Zhang et al., 2019). The reported
scores are means of the three evaluations with the lowest loss, as in the paper.

    pip install nextlevelbert rouge-score
    python examples/bert_al/summarize.py --recipe examples/recipes/bert_al.yaml \\
        --model google-bert/bert-base-uncased --segment_length 256 --output_dir bert-al \\
        --dataset_name abisee/cnn_dailymail --dataset_config_name 3.0.0 \\
        --text_column article --summary_column highlights

`--model_type truncated` is the paper's Baseline-1, and `--model_type extended` its Baseline-2.
"""

import json
import logging
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml
from baselines import choose_without_model
from datasets import Dataset, DatasetDict
from rouge import greedy_oracle, rouge_scores
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    HfArgumentParser,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from nextlevelbert import BertAlForExtractiveSummarization, model_path, text_sentences
from nextlevelbert.command import run_command
from nextlevelbert.data import hub_dataset, open_rows
from nextlevelbert.models import encode_sentences, select_sentences

logger = logging.getLogger(__name__)
EVALUATIONS = 3  # with the lowest losses; their mean is reported


def option(help: str, default: Any = None) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class SummaryArguments:
    """Options beside those of `TrainingArguments`."""

    model: str = field(metadata={"help": "Encoder to start from: folder, Hub name or minilm."})
    recipe: str | None = option("YAML file of options; options of the command line override it.")
    model_type: Literal["bert-al", "truncated", "extended"] = option(
        "bert-al, or a baseline: truncated reads the first --segment_length tokens of a document;"
        " extended reads all at once, with random positions after the first --segment_length.",
        default="bert-al",
    )
    recurrence: Literal["replace", "residual"] = option(
        "The recurrence replaces a layer's output (the paper's), or is added.", default="residual"
    )
    segment_length: int = option("Tokens per segment.", default=128)
    max_training_tokens: int | None = option(
        "Tokens that BERT-AL reads in training (default: all)."
    )
    keep_attention_dropout: bool = option(
        "Train with the encoder's attention dropout, which doubles the time of a step on a CPU.",
        default=True,
    )
    train_file: str | None = option("Training set: JSON lines, one document a line.")
    validation_file: str | None = option("Validation set (default: a share of the training set).")
    test_file: str | None = option("Set to report on (default: the validation set).")
    validation_share: float = option("Share of the training set to hold out.", default=0.15)
    dataset_name: str | None = option("Data set on the Hub, in place of the files.")
    dataset_config_name: str | None = option("Configuration of the data set on the Hub.")
    text_column: str = option("Column of documents: texts, or lists of sentences.", default="text")
    summary_column: str = option("Column of reference summaries, likewise.", default="summary")
    label_column: str | None = option(
        "Column with 0 or 1 for each sentence (default: a greedy oracle labels them by ROUGE)."
    )
    summary_sentences: int = option("Sentences per summary.", default=3)
    trigram_blocking: bool = option(
        "Skip sentences that share three words in a row with a better sentence.", default=False
    )

    def __post_init__(self) -> None:
        if (self.train_file is None) == (self.dataset_name is None):
            raise ValueError("Give the training set, with either --train_file or --dataset_name.")
        if self.summary_sentences < 1:
            raise ValueError(f"--summary_sentences must be 1 or more: {self.summary_sentences}.")


def parse_arguments(argv: Sequence[str]) -> tuple[SummaryArguments, TrainingArguments]:
    """Reads the options of the command line, and those of `--recipe`."""
    parser = HfArgumentParser((SummaryArguments, TrainingArguments))
    parser.set_defaults(output_dir="bert-al", learning_rate=2e-5)
    parser.set_defaults(eval_strategy="epoch", save_strategy="epoch", logging_strategy="epoch")
    options, args = parser.parse_args_into_dataclasses(argv)
    if options.recipe is not None:
        recipe = yaml.safe_load(Path(options.recipe).read_text(encoding="utf-8"))
        words = [f"--{name}={value}" for name, value in recipe.items()]
        options, args = parser.parse_args_into_dataclasses([*words, *argv])

    if args.eval_strategy != args.save_strategy or args.eval_steps not in (None, args.save_steps):
        raise ValueError(
            "Every evaluation needs a checkpoint. Give --eval_strategy and --save_strategy the same"
            " value, and --eval_steps and --save_steps."
        )
    if any(Path(args.output_dir).glob("checkpoint-*")) and not args.resume_from_checkpoint:
        raise ValueError(
            f"{args.output_dir} has checkpoints of another training. Give another --output_dir, or"
            " one of the checkpoints to --resume_from_checkpoint."
        )
    if args.push_to_hub and options.model_type != "bert-al":
        raise ValueError(
            f"--model_type {options.model_type} is a baseline, which is not published."
        )
    return options, args


# --- Documents with summaries


def read_sets(options: SummaryArguments, seed: int) -> DatasetDict:
    """Reads the sets; without a validation set, a share of the training set is held out."""
    if options.dataset_name is not None:
        columns = [options.text_column, options.summary_column, options.label_column]
        sets = hub_dataset(options.dataset_name, options.dataset_config_name)
        sets = sets.select_columns(list(filter(None, columns)))  # no pictures, which are fetched
    else:
        sets = DatasetDict()
        for name in ("train", "validation", "test"):
            if getattr(options, f"{name}_file") is not None:
                table = open_rows(getattr(options, f"{name}_file"))
                sets[name] = Dataset.from_list([row for _, row in table.rows])

    if "validation" not in sets:
        halves = sets["train"].train_test_split(options.validation_share, seed=seed)
        sets["train"] = halves["train"]
        sets["validation"] = halves["test"]
    return sets


def sentences_of(row: dict[str, Any], column: str, by_line: bool = False) -> list[str]:
    """Returns the sentences of a column; with `by_line`, several lines are the sentences."""
    value = row.get(column)
    sentences = value  # a list stays as it is
    if isinstance(value, str):
        sentences = [value[start:end] for start, end in text_sentences(value)]
        lines = [line for line in value.splitlines() if line.strip()]
        if by_line and len(lines) > 1:
            sentences = lines
    if not sentences or not all(sentence and sentence.strip() for sentence in sentences):
        raise ValueError(
            f"column {column!r} must be a text with words, or a list of sentences with words; it is"
            f" {value!r} (columns: {', '.join(row)})."
        )
    return sentences


def label_sentences(row: dict[str, Any], index: int, options: SummaryArguments) -> dict[str, Any]:
    """Splits a document and its reference into sentences, and labels those of the document."""
    try:
        sentences = sentences_of(row, options.text_column)
        reference = sentences_of(row, options.summary_column, by_line=True)
        if options.label_column is None:
            in_summary = greedy_oracle(sentences, reference)
            labels = np.isin(np.arange(len(sentences)), in_summary).astype(int).tolist()
        else:
            labels = row[options.label_column]
            if len(labels) != len(sentences) or not set(labels) <= {0, 1}:
                raise ValueError(
                    f"column {options.label_column!r} must be a list of {len(sentences)} labels, 0"
                    f" or 1, one for each sentence; it is {labels}."
                )
    except ValueError as error:
        raise ValueError(f"Row {index} (from 0): {error}") from error
    return {"sentences": sentences, "reference": reference, "labels": labels}


def read_documents(options: SummaryArguments, seed: int) -> DatasetDict:
    """Reads the sets as sentences, references and labels."""
    sets = read_sets(options, seed).map(
        label_sentences, with_indices=True, fn_kwargs={"options": options}
    )
    for name, documents in sets.items():
        unrelated = sum(not any(labels) for labels in documents["labels"])
        message = f"{name}: {unrelated} of {len(documents)} share no word with their summary."
        if unrelated == len(documents):
            raise ValueError(f"{message} Give sentence labels with --label_column.")
        if unrelated:
            logger.warning(message)
    return sets


def tokenize(row: dict, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> dict[str, Any]:
    """Encodes a document in BERTSUM's format, with labels of the sentences within the limit."""
    ids, types = encode_sentences(row["sentences"], tokenizer)
    read = int((ids[:limit] == tokenizer.cls_token_id).sum())
    return {
        "input_ids": ids[:limit],
        "token_type_ids": types[:limit],
        "labels": row["labels"][:read],
        "left_out": len(ids) - len(ids[:limit]),
    }


def tokenize_documents(
    documents: DatasetDict, tokenizer: PreTrainedTokenizerBase, options: SummaryArguments
) -> DatasetDict:
    """Encodes the sets; Baseline-1 reads the first segment, and loses the other tokens."""
    limit = None
    if options.model_type == "truncated":
        limit = options.segment_length
    rows = documents.map(tokenize, fn_kwargs={"tokenizer": tokenizer, "limit": limit})
    for name, dataset in rows.items():
        left_out = sum(dataset["left_out"])
        if left_out:
            logger.warning("%s: %d tokens are left out.", name, left_out)
    return rows


# --- Models


def save_extended_encoder(name: str, learnt: int, total: int, folder: str) -> None:
    """Saves an encoder with `total` positions: the first `learnt` are kept, others are random."""
    encoder = AutoModel.from_pretrained(name, dtype=torch.float32)
    modules = dict(encoder.named_modules())
    paths = [path for path in modules if path.endswith("position_embeddings")]
    if len(paths) != 1:
        kind = encoder.config.model_type
        raise ValueError(f"--model {name} is a {kind}, which has no table of positions.")
    table = modules[paths[0]]
    unused = 0
    if table.padding_idx is not None:
        unused = table.padding_idx + 1  # RoBERTa's positions begin after its padding id

    extended = AutoModel.from_pretrained(
        name,
        dtype=torch.float32,
        max_position_embeddings=unused + total,
        ignore_mismatched_sizes=True,  # the table, which starts at random
    )
    with torch.no_grad():
        kept = table.weight[: unused + learnt]
        extended.get_submodule(paths[0]).weight[: len(kept)] = kept
    extended.save_pretrained(folder)
    AutoTokenizer.from_pretrained(name).save_pretrained(folder)


def make_model(options: SummaryArguments, longest: int, folder: str) -> Any:
    """Makes a BERT-AL, or a baseline: a BERT-AL of one segment, without recurrence."""
    name = options.model
    fields: dict[str, Any] = {"segment_length": options.segment_length, "recurrence": "none"}
    if options.model_type == "bert-al":
        fields["recurrence"] = options.recurrence
        fields["max_training_tokens"] = options.max_training_tokens
    elif options.model_type == "extended":
        fields["segment_length"] = max(longest, options.segment_length)
        save_extended_encoder(name, options.segment_length, fields["segment_length"], folder)
        name = folder
    if options.keep_attention_dropout:
        fields["encoder_config"] = AutoConfig.from_pretrained(name)
    return BertAlForExtractiveSummarization.from_encoder(name, **fields)


def lowest_losses(state: TrainerState) -> dict[int, float]:
    """Returns the lowest losses of the evaluations by step, in ascending order."""
    losses = []
    for entry in state.log_history:
        loss = entry.get("eval_loss", math.nan)
        if math.isfinite(loss):
            losses.append((loss, entry["step"]))
    return {step: loss for loss, step in sorted(losses)[:EVALUATIONS]}


class KeepLowestLosses(TrainerCallback):
    """Deletes all checkpoints but the last one and those with the lowest losses."""

    def on_save(self, args, state, control, **kwargs):
        kept = {state.global_step, *lowest_losses(state)}
        for folder in Path(args.output_dir).glob("checkpoint-*"):
            step = int(folder.name.removeprefix("checkpoint-"))
            if state.is_world_process_zero and step not in kept:
                shutil.rmtree(folder)


# --- Scores


def score_summaries(documents: Dataset, chosen: Iterable[list[int]]) -> dict[str, float]:
    """Returns ROUGE, and the precision: the share of the chosen sentences with label 1."""
    summaries = []
    labels = []
    for document, indices in zip(documents, chosen, strict=True):
        summaries.append([document["sentences"][index] for index in indices])
        labels += [document["labels"][index] for index in indices]
    scores = rouge_scores(summaries, documents["reference"])
    return scores | {"precision": float(np.mean(labels))}


def choose_sentences(logits: np.ndarray, rows: Dataset, options: SummaryArguments) -> list:
    """Returns the indices of the best sentences of each document, given logits ``[N, S]``."""
    chosen = []
    for scores, row in zip(logits, rows, strict=True):
        blocked = None
        if options.trigram_blocking:
            blocked = row["sentences"]
        scores_read = scores[: len(row["labels"])]  # the others are padding
        chosen.append(select_sentences(scores_read, options.summary_sentences, blocked))
    return chosen


def write_predictions(
    path: Path, documents: Dataset, choices: Mapping[str, Sequence[list[int]]]
) -> None:
    """Writes the right sentences of each document, and those of each row, by their indices."""
    with path.open("w", encoding="utf-8") as file:
        for index, document in enumerate(documents):
            chosen = {row: of_documents[index] for row, of_documents in choices.items()}
            right = np.flatnonzero(document["labels"]).tolist()
            file.write(json.dumps({"right": right, "chosen": chosen}) + "\n")


def main(argv: Sequence[str]) -> dict[str, dict[str, float]]:
    """Trains a model, and returns the rows of the table."""
    # 1. The options.
    options, args = parse_arguments(argv)
    options.model = model_path(options.model)
    set_seed(args.seed)
    folder = Path(args.output_dir)

    # 2. Documents as sentences, with a label for each sentence.
    documents = read_documents(options, args.seed)

    # 3. What the model reads: tokens.
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.padding_side = "right"  # where the collator pads labels, too
    rows = tokenize_documents(documents, tokenizer, options)

    # 4. The training, with a checkpoint for each evaluation.
    collator = DataCollatorForTokenClassification(tokenizer)
    longest = max(len(ids) for dataset in rows.values() for ids in dataset["input_ids"])
    trainer = Trainer(
        model=make_model(options, longest, folder=str(folder / "encoder")),
        args=args,
        data_collator=collator,
        train_dataset=rows["train"],
        eval_dataset=rows["validation"],
        callbacks=[KeepLowestLosses()],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)

    # 5. The scores of the evaluations with the lowest losses, the lowest last, and their means.
    reported = "test" if "test" in rows else "validation"
    evaluations = []
    chosen: list[list[int]] = []
    for step in reversed(lowest_losses(trainer.state)):
        model = BertAlForExtractiveSummarization.from_pretrained(folder / f"checkpoint-{step}")
        trainer = Trainer(model, args, data_collator=collator, eval_dataset=rows["validation"])
        logits = trainer.predict(rows[reported]).predictions
        chosen = choose_sentences(logits, rows[reported], options)
        evaluations.append(score_summaries(documents[reported], chosen))
    if not evaluations:
        raise ValueError("No evaluation has a finite loss; lower --learning_rate.")
    means = {name: float(np.mean([row[name] for row in evaluations])) for name in evaluations[0]}

    # 6. The table, with rows that need no training, and the sentences that each row chose; the
    # model's are those of the lowest loss.
    row = f"{options.model_type}, {reported}"
    table = {row: means}
    choices = choose_without_model(
        documents["train"], documents[reported], options.summary_sentences
    )
    for name, of_documents in choices.items():
        table[name] = score_summaries(documents[reported], of_documents)
    text = json.dumps(table, indent=2)
    print(text)
    (folder / "results.json").write_text(text, encoding="utf-8")
    write_predictions(folder / "predictions.jsonl", documents[reported], {row: chosen, **choices})

    # 7. The model with the lowest loss, for `BertAlForExtractiveSummarization.from_pretrained`.
    trainer.save_model()
    if args.push_to_hub:
        trainer.push_to_hub()
    return table


if __name__ == "__main__":
    raise SystemExit(run_command(main))
