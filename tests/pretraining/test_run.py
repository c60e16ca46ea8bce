"""The command line of pretraining: what its help shows, what it refuses and how, and options from a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nextlevelbert.pretraining import run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def called(monkeypatch):
    """The options that a command line calls `run` with, by their class."""

    def call(*words: str):
        found = []
        for name, ours in run.PRETRAINING.items():
            replaced = run.Pretraining(ours.description, ours.options, lambda *options: found.extend(options))
            monkeypatch.setitem(run.PRETRAINING, name, replaced)
        monkeypatch.setattr(sys, "argv", ["run_pretraining.py", *map(str, words)])
        run.main()
        return {type(options).__name__: options for options in found}

    return call


@pytest.fixture
def refused(called, capfd):
    """What a command line is told that is refused."""

    def call(*words: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            called(*words)
        assert stopped.value.code == 2
        return capfd.readouterr().err

    return call


def shown(called, capfd, *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        called(*words, "--help")
    assert stopped.value.code == 0
    return capfd.readouterr().out


def test_help_shows_what_the_model_can_use(called, capfd):
    nextlevelbert = shown(called, capfd)
    assert "Pretrains a NextLevelBERT" in nextlevelbert
    assert all(f"\n{title}:\n" in nextlevelbert for title in ("model", "chunk encoder", "objective", "documents"))
    assert "--whiten_chunks" in nextlevelbert
    assert "--objective" in nextlevelbert
    assert "--hidden_size" not in nextlevelbert
    hate = shown(called, capfd, "--model_type", "hate")
    assert "--hidden_size" in hate
    assert "--masking_probability" in hate
    assert "{p_norm,cross_entropy}" in hate
    assert "--whiten_chunks" not in hate
    assert "--objective" not in hate
    cdlm = shown(called, capfd, "--model_type=cdlm")
    assert "--global_attention" in cdlm
    assert "--chunk_encoder" not in cdlm


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--hidden_size 16", "no --hidden_size here; it is an option of --model_type hate"),
        ("--pooling sum", "argument --pooling"),
        ("--model_type hate --loss l1", "argument --loss"),
        ("--model_type hate --pooling residual", "argument --pooling"),
        ("--model_type hate --objective both", "no --objective here; it is an option of --model_type nextlevelbert"),
        (
            "--model_type hate --whiten_chunks",
            "no --whiten_chunks here; it is an option of --model_type nextlevelbert",
        ),
        ("--model_type hate --residual_start 0", "no --residual_start here; it is an option of --model_type next"),
        (
            "--model_type hate --model some/model",
            "no --model here; it is an option of --model_type nextlevelbert, ",
        ),
        ("--global_attention none", "no --global_attention here; it is an option of --model_type cdlm"),
        (
            "--model_type cdlm --train_file a --chunk_size 9 --model b",
            "it is an option of --model_type nextlevelbert, ",
        ),
        ("--model_type cdlm --train_file a", "--model"),
        ("--train_fil a", "no option --train_fil here; did you mean --train_file?"),
        ("--model_type longformer", "--model_type is one of nextlevelbert, hate, cdlm, got 'longformer'"),
        ("--residual_start 1", "--residual_start needs --pooling residual"),
        ("--model_type cdlm --model a --train_file a --dataset_name b", "either --train_file or --dataset_name"),
        ("--dataloader_persistent_workers true --dataloader_num_workers 1", "--dataloader_persistent_workers keeps"),
    ],
)
def test_an_error_comes_before_a_short_usage(refused, words, message):
    told = refused(*words.split())
    assert told.startswith("error: ")
    assert message in told.splitlines()[0]
    assert "usage: run_pretraining.py" in told.splitlines()[1]
    assert len(told.splitlines()) <= 3


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_options_stand_in_a_file_and_the_command_line_overrules_it(called, tmp_path, ending, monkeypatch):
    # A processor without bfloat16 would put bf16 aside.
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    path = tmp_path / f"options.{ending}"
    values = {"model_type": "hate", "hidden_size": 48, "train_file": "books.jsonl", "bf16": True, "seed": 7}
    if ending == "json":
        path.write_text(json.dumps(values))
    else:
        path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items()))
    options = called(path, "--seed", "8", "--output_dir", tmp_path / "out")
    assert options.keys() == {"HateArguments", "MaskingArguments", "CorpusArguments", "PretrainingArguments"}
    assert options["HateArguments"].hidden_size == 48
    assert options["CorpusArguments"].train_file == "books.jsonl"
    assert (options["PretrainingArguments"].bf16, options["PretrainingArguments"].seed) == (True, 8)


def test_every_option_of_a_model_arrives(called, tmp_path):
    options = called("--objective", "both", "--max_segment", "12", "--chunking", "sentences", "--loss", "l2",
                     "--no_include_chunk_encoder", "--output_dir", tmp_path)  # fmt: skip
    assert options["ObjectiveArguments"].objective == "both"
    assert options["ObjectiveArguments"].max_segment == 12
    ours = options["NextLevelBertArguments"]
    assert (ours.chunking, ours.loss, ours.include_chunk_encoder) == ("sentences", "l2", False)


def test_pretraining_loads_no_code_of_tasks_or_fine_tuning():
    code = "import sys, nextlevelbert.pretraining.run; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "nextlevelbert.pretraining.vectors" in loaded.split()
    assert not [
        name for name in loaded.split() if name.startswith(("nextlevelbert.tasks", "nextlevelbert.finetuning"))
    ]
