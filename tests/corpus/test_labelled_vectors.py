"""A corpus with labels, read by a stock `Trainer`."""

from __future__ import annotations

import pytest
import torch
from transformers import Trainer, TrainingArguments

from nextlevelbert import (
    DataCollatorForLabelledVectors,
    Document,
    LabelledVectorDataset,
    NextLevelBertForSequenceClassification,
    encode_corpus,
    load_chunk_encoder,
)

TEXTS = {f"{thing} {n}": f"The {thing} is seen again. " * (3 * n) for thing in ("whale", "train") for n in range(1, 5)}
LABELS = {name: int(name.startswith("train")) for name in reversed(TEXTS)}


@pytest.fixture(scope="module")
def encoder(toy_encoder_path):
    return load_chunk_encoder(toy_encoder_path)


def classifier(encoder, **config):
    torch.manual_seed(0)
    return NextLevelBertForSequenceClassification.from_chunk_encoder(encoder, chunk_size=16, **config).eval()


@pytest.fixture(scope="module")
def corpus(encoder, tmp_path_factory):
    rule = classifier(encoder).config.chunking_rule()
    documents = [Document(name, text) for name, text in {**TEXTS, "unlabelled": "Nothing."}.items()]
    return encode_corpus(documents, encoder, rule, tmp_path_factory.mktemp("labelled") / "corpus", progress=False)


@pytest.mark.parametrize("outputs", [2, 1, 3])
def test_losses_are_those_of_the_texts(encoder, corpus, outputs):
    """Classes, numbers and several labels at once, from vectors as from token ids."""
    kinds = {2: lambda label: label, 1: float, 3: lambda label: [0.0, 1.0, float(label)]}
    labels = {name: kinds[outputs](label) for name, label in LABELS.items()}
    data = LabelledVectorDataset(corpus, labels)
    assert len(data) == len(TEXTS)
    batch = DataCollatorForLabelledVectors()([data[index] for index in range(len(data))])
    assert list(batch) == ["labels", "inputs_embeds", "attention_mask"]
    model = classifier(encoder, num_labels=outputs)
    ids = model.tokenizer([TEXTS[name] for name in labels], return_tensors="pt", padding=True)
    ids.pop("token_type_ids")
    with torch.no_grad():
        stored, read = model(**batch), model(**ids, labels=torch.tensor(list(labels.values())))
    torch.testing.assert_close(stored.loss, read.loss, atol=1e-3, rtol=1e-3)  # stored in half precision
    torch.testing.assert_close(stored.logits, read.logits, atol=2e-3, rtol=1e-2)


def test_a_stock_trainer_learns_without_the_chunk_encoder(encoder, corpus, tmp_path, monkeypatch):
    model, data = classifier(encoder, num_labels=2), LabelledVectorDataset(corpus, LABELS)
    monkeypatch.setattr(type(model.base_model.chunk_encoder), "encode", None)
    monkeypatch.setattr(type(model.base_model.chunk_encoder), "forward", None)
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=30, learning_rate=1e-2, report_to="none", save_strategy="no", use_cpu=True
    )
    trainer = Trainer(model, arguments, DataCollatorForLabelledVectors(), data, data)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.5 * before
    assert trainer.predict(data).label_ids.tolist() == list(LABELS.values())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"whale 1": 0, "a": 1, "b": 1}, r"2 id\(s\) that .* does not, 'a' first"),
        ({}, "got none"),
        ({"whale 1": 0, "whale 2": 1.0}, "got float, int"),
        ({"whale 1": True}, "got bool"),
        ({"whale 1": [0.0, 1.0], "whale 2": [0.0]}, "got 1, 2"),
    ],
)
def test_refused(corpus, labels, message):
    with pytest.raises(ValueError, match=message):
        LabelledVectorDataset(corpus, labels)
