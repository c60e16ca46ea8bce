"""Stored chunk vectors with labels, for a stock `Trainer`: the frozen chunk encoder has run once, before training.

Notation for shapes: B documents of at most L chunks, n chunks of one document, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from .corpus import VectorCorpus

Label = int | float | Sequence[float]


class LabelledVectorDataset(Dataset):
    """The documents of a corpus that have a label, in the order of the labels.

    Args:
        corpus: their chunk vectors.
        labels: of documents by id: an int is a class, a float a number to predict, several floats are one output each
            (such as 0.0 or 1.0 for every topic).

    Raises:
        ValueError: for ids that the corpus does not have, labels of different kinds, or no label.
    """

    def __init__(self, corpus: VectorCorpus, labels: Mapping[str, Label]) -> None:
        if unknown := sorted(labels.keys() - set(corpus.document_ids)):
            raise ValueError(
                f"labels has {len(unknown)} id(s) that {corpus!r} does not, {unknown[0]!r} first; encode these "
                "documents, or leave them out."
            )
        kinds = {type(label) if isinstance(label, int | float) else len(label) for label in labels.values()}
        if len(kinds) != 1 or bool in kinds:
            found = ", ".join(sorted(str(kind) if isinstance(kind, int) else kind.__name__ for kind in kinds))
            raise ValueError(
                f"labels must all be ints, all floats, or all as many floats, got {found or 'none'}; a class is an "
                "int."
            )
        self.corpus, self.labels = corpus, dict(labels)
        self._ids = list(labels)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """``inputs_embeds`` ``[n, D]`` and ``labels`` of one document: names of `forward`, as `Trainer` wants them."""
        name = self._ids[index]
        return {"labels": self.labels[name], "inputs_embeds": self.corpus[name].vectors}


class DataCollatorForLabelledVectors:
    """Batches for the classifiers over chunk vectors, such as `NextLevelBertForSequenceClassification`."""

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """``labels`` [B] or [B, outputs], ``inputs_embeds`` [B, L, D] float32 and ``attention_mask`` [B, L]."""
        labels = torch.tensor([row["labels"] for row in rows])  # first: `Trainer` takes its length for the batch size
        return {"labels": labels, **pad_vectors([row["inputs_embeds"].float() for row in rows])}


def pad_vectors(documents: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Chunk vectors ``[n, D]`` of B documents as ``inputs_embeds [B, L, D]`` and ``attention_mask [B, L]``."""
    lengths = torch.tensor([len(vectors) for vectors in documents])
    return {
        "inputs_embeds": pad_sequence(list(documents), batch_first=True),
        "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long(),
    }
