"""What all training here shares: our model cards, no pickled arguments, checkpoints that were written to their end."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer

from ..models.portable_checkpoint import store_weights_as

logger = logging.getLogger(__name__)


class CardTrainer(Trainer):
    """`Trainer` that writes our model card and leaves no pickle behind.

    Args:
        card: writes ``README.md`` into a folder; called with the trainer wherever `Trainer` writes its card.
    """

    def __init__(self, *args: Any, card: Callable[[Trainer], None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._card = card
        self.save_dtype: torch.dtype | None = None  # of weights on disk; set it after training, before the last save

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.save_dtype is not None:
            store_weights_as(output_dir or str(self.args.output_dir), self.save_dtype)
        # A pickle that nothing here reads, and that would publish paths of this machine.
        (Path(output_dir or self.args.output_dir) / "training_args.bin").unlink(missing_ok=True)

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler | None:
        """In the order of the rows, to which predictions belong; the base class may sort them by length."""
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    def train_to_the_end(self) -> None:
        """Trains, from the checkpoint that is asked for or the last whole one, and stores metrics and state."""
        folder = str(self.args.output_dir)
        result = self.train(resume_from_checkpoint=self.args.resume_from_checkpoint or last_whole_checkpoint(folder))
        self.save_metrics("train", result.metrics)
        self.save_state()

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Our card in place of the generic one, also on `push_to_hub`."""
        if self._card is not None and self.is_world_process_zero():
            self._card(self)


def use_cpu_without_accelerator(args: Any) -> None:
    """Sets training arguments for a machine without an accelerator; before `TrainingArguments` looks at them."""
    if not torch.accelerator.is_available():
        args.use_cpu = True  # said outright, it allows bf16 there
        args.dataloader_pin_memory = False


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
