"""Tells data sets that an epoch begins."""

from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

__all__ = ["SetEpochCallback"]


class SetEpochCallback(TrainerCallback):
    """Calls `set_epoch` of the training set at the beginning of each epoch.

    The data sets for pretraining draw other masks in every epoch. `Trainer` tells them the epoch
    only in a single process, not if it resumes within an epoch, and not if torch's `Subset`,
    `random_split` or `ConcatDataset` is around them. With this callback, it does:
    ``Trainer(..., callbacks=[SetEpochCallback()])``.
    """

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: DataLoader | None = None,
        **kwargs: object,
    ) -> None:
        """Sets the epoch of the training set, and of the data sets within it."""
        if train_dataloader is not None:
            set_epoch(train_dataloader.dataset, int(state.epoch or 0))


def set_epoch(dataset: Dataset, epoch: int) -> None:
    """Calls `set_epoch` of a data set, or of the data sets that torch's wrappers hold."""
    if hasattr(dataset, "set_epoch"):
        dataset.set_epoch(epoch)
    elif isinstance(dataset, Subset):
        set_epoch(dataset.dataset, epoch)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            set_epoch(part, epoch)
