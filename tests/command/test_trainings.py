"""Command lines of trainings: files of options, recipes of the papers, errors and the help."""

import json
import re

import pytest
import yaml

from nextlevelbert.command import finetune, pretrain
from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.finetuning.options import GROUPS

LINE = "--task classification --model m --dataset_name me/books --output_dir made".split()


@pytest.fixture
def every_model(monkeypatch) -> None:
    """Each name of a model is taken for one that is there."""
    monkeypatch.setattr("nextlevelbert.models.model_names.model_path", str)


@pytest.mark.parametrize(("suffix", "dump"), [("yaml", yaml.safe_dump), ("json", json.dumps)])
@pytest.mark.usefixtures("every_model")
def test_a_file_stands_for_options_and_those_beside_it_win(tmp_path, suffix, dump, capsys):
    file = tmp_path / f"options.{suffix}"
    values = {
        "model_type": "chunkbert",
        "seeds": [3, 4],
        "use_cpu": True,
        "learning_rate": 1e-3,
        "lr_scheduler_kwargs": {"a": 2},
        "adam_beta1": 0.8,
    }
    file.write_text(dump(values))
    argv = [str(file), *LINE, *"--learning_rate 2e-3 --chunk-size 12".split()]

    task, options = finetune.read_options(argv)

    assert task == "classification"
    assert (options["seeds"], options["learning_rate"], options["chunk_size"]) == ([3, 4], 2e-3, 12)
    assert (options["use_cpu"], options["adam_beta1"]) == (True, 0.8)
    shared = {"use_cpu": True, "lr_scheduler_kwargs": options["lr_scheduler_kwargs"]}
    assert FinetuningArguments(**shared).lr_scheduler_kwargs == {"a": 2}


def test_a_file_of_options_must_name_them(tmp_path, capsys):
    file = tmp_path / "options.yaml"
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


@pytest.mark.usefixtures("every_model")
def test_a_recipe_stands_in_front_and_its_batch_comes_by_accumulation(capsys):
    paper = [*LINE, "--recipe", "paper", "--model_type"]
    batch = "--per_device_train_batch_size=2 --seeds 7".split()

    _, chunkbert = finetune.read_options([*paper, "chunkbert", *batch])
    _, truncated = finetune.read_options([*paper, "truncated"])

    assert "ChunkBERT, section 4.3" in capsys.readouterr().err
    assert (chunkbert["chunk_size"], chunkbert["max_training_tokens"]) == (128, 4096)
    assert (chunkbert["learning_rate"], chunkbert["seeds"]) == (3e-5, [7])
    assert chunkbert["per_device_train_batch_size"] == 2
    assert chunkbert["gradient_accumulation_steps"] == 4
    assert "chunk_size" not in truncated
    assert truncated["num_train_epochs"] == 20
    assert truncated["lr_scheduler_type"] == "constant"
