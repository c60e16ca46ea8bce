"""torch's wrappers of data sets hand the epoch on, so that every epoch has new masks."""

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from nextlevelbert.pretraining.datasets import EpochDataset


class Keys(EpochDataset):
    """Data set whose rows are their keys."""

    def __len__(self):
        return 4

    def _row(self, index, key):
        return key


@pytest.mark.parametrize(
    "wrap",
    [
        lambda dataset: Subset(dataset, [2, 0]),
        lambda dataset: ConcatDataset([dataset, dataset]),
        lambda dataset: Subset(ConcatDataset([dataset, Subset(dataset, [1])]), [4, 0]),
    ],
)
def test_set_epoch_reaches_the_data_set_within(wrap):
    dataset = wrap(Keys(seed=7))

    dataset.set_epoch(3)

    keys = np.array([dataset[index] for index in range(len(dataset))])
    assert keys[:, :2].tolist() == [[7, 3]] * len(dataset)


def test_data_sets_without_epochs_stay_as_they_are():
    values = TensorDataset(torch.arange(4))
    dataset = ConcatDataset([Subset(values, [1]), values])

    dataset.set_epoch(1)

    assert [int(row) for (row,) in dataset] == [1, 0, 1, 2, 3]
