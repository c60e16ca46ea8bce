"""`SetEpochCallback` tells data sets that an epoch begins, also within torch's wrappers."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Subset, TensorDataset, random_split
from transformers import Trainer, TrainingArguments

from nextlevelbert.pretraining.datasets import EpochDataset
from nextlevelbert.training.epochs import SetEpochCallback, set_epoch


class Keys(EpochDataset):
    """Data set whose rows are their keys."""

    def __len__(self):
        return 4

    def _row(self, index, key):
        return key


@pytest.mark.parametrize(
    "wrap",
    [
        lambda dataset: dataset,
        lambda dataset: Subset(dataset, [2, 0]),
        lambda dataset: ConcatDataset([dataset, dataset]),
        lambda dataset: Subset(ConcatDataset([dataset, Subset(dataset, [1])]), [4, 0]),
    ],
)
def test_the_epoch_reaches_the_data_set_within(wrap):
    dataset = wrap(Keys(seed=7))

    set_epoch(dataset, 3)

    keys = np.array([dataset[index] for index in range(len(dataset))])
    assert keys[:, :2].tolist() == [[7, 3]] * len(dataset)


def test_data_sets_without_epochs_stay_as_they_are():
    values = TensorDataset(torch.arange(4))
    dataset = ConcatDataset([Subset(values, [1]), values])

    set_epoch(dataset, 1)

    assert [int(row) for (row,) in dataset] == [1, 0, 1, 2, 3]


class Epochs(nn.Module):
    """Model that stores the epochs of the keys that it reads."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.read = []

    def forward(self, keys):
        self.read += keys[:, 1].tolist()
        return {"loss": self.weight.sum()}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stock_trainer_draws_anew_in_every_epoch_of_a_split(workers, tmp_path):
    """Workers that persist keep the data set of the first epoch."""
    train, _ = random_split(Keys(seed=7), [3, 1])
    options = {"dataloader_num_workers": workers, "dataloader_persistent_workers": workers > 0}
    arguments = TrainingArguments(
        str(tmp_path),
        num_train_epochs=3,
        per_device_train_batch_size=3,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        **options,
    )
    model = Epochs()

    Trainer(
        model,
        arguments,
        train_dataset=train,
        data_collator=lambda keys: {"keys": torch.tensor(keys)},
        callbacks=[SetEpochCallback()],
    ).train()

    assert model.read == [0, 0, 0, 1, 1, 1, 2, 2, 2]
