"""A Trainer that saves no pickle and resumes exactly."""

import shutil
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, SequentialSampler
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from ..models.files import WritingError, writing
from .epochs import SetEpochCallback


class MovedFolderCallback(TrainerCallback):
    """Finds the best checkpoint also in a folder that was moved."""

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """Sets the path of the best checkpoint to the folder of this training."""
        best = Path(str(args.output_dir)) / f"checkpoint-{state.best_global_step}"
        state.best_model_checkpoint = None
        if best.exists():
            state.best_model_checkpoint = str(best)


class CardTrainer(Trainer):
    """A Trainer that saves no pickle and resumes exactly."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(SetEpochCallback())
        self.add_callback(MovedFolderCallback())

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model without ``training_args.bin``.

        Nothing here reads that pickle, and it would publish paths of this machine.
        """
        folder = Path(output_dir or str(self.args.output_dir))
        with writing(folder):
            super().save_model(output_dir, _internal_call=_internal_call)
        if self.args.should_save:
            (folder / "training_args.bin").unlink(missing_ok=True)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Leaves the card as it is, which `push_to_hub` would replace by transformers' own.

        A model of this package is saved with a card, and a command writes its own card.
        """

    # Four methods that transformers names as private are overridden, because no public hook is at
    # their places. The tests beside each fail without it.

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Names a checkpoint that cannot be written, and removes what was written of it.

        The base class leaves half a checkpoint on a full disk, and torch raises a RuntimeError that
        says neither why nor where (test_a_checkpoint_that_cannot_be_written_is_named_and_removed).
        """
        checkpoint = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        try:
            with writing(checkpoint):
                super()._save_checkpoint(*args, **kwargs)
        except (WritingError, RuntimeError) as error:
            shutil.rmtree(checkpoint, ignore_errors=True)
            if isinstance(error, RuntimeError):
                raise WritingError(0, str(error), str(checkpoint)) from error
            raise

    def _get_eval_sampler(self, eval_dataset: Dataset) -> SequentialSampler | None:
        """Returns rows in their order, to which predictions belong.

        The base class sorts rows by length if training does
        (test_predictions_are_in_the_order_of_the_rows_however_training_sorts_them).
        """
        if self.args.world_size > 1:
            return None
        return SequentialSampler(eval_dataset)  # type: ignore[arg-type]

    def _save_rng_state(self, output_dir: str) -> None:
        """Waits for all processes before the state marks a checkpoint as complete.

        The base class does not wait (tests/faults/test_training.py).
        """
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Ends a training that is resumed after its last step.

        The base class checks only after a step whether it was the last one, or whether the run had
        been stopped (test_a_run_goes_on_from_its_last_whole_checkpoint_and_not_a_step_too_far,
        test_a_run_that_was_stopped_stays_stopped_also_where_its_folder_moved).
        """
        control = self.state.stateful_callbacks.get("TrainerControl", {}).get("args", {})
        is_last = self.state.global_step >= self.state.max_steps
        if is_last or control.get("should_training_stop"):
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)
