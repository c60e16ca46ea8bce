"""The command line itself: its help, what it refuses before anything is loaded, and the commands it
hands over to."""

import importlib
import inspect
import runpy
import subprocess
import sys
import time
from dataclasses import fields
from operator import itemgetter
from pathlib import Path

import pytest

import nextlevelbert_command
from nextlevelbert.search.reading import ReadingOptions

from .conftest import COURT, KITCHEN, SEA

COMMANDS = ("search", "app", "embed", "fit", "pretrain", "finetune", "convert")


@pytest.mark.parametrize("argv", [["--help"], ["search", "--help"], ["search", "nowhere", "x"]])
def test_the_help_loads_nothing_heavy(argv):
    code = (
        "import sys, nextlevelbert_command\n"
        f"try: nextlevelbert_command.main({argv})\n"
        "finally: print({'torch', 'transformers', 'numpy', 'nextlevelbert'} & set(sys.modules))"
    )
    root = Path(nextlevelbert_command.__file__).parents[1]
    started = time.perf_counter()
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    ).stdout
    # It takes 0.1 s; ten times that if other work keeps the machine busy.
    assert time.perf_counter() - started < 5
    assert printed.endswith("set()\n")


def test_the_help_lists_all_commands(capsys):
    with pytest.raises(SystemExit):
        nextlevelbert_command.main(["--help"])
    printed = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n    {name} " not in printed] == []


@pytest.mark.parametrize("name", nextlevelbert_command._COMMANDS)
def test_each_option_is_an_argument_of_the_command(name, books):
    options = [name, str(books)]
    if name == "search":
        options.append("whales?")
    elif name == "embed":
        options.extend(["-o", str(books / "output.parquet")])
    elif name == "fit":
        options.extend(["-o", str(books / "output")])
    parsed = set(vars(nextlevelbert_command.build_parser().parse_args(options)))
    _, module_name = nextlevelbert_command._COMMANDS[name]
    run = importlib.import_module(module_name).run
    arguments = set(inspect.signature(run).parameters) - {"public"}
    if "reading" in arguments:
        arguments.remove("reading")
        arguments |= {field.name for field in fields(ReadingOptions)}
    if "model" in arguments and name != "fit":
        arguments |= {"chunk_encoder", "device", "dtype"}  # which open the model
    assert parsed == arguments | {"command"}


def test_python_m(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["nextlevelbert", "search", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("nextlevelbert", run_name="__main__")
    assert "Scores are relative to the folder" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("look", "books"), "look"),
        (("search", "nowhere", "whales?"), "nowhere"),
        (("search", "books", "whales?", "--passages", "many"), "many"),
        (("search", "books", "--autosquash"), "write -- before it"),
        (("embed", "books"), "--output"),
        (("embed", "books", "-o", "vectors.csv"), ".parquet"),
    ],
)
def test_wrong_arguments(command, books, monkeypatch, argv, message):
    monkeypatch.chdir(books.parent)
    said = command(*argv)
    assert (said.status, said.out) == (2, "")
    assert message in said.err


def test_the_source_is_a_folder_or_a_pattern(command, books, toy):
    answer = command("search", books, "Who hunts?", "--json").json

    rows = sorted(answer["documents"], key=itemgetter("place"))
    assert [row["place"] for row in rows] == ["far/court.txt", "kitchen.txt", "sea.txt"]
    for row, text in zip(rows, (COURT, KITCHEN, SEA), strict=True):
        assert row["characters"] == len(text)
        assert row["chunks"] == toy.plan(text).chunks
    for source in (f"{books}/**/*.txt", f"{books}//"):
        assert command("search", source, "Who hunts?", "--json").json == answer


@pytest.mark.parametrize("name", nextlevelbert_command._DELEGATED)
def test_the_other_commands_get_the_rest_of_the_line(command, monkeypatch, name):
    seen = []
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(
        f"{nextlevelbert_command._DELEGATED[name][0]}.main", lambda: seen.append(sys.argv)
    )
    assert command(name, "--help", "-x", "a b").status == 0
    assert seen == [[f"nextlevelbert {name}", "--help", "-x", "a b"]]


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyboardInterrupt(), 130, "\nStopped. Run the same command again to continue.\n"),
        (
            OSError(28, "No space left on device", "x"),
            1,
            "error: [Errno 28] No space left on device: 'x'\n",
        ),
    ],
)
def test_what_ends_a_command_is_one_line(command, books, monkeypatch, error, status, line):
    def end(*_):
        raise error

    monkeypatch.setattr("nextlevelbert.search.library.open_shelf", lambda *_, **__: end())
    said = command("search", books, "whales?")
    assert said.status == status
    assert said.err.removeprefix("Reading with model on cpu in float32.\n") == line
