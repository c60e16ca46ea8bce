"""The command line itself: its help, what it refuses before anything is loaded, and the commands it
hands over to."""

import importlib
import inspect
import json
import os
import runpy
import socket
import subprocess
import sys
import time
from dataclasses import fields
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path

import pytest

import nextlevelbert
from nextlevelbert import Document, example_books
from nextlevelbert.command import command as command_line
from nextlevelbert.command import main, run_command
from nextlevelbert.search.reading import ReadingOptions

from ..search.conftest import COURT, KITCHEN, SEA

COMMANDS = ("search", "app", "embed", "fit", "pretrain", "finetune")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--version"],
        ["search", "nowhere", "x"],
        ["pretrain", "--help"],
        ["finetune", "--task", "classification", "--help"],
        ["finetune", "--task", "classification", "--model", "x", "--seeds", "many"],
    ],
)
def test_the_help_loads_nothing_heavy(argv):
    code = (
        "import sys\nsys.argv = ['nextlevelbert']\nfrom nextlevelbert.command import main\n"
        f"try: main({argv})\n"
        "finally: print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    )
    root = Path(nextlevelbert.__file__).parents[1]
    started = time.perf_counter()
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    ).stdout

    # It takes 0.1 s; ten times that if other work keeps the machine busy.
    assert time.perf_counter() - started < 5
    assert printed.endswith("set()\n")


def test_the_start_loads_nothing_that_ctrl_c_could_interrupt():
    """Only `main` can answer Ctrl-C, so what it needs is imported by it."""
    code = (
        "import sys\nsys.argv = ['nextlevelbert']\nbefore = {*sys.modules}\n"
        "import nextlevelbert.command\nprint(sorted({*sys.modules} - before))"
    )
    root = Path(nextlevelbert.__file__).parents[1]

    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=root, text=True)

    assert loaded == "['nextlevelbert', 'nextlevelbert.command']\n"


def test_what_a_command_loads_may_import_the_public_names():
    """Such as a module of one's own for ``--splitter``."""
    code = (
        "import sys\nsys.argv = ['nextlevelbert']\n"
        "from nextlevelbert import Document\nprint(Document('a', 'b'))"
    )
    root = Path(nextlevelbert.__file__).parents[1]

    printed = subprocess.check_output([sys.executable, "-c", code], cwd=root, text=True)

    assert printed == "Document(id='a', 1 characters)\n"


@pytest.mark.parametrize("argv", [[], ["--help"]])
def test_the_help_lists_all_commands(capsys, argv):
    with pytest.raises(SystemExit, match=r"^0$"):
        main(argv)

    printed = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n  {name} " not in printed] == []


def test_the_version_names_what_a_report_needs(command):
    printed = command("--version").out

    assert f"nextlevelbert {version('nextlevelbert')}" in printed
    assert f"torch {version('torch')}" in printed


@pytest.mark.parametrize("name", command_line._COMMANDS)
def test_each_option_is_an_argument_of_the_command(name, books):
    options = [name, str(books)]
    if name == "cache":
        options.pop()
    elif name == "search":
        options.append("whales?")
    elif name == "embed":
        options.extend(["-o", str(books / "output.parquet")])
    elif name == "fit":
        options.extend(["-o", str(books / "output")])
    parsed = set(vars(command_line.command_parser(name).parse_args(options[1:])))
    _, module_name = command_line._COMMANDS[name]
    run = importlib.import_module(module_name).run
    arguments = set(inspect.signature(run).parameters)
    if "reading" in arguments:
        arguments.remove("reading")
        arguments |= {field.name for field in fields(ReadingOptions)}
    if "model" in arguments and name != "fit":
        arguments |= {"chunk_encoder", "device", "dtype"}  # which open the model
    if "rerank" in arguments:
        arguments.add("rerank_depth")  # which a `Reranker` has

    assert parsed == arguments


