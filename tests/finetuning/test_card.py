"""The code on a card; the rest of a card is read after the runs of test_classification.py."""

import ast

import pytest

from nextlevelbert.finetuning.card import card_snippet


@pytest.mark.parametrize("family", ["nextlevelbert", "truncated"])
def test_a_document_is_truncated_only_if_its_model_reads_no_more(family):
    code = card_snippet("AutoModelForSequenceClassification", family)

    assert isinstance(ast.parse(code), ast.Module)
    assert ("truncation=True" in code) == (family == "truncated")
    assert code.endswith("scores = model(**document).logits")


def test_answers_have_an_axis_of_their_own():
    code = card_snippet(
        "AutoModelForMultipleChoice", "nextlevelbert", pair='["no", "yes"]', axis="[None]"
    )

    assert isinstance(ast.parse(code), ast.Module)
    assert 'pair = tokenizer(["no", "yes"], padding=True' in code
    assert 'pair_ids = pair["input_ids"][None]' in code
