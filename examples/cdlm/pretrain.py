"""Pretrains a CDLM on sets of related documents, or measures the perplexity of one: Table 1.

"CDLM: Cross-Document Language Modeling" (Caciularu et al., 2021), sections 2 and 3.1.

    python examples/cdlm/pretrain.py --recipe examples/recipes/cdlm.yaml \
        --model allenai/longformer-base-4096 --train_file train.src.cleaned \
        --validation_file val.src.cleaned --do_train --output_dir cdlm
    python examples/cdlm/pretrain.py --model cdlm --test_file test.src.cleaned --output_dir scores

The ablations are `--global_attention none` (Local), `--global_attention prefix` (Prefix) and
`--random_clusters` (Rand). A saved model is evaluated with the pattern that it was trained with.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from common import CdlmArguments, about, open_cdlm, parse_arguments
from transformers import Trainer, TrainingArguments, set_seed

from nextlevelbert import (
    CdlmForMaskedLM,
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
)
from nextlevelbert.command import run_command
from nextlevelbert.data import open_rows
from nextlevelbert.training.epochs import SetEpochCallback

HELD_OUT = 0.05  # share of the sets to evaluate on if there is no validation file
LEAST_DOCUMENTS = 3  # in a set that is trained on (section 2.3)
SEPARATOR = "|||||"  # between the documents of a set in Multi-News


@dataclass(kw_only=True)
class PretrainingArguments(CdlmArguments):
    """Options beside those of `TrainingArguments`."""

    train_file: str | None = about(
        "Sets of documents to train on: .jsonl or .parquet, with a document or a set of documents"
        " in each row; or Multi-News's .src, with a set in each line."
    )
    validation_file: str | None = about(
        "Sets to evaluate on (default: 5 % of the sets of --train_file)."
    )
    test_file: str | None = about("Sets to report on.")
    cluster_column: str | None = about(
        "Column that names the set of a document; leave it out if each row is a set."
    )
    text_column: str | None = about(
        "Column of the text of a document (default: text), or of the texts of a set (default:"
        " document)."
    )
    global_attention: Literal["masked", "prefix", "none"] | None = about(
        "Tokens with global attention: the tokens to predict (masked), the same number of tokens at"
        " the beginning (prefix), or none. Default: as the saved model was trained; masked for a"
        " new model."
    )
    random_clusters: bool = about("Train on sets of unrelated documents.", default=False)
    mlm_probability: float = about("Share of the words to predict.", default=0.15)


def read_sets(path: str, options: PretrainingArguments) -> dict[str, list[str]]:
    """Reads sets of documents by their names; blank documents are left out."""
    if ".src" not in Path(path).suffixes:
        return read_table(path, options.cluster_column, options.text_column)

    # Multi-News as its authors publish it (Fabbri et al., 2019).
    sets = {}
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            texts = line.replace("NEWLINE_CHAR", "\n").split(SEPARATOR)
            sets[str(number)] = [text.strip() for text in texts if text.strip()]
    return sets


def read_table(
    path: str, set_column: str | None = None, text_column: str | None = None
) -> dict[str, list[str]]:
    """Reads rows that are documents, which name their set, or rows that are sets.

    A set is a list of texts, or one text with the separator of Multi-News between documents.
    """
    if text_column is None:
        text_column = "document"
        if set_column is not None:
            text_column = "text"
    sets: dict[str, list[str]] = {}
    for index, (location, row) in enumerate(open_rows(path).rows):
        name = index
        if set_column is not None:
            name = location.column(row, set_column, "--cluster_column")
            if name is None:
                raise location.error(set_column, "must name the set of the document.")
        texts = location.column(row, text_column, "--text_column")
        if isinstance(texts, str):
            texts = texts.split(SEPARATOR)
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise location.error(text_column, f"must be text, or a list of texts, got {texts!r}.")
        documents = sets.setdefault(str(name).strip(), [])
        documents += [text.strip() for text in texts if text.strip()]
    if not any(len(documents) > 1 for documents in sets.values()):
        raise ValueError(
            f"{path} has no two documents of one set in column {text_column!r}: put {SEPARATOR}"
            " between the documents of a row, or name the column of their set with"
            " --cluster_column."
        )
    return sets


def hold_out_sets(
    sets: dict[str, list[str]], share: float, seed: int
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Holds out a share of the sets that have enough documents."""
    large = [name for name, texts in sets.items() if len(texts) >= LEAST_DOCUMENTS]
    if len(large) < 2:
        raise ValueError("Too few sets to hold any out: give --validation_file.")
    count = min(max(round(share * len(large)), 1), len(large) - 1)
    order = np.random.default_rng(seed).permutation(len(large))
    held_out = {large[index] for index in order[:count]}
    training = {name: texts for name, texts in sets.items() if name not in held_out}
    return training, {name: texts for name, texts in sets.items() if name in held_out}


