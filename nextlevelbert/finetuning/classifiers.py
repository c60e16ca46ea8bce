"""Sets, trainings, scores and the published model of classification and multiple choice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Dataset
from transformers import EvalPrediction

from ..data.labelled import (
    Columns,
    distinct_texts,
    halve_by_document,
    hold_out_documents,
    source_of,
)
from ..training.cards import CardText, plain, public_name
from ..training.options import option
from ..training.runs import fingerprint
from ..training.trainer import CardTrainer
from . import seeds
from .arguments import DataArguments, FinetuningArguments
from .labels import LabelSet, write_predictions
from .seeds import Result, Scores
from .token_reader import TokenReader
from .vector_reader import VectorReader

logger = logging.getLogger(__name__)

Sets = dict[str, Dataset]
Reader = VectorReader | TokenReader
_CHUNKS = (
    "The frozen chunk encoder reads one chunk at a time: details within a chunk are only as good as"
    " its vector."
)
_SMALL = (
    "Scores on small sets are uncertain; the standard deviation over seeds does not include"
    " sampling of the test set."
)
# What the card of each family calls the model, and its limit.
_FAMILIES = {
    "nextlevelbert": ("[NextLevelBERT](https://arxiv.org/abs/2402.17682)", _CHUNKS),
    "hate": ("HATE (Hierarchical Attention-based Text Encoder)", _CHUNKS),
    "chunkbert": (
        "[ChunkBERT](https://arxiv.org/abs/2310.20558)",
        "Only convolutions see across chunk borders.",
    ),
    "bert-al": (
        "BERT-AL",
        "Information flows forward only: a segment is read without knowledge of later ones.",
    ),
    "truncated": (
        "plain encoder",
        "Only the start of a document is read, as far as the encoder's positions go.",
    ),
}
# Options that do not affect the result, or whose effect is recorded elsewhere.
_UNSIGNED = ("model", "cache_dir", "chunk_batch_size", "chunk_encoder", "label_names_file")


@dataclass(kw_only=True)
class ColumnArguments:
    """Names of the columns; docs/inputs.md shows a row of each task."""

    _argument_group_name = "columns"

    text_column: str = option("text", "Column of the documents.")
    question_column: str | None = option(
        None, "Column of questions about the documents (default: question, if it exists)."
    )
    label_column: str = option("label", "Column of the labels.")
    id_column: str = option("id", "Column of the ids; rows without an id are numbered.")
    halve_validation: bool = option(
        default=False,
        help="Report on one half of the validation documents and validate on the other, as the"
        " paper does on QuALITY.",
    )

    def names(self) -> Columns:
        """Returns the names, as `load_classes` and `load_choices` take them."""
        return Columns(
            text_column=self.text_column,
            question_column=self.question_column,
            label_column=self.label_column,
            id_column=self.id_column,
        )


# --- The sets


def read_sets(
    data: DataArguments,
    columns: ColumnArguments,
    load: Callable[[str, str, Dataset | None], Dataset],
    seed: int,
) -> Sets:
    """Reads the sets, and logs their sizes.

    Args:
        data: where the sets are.
        columns: whether to halve the validation set.
        load: reads a set, given its source and split, and the training set, whose classes it has.
        seed: of the documents to hold out, if there is no validation set.

    Raises:
        ValueError: for a validation set without labels, or one that cannot be halved.
    """
    has_only_validation = data.place("validation") is not None and data.place("test") is None
    if columns.halve_validation and not has_only_validation:
        raise ValueError(
            "--halve_validation makes half of a validation set the test set: give only a validation"
            " set."
        )
    train: Dataset | None = None

    def read(name: str, source: str, split: str) -> Dataset:
        nonlocal train
        part = load(source, split, train)
        if name == "train":
            train = part
        return part

    sets = data.read_sets(read, seed, hold_out_documents)
    if columns.halve_validation:
        sets["validation"], sets["test"] = halve_by_document(sets["validation"])

    learned = set(sets["train"]["text"])
    for name, part in sets.items():
        documents = distinct_texts(part)
        sizes = f"{len(part)} examples, {len(documents)} documents"
        logger.info("%s: %s (%s)", name, sizes, source_of(part))
        if name != "test" and "label" not in part.features:
            raise ValueError(
                f"The {name} set has no labels ({source_of(part)}); give one with labels."
            )
        shared = learned.intersection(documents)
        if name != "train" and shared:
            logger.warning(
                "%d texts of the %s set are in the training set, too.", len(shared), name
            )
    return sets


def result_settings(
    task: str, model: str, options: Sequence[object], labels: LabelSet, dataset: Sets
) -> dict[str, object]:
    """Returns what decides the result, beside the model's weights and the training's arguments.

    Args:
        task: its name.
        model: the option ``--model``.
        options: dataclasses of options.
        labels: of the task.
        dataset: the sets by name.
    """
    settings: dict[str, object] = {}
    for group in options:
        settings |= {name: value for name, value in vars(group).items() if name not in _UNSIGNED}
    settings |= {"task": task, "model": public_name(model)}
    for name, part in dataset.items():
        settings[f"{name} set"] = fingerprint([labels.names, *part])
    return settings


# --- The trainings


def train_seeds(
    args: FinetuningArguments,
    reader: Reader,
    dataset: Sets,
    labels: LabelSet,
    settings: Mapping[str, object],
) -> list[Result]:
    """Trains a model per seed, scores it on all other sets, and writes its predictions.

    Args:
        args: of all trainings; gets the usual learning rate if none is given.
        reader: of the model.
        dataset: the sets by name.
        labels: of the task.
        settings: everything that decides the result, beside the weights and the arguments.
    """
    rows = reader.prepare(dataset)
    if args.learning_rate is None:
        args.learning_rate = reader.learning_rate
    truth = labels.array(dataset["validation"]["label"])

    def metrics(output: EvalPrediction) -> Scores:
        return labels.scores(truth, labels.logits(output.predictions))

    def make_trainer(seed_args: FinetuningArguments) -> CardTrainer:
        return CardTrainer(
            model=reader.new_model(),
            args=seed_args,
            data_collator=reader.collate,
            train_dataset=rows["train"],
            eval_dataset=rows["validation"],
            compute_metrics=metrics,
        )

    def score(trainer: CardTrainer, folder: Path) -> tuple[dict[str, Scores], Scores]:
        trainer.compute_metrics = None
        scores: dict[str, Scores] = {}
        for name in rows:
            if name == "train":
                continue
            output = trainer.predict(rows[name])
            logits = labels.logits(output.predictions)
            if args.should_save:
                save_predictions(folder, name, dataset[name], labels=labels, logits=logits)
            if "label" in dataset[name].features:
                scores |= score_set(
                    name, dataset[name], labels, logits=logits, is_long=reader.is_long(name)
                )
                scores[name]["loss"] = output.metrics["test_loss"]
        return scores, {}

    return seeds.run_seeds(
        args,
        {**settings, "weights": reader.weights, **args.result_settings()},
        make_trainer,
        score=score,
        validated=list(labels.majority_scores(dataset["train"], dataset["validation"])),
    )


def save_predictions(
    folder: Path, name: str, part: Dataset, *, labels: LabelSet, logits: np.ndarray
) -> None:
    """Writes the predictions of a set to the folder of a seed.

    Args:
        folder: of the seed.
        name: of the set.
        part: the set.
        labels: what the logits mean.
        logits: ``[N, K]``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_predictions(folder / f"{name}_predictions.jsonl", part, labels, logits=logits)


