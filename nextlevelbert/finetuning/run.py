"""Trainings, scores and the published model of classification and multiple choice."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import EvalPrediction

from ..models.identity import digest_of
from ..training.cards import (
    public_name,
)
from ..training.trainer import CardTrainer
from . import seeds
from .arguments import FinetuningArguments
from .card import make_card
from .labels import LabelSet, write_predictions
from .seeds import Result, Scores

logger = logging.getLogger(__name__)

Sets = dict[str, Dataset]
LoadSets = Callable[..., Sets]
PredictLogits = Callable[[Dataset], np.ndarray]
# Training rows times classes for which TF-IDF takes minutes; beyond, no model waits for it.
_MOST_WORD_COUNTS = 250_000
# Options that do not affect the result, or whose effect is recorded elsewhere.
_NO_SETTINGS = ("model", "cache_dir", "chunk_batch_size", "chunk_encoder")


class Reader(Protocol):
    """Reads documents in the form that its family of models takes, and makes these models.

    Attributes:
        family: family of the model.
        title: name of the model in tables of scores.
        weights: hash of the weights that a training starts from.
        learning_rate: learning rate if none is given.
        trained_parts: options that select the trained parts; empty if all weights are trained.
        uncounted: note after the number of parameters that names the parts left out of the number.
        base_model: Hub name of the model that a training starts from; None for a folder.
        window: number of tokens above which documents also get scores of their own.
        is_long: which documents of each set are longer than `window`, ``[N]`` by name.
    """

    family: str
    title: str
    weights: str
    learning_rate: float
    trained_parts: dict[str, object]
    uncounted: str
    base_model: str | None
    window: int | None
    is_long: dict[str, np.ndarray]

    def prepare(self, sets: Mapping[str, Dataset]) -> dict[str, Dataset]:
        """Returns the sets in the form that `collate` takes."""

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Makes a batch of rows from `prepare`."""

    def new_model(self) -> nn.Module:
        """Returns the model at the start of a seed."""

    def open_trained(self, folder: Path) -> nn.Module:
        """Opens the model in the folder of a seed to be published."""


