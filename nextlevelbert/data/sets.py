"""Labelled sets: the names of their classes, their source, their documents, and their division."""

import numpy as np
from datasets import Dataset, List


def names_of(dataset: Dataset) -> tuple[str, ...]:
    """Returns the names of the classes of a set, in order."""
    feature = dataset.features["label"]
    if isinstance(feature, List):
        feature = feature.feature
    return tuple(feature.names)


def source_of(dataset: Dataset) -> str:
    """Returns the name of the file or data set that a set was read from, without folders."""
    return str(dataset.info.dataset_name)


def distinct_texts(dataset: Dataset) -> list[str]:
    """Returns the distinct documents, in the order in which they first appear."""
    return list(dict.fromkeys(dataset["text"]))


def hold_out_documents(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Holds out about `share` of the documents with all their rows: at least one, and never all.

    Raises:
        ValueError: if the share is not between 0 and 1, or there are fewer than two documents.
    """
    texts = distinct_texts(dataset)
    if not 0 < share < 1 or len(texts) < 2:
        raise ValueError(
            f"Cannot hold out a share of {share} of {len(texts)} documents; give a validation set."
        )

    count = min(max(round(share * len(texts)), 1), len(texts) - 1)
    order = np.random.default_rng(seed).permutation(len(texts))
    chosen = {texts[index] for index in order[:count]}
    training = []
    held_out = []
    for index, text in enumerate(dataset["text"]):
        if text in chosen:
            held_out.append(index)
        else:
            training.append(index)

    return dataset.select(training), dataset.select(held_out)