@pytest.mark.parametrize("name", command_line._COMMANDS)
def test_each_command_is_a_function_with_the_defaults_of_its_options(name):
    """Paths, the question and what is opened from several options have none to compare."""
    parser = command_line.command_parser(name)
    _, module_name = command_line._COMMANDS[name]
    parameters = inspect.signature(importlib.import_module(module_name).run).parameters

    for action in parser._actions:
        if action.dest in parameters and not action.required and action.dest != "model":
            assert parameters[action.dest].default == action.default, action.dest
    assert {"source", "output", "question"}.issuperset(
        name for name, parameter in parameters.items() if parameter.default is parameter.empty
    )


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
        (
            ("search", "books", "whales?", "--passages", "many"),
            "must be a whole number, 0 or more, got",
        ),
        (("app", "books", "--port", "many"), "must be a whole number, got 'many'"),
        (("search", "books", "--autosquash"), "write -- before it"),
        (("search", "books", "whales", "and", "ships"), "quotation marks"),
        (("search", "who hunts", "books"), "The documents come first"),
        (("search", "books/*.tex", "whales?"), "no file or folder matches 'books/*.tex'"),
        (("search", "books", "whales?", "--pasages", "3"), "Did you mean --passages?"),
        (("search", "books", "whales?", "--passage=3"), "Did you mean --passages?"),
        (("search", "books", "whales?", "--top", "3"), "Did you mean --passages?"),
        (("search", "books", "whales?", "-k", "3"), "Did you mean --passages?"),
        (("search", "books", "whales?", "--doc", "3"), "Did you mean --documents?"),
        (("search", "books", "whales?", "--encoder", "x"), "Did you mean --chunk_encoder?"),
        (("search", "books", "whales?", "--max-passages", "x"), "Did you mean --passages?"),
        (("search", "books", "whales?", "--title"), "There is no option --title.\n"),
        (("search", "books", "x", "--foo", "3", "--pasages=1"), "--foo. There is no option --pas"),
        (("serch", "books", "whales?"), "Did you mean search?"),
        (("embed", "books"), "--output"),
        (("embed", "books", "-o", "vectors.txt"), ".parquet"),
        (("fit", "books", "-o", "books"), "exists already"),
        (("finetune", "--task", "clasification"), "Did you mean classification?"),
        (("finetune",), "Give --task, one of classification, multiple_choice"),
        (("pretrain", "nowhere.yaml"), "nowhere.yaml"),
        (("pretrain", "--train_file", "nowhere"), "--train_file: there is no file or folder"),
        (("pretrain", "--model_type", "hat"), "Did you mean hate?"),
        (("pretrain", "--batch_size", "3"), "Did you mean --per_device_train_batch_size?"),
        (("pretrain", "--epochs", "3"), "Did you mean --num_train_epochs?"),
        (("pretrain", "--lr", "3"), "Did you mean --learning_rate?"),
        (("pretrain", "--resume-from-checkpoint", "x"), "an interrupted run resumes"),
        (("pretrain", "--seed", "x"), "must be a whole number, got 'x'"),
        (("pretrain", "--learning_rate", "x"), "must be a number, got 'x'"),
        (("pretrain", "--do_train", "perhaps"), "must be true or false, got 'perhaps'"),
    ],
)
def test_wrong_arguments(command, books, monkeypatch, argv, message):
    monkeypatch.chdir(books.parent)
    said = command(*argv)

    assert (said.status, said.out) == (2, "")
    assert message in said.err


@pytest.mark.parametrize(
    "argv",
    [("search", "blank", "x"), ("embed", "blank", "-o", "x.npy"), ("fit", "blank", "-o", "new")],
)
def test_a_source_without_text_opens_no_model(command, tmp_path, monkeypatch, argv):
    for name in ("store.Store", "embed.run", "fit.run"):
        monkeypatch.setattr(f"nextlevelbert.search.{name}", None)
    monkeypatch.chdir(tmp_path)
    Path("blank").mkdir()
    Path("blank/a.txt").write_bytes(b"")
    Path("blank/b.md").write_text(" \n")

    said = command(*argv)

    assert (said.status, said.out) == (1, "")
    assert "'blank' holds no text. Empty or only white space: a.txt, b.md." in said.err


def test_the_source_is_a_folder_or_a_pattern(command, books, toy):
    answer = command("search", books, "Who hunts?", "--json").json

    rows = sorted(answer["documents"], key=itemgetter("place"))
    assert [row["place"] for row in rows] == ["far/court.txt", "kitchen.txt", "sea.txt"]
    for row, text in zip(rows, (COURT, KITCHEN, SEA), strict=True):
        assert row["characters"] == len(text)
        assert row["chunks"] == toy.plan(text).chunks
    for source in (f"{books}/**/*.txt", f"{books}//"):
        assert command("search", source, "Who hunts?", "--json").json == answer


