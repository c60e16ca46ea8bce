"""Training on labelled documents: what a family of models provides, the trainer, and predictions in words."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import EvalPrediction

from ...evaluation.scores import predicted, task_scores
from ...finetuning.task import Row, Scores, SeedResult, Task
from ...training.cards import CardText
from ...training.resuming import write_whole
from ...training.trainer import CardTrainer
from .data import TaskData


class ExampleDataset(Dataset):
    """Examples of a task as a family of models reads them.

    Attributes:
        data: the examples.
    """

    data: TaskData

    def __len__(self) -> int:
        return len(self.data.examples)

    @abstractmethod
    def collate(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch of rows; a tensor with one row per example comes first, by which `Trainer` counts them."""


@dataclass
class Prepared:
    """What a family of models provides for training.

    Attributes:
        datasets: by name of the set.
        new_model: makes the model at the start of a run; None for TF-IDF.
        settings: what determines the result, such as the hash of the weights that a run starts from.
        long: by name of the set, ``[N]`` bool: the example's document has more than `window` tokens; None for
            models that have no such window.
        window: most tokens that the encoder reads at once, its special tokens counted.
        publish: saves the model from the folder of a seed (first argument) to another folder, with everything
            needed to open it; None for a baseline.
        text: what the model card says of this family; None for a baseline.
        controls: scores of what needs no training of a model, by row of the table.
    """

    datasets: dict[str, ExampleDataset] = field(default_factory=dict)
    new_model: Callable[[], Any] | None = None
    settings: dict[str, object] = field(default_factory=dict)
    long: dict[str, np.ndarray] | None = None
    window: int | None = None
    publish: Callable[[Path, Path], None] | None = None
    text: CardText | None = None
    controls: Callable[[], dict[str, Row]] = dict


@dataclass(kw_only=True)
class ClassificationResult(SeedResult):
    """A run's result; `long` has the scores on the examples with long documents, by name of the set."""

    long: dict[str, Scores] = field(default_factory=dict)


class ClassificationTrainer(CardTrainer):
    """Trains a model for a task; batches are made by the training set's `collate`.

    Args:
        train_dataset: what to train on.
        class_weights: ``[K]`` weight of each class in the loss; for single labels only. The loss is the mean of
            the weighted losses, not divided by the weights of its batch, so that it does not depend on how a
            batch is shared among processes and steps.
    """

    def __init__(
        self, *args: Any, train_dataset: ExampleDataset, class_weights: torch.Tensor | None = None, **kwargs: Any
    ) -> None:
        super().__init__(
            *args,
            train_dataset=train_dataset,
            data_collator=train_dataset.collate,
            compute_metrics=partial(_metrics, train_dataset.data),
            **kwargs,
        )
        self._class_weights = class_weights

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The model's own loss, or cross-entropy with a weight for each class."""
        if self._class_weights is None or "labels" not in inputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        outputs = model(**inputs)
        losses = nn.functional.cross_entropy(
            outputs["logits"],
            inputs["labels"],
            self._class_weights.to(outputs["logits"]),
            reduction="none",
            label_smoothing=self.args.label_smoothing_factor,
        )  # [N]
        outputs["loss"] = losses.mean()
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


def _metrics(data: TaskData, prediction: EvalPrediction) -> Scores:
    labels = np.asarray(prediction.label_ids)
    logits = class_logits(data, prediction.predictions)
    return task_scores(data.problem_type, logits, labels[:, 0] if data.sigmoid else labels)


def class_logits(data: TaskData, outputs: Any) -> np.ndarray:
    """Outputs of a model as logits ``[N, K]`` of K classes; one output z of two classes is 0 and z."""
    logits = np.asarray(outputs)
    return np.concatenate([np.zeros_like(logits), logits], axis=1) if data.sigmoid else logits


def balanced_class_weights(data: TaskData) -> torch.Tensor:
    """``[K]`` weights that are inverse to the frequency of each class: N / (K · count), as in scikit-learn.

    Raises:
        ValueError: for a task without single labels, or a class without a training example.
    """
    if data.head_type != "single_label_classification" or data.label_names is None:
        raise ValueError(f"--class_weights is for single labels, not for {data.head_type}; remove it.")
    counts = np.bincount(data.labels(), minlength=data.outputs)
    if not counts.all():
        missing = [name for name, count in zip(data.label_names, counts, strict=True) if not count]
        raise ValueError(f"{data.source} has no training example of {', '.join(missing)}; --class_weights needs one.")
    return torch.tensor(counts.sum() / (len(counts) * counts), dtype=torch.float32)


