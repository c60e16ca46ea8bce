"""Options of trainings: dataclasses, values that are refused, and errors."""

from dataclasses import fields
from operator import attrgetter

import pytest
from transformers import TrainingArguments

from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.pretraining.arguments import PretrainingArguments
from nextlevelbert.training.arguments import BaseTrainingArguments, open_config, parse
from nextlevelbert.training.command_line import run_command


def test_a_reporting_package_that_is_not_installed():
    with pytest.raises(ValueError, match="--report_to nowhere"):
        parse((BaseTrainingArguments,), ["--report_to", "nowhere"])


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


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("no such column"), 1), (KeyboardInterrupt(), 130)]
)
def test_what_a_command_refuses_is_told_without_a_traceback(capsys, error, status):
    def main(words):
        raise error

    with pytest.raises(SystemExit, match=f"^{status}$"):
        run_command(main, [])
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(KeyError):
        run_command(lambda words: {}["a mistake of ours"], [])


def test_a_package_that_is_missing_is_an_error_of_one_line(capsys):
    def main(argv):
        raise ImportError("galore-torch is missing")

    with pytest.raises(SystemExit):
        run_command(main, [])

    assert capsys.readouterr().err == "error: galore-torch is missing\n"
