"""The command line itself: its help, what it refuses before anything is loaded, and the commands it hands over to."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import nextlevelbert
import nextlevelbert_command

COMMANDS = ("search", "embed", "map", "app", "plan", "pretrain", "finetune", "convert")


def test_the_help_loads_nothing_heavy():
    code = (
        "import sys, nextlevelbert_command\n"
        "try: nextlevelbert_command.main(['--help'])\n"
        "finally: print({'torch', 'transformers', 'numpy', 'nextlevelbert'} & set(sys.modules))"
    )
    root = Path(nextlevelbert_command.__file__).parent
    printed = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True).stdout
    assert printed.endswith("set()\n")
    assert all(f"\n    {name} " in printed for name in COMMANDS)


def test_python_m(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["nextlevelbert", "search", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("nextlevelbert", run_name="__main__")
    said = capsys.readouterr().out
    assert "usage: nextlevelbert search" in said
    assert "The score of a document is the mean of its three best passages." in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "required: COMMAND"),
        (("look", "books"), "invalid choice: 'look'"),
        (("search", "nowhere", "whales?"), "there is no file or folder 'nowhere'"),
        (("search", " ", "whales?"), "there is no file or folder ' '"),
        (("search", "books", " "), "the question is empty"),
        (("search", "books", "whales?", "--passages", "-1"), "'-1' is not a number of results"),
        (("search", "books", "whales?", "--passages", "many"), "'many' is not a number of results"),
        (("embed", "books"), "required: -o/--output"),
        (("embed", "books", "-o", "out.csv"), "'out.csv' must end in .parquet or .npz"),
        (("map", "books", "-o", "out.jpg"), "'out.jpg' must end in .html or .png"),
        (("map", "books", "-o", "nowhere/out.png"), "there is no folder 'nowhere' to write out.png to"),
    ],
)
def test_wrong_words(command, books, monkeypatch, words, message):
    monkeypatch.chdir(books.parent)
    said = command(*words)
    assert (said.status, said.out) == (2, "")
    assert message in said.err


def test_which_model(command, books, monkeypatch, tmp_path):
    """--model, the environment variable, the folder in the current one, the installed one; else an error."""
    monkeypatch.chdir(tmp_path)
    assert "'my-model' cannot be used" in command("plan", books, "--model", "my-model").err
    monkeypatch.setenv("NEXTLEVELBERT_MODEL", "from-the-environment")
    assert "'from-the-environment' cannot be used" in command("plan", books).err
    monkeypatch.delenv("NEXTLEVELBERT_MODEL")
    assert command("plan", books, "--json").json["model"] == nextlevelbert.static_checkpoint()

    def not_installed():
        raise FileNotFoundError("There is none.")

    monkeypatch.setattr("nextlevelbert.commands.opening.static_checkpoint", not_installed)
    said = command("plan", books)
    assert (said.status, said.err) == (
        1,
        "error: There is none. Give it by --model or the variable NEXTLEVELBERT_MODEL.",
    )


def test_models_that_cannot_be_used(command, books, minilm_path, toy_checkpoint, tmp_path):
    from nextlevelbert import NextLevelBertModel

    said = command("search", books, "whales?", "--model", minilm_path)
    assert "it is of the kind 'bert', but nextlevelbert or hate is needed" in said.err
    bare = NextLevelBertModel.from_pretrained(toy_checkpoint)
    tokenizer, encoder = bare.tokenizer, bare.detach_chunk_encoder()
    bare.config.chunk_encoder_name = "no/such-encoder"
    bare.save_pretrained(tmp_path / "bare")
    assert tokenizer is not None
    said = command("search", books, "whales?", "--model", tmp_path / "bare")
    assert "On the command line: --chunk_encoder FOLDER." in said.err
    said = command("search", books, "whales?", "--model", tmp_path / "bare", "--chunk_encoder", minilm_path)
    assert "chunk_encoder_fingerprint" in said.err
    assert encoder.name  # unchanged by all this


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("pretrain", "nextlevelbert.pretraining.main"),
        ("finetune", "nextlevelbert.tasks.main"),
        ("convert", "nextlevelbert.convert.main"),
    ],
)
def test_the_other_commands_get_the_rest_of_the_line(command, monkeypatch, name, target):
    seen = []
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(target, lambda: seen.append(sys.argv))
    assert command(name, "--help", "-x", "a b").status == 0
    assert seen == [[f"nextlevelbert {name}", "--help", "-x", "a b"]]


@pytest.mark.parametrize("name", ["pretrain", "finetune", "convert"])
def test_the_other_commands_have_their_own_help(command, monkeypatch, name):
    monkeypatch.setattr(sys, "argv", [])
    assert f"usage: nextlevelbert {name}" in command(name, "--help").out


def test_interrupted(command, books, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("nextlevelbert.commands.plan.run", interrupt)
    said = command("plan", books)
    assert (said.status, said.err) == (130, "\nStopped. Start the same command again to go on.\n")


def test_a_full_disk_is_one_line(command, books, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "x.parquet")

    monkeypatch.setattr("nextlevelbert.commands.plan.run", full)
    said = command("plan", books)
    assert (said.status, said.err) == (1, "error: [Errno 28] No space left on device: 'x.parquet'\n")
