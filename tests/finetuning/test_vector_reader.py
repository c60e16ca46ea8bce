"""Batches of stored vectors."""

from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset

from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.finetuning.labels import SEVERAL, LabelSet
from nextlevelbert.finetuning.options import VectorModelArguments
from nextlevelbert.finetuning.vector_reader import VectorReader

VECTORS = {
    "one": torch.ones(1, 2),
    "two": torch.arange(6.0).reshape(3, 2),
    "q1": torch.eye(2),
    "q2": torch.ones(1, 2),
}


def stored_vectors(args, texts):
    return {text: VECTORS[text] for text in texts}


@pytest.fixture
def vector_reader(toy_checkpoint, tmp_path, monkeypatch):
    """Makes a reader of the vectors above."""

    def make(labels):
        args = FinetuningArguments(output_dir=str(tmp_path), use_cpu=True)
        options = VectorModelArguments(model=toy_checkpoint)
        reader = VectorReader(args, labels, options)
        reader.models = SimpleNamespace(encode=stored_vectors)
        return reader

    return make


def test_a_batch_holds_each_document_once(vector_reader):
    rows = [
        {"id": "0", "text": "two", "question": "q1", "label": [0, 2]},
        {"id": "1", "text": "one", "question": "q2", "label": []},
        {"id": "2", "text": "two", "question": "q1", "label": [1]},
    ]
    reader = vector_reader(LabelSet(SEVERAL, ("x", "y", "z")))
    prepared = reader.prepare({"train": Dataset.from_list(rows)})["train"]
    batch = reader.collate(list(prepared))

    assert next(iter(batch)) == "labels"  # Trainer takes its length for the batch size
    assert batch["document_index"].tolist() == [0, 1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert torch.equal(batch["inputs_embeds"][0], VECTORS["two"])
    assert batch["labels"].is_floating_point()
    assert batch["labels"].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    # The mean of a long question.
    assert batch["pair_embeds"].tolist() == [[0.5, 0.5], [1, 1], [0.5, 0.5]]
