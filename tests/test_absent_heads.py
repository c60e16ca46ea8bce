"""An auto class says in a sentence that a family lacks its head."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoModelForTokenClassification

from nextlevelbert import NextLevelBertForSequenceClassification

from .conftest import toy_config


@pytest.mark.parametrize("auto_class", [AutoModelForCausalLM, AutoModelForTokenClassification])
def test_a_head_that_a_family_lacks_gives_a_sentence(auto_class, toy_checkpoint):
    for fail in (lambda: auto_class.from_pretrained(toy_checkpoint), lambda: auto_class.from_config(toy_config())):
        with pytest.raises(ValueError, match=f"^{auto_class.__name__} has no nextlevelbert. The family has ") as error:
            fail()
        assert "AutoModelForSequenceClassification" in str(error.value)
        assert len(str(error.value)) < 300


def test_a_head_that_a_family_has_is_made_as_before():
    torch.manual_seed(0)
    made = AutoModelForSequenceClassification.from_config(toy_config())
    assert isinstance(made, NextLevelBertForSequenceClassification)
