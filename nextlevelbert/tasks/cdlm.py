"""Training that document matching, coreference and multi-hop question answering with CDLM share."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from huggingface_hub import ModelCard
from transformers import PreTrainedModel, set_seed

from ..finetuning.arguments import FinetuningArguments
from ..finetuning.seeds import (
    Result,
    Scores,
    finetuned_card,
    publish,
    report,
    reported_set,
    run_seeds,
)
from ..models.chunk_encoder import weights_fingerprint
from ..models.processing_cdlm import CdlmProcessor
from ..pretraining.cdlm import CdlmModelArguments
from ..training.cards import CardText, public_name
from ..training.data import DataArguments
from ..training.runs import fingerprint, write_whole
from ..training.trainer import CardTrainer

TAGS = ("cdlm", "longformer", "multi-document")  # of the card of every task
MEASURED = (
    "Scores on the set that the first row names. Only the first row is trained."  # on every card
)

# The logits of all sequences of a set, each kind padded to the longest sequence.
Logits = tuple[np.ndarray, ...]


class Predicted(NamedTuple):
    """The predictions for a set: its scores by name, and a JSON object for each of its rows."""

    scores: Scores
    records: list[dict[str, Any]]


class Baseline(NamedTuple):
    """A row of the table that needs no training: its title, and its scores on a set."""

    title: str
    scores: Callable[[Any], Scores]


def _choose_nothing(rows: object, logits: Logits) -> Scores:
    return {}


@dataclass(kw_only=True)
class CdlmTask:
    """Describes a task with CDLM.

    Args:
        model_class: the class of the model.
        sets: training, validation and perhaps test set, by name; all rows have labels.
        sequences: function that makes the model's inputs from the set of a name.
        predict: function that returns the predictions for a set, from its name, its sequences,
            their `logits`, and the fields that were `chosen` on the validation set.
        choose: function that chooses fields of the model's configuration, given the sequences of
            the validation set and their logits (default: none).
        baseline: a row of the table that needs no training.
        card: sentences and code that the task adds to the card.
        metric: name of the score in the card's metadata.
        settings: the name of the task, and further options that decide the result.
    """

    model_class: type[PreTrainedModel]
    sets: Mapping[str, Any]
    sequences: Callable[[str, CdlmProcessor], Any]
    predict: Callable[..., Predicted]
    choose: Callable[[Any, Logits], Scores] = _choose_nothing
    baseline: Baseline
    card: CardText
    metric: str
    settings: Mapping[str, object]

    def make_trainer(
        self,
        model_args: CdlmModelArguments,
        args: FinetuningArguments,
        rows: Mapping[str, Any],
    ) -> CardTrainer:
        """Returns the trainer of one seed.

        Args:
            model_args: the model to start from.
            args: training arguments of the seed.
            rows: the sequences of each set.
        """
        model, processor = model_args.load(self.model_class)
        first_row = rows["train"][0]
        args.label_names = [name for name in first_row if name.endswith(("labels", "positions"))]
        return CardTrainer(
            model=model,
            args=args,
            data_collator=lambda batch: dict(processor.pad(batch)),
            train_dataset=rows["train"],
            eval_dataset=rows["validation"],
        )

    def score(
        self, trainer: CardTrainer, folder: Path, rows: Mapping[str, Any]
    ) -> tuple[dict[str, Scores], Scores]:
        """Scores a trained model, and writes the predictions of the reported set to the folder.

        Args:
            trainer: trainer of the model.
            folder: folder of the seed.
            rows: the sequences of each set.

        Returns:
            Scores by set, and the fields that were chosen on the validation set.
        """
        scores = {}
        chosen = {}
        reported = reported_set(rows)
        for name in ("validation", "test"):
            if name not in rows:
                continue
            output = trainer.predict(rows[name])
            logits = output.predictions
            if not isinstance(logits, tuple):
                logits = (logits,)
            if name == "validation":
                chosen = self.choose(rows[name], logits)
            predicted = self.predict(name, rows[name], logits=logits, chosen=chosen)
            scores[name] = {**predicted.scores, "loss": output.metrics["test_loss"]}
            if name == reported and trainer.args.should_save:
                lines = [json.dumps(record, ensure_ascii=False) for record in predicted.records]
                write_whole(folder / f"{name}_predictions.jsonl", "\n".join(lines))
        return scores, chosen


def train_and_publish(
    task: CdlmTask,
    *,
    model_args: CdlmModelArguments,
    args: FinetuningArguments,
    data_args: DataArguments,
) -> None:
    """Trains a CDLM once per seed and publishes the one with the lowest validation loss.

    Args:
        task: task to train and score.
        model_args: the model to start from.
        args: the arguments of the training.
        data_args: the options of the sets.

    Raises:
        ValueError: if a set is the training set.
    """
    set_fingerprints = _fingerprints(task.sets)
    if args.learning_rate is None:
        args.learning_rate = 3e-5  # as in pretraining

    # 1. What the model reads of each set.
    set_seed(args.seed)  # new rows of embeddings are drawn
    model, processor = model_args.load(task.model_class)
    weights = weights_fingerprint(model.base_model)
    del model
    rows = {name: task.sequences(name, processor) for name in task.sets}

    # 2. A training per seed.
    title = public_name(model_args.model)
    settings = {
        **task.settings,
        "model": title,
        "weights": weights,
        "max_length": processor.max_length,
        "attention_window": model_args.attention_window,
        **args.result_settings(),
        **set_fingerprints,
    }
    results = run_seeds(
        args,
        settings=settings,
        make_trainer=lambda seed_args: task.make_trainer(model_args, seed_args, rows),
        score=lambda trainer, folder: task.score(trainer, folder, rows),
    )
    if not args.should_save:
        return

    # 3. The table, and the best model with its card.
    reported = reported_set(task.sets)
    best, table = report(
        args,
        results=results,
        reported=reported,
        name=f"{title} (cdlm)",
        baselines={task.baseline.title: task.baseline.scores(task.sets[reported])},
    )

    def open_best(folder: Path) -> PreTrainedModel:
        model = task.model_class.from_pretrained(folder)
        for name, value in best.config.items():
            setattr(model.config, name, value)
        processor.save_pretrained(args.output_dir)
        return model

    card = _card(
        task,
        args,
        best,
        table=table,
        model=model_args.model,
        data_name=data_args.dataset_name,
    )
    publish(args, best=best, open_model=open_best, card=card)


def _fingerprints(sets: Mapping[str, Any]) -> dict[str, str]:
    """Returns a hash of each set; the training set must not be evaluated on."""
    fingerprints = {f"{name} set": fingerprint(data) for name, data in sets.items()}
    for name in ("validation set", "test set"):
        if fingerprints.get(name) == fingerprints["train set"]:
            raise ValueError(f"The {name} is the training set; give another one.")
    return fingerprints


def _card(
    task: CdlmTask,
    args: FinetuningArguments,
    best: Result,
    *,
    table: str,
    model: str,
    data_name: str | None,
) -> ModelCard:
    """Makes the card of the best model."""
    chosen = list(best.config)
    if args.load_best_model_at_end:
        chosen = ["the epoch", *chosen]
    sizes = {f"{name} set": f"{len(data)} rows" for name, data in task.sets.items()}
    return finetuned_card(
        args,
        task.card,
        best,
        reported=reported_set(task.sets),
        table=table,
        model=model,
        model_type="cdlm",
        settings={**sizes, **task.settings, **best.config},
        metrics=[task.metric],
        data_name=data_name,
        chosen=chosen,
    )