@dataclass(kw_only=True)
class ClassifierRun:
    """Holds what all seeds of a run share.

    Args:
        task: name of the task.
        args: training arguments that all seeds share.
        data_name: Hub name of the data set; None for files.
        options: dataclasses of options that decide the result; the options of the model come first.
        sets: the sets by name.
        labels: labels of the task.
        fit_word_counts: fits TF-IDF to a set, and returns a function that predicts others.
    """

    task: str
    args: FinetuningArguments
    data_name: str | None
    options: Sequence[Any]
    sets: Sets
    labels: LabelSet
    fit_word_counts: Callable[[Dataset, LabelSet], PredictLogits]

    @property
    def model(self) -> str:
        """Returns the option ``--model``."""
        return self.options[0].model

    @property
    def reported(self) -> str:
        """Returns the set to report on: the test set if it has labels, else the validation set."""
        if "test" in self.sets and "label" in self.sets["test"].features:
            return "test"
        return "validation"

    @property
    def metric(self) -> str:
        """Returns the validation score that selects the best seed."""
        return (self.args.metric_for_best_model or "loss").removeprefix("eval_")

    def settings(self) -> dict[str, object]:
        """Returns settings that decide the result, beside the weights and training arguments."""
        settings: dict[str, object] = {}
        for group in self.options:
            values = vars(group).items()
            settings |= {name: value for name, value in values if name not in _NO_SETTINGS}
        settings |= {"task": self.task, "model": public_name(self.model)}
        for name, dataset in self.sets.items():
            settings[f"{name} set"] = digest_of(self.labels.names, *dataset)
        return settings

    def train(self, reader: Reader) -> list[Result]:
        """Trains a model per seed, scores it on all other sets, and writes its predictions.

        Args:
            reader: reader of the model. Its usual learning rate is used if none was given.
        """
        rows = reader.prepare(self.sets)
        if self.args.learning_rate is None:
            self.args.learning_rate = reader.learning_rate

        truth = self.labels.array(self.sets["validation"]["label"])

        def metrics(output: EvalPrediction) -> Scores:
            return self.labels.scores(truth, np.asarray(output.predictions))

        def make_trainer(seed_args: FinetuningArguments) -> CardTrainer:
            return CardTrainer(
                model=reader.new_model(),
                args=seed_args,
                data_collator=reader.collate,
                train_dataset=rows["train"],
                eval_dataset=rows["validation"],
                compute_metrics=metrics,
            )

        def score(trainer: CardTrainer, folder: Path) -> dict[str, Scores]:
            trainer.compute_metrics = None
            scores: dict[str, Scores] = {}
            for name in self.sets:
                if name == "train":
                    continue
                output = trainer.predict(rows[name])
                logits = np.asarray(output.predictions)
                scores |= self.score(name, logits, folder, is_long=reader.is_long.get(name))
                if name in scores:
                    scores[name]["loss"] = output.metrics["test_loss"]

            return scores

        settings = {"weights": reader.weights, **self.settings(), **self.args.result_settings()}
        validated = list(self.majority_scores("validation"))
        return seeds.run_seeds(self.args, settings, make_trainer, score=score, validated=validated)

    def score(
        self, name: str, logits: np.ndarray, folder: Path, is_long: np.ndarray | None = None
    ) -> dict[str, Scores]:
        """Writes the predictions of a set to the folder of a seed, and scores them.

        Args:
            name: name of the set.
            logits: predicted logits, ``[N, K]``.
            folder: folder of the seed.
            is_long: true for documents that also get scores of their own, ``[N]``.

        Returns:
            Scores of the set by its name, and (``"NAME, long"``) of its long documents; nothing for
            a set without labels.
        """
        dataset = self.sets[name]
        if self.args.should_save:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}_predictions.jsonl"
            write_predictions(path, dataset, self.labels, logits=logits)

        if "label" not in dataset.features:
            return {}

        truth = self.labels.array(dataset["label"])
        scores = {name: self.labels.scores(truth, logits)}
        if is_long is not None and 0 < is_long.sum() < len(is_long):
            scores[f"{name}, long"] = self.labels.scores(truth[is_long], logits[is_long])

        return scores

    def majority_scores(self, name: str) -> Scores:
        """Scores the most frequent label of the training set as prediction for a set."""
        return self.labels.majority_scores(self.sets["train"], self.sets[name])

    def tfidf_row(self) -> dict[str, seeds.Row]:
        """Scores TF-IDF on the reported set.

        Returns:
            The row by its name; no row, after a warning, if TF-IDF cannot be fitted or takes long.
        """
        train = self.sets["train"]
        reported = self.sets[self.reported]
        try:
            if len(train) * len(self.labels.names) > _MOST_WORD_COUNTS:
                raise ValueError("it takes long on so many rows and classes. Use --model tfidf.")
            logits = self.fit_word_counts(train, self.labels)(reported)
        except ValueError as error:
            logger.warning("The table has no row for TF-IDF: %s", error)
            return {}

        truth = self.labels.array(reported["label"])
        return {"TF-IDF": dict(self.labels.scores(truth, logits))}

    def report(self, results: Sequence[Result], reader: Reader) -> tuple[Result, str]:
        """Prints the results of all seeds beside TF-IDF and the most frequent label.

        Returns:
            The result of the best seed, and the table in Markdown.
        """
        title = reader.title
        baselines = {}
        long = f"{self.reported}, long"
        if long in results[0].scores:
            is_long = reader.is_long[self.reported]
            about = f"{is_long.sum()} of {len(is_long)} documents over {reader.window} tokens"
            scores = [result.scores[long] for result in results]
            baselines[f"{title}, {long} ({about})"] = seeds.mean_and_deviation(scores)

        baselines |= self.tfidf_row()
        baselines["most frequent label"] = dict(self.majority_scores(self.reported))
        return seeds.report(
            self.args,
            results,
            self.reported,
            name=title,
            baselines=baselines,
            metric=self.metric,
        )

    def publish(
        self,
        results: Sequence[Result],
        reader: Reader,
        *,
        intended_use: str,
        snippet: str,
        pipeline_tag: str,
    ) -> None:
        """Prints the results, and publishes the best model with a card."""
        if not self.args.should_save:
            return

        best, table = self.report(results, reader)
        card = make_card(
            self,
            reader,
            best=best,
            table=table,
            intended_use=intended_use,
            snippet=snippet,
            pipeline_tag=pipeline_tag,
        )
        seeds.publish(self.args, best, reader.open_trained, card)