def score_set(
    name: str,
    part: Dataset,
    labels: LabelSet,
    *,
    logits: np.ndarray,
    is_long: np.ndarray | None = None,
) -> dict[str, Scores]:
    """Scores a set, and apart from it its long documents.

    Args:
        name: of the set.
        part: the set.
        labels: of the task.
        logits: ``[N, K]``.
        is_long: which documents are long, ``[N]``.

    Returns:
        Scores of the set by its name, and (``"NAME, long"``) of its long documents.
    """
    truth = labels.array(part["label"])
    scores = {name: labels.scores(truth, logits)}
    if is_long is not None and 0 < is_long.sum() < len(is_long):
        scores[f"{name}, long"] = labels.scores(truth[is_long], logits[is_long])
    return scores


# --- The table, and the published model


def report(
    args: FinetuningArguments,
    results: Sequence[Result],
    dataset: Sets,
    labels: LabelSet,
    model: str,
    reader: Reader | None = None,
) -> tuple[Result, str, str]:
    """Prints the results of all seeds beside the most frequent label.

    Args:
        args: of the trainings.
        results: one for each seed.
        dataset: the sets; the test set is reported if it has labels, otherwise the validation set.
        labels: of the task.
        model: the option ``--model``.
        reader: of the model; None for word counts.

    Returns:
        The result of the best seed, the table in Markdown, and the reported set.
    """
    reported = "validation"
    if "test" in dataset and "label" in dataset["test"].features:
        reported = "test"
    title = public_name(model)
    baselines: dict[str, seeds.Row] = {}
    if isinstance(reader, TokenReader):
        title += f" ({reader.family})"
        if f"{reported}, long" in results[0].scores:
            long = [result.scores[f"{reported}, long"] for result in results]
            is_long = reader.is_long(reported)
            about = f"{is_long.sum()} of {len(is_long)} documents over {reader.window} tokens"
            baselines[f"{title}, {reported}, long ({about})"] = seeds.mean_and_deviation(long)
    majority = labels.majority_scores(dataset["train"], dataset[reported])
    baselines["most frequent label"] = {**majority}
    metric = "loss"
    if reader is None:
        metric = "accuracy"
    best, table = seeds.report(
        args, results, reported, name=title, baselines=baselines, metric=metric
    )
    return best, table, reported


