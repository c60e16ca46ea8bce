"""Batches of labelled vectors."""

import torch

from nextlevelbert import DataCollatorForLabelledVectors


def test_batches_of_labelled_vectors():
    rows = [
        {"label": 1, "inputs_embeds": torch.ones(3, 2, dtype=torch.float16)},
        {"label": 0, "inputs_embeds": torch.full((1, 2), 2, dtype=torch.float16)},
    ]
    batch = DataCollatorForLabelledVectors()(rows)
    assert batch["labels"].tolist() == [1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["inputs_embeds"].dtype == torch.float32
    assert batch["inputs_embeds"].tolist() == [[[1, 1]] * 3, [[2, 2], [0, 0], [0, 0]]]
