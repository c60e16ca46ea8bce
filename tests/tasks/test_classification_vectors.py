"""Classifiers over stored chunk vectors: NextLevelBERT and HATE."""

from __future__ import annotations

import json
import re

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from nextlevelbert import (
    HateForSequenceClassification,
    HateModel,
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)
from nextlevelbert.finetuning.adapters import with_lora
from nextlevelbert.tasks.classification.controls import TaskVectors
from nextlevelbert.tasks.classification.data import Example, TaskData
from nextlevelbert.tasks.classification.task import VectorClassification
from nextlevelbert.tasks.classification.vectors import TaskVectorDataset, encode_task, frozen
from nextlevelbert.training.trainer import count_parameters

from ..conftest import toy_config
from ..finetuning_toys import predictions, run_the_card, sea_rows, start, write

FAST = ("--num_train_epochs", "4", "--learning_rate", "3e-3")


def test_a_frozen_encoder_gives_its_own_document_vectors_to_the_head(sea_files, toy_encoder_path, tmp_path, caplog):
    """The toy_checkpoint has dropout, the stored predictions are the head's over the vectors of its `encode`."""
    caplog.set_level("INFO")
    torch.manual_seed(0)
    NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16).save_pretrained(tmp_path / "before")
    start(tmp_path / "head", str(tmp_path / "before"), "--freeze_encoder", "--num_train_epochs", "4", **sea_files)
    settings = json.loads((tmp_path / "head" / "results.json").read_text())["settings"]
    assert (settings["learning_rate"], settings["freeze_encoder"]) == (1e-3, True)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("before", "head"))
    for name, weight in before.items():
        assert torch.equal(weight, after[f"model.{name}"]), name
    head = AutoModelForSequenceClassification.from_pretrained(tmp_path / "head").eval()
    [share] = re.findall(r"seed 0: ([\d,]+) of [\d,]+ parameters are trainable", caplog.text)
    assert int(share.replace(",", "")) == count_parameters(head.classifier)[1]
    assert head.config.encoder_config.hidden_dropout_prob > 0
    vectors = NextLevelBertModel.from_pretrained(tmp_path / "before").encode([row["text"] for row in sea_rows(11, 3)])
    logits = head.classifier(torch.stack([book.document for book in vectors]))
    found = torch.tensor([row["scores"] for row in predictions(tmp_path / "head" / "test_predictions.jsonl")])
    torch.testing.assert_close(logits.softmax(-1), found, atol=1e-5, rtol=0)


def test_a_frozen_encoder_learns_without_dropout(toy_encoder_path):
    model = NextLevelBertForSequenceClassification.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    vectors = torch.randn(2, 5, 32)
    predicting = model.eval()(inputs_embeds=vectors).logits
    assert not torch.allclose(model.train()(inputs_embeds=vectors).logits, predicting, atol=1e-6)
    torch.testing.assert_close(frozen(model).train()(inputs_embeds=vectors).logits, predicting)


@pytest.mark.parametrize("cls", [NextLevelBertForSequenceClassification, NextLevelBertForMultipleChoice])
@pytest.mark.parametrize("targets", [["query", "value"], ["all-linear"]])
def test_adapters_train_less_than_a_tenth(minilm, cls, targets):
    """Of the real size, the frozen chunk encoder not counted."""
    model = cls.from_chunk_encoder(minilm, include_chunk_encoder=False)
    trainable, total = count_parameters(
        with_lora(model, VectorClassification(model="-", train_file="-", lora=True, lora_target_modules=targets))
    )
    assert total > 10_000_000
    assert 0.03 < trainable / total < 0.10


def test_questions_beside_documents(toy_checkpoint, tmp_path):
    """Every document has two questions, and only the question tells the answer; halves of a validation set."""
    made = [
        {"story": row["text"], "asked": f"Is it about {word}?", "answer": word == row["label"]}
        for row in sea_rows(16, 6)
        for word in ("bread", "sea")
    ]
    options = {"--train_file": write(tmp_path / "rows.jsonl", made), "--text_column": "story"}
    options |= {"--validation_file": write(tmp_path / "more.jsonl", made[:12]), "--num_train_epochs": "1"}
    options |= {"--question_column": "asked", "--label_column": "answer"}
    start(tmp_path / "model", toy_checkpoint, "--halve_validation", "--class_weights", **options)
    found = [predictions(tmp_path / "model" / f"{name}_predictions.jsonl") for name in ("validation", "test")]
    assert [len(part) for part in found] == [6, 6]
    assert {row["prediction"] for part in found for row in part} <= {"True", "False"}
    card = (tmp_path / "model" / "README.md").read_text()
    assert "too high" not in card
    assert run_the_card(tmp_path / "model", card).shape == (1, 2)


