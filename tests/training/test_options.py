"""Options of trainings: dataclasses, values that are refused, and errors."""

from dataclasses import fields
from operator import attrgetter

import pytest
from transformers import TrainingArguments

from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.pretraining.arguments import PretrainingArguments
from nextlevelbert.training.arguments import BaseTrainingArguments, open_config


def test_a_reporting_package_that_is_not_installed():
    with pytest.raises(ValueError, match="--report_to nowhere"):
        BaseTrainingArguments(report_to="nowhere")


@pytest.mark.parametrize("arguments", [PretrainingArguments, FinetuningArguments])
def test_each_argument_of_transformers_is_an_option_or_has_a_reason(arguments):
    names = {*map(attrgetter("name"), fields(TrainingArguments))}
    options = set()
    reasons = set()
    for argument in fields(arguments):
        if argument.init:
            options.add(argument.name)
        if "reason" in argument.metadata:
            reasons.add(argument.name)

    assert names - options == reasons


@pytest.mark.parametrize("others", [(), ("untrained", "sbert")])
def test_a_model_that_cannot_be_opened(others):
    with pytest.raises(ValueError, match="--model 'no/model' cannot be opened") as caught:
        open_config("no/model", others)

    assert "Give the folder of a model" in str(caught.value)
    assert ("It may also be untrained, sbert." in str(caught.value)) == bool(others)
