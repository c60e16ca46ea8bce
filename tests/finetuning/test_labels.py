"""What models read of labelled documents, what their outputs mean, and scores by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset

from nextlevelbert.finetuning.arguments import (
    FinetuningArguments,
    LoraArguments,
    TextModelArguments,
    VectorModelArguments,
)
from nextlevelbert.finetuning.labels import (
    CHOICE,
    SEVERAL,
    SINGLE,
    LabelSet,
    pair_texts,
    write_predictions,
)
from nextlevelbert.finetuning.token_reader import TokenReader
from nextlevelbert.finetuning.vector_reader import VectorReader

from ..toys.finetuning import predictions

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
        reader = VectorReader(args, labels, options, adapters=LoraArguments())
        reader.source = SimpleNamespace(encode=stored_vectors)
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
    assert next(iter(batch)) == "document_index"  # Trainer takes its length for the batch size
    assert batch["document_index"].tolist() == [0, 1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert torch.equal(batch["inputs_embeds"][0], VECTORS["two"])
    assert batch["labels"].is_floating_point()
    assert batch["labels"].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    # The mean of a long question.
    assert batch["pair_embeds"].tolist() == [[0.5, 0.5], [1, 1], [0.5, 0.5]]


def test_one_output_for_two_classes(vector_reader):
    reader = vector_reader(LabelSet(SINGLE, ("n", "y"), sigmoid=True))
    rows = Dataset.from_list([{"id": "a", "text": "one", "label": 1}])
    prepared = reader.prepare({"train": rows})["train"]
    assert reader.collate(list(prepared))["labels"].tolist() == [[1.0]]


def test_the_texts_beside_a_document():
    assert pair_texts({"text": "x"}) == []
    assert pair_texts({"text": "x", "question": "Who?"}) == ["Who?"]
    row = {"text": "x", "question": "Who is _ ?", "choices": ["Ann", "Bob"]}
    assert pair_texts(row) == ["Who is _ ? Ann", "Who is _ ? Bob"]


@pytest.fixture
def token_reader(encoder, tmp_path):
    options = TextModelArguments(model=encoder, model_type="truncated")
    args = FinetuningArguments(output_dir=str(tmp_path), use_cpu=True)
    return TokenReader(args, LabelSet(SINGLE, ("n", "y")), options)


@pytest.mark.parametrize("keep_end", [False, True])
def test_tokens_are_cut_and_padded_on_the_right(token_reader, keep_end, caplog):
    tokenizer = token_reader.tokenizer
    rows = Dataset.from_list(
        [
            {"id": "a", "text": "two three four", "question": "one", "label": 0},
            {"id": "b", "text": "six", "question": "five", "label": 1},
        ]
    )
    token_reader.reading_limit = token_reader.window = 4
    expected = tokenizer("one two three four")["input_ids"]  # a question before its document
    expected = [*expected[:3], tokenizer.sep_token_id]
    if not keep_end:
        token_reader.family = "chunkbert"
        expected = tokenizer("one two three four")["input_ids"][:4]
    prepared = token_reader.prepare({"train": rows})["train"]
    assert token_reader.is_long["train"].tolist() == [True, False]
    assert "the first 4 tokens of documents are read; 1 are longer" in caplog.text
    batch = token_reader.collate([prepared[0], {"input_ids": [101, 102], "label": 1}])
    assert batch["input_ids"].tolist() == [expected, [101, 102, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch["labels"].tolist() == [0, 1]


def test_a_document_without_a_token_is_refused(token_reader):
    rows = [{"id": "a", "text": "one", "label": 0}, {"id": "b", "text": "\u200b", "label": 1}]
    with pytest.raises(ValueError, match="'b'"):
        token_reader.prepare({"train": Dataset.from_list(rows)})


@pytest.mark.parametrize(
    ("labels", "label", "logits", "expected"),
    [
        (
            LabelSet(SINGLE, ("n", "y")),
            {"label": 1},
            [[0.0, math.log(3)]],
            {"prediction": "y", "label": "y", "scores": [0.25, 0.75]},
        ),
        (
            LabelSet(SEVERAL, ("n", "y")),
            {"label": [0]},
            [[-1.0, 0.0]],
            {"prediction": [], "label": ["n"], "scores": [0.268941, 0.5]},
        ),
        (
            LabelSet(CHOICE, choices=2),
            {},
            [[0.0, math.log(3)]],
            {"prediction": 1, "scores": [0.25, 0.75]},
        ),
    ],
)
def test_predictions_in_words(tmp_path, labels, label, logits, expected):
    data = Dataset.from_list([{"id": "ü", "text": "text", **label}])
    write_predictions(tmp_path / "p.jsonl", data, labels, logits=np.array(logits))
    assert predictions(tmp_path / "p.jsonl") == [{"id": "ü", **expected}]
    assert "ü" in (tmp_path / "p.jsonl").read_text(encoding="utf-8")


def test_scores_of_one_class_worked_by_hand():
    labels = LabelSet(SINGLE, ("n", "y"))
    logits = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 2.0], [5.0, 1.0]])  # says 0, 1, 1, 0
    # Class 1: one found of two, one of two findings right: precision = recall = 1/2; class 0
    # likewise.
    scores = labels.scores(np.array([0, 1, 0, 1]), logits)
    assert scores == {"accuracy": 0.5, "f1": 0.5, "macro_f1": 0.5, "micro_f1": 0.5}


def test_scores_of_several_classes_worked_by_hand():
    labels = LabelSet(SEVERAL, ("n", "y"))
    logits = np.array([[1.0, -1.0], [1.0, 0.3], [-1.0, -1.0]])  # says {0}, {0, 1}, {}
    # Class 0: 2 of 2; class 1: none found of one, one wrong. Micro: 2 right of 3 said and of 3 that
    # are.
    scores = labels.scores(labels.array([[0], [0], [1]]), logits)
    assert scores == pytest.approx({"accuracy": 1 / 3, "macro_f1": 0.5, "micro_f1": 2 / 3})


def test_scores_of_choices():
    labels = LabelSet(CHOICE, choices=4)
    assert labels.scores(np.array([0, 1, 0, 0]), np.eye(4)) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("labels", "rows", "expected"),
    [
        (LabelSet(SEVERAL, ("n", "y")), [[0], [0], [1]], [True, False]),
        (LabelSet(SINGLE, ("n", "y")), [1, 1, 0], [True, True]),
        (LabelSet(CHOICE, choices=3), [1, 1, 0], [True, True, False]),
    ],
)
def test_the_most_frequent_label(labels, rows, expected):
    train = Dataset.from_dict({"label": rows})
    logits = labels.majority_logits(train)
    assert (logits > 0).tolist() == [expected]
    if labels.problem_type != SEVERAL:
        assert logits.argmax() == 1
    single = Dataset.from_dict({"label": rows[:1]})
    assert labels.majority_scores(train, single)["accuracy"] == 1.0
