"""The pieces between `run_pretraining.py` and the Hugging Face `Trainer`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers import EvalPrediction

from ..evaluation.masked_vectors import masked_vector_scores, summarize
from ..training.trainer import BaseTrainingArguments, CardTrainer


@dataclass
class PretrainingArguments(BaseTrainingArguments):
    """`TrainingArguments` with the paper's recipe as defaults (section 4.1).

    AdamW (0.9, 0.999), weight decay 0.01 but none on biases and LayerNorm, peak 1e-4, cosine decay after
    5 % of warm-up, 20 epochs. The paper's global batch is 512 sequences: set
    ``per_device_train_batch_size x gradient_accumulation_steps x processes`` to it where the corpus is large.
    """

    learning_rate: float = field(default=1e-4)
    lr_scheduler_type: str = field(default="cosine")
    warmup_steps: float = field(default=0.05)
    num_train_epochs: float = field(default=20.0)
    per_device_eval_batch_size: int = field(default=8)
    logging_steps: float = field(default=10)
    eval_strategy: str = field(default="epoch")
    eval_on_start: bool = field(default=True)
    save_strategy: str = field(default="epoch")
    save_total_limit: int | None = field(default=2)
    # Only this is gathered in evaluation; the labels are vectors and would fill the memory.
    label_names: list[str] | None = field(default_factory=lambda: ["mask_positions"])


def _reduce(outputs: tuple[torch.Tensor, ...], mask_positions: torch.Tensor) -> torch.Tensor:
    predictions, targets = outputs[:2]
    return masked_vector_scores(predictions, targets, mask_positions)


def _metrics(prediction: EvalPrediction) -> dict[str, float]:
    return summarize(torch.as_tensor(prediction.predictions))


class MaskedVectorTrainer(CardTrainer):
    """Trains masked vector modelling; evaluates by cosine and retrieval."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, preprocess_logits_for_metrics=_reduce, compute_metrics=_metrics, **kwargs)


def _found(scores: torch.Tensor, document_ids: torch.Tensor, pairs_per_item: int = 1) -> torch.Tensor:
    """For each item of the batch: the share of its segments that find their partner, and the chance to.

    A row an item, because `Trainer` counts items where it cuts the last batch.
    """
    right = torch.arange(len(scores), device=scores.device)
    found = (scores.argmax(dim=1) == right).float() + (scores.argmax(dim=0) == right).float()
    compared = scores > -torch.inf
    chance = 1 / compared.sum(dim=1) + 1 / compared.sum(dim=0)
    return torch.stack([found, chance], dim=1).unflatten(0, (-1, pairs_per_item)).mean(dim=1) / 2  # [items, 2]


def _pair_metrics(prediction: EvalPrediction) -> dict[str, float]:
    accuracy, chance = torch.as_tensor(prediction.predictions).mean(dim=0).tolist()
    return {"pair_accuracy": accuracy, "chance_accuracy": chance}


class SegmentPairTrainer(CardTrainer):
    """Trains contrastive learning, with or without masked vectors; evaluates by how many pairs find each other.

    On several processes the negatives of a pair are those of its own process.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, compute_metrics=_pair_metrics, **kwargs)
        pairs = getattr(self.eval_dataset, "pairs_per_document", 1)
        self.preprocess_logits_for_metrics = partial(_found, pairs_per_item=pairs)
        self.label_names = ["document_ids"]
