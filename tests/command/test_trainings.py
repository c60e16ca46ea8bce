"""Command lines of trainings: files of options, recipes of the papers, errors and the help."""

import json
import re
from dataclasses import dataclass, field
from typing import Literal

import pytest
import yaml

from nextlevelbert.command import finetune, pretrain
from nextlevelbert.command.option_files import expand_options_file, with_recipe
from nextlevelbert.finetuning.options import GROUPS
from nextlevelbert.training.arguments import BaseTrainingArguments, parse


@dataclass
class Model:
    _argument_group_name = "model"

    model: str = field(metadata={"help": "Folder or name."})
    model_type: Literal["chunkbert", "truncated", "hate"] = "chunkbert"
    chunk_size: int | None = None
    max_training_tokens: int | None = None
    keep_attention_dropout: bool = False


@dataclass
class Arguments(BaseTrainingArguments):
    seeds: list[int] = field(default_factory=lambda: [0])


@pytest.mark.parametrize(("suffix", "dump"), [("yaml", yaml.safe_dump), ("json", json.dumps)])
def test_a_file_stands_for_options_and_those_beside_it_win(tmp_path, suffix, dump, capsys):
    file = tmp_path / f"options.{suffix}"
    values = {
        "model": "m",
        "seeds": [3, 4],
        "use_cpu": True,
        "learning_rate": 1e-3,
        "lr_scheduler_kwargs": {"a": 2},
    }
    file.write_text(dump(values))
    argv = [str(file), *"--learning_rate 2e-3 --chunk-size 12".split()]
    model, args = parse((Model, Arguments), expand_options_file(argv))

    assert (args.seeds, args.learning_rate, args.lr_scheduler_kwargs) == ([3, 4], 2e-3, {"a": 2})
    assert (model.chunk_size, args.use_cpu) == (12, True)
    assert (args.remove_unused_columns, args.weight_decay) == (False, 0.01)

    file.write_text("- 1")
    with pytest.raises(SystemExit, match="2"):
        pretrain.read_options([str(file)])

    assert file.name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (["--sead", "1"], "--sead"),
        (["--see", "1"], "--see"),  # no abbreviations
        (["--chunk_size", "many"], "many"),
        (
            ["--resume_from_checkpoint", "run"],
            "--resume_from_checkpoint",
        ),  # a killed run goes on by itself
        (["--do_predict"], "--do_predict"),  # no more than the sets that are given
        (["--recipe", "book"], "invalid choice: 'book'"),
        ("--recipe paper --model_type hate".split(), "classification-hate"),
        ("--recipe paper --per_device_train_batch_size 3".split(), "batch of 8"),
        (["--train_file", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_the_error_comes_before_the_usage(capsys, tmp_path, words, culprit):
    """Also for options that a file holds."""
    argv = "--model m --model_type chunkbert".split() + words
    file = tmp_path / "options.yaml"
    file.write_text("task: classification")
    for start in (["--task", "classification"], [str(file)]):
        with pytest.raises(SystemExit, match="2"):
            finetune.read_options([*start, *argv])
        error, usage = capsys.readouterr().err.strip().rsplit("\n", 2)[-2:]
        assert re.match(f"error: .*{culprit}", error)
        assert usage.startswith("usage: nextlevelbert finetune")


@pytest.mark.parametrize("name", ["use_liger_kernel", "include_for_metrics"])
@pytest.mark.parametrize(
    ("command", "argv"), [(pretrain, ""), (finetune, "--task classification --model m")]
)
def test_an_argument_of_transformers_that_does_nothing_here_is_refused(capsys, command, argv, name):
    with pytest.raises(SystemExit, match="2"):
        command.read_options([*argv.split(), f"--{name}", "inputs"])

    assert f"--{name} is no option here: " in capsys.readouterr().err


@pytest.mark.parametrize("model_type", GROUPS["classification"])
def test_the_help_shows_few_options_of_transformers_and_describes_them(capsys, model_type):
    argv = ["--task", "classification", "--model_type", model_type, "--help"]

    with pytest.raises(SystemExit, match="0"):
        finetune.read_options(argv)

    help_text = " ".join(capsys.readouterr().out.split())
    assert "--seeds" in help_text
    assert "it replaces --num_train_epochs" in help_text
    assert "adam_beta1" not in help_text
    assert "dataloader_pin_memory" not in help_text  # hidden, and so is what turns it off


def test_a_recipe_stands_in_front_and_its_batch_comes_by_accumulation(capsys):
    argv = "--model m --use_cpu --recipe paper --per_device_train_batch_size=2 --seeds 7".split()
    with_values = with_recipe(argv, "classification-chunkbert")
    model, args = parse((Model, Arguments), with_values)

    assert (model.chunk_size, model.max_training_tokens) == (128, 4096)
    assert (args.learning_rate, args.seeds) == (3e-5, [7])
    assert (args.per_device_train_batch_size, args.gradient_accumulation_steps) == (2, 4)
    assert "ChunkBERT, section 4.3" in capsys.readouterr().err

    argv = "--model m --use_cpu --recipe=paper --model_type truncated".split()
    with_values = with_recipe(argv, "classification-truncated")
    model, args = parse((Model, Arguments), with_values)

    assert (model.chunk_size, args.num_train_epochs) == (None, 20)
    assert args.lr_scheduler_type == "constant"
