"""The pieces between `run_finetune.py` and the Hugging Face `Trainer`."""

from __future__ import annotations

import copy
import json
import logging
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import EarlyStoppingCallback, EvalPrediction, set_seed

from ..evaluation.scores import task_scores
from ..tasks.classification.data import TaskData
from ..training.cards import CardText
from ..training.trainer import CardTrainer, last_whole_checkpoint
from .arguments import FinetuningArguments

logger = logging.getLogger(__name__)


@dataclass
class PreparedTask:
    """What a kind of model brings to the training for a task.

    Attributes:
        datasets: by name of the set. Each has `data`, a `TaskData`, and `collate`, which makes a batch of rows. In
            a batch, a tensor with one row an example comes first.
        new_model: makes the model at the start of a run; None for what is not trained by gradients.
        weights: hash of the weights that a run starts from.
        settings: what else decides the weights that come out.
        long: by name of the set, ``[N]`` bool: the example's document has more than `window` tokens; None where
            a window of the encoder says nothing about the model.
        window: most tokens that the encoder reads at once, its special tokens counted.
        publish: saves the model from the folder of a seed (first argument) with all that opening it needs into
            another folder; None for what is not published.
        card: what its model card says of this kind; None for what is not published.
    """

    datasets: dict[str, Any] = field(default_factory=dict)
    new_model: Callable[[], Any] | None = None
    weights: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    long: dict[str, np.ndarray] | None = None
    window: int | None = None
    publish: Callable[[Path, Path], None] | None = None
    card: CardText | None = None