def test_an_option_may_have_hyphens(command, tmp_path):
    rows = [{"body": SEA, "key": "sea"}, {"body": KITCHEN, "key": "kitchen"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    options = ("--text-column", "body", "--id-column=key", "--json")
    answer = command("search", tmp_path / "rows.jsonl", "whales?", *options).json

    places = [row["place"] for row in answer["documents"]]
    assert sorted(places) == ["rows.jsonl#kitchen", "rows.jsonl#sea"]


def test_the_installed_books_are_a_source(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    answer = command("search", "example-books", "Who hunts the whale?", "--json").json

    assert {row["place"] for row in answer["documents"]} <= set(os.listdir(example_books()))
    assert len(answer["documents"]) == 5


def test_the_manual_of_python_is_a_source(command, monkeypatch):
    """It is read once for a version of Python, and has no file."""
    documents = [Document("manual/lists", SEA), Document("manual/sets", KITCHEN)]
    monkeypatch.setattr("nextlevelbert.data.reading.python_manual", lambda: iter(documents))
    answer = command("search", "python-manual", "Who hunts?", "--json").json

    monkeypatch.setattr("nextlevelbert.data.reading.python_manual", None)
    again = command("search", "python-manual", "Who hunts?", "--json").json

    places = [row["place"] for row in answer["documents"]]
    assert sorted(places) == ["python-manual#manual/lists", "python-manual#manual/sets"]
    assert again == answer


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("pretrain", "nextlevelbert.pretraining.pretrain.pretrain"),
        ("finetune", "nextlevelbert.finetuning.classification.main"),
    ],
)
def test_a_training_gets_the_rest_of_the_line(command, monkeypatch, tmp_path, name, function):
    table = tmp_path / "rows.csv"
    table.write_text("text,label\nThe sea.,a\nShips.,b\nGulls.,a\n")
    argv = [
        "--output_dir",
        "made",
        "--seed",
        "3",
        "--adam-beta1",
        ".8",
        "--no_skip_memory_metrics",
        "--train_file",
        str(table),
    ]
    if name == "finetune":
        argv = ["--task", "classification", "--model", "a b", *argv]
    seen = []
    monkeypatch.setattr(function, lambda options, *_: seen.append(options))

    assert command(name, *argv).status == 0

    [options] = seen
    assert (options["output_dir"], options["seed"], options["adam_beta1"]) == ("made", 3, 0.8)
    assert options["skip_memory_metrics"] is False


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyboardInterrupt(), 130, "\nStopped. Run the same command again to continue.\n"),
        (
            OSError(28, "No space left on device", "x"),
            1,
            "error: [Errno 28] No space left on device: 'x'\n",
        ),
        (
            MemoryError(),
            1,
            "error: There is not enough memory for these documents and this model.\n",
        ),
        (MemoryError("cuda:0 has no memory left"), 1, "error: cuda:0 has no memory left\n"),
    ],
)
def test_what_ends_a_command_is_one_line(command, books, monkeypatch, error, status, line):
    def end(*_):
        raise error

    monkeypatch.setattr("nextlevelbert.search.library.open_store", lambda *_, **__: end())
    said = command("search", books, "whales?")
    assert said.status == status
    assert said.err.removeprefix("Reading with model on cpu in float32.\n") == line


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("no such column"), 1, "error: no such column\n"),
        (ImportError("galore-torch is missing"), 1, "error: galore-torch is missing\n"),
        (KeyboardInterrupt(), 130, "\nStopped. Run the same command again to continue.\n"),
    ],
)
def test_what_a_script_refuses_is_told_without_a_traceback(capsys, error, status, line):
    def work(argv):
        raise error

    assert run_command(work, []) == status

    assert capsys.readouterr().err == line


def test_a_mistake_of_a_script_has_a_traceback():
    with pytest.raises(KeyError):
        run_command(lambda argv: {}["a mistake of ours"], [])


def test_a_closed_stdout_is_no_error(books, tmp_path, monkeypatch):
    """As some supervisors start a program (`>&-`)."""
    monkeypatch.setattr("sys.stdout", None)

    status = main(["search", str(books), "whale", "--cache_dir", str(tmp_path / "cache")])

    assert status == 0
    sys.stdout.close()


@pytest.fixture
def addresses(monkeypatch) -> list[object]:
    """What is connected to or looked up, where the Hub may be asked."""
    asked = list[object]()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: asked.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address: asked.append(address))
    return asked


@pytest.mark.parametrize("name", ["search", "embed", pytest.param("fit", marks=pytest.mark.long)])
def test_a_command_connects_to_nothing(command, books, tmp_path, addresses, name):
    """The model is on this machine."""
    arguments = {
        "search": ["whale"],
        "embed": ["-o", tmp_path / "out.npy"],
        "fit": ["-o", tmp_path / "out"],
    }

    said = command(name, books, *arguments[name])

    assert said.status == 0, said.err
    assert addresses == []


@pytest.mark.long
def test_a_training_connects_to_nothing(command, toy_checkpoint, tmp_path, addresses):
    rows = [{"text": f"{SEA} {index}", "label": index % 2} for index in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    argv = ["--task", "classification", "--model", toy_checkpoint, "--max_steps", "1"]
    files = ["--train_file", tmp_path / "rows.jsonl", "--output_dir", tmp_path / "out"]

    said = command("finetune", *argv, *files)

    assert said.status == 0, said.err
    assert addresses == []
