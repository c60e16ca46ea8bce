"""The pieces between `run_pretraining.py` and the Hugging Face `Trainer`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

from .data_collator import PackedVectorDataset
from .evaluation.masked_vectors import masked_vector_scores, summarize

logger = logging.getLogger(__name__)


@dataclass
class PretrainingArguments(TrainingArguments):
    """`TrainingArguments` with the paper's recipe as defaults (section 4.1).

    AdamW (0.9, 0.999), weight decay 0.01 but none on biases and LayerNorm, peak 1e-4, cosine decay after
    5 % of warm-up, 20 epochs. The paper's global batch is 512 sequences: set
    ``per_device_train_batch_size x gradient_accumulation_steps x processes`` to it where the corpus is large.
    """

    learning_rate: float = field(default=1e-4)
    weight_decay: float = field(default=0.01)
    lr_scheduler_type: str = field(default="cosine")
    warmup_steps: float = field(default=0.05)
    num_train_epochs: float = field(default=20.0)
    per_device_train_batch_size: int = field(default=8)
    per_device_eval_batch_size: int = field(default=8)
    logging_steps: float = field(default=10)
    ddp_timeout: int = field(default=7 * 24 * 3600)  # processes wait for each other after days of encoding
    use_cpu: bool = field(default=False)
    dataloader_pin_memory: bool = field(default=True)
    eval_strategy: str = field(default="epoch")
    eval_on_start: bool = field(default=True)
    save_strategy: str = field(default="epoch")
    save_total_limit: int | None = field(default=2)
    hub_strategy: str = field(default="end")  # uploads at every save would publish arguments with local paths
    remove_unused_columns: bool = field(default=False)  # the collator needs what the forward does not
    # Only this is gathered in evaluation; the labels are vectors and would fill the memory.
    label_names: list[str] | None = field(default_factory=lambda: ["mask_positions"])

    def __post_init__(self) -> None:
        if not torch.accelerator.is_available():
            self.use_cpu = True  # said outright, it allows bf16 there
            self.dataloader_pin_memory = False
        super().__post_init__()
        if self.dataloader_persistent_workers:
            raise ValueError(
                "dataloader_persistent_workers keeps copies of the dataset that do not hear of a new epoch, so masks "
                "would repeat and a resumed run would differ; leave it off."
            )


def last_whole_checkpoint(folder: str | Path) -> str | None:
    """The newest ``checkpoint-*`` that was written to its end; warns of those that a kill has cut off.

    `Trainer` writes ``trainer_state.json`` behind weights, optimizer and random state.
    """
    numbered = [path for path in Path(folder).glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    for path in sorted(numbered, key=lambda path: -int(path.name.removeprefix("checkpoint-"))):
        try:
            json.loads((path / "trainer_state.json").read_text())
            return str(path)
        except (FileNotFoundError, json.JSONDecodeError):
            logger.warning("%s was not written to its end and is left aside.", path)
    return None


class SetEpochCallback(TrainerCallback):
    """Tells the dataset which epoch begins, so that its masks are new and a resumed run draws the same ones."""

    def __init__(self, dataset: PackedVectorDataset) -> None:
        self.dataset = dataset

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.dataset.epoch = int(state.epoch or 0)


def _reduce(outputs: tuple[torch.Tensor, ...], mask_positions: torch.Tensor) -> torch.Tensor:
    predictions, targets = outputs[:2]
    return masked_vector_scores(predictions, targets, mask_positions)


def _metrics(prediction: EvalPrediction) -> dict[str, float]:
    return summarize(torch.as_tensor(prediction.predictions))


class MaskedVectorTrainer(Trainer):
    """`Trainer` for masked vector modelling: evaluates by cosine and retrieval, and writes our model card.

    Args:
        card: writes ``README.md`` into a folder; called with the trainer wherever `Trainer` writes its card.
    """

    def __init__(self, *args: Any, card: Callable[[Trainer], None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, preprocess_logits_for_metrics=_reduce, compute_metrics=_metrics, **kwargs)
        self._card = card
        if isinstance(self.train_dataset, PackedVectorDataset):
            self.add_callback(SetEpochCallback(self.train_dataset))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        # A pickle that nothing here reads, and that would publish paths of this machine.
        (Path(output_dir or self.args.output_dir) / "training_args.bin").unlink(missing_ok=True)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Our card in place of the generic one, also on `push_to_hub`."""
        if self._card is not None and self.is_world_process_zero():
            self._card(self)