class FinetuningTrainer(CardTrainer):
    """Trains a model for a task; batches are made by the training set's `collate`.

    Args:
        train_dataset: see `PreparedTask.datasets`.
        problem_type: as in `TaskData`.
        class_weights: ``[K]`` weight of each class in the loss; for single labels only. The loss is the mean of
            the weighted losses, not divided by the weights of its batch, so that it does not depend on how a
            batch is shared among processes and steps.
    """

    def __init__(
        self,
        *args: Any,
        train_dataset: Any,
        problem_type: str,
        class_weights: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            *args,
            train_dataset=train_dataset,
            data_collator=train_dataset.collate,
            compute_metrics=partial(_metrics, problem_type),
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


def _metrics(problem_type: str, prediction: EvalPrediction) -> dict[str, float]:
    return task_scores(problem_type, np.asarray(prediction.predictions), np.asarray(prediction.label_ids))


def labels_of(data: TaskData) -> np.ndarray:
    """Labels ``[N]``, or ``[N, K]`` zeros and ones for several labels."""
    if data.problem_type != "multi_label_classification":
        return np.array([example.label for example in data.examples])
    rows = np.zeros((len(data.examples), len(data.label_names or ())), int)
    for row, example in zip(rows, data.examples, strict=True):
        row[list(example.label or ())] = 1  # type: ignore[arg-type]
    return rows


def balanced_class_weights(data: TaskData) -> torch.Tensor:
    """``[K]`` weights that are inverse to the frequency of each class: N / (K · count), as in scikit-learn.

    Raises:
        ValueError: for a task without single labels, or a class without a training example.
    """
    if data.problem_type != "single_label_classification" or data.label_names is None:
        raise ValueError(f"Class weights are for single labels, not for {data.problem_type}; leave them out.")
    counts = np.bincount(labels_of(data), minlength=len(data.label_names))
    if not counts.all():
        missing = [name for name, count in zip(data.label_names, counts, strict=True) if not count]
        raise ValueError(f"{data.source} has no training example of {', '.join(missing)}; class weights need one.")
    return torch.tensor(counts.sum() / (len(counts) * counts), dtype=torch.float32)


def head_config(data: TaskData) -> dict[str, Any]:
    """Names of the classes and kind of problem, as fields of a configuration; a value is a single "class"."""
    names = dict(enumerate(data.label_names or ("value",)))
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    return labels | {"problem_type": data.problem_type}


def with_lora(model: Any, r: int, alpha: int, target_modules: Sequence[str]) -> PeftModel:
    """Puts low-rank adapters into a model; what is no encoder (classifier, LSTMs) is trained whole.

    A chunk encoder stays frozen.

    Args:
        model: a model with a head for a task.
        r, alpha: rank and scale.
        target_modules: names (or ends of names) of linear layers, or the one word ``all-linear``.

    Raises:
        ValueError: of peft, if no layer has one of these names.
    """
    targets: Any = "all-linear" if list(target_modules) == ["all-linear"] else list(target_modules)
    settings = LoraConfig(
        r=r,
        lora_alpha=alpha,
        target_modules=targets,
        modules_to_save=model.modules_to_train_whole(),
        exclude_modules=r".*\bchunk_encoder\b.*",  # frozen; adapters there would never learn anything
    )
    return get_peft_model(model, settings)


def copy_adapter(folder: Path, output: Path, tokenizer: Any, local: bool) -> None:
    """Publishes an adapter: weights, configuration and tokenizer.

    Args:
        folder: where training left the adapter.
        output: where it goes.
        tokenizer: of the model that it adapts.
        local: whether that model has no name on the Hub; its path on this machine means nothing to others.
    """
    shutil.copy(folder / "adapter_model.safetensors", output)
    adapter = json.loads((folder / "adapter_config.json").read_text())
    if local:
        adapter["base_model_name_or_path"] = None
    (output / "adapter_config.json").write_text(json.dumps(adapter, indent=2) + "\n")
    tokenizer.save_pretrained(output)


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Trainable parameters and all of them."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trainable in sizes if trainable), sum(size for size, _ in sizes)


def start_seed(
    seed: int, folder: Path, new_model: Callable[[], Any], args: FinetuningArguments
) -> tuple[Any, FinetuningArguments, tuple[int, int], str | None]:
    """What a run in `folder` starts with.

    Returns:
        The model; arguments of the run's own; its `count_parameters`; where it was killed, the checkpoint to go on at.
    """
    set_seed(seed)
    model = new_model()
    args = copy.copy(args)
    args.output_dir, args.seed, args.data_seed = str(folder), seed, seed
    args.push_to_hub = False  # the best seed is published when all are there
    return model, args, count_parameters(model), last_whole_checkpoint(folder)


def run_facts(trainer: Any, trained: Any, parameters: tuple[int, int]) -> dict[str, Any]:
    """What a result tells of its run: seed, counts, duration, learning curve; `trained` is what `train` returned."""
    trainable, total = parameters
    return {
        "seed": trainer.args.seed,
        "trainable_parameters": trainable,
        "parameters": total,
        "steps": trainer.state.global_step,
        "seconds": round(trained.metrics["train_runtime"], 1),
        "curve": [entry for entry in trainer.state.log_history if "loss" in entry or "eval_loss" in entry],
    }


def train_one_seed(
    seed: int,
    folder: Path,
    new_model: Callable[[], Any],
    args: FinetuningArguments,
    train: Any,
    evaluations: dict[str, Any],
    patience: int,
    class_weights: torch.Tensor | None,
) -> dict[str, Any]:
    """One fine-tuning run; one that was killed goes on at its last checkpoint.

    Args:
        seed: of the new head, the order of the examples and dropout.
        folder: where the model goes (its best epoch).
        new_model: makes it.
        args: of the whole fine-tuning.
        train: what to train on; see `PreparedTask.datasets`.
        evaluations: ``"validation"`` chooses the epoch; all of them are scored and predicted.
        patience: epochs without progress after which to stop.
        class_weights: see `FinetuningTrainer`.

    Returns:
        Scores, learning curve and counts; logits under ``"logits"``, by name of the evaluation.
    """
    if args.label_smoothing_factor and train.data.problem_type != "single_label_classification":
        raise ValueError(f"--label_smoothing_factor is for single labels, not for {train.data.problem_type}.")
    model, args, (trainable, total), resumed = start_seed(seed, folder, new_model, args)
    args.learning_rate = args.learning_rate or 5e-5
    logger.info("seed %d: %s of %s parameters are trainable (%.1f %%)", seed, f"{trainable:,}", f"{total:,}",
                100 * trainable / total)  # fmt: skip
    trainer = FinetuningTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=evaluations["validation"],
        problem_type=train.data.problem_type,
        class_weights=class_weights,
        callbacks=[EarlyStoppingCallback(patience)] if args.load_best_model_at_end else [],
    )
    result = trainer.train(resume_from_checkpoint=resumed)
    trainer.save_model(str(folder))  # before evaluation, which may cast the weights
    found = run_facts(trainer, result, (trainable, total)) | {"logits": {}}
    for name, dataset in evaluations.items():
        prediction = trainer.predict(dataset, metric_key_prefix=name)
        found["logits"][name] = np.asarray(prediction.predictions)
        if prediction.label_ids is not None:
            if not np.allclose(prediction.label_ids, labels_of(dataset.data)):
                raise RuntimeError(f"Predictions of the {name} set came back in another order than its rows.")
            found[name] = task_scores(dataset.data.problem_type, found["logits"][name], labels_of(dataset.data))
            found[name]["loss"] = prediction.metrics[f"{name}_loss"]
    if not math.isfinite(found["validation"]["loss"]):
        raise ValueError(
            f"Seed {seed} ended with a validation loss of {found['validation']['loss']}; lower the learning rate "
            f"({args.learning_rate})."
        )
    if args.should_save:
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    return found
