"""Batches of labelled vectors."""

import pytest
import torch

from nextlevelbert import DataCollatorForDocumentChoice, DataCollatorForLabelledVectors


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


def test_a_document_of_several_questions_is_in_a_batch_once():
    vectors = {"emma": torch.ones(2, 3), "ulysses": torch.zeros(1, 3)}
    questions = torch.arange(9.0).reshape(3, 3)
    rows = []
    for name, question in zip(["emma", "ulysses", "emma"], questions, strict=True):
        rows.append(
            {"document": name, "inputs_embeds": vectors[name], "pair_embeds": question, "label": 1}
        )

    batch = DataCollatorForLabelledVectors()(rows)

    assert batch["document_index"].tolist() == [0, 1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    assert batch["inputs_embeds"].shape == (2, 2, 3)
    assert torch.equal(batch["pair_embeds"], questions)


@pytest.mark.parametrize("columns", ["article question options answer", "text label"])
def test_a_row_of_other_columns_is_named(columns):
    row = dict.fromkeys(columns.split(), "x")

    with pytest.raises(ValueError, match=f"{', '.join(sorted(row))}. .* needs text, question"):
        DataCollatorForDocumentChoice(tokenizer=None)([row])


@pytest.mark.parametrize(
    ("collator", "row"),
    [
        (DataCollatorForLabelledVectors(), {"inputs_embeds": torch.ones(1, 2)}),
        (
            DataCollatorForDocumentChoice(tokenizer=None),
            {"text": "a", "question": "b", "choices": ["c", "d"]},
        ),
    ],
)
def test_a_label_that_is_a_letter_is_refused(collator, row):
    with pytest.raises(ValueError, match=r"must be a number, from 0; got 'C' .*Use"):
        collator([{**row, "label": "C"}])