def test_a_batch_holds_each_document_once():
    task = TaskData(
        "multi_label_classification",
        ["one", "two"],
        [Example("a", 1, label=(0, 2)), Example("b", 0, label=()), Example("c", 1, label=(1,))],
        ("x", "y", "z"),
        "here",
    )
    documents = [torch.ones(1, 2), torch.arange(6.0).reshape(3, 2)]
    pairs = [torch.full((2,), float(n)) for n in range(3)]
    dataset = TaskVectorDataset(task, TaskVectors(documents, pairs))
    batch = dataset.collate([dataset[n] for n in range(3)])
    assert next(iter(batch)) == "document_index"  # Trainer takes its length for the batch size
    assert batch["document_index"].tolist() == [0, 1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    torch.testing.assert_close(batch["inputs_embeds"][0], documents[1])
    assert batch["labels"].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    torch.testing.assert_close(batch["pair_embeds"], torch.stack(pairs))
    model = NextLevelBertForSequenceClassification(toy_config(num_labels=3, text_pair=True))
    with pytest.raises(ValueError, match=r"\[N, 32\]"):
        model(**batch)


def test_long_questions_are_counted_and_empty_ones_named(toy_checkpoint, caplog):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    long = "Is the whale that the captain saw from the harbour larger than the ship? " * 2
    examples = [Example("a", 0, long, label=0), Example("b", 0, "Short?", label=1)]
    task = TaskData("single_label_classification", ["The ship."], examples, ("n", "y"), "here")
    vectors = encode_task(model, task)
    assert "here: 1 of 2 questions are longer than a chunk" in caplog.text
    torch.testing.assert_close(vectors.pairs[0], model.encode(long).plain.mean(0))
    blank = TaskData("regression", ["The ship.", "\u200b"], [Example("a", 0), Example("b", 1)], None, "here")
    with (
        pytest.raises(ValueError, match=r"documents of \['b'\] contain no token"),
        pytest.warns(UserWarning, match="contain no token"),
    ):
        encode_task(model, blank)


@pytest.fixture(scope="module")
def hate(toy_encoder_path, tmp_path_factory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("toy_checkpoint") / "hate"
    model = HateModel.from_chunk_encoder(toy_encoder_path, hidden_size=16, num_hidden_layers=1, chunk_size=16)
    model.save_pretrained(folder)
    return str(folder)


def test_a_hate_learns_and_leaves_a_whole_checkpoint(sea_files, hate, tmp_path):
    start(tmp_path / "model", hate, *FAST, **sea_files)
    results = json.loads((tmp_path / "model" / "results.json").read_text())
    assert results["seeds"]["0"]["accuracy"] > 6 / 11 + 0.1
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert isinstance(model, HateForSequenceClassification)
    found = predictions(tmp_path / "model" / "test_predictions.jsonl")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    batch = tokenizer([row["text"] for row in sea_rows(11, 3)], padding=True, return_tensors="pt")
    expected = torch.tensor([row["scores"] for row in found])
    torch.testing.assert_close(model(**batch).logits.softmax(-1), expected, atol=1e-5, rtol=0)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "HATE (Hierarchical" in card
    assert "NextLevelBERT" not in card


def test_untrained_is_of_the_family_that_was_asked_for(sea_files, toy_encoder_path, tmp_path):
    start(tmp_path / "model", "untrained", "--model_type", "hate", "--chunk_encoder", toy_encoder_path,
          "--num_train_epochs", "1", **sea_files)  # fmt: skip
    assert AutoConfig.from_pretrained(tmp_path / "model").model_type == "hate"


CHOICE = {"id": "1", "text": "A whale.", "question": "Who?", "candidates": ["a whale", "a dog"], "label": 0}


def test_what_a_hate_cannot_do(sea_files, hate, toy_checkpoint, tmp_path):
    choice = [
        "--train_file",
        write(tmp_path / "train.jsonl", [CHOICE]),
        "--validation_file",
        str(tmp_path / "train.jsonl"),
    ]
    columns = ["--question_column", "question", "--candidates_column", "candidates"]
    with pytest.raises(ValueError, match="A hate has no head for this task; give a NextLevelBERT"):
        start(tmp_path / "model", hate, *choice, *columns, task="multiple_choice")
    with pytest.raises(ValueError, match="is a nextlevelbert; give a HATE"):
        start(tmp_path / "model", toy_checkpoint, "--model_type", "hate", **sea_files)


def test_two_classes_by_one_sigmoid(sea_files, toy_checkpoint, tmp_path):
    """Section 3.2 of the NextLevelBERT paper, on MuLD: the second class where the sigmoid is above 0.5."""
    start(tmp_path / "model", toy_checkpoint, *FAST, "--sigmoid", **sea_files)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert (model.config.id2label, model.config.problem_type) == ({0: "sea"}, "multi_label_classification")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    rows = sea_rows(11, 3)
    batch = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    [share] = model(**batch).logits.sigmoid().T.tolist()
    found = predictions(tmp_path / "model" / "test_predictions.jsonl")
    assert [row["scores"][1] for row in found] == pytest.approx(share, abs=1e-5)
    assert [row["prediction"] for row in found] == ["sea" if value > 0.5 else "bread" for value in share]
    labels = torch.tensor([float(row["label"] == "sea") for row in rows])
    results = json.loads((tmp_path / "model" / "results.json").read_text())
    assert results["seeds"]["0"]["loss"] == pytest.approx(
        torch.nn.functional.binary_cross_entropy(torch.tensor(share), labels).item(), abs=1e-4
    )
    right = sum(row["prediction"] == row["label"] for row in found)
    assert results["seeds"]["0"]["accuracy"] == pytest.approx(right / 11)
    with pytest.raises(SystemExit):  # word counts give probabilities of their own
        start(tmp_path / "counts", "tfidf", "--sigmoid", **sea_files)