def head_config(data: TaskData) -> dict[str, Any]:
    """Names of the outputs and kind of problem, as fields of a configuration; a value is a single "class"."""
    names = dict(enumerate((data.label_names or ("value",))[-data.outputs :]))  # with a sigmoid, the second class
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    return labels | {"problem_type": data.head_type}


def train_classifier(
    task: Task[Any, TaskData], seed: int, folder: Path, prepared: Prepared, class_weights: torch.Tensor | None
) -> ClassificationResult:
    """One run, which is resumed from its last checkpoint if it was killed.

    Args:
        task: with the arguments of the whole fine-tuning.
        seed: of the new head, the order of the examples and dropout.
        folder: where the model goes (its best evaluation).
        prepared: the sets and what makes the model; ``"validation"`` chooses the evaluation.
        class_weights: see `ClassificationTrainer`.

    Raises:
        ValueError: if training diverges, or for --label_smoothing_factor without single labels.
    """
    assert prepared.new_model is not None  # TF-IDF is not trained here
    datasets = dict(prepared.datasets)
    train = datasets.pop("train")
    if task.args.label_smoothing_factor and train.data.head_type != "single_label_classification":
        raise ValueError(f"--label_smoothing_factor is for single labels, not for {train.data.head_type}.")
    model, args, resumed = task.start(seed, folder, prepared.new_model)
    trainer = ClassificationTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=datasets["validation"],
        class_weights=class_weights,
        callbacks=task.stopping(),
    )
    trained = trainer.train(resume_from_checkpoint=resumed)
    trainer.save_model(str(folder))  # before evaluation, which may cast the weights
    scores: dict[str, Scores] = {}
    logits: dict[str, np.ndarray] = {}
    for name, dataset in datasets.items():
        prediction = trainer.predict(dataset, metric_key_prefix=name)
        logits[name] = class_logits(dataset.data, prediction.predictions)
        if prediction.label_ids is not None:
            labels = dataset.data.labels()
            if not np.allclose(np.reshape(prediction.label_ids, labels.shape), labels):
                raise RuntimeError(f"Predictions of the {name} set are not in the order of its rows.")
            loss = prediction.metrics[f"{name}_loss"]
            scores[name] = {**task_scores(dataset.data.problem_type, logits[name], labels), "loss": loss}
    if not math.isfinite(scores["validation"]["loss"]):
        raise ValueError(
            f"Seed {seed} ended with a validation loss of {scores['validation']['loss']}; use a lower learning rate "
            f"than {args.learning_rate}."
        )
    return ClassificationResult.of(trainer, trained, scores, logits=logits)


def write_predictions(path: Path, data: TaskData, logits: np.ndarray) -> None:
    """Writes a JSON object per row: id, prediction, label (as given, if there is one), and a score per class."""
    found = predicted(data.problem_type, logits)
    if data.problem_type in ("single_label_classification", "multiple_choice"):
        scores = torch.tensor(logits, dtype=torch.float64).softmax(-1).numpy()
    elif data.problem_type == "multi_label_classification":
        scores = torch.tensor(logits, dtype=torch.float64).sigmoid().numpy()
    else:
        scores = logits.reshape(len(logits), -1)
    names = data.label_names

    def spoken(label: Any) -> Any:
        if names is None:
            return float(label) if data.problem_type == "regression" else int(label)
        return [names[number] for number in label] if isinstance(label, (tuple, list)) else names[int(label)]

    lines = []
    for example, row, given in zip(data.examples, found, scores, strict=True):
        prediction: Any = row
        if data.problem_type == "multi_label_classification":
            prediction = np.flatnonzero(row).tolist()
        record = {"id": example.id, "prediction": spoken(prediction)}
        if example.label is not None:
            record["label"] = spoken(example.label)
        record["scores"] = [round(float(score), 6) for score in given]
        lines.append(json.dumps(record, ensure_ascii=False))
    write_whole(path, "\n".join(lines))