def read_all_sets(
    options: PretrainingArguments, args: TrainingArguments
) -> dict[str, dict[str, list[str]]]:
    """Reads the sets of documents to train on, to validate on and to report on."""
    sets = {}
    for name in ("train", "validation", "test"):
        path = getattr(options, f"{name}_file")
        if path is not None:
            sets[name] = read_sets(path, options)
    if not sets or args.do_train != ("train" in sets):
        raise ValueError("Give --train_file with --do_train, or --test_file without.")
    if args.do_train and "validation" not in sets:
        sets["train"], sets["validation"] = hold_out_sets(
            sets["train"], share=HELD_OUT, seed=args.seed
        )
    return sets


def set_pattern(
    model: CdlmForMaskedLM, global_attention: Literal["masked", "prefix", "none"] | None
) -> None:
    """Sets the pattern of global attention; weights that get no gradient with it are frozen."""
    if global_attention is not None:
        model.config.global_attention = global_attention
    if model.config.global_attention == "none":
        # Several processes would wait for the gradients of these weights.
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("_global." not in name)


def save(trainer: Trainer) -> None:
    """Saves the model, which then scores all positions, and uploads it if asked for."""
    model = trainer.model
    model.config.sparse_prediction = False
    if model.config.global_attention == "none":
        model.requires_grad_(requires_grad=True)
        # For fine-tuning, as Longformer does (section 3, "Baseline LMs").
        model.copy_local_to_global()
    trainer.save_model()
    if trainer.args.push_to_hub:
        trainer.push_to_hub()


def main(argv: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Pretrains or evaluates; returns loss and perplexity by the name of a set."""
    options, args = parse_arguments(PretrainingArguments, argv)
    set_seed(args.seed)

    # 1. Sets of related documents.
    sets = read_all_sets(options, args)

    # 2. The model. Only masked words are scored, which saves memory.
    model, processor = open_cdlm(CdlmForMaskedLM, options)
    model.config.sparse_prediction = True
    set_pattern(model, options.global_attention)

    # 3. Sequences of documents, and their masks.
    rows = {}
    for name, documents in sets.items():
        rows[name] = ClusterDataset(
            list(documents.values()),
            processor=processor,
            # The model is evaluated on related documents (section 3.1).
            related=name != "train" or not options.random_clusters,
            seed=args.seed,
        )
    collator = DataCollatorForCrossDocumentMasking(
        processor,
        pattern=model.config.global_attention,
        mlm_probability=options.mlm_probability,
    )

    # 4. Training.
    args.prediction_loss_only = True  # scores of all words would fill the memory
    trainer = Trainer(
        model=model,
        args=args,
        data_collator=collator,
        train_dataset=rows.get("train"),
        eval_dataset=rows.get("validation"),
        processing_class=processor,
        callbacks=[SetEpochCallback()],
    )
    if args.do_train:
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)

    # 5. Perplexity: the exponential of the loss, with the model's own pattern of global attention.
    scores = {}
    for name in ("validation", "test"):
        if name in rows:
            loss = trainer.evaluate(rows[name], metric_key_prefix=name)[f"{name}_loss"]
            scores[name] = {"loss": loss, "perplexity": math.exp(loss)}
            trainer.log_metrics(name, scores[name])
            trainer.save_metrics(name, scores[name])

    # 6. The checkpoint.
    if args.do_train:
        save(trainer)
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(main))