def publish(
    args: FinetuningArguments,
    best: Result,
    reader: Reader,
    *,
    dataset: Sets,
    labels: LabelSet,
    reported: str,
    table: str,
    model: str,
    data_name: str | None,
    intended_use: str,
    snippet: str,
    pipeline_tag: str,
) -> None:
    """Publishes the model of the best seed with its card; of a baseline the predictions.

    Args:
        args: of the trainings.
        best: result of the best seed.
        reader: of the model.
        dataset: the sets by name.
        labels: of the task.
        reported: the set of the table.
        table: of the scores.
        model: the option ``--model``.
        data_name: name of the data set on the Hub; None for files.
        intended_use: a sentence of the card.
        snippet: code of the card, which opens the model.
        pipeline_tag: the Hub's name of the task.
    """
    if not reader.is_published:
        seeds.publish(args, best, open_model=None, card=None)
        return
    paper, limit = _FAMILIES[reader.family]
    trained_on = "documents of its author"
    if data_name is not None:
        trained_on = plain(data_name)
    text = CardText(
        summary=f"A {paper} fine-tuned on {trained_on}.",
        intended_use=intended_use,
        measured=_what_was_measured(args, best, labels, reported=reported),
        limits=[_SMALL, limit],
        snippet=snippet,
        pipeline_tag=pipeline_tag,
        tags=[reader.family, "long-documents"],
        caption="Loss over epochs",
    )
    examples = ", ".join(f"{len(part):,} {name}" for name, part in dataset.items())
    facts = {}
    if labels.names:
        facts["classes"] = ", ".join(map(plain, labels.names))
    card = seeds.finetuned_card(
        args,
        text,
        best,
        reported=reported,
        table=table,
        model=model,
        model_type=reader.family,
        settings={**reader.trained_parts, "examples": examples},
        metrics=[name for name in best.scores[reported] if name != "loss"],
        data_name=data_name,
        base_model=reader.base_model,
        chosen=["the checkpoint"],
        without=reader.without,
        facts=facts,
    )
    seeds.publish(args, best, open_model=reader.open_trained, card=card)


def _what_was_measured(
    args: FinetuningArguments, best: Result, labels: LabelSet, *, reported: str
) -> str:
    """Returns a sentence about the reported set and the checkpoint."""
    epoch = "last epoch"
    if args.load_best_model_at_end:
        epoch = f"best epoch by {args.metric_for_best_model}"
    measured = (
        f"The {reported} set. This checkpoint is the {epoch} of the seed with the lowest loss"
        f" (accuracy {best.scores[reported]['accuracy']:.4f})."
    )
    if "f1" in best.scores[reported]:
        measured += f" `f1` is of the class {plain(labels.names[-1])}."
    return measured


def card_snippet(auto_class: str, family: str, pair: str = "", axis: str = "") -> str:
    """Returns code that opens a model and reads a document, perhaps with a question.

    Args:
        auto_class: of transformers.
        family: of the model.
        pair: list of questions or choices, as code; "" for documents alone.
        axis: index that adds an axis to the ids of `pair`, as code.
    """
    truncation = ""
    if family == "truncated":
        truncation = ", truncation=True"
    lines = [
        "import nextlevelbert  # registers the architecture",
        f"from transformers import {auto_class}, AutoTokenizer",
        "",
        f'model = {auto_class}.from_pretrained("{{name}}")',
        'tokenizer = AutoTokenizer.from_pretrained("{name}")',
        f'document = tokenizer("the text of a whole document", return_tensors="pt"{truncation})',
    ]
    inputs = "**document"
    if pair:
        lines.append(f'pair = tokenizer({pair}, padding=True, return_tensors="pt")')
        inputs += f', pair_input_ids=pair["input_ids"]{axis}'
        inputs += f', pair_attention_mask=pair["attention_mask"]{axis}'
    lines.append(f"scores = model({inputs}).logits")
    return "\n".join(lines)
