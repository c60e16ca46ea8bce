"""The command line of both scripts: help, errors and files of options."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass, field

import pytest
import yaml
from transformers import TrainingArguments

from nextlevelbert.training.command_line import OptionParser, group_of, peek, stoppable, words_of


@dataclass(kw_only=True)
class Place:
    _argument_group_name = "place"

    city: str = field(metadata={"help": "Where it is."})
    rooms: int = field(default=3, metadata={"help": "How many."})


@dataclass(kw_only=True)
class House(Place):
    _argument_group_name = "house"

    rooms: int = field(default=5, metadata={"help": "How many; default 5."})
    colours: list[str] = field(default_factory=lambda: ["white"], metadata={"help": "Of its walls."})
    garden: bool = field(default=False, metadata={"help": "Whether it has one."})
    cellar: bool = field(default=True, metadata={"help": "Dig one."})

    def __post_init__(self) -> None:
        if self.rooms < 1:
            raise ValueError(f"--rooms must be 1 or more, got {self.rooms}.")


@dataclass(kw_only=True)
class Boat(Place):
    sails: int = field(default=2, metadata={"help": "How many."})


@dataclass
class Training(TrainingArguments):
    _argument_group_name = "training"

    learning_rate: float = field(default=0.5, metadata={"help": "Default 0.5."})


@pytest.fixture
def parser() -> OptionParser:
    return OptionParser((House, Training), "build.py --kind house", "Builds.", {"--kind boat": [Boat]})


def refused(parser: OptionParser, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    with pytest.raises(SystemExit) as stopped:
        parser.read(words_of(words))
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.splitlines()


def test_values_become_objects(parser):
    house, training = parser.read(["--city", "Rome", "--colours", "red", "blue", "--garden", "--learning-rate", "2"])
    assert house == House(city="Rome", colours=["red", "blue"], garden=True)
    assert training.learning_rate == 2.0


def test_a_switch_that_is_on_can_be_turned_off_and_the_help_says_so(parser, capsys):
    house, _ = parser.read(["--city", "Rome", "--no_cellar"])
    assert not house.cellar
    with pytest.raises(SystemExit):
        parser.read(["--help"])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "--cellar Dig one." in lines
    assert "--no_cellar The opposite of --cellar." in lines


def test_options_stand_under_the_title_of_the_class_that_declares_them_first(parser, capsys):
    assert [group_of(House, name) for name in ("city", "rooms", "garden")] == ["place", "place", "house"]
    assert group_of(Training, "learning_rate") == "training"
    assert group_of(Training, "adam_beta1") is None
    with pytest.raises(SystemExit):
        parser.read(["--help"])
    said = capsys.readouterr().out
    place, house, training = (said.index(f"\n{title}:\n") for title in ("place", "house", "training"))
    assert place < said.index("  --city CITY ") < said.index("  --rooms ROOMS ") < house
    assert house < said.index("  --colours COLOURS [COLOURS ...]") < said.index("  --garden   ") < training
    assert said.index("  --learning_rate LEARNING_RATE\n") > training
    # Of options without a title there is one list of names.
    brief = said[said.index("Also accepted") :]
    assert "--adam_beta1 " in brief
    assert said.count("--adam_beta1") == 1
    assert "--learning_rate" not in brief
    assert said.startswith("usage: build.py --kind house --city CITY [further options]\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--city", "Rome", "--sails", "3"), "There is no --sails here; it is an option of --kind boat."),
        (("--city", "Rome", "--colors", "red"), "There is no option --colors here; did you mean --colours?"),
        (("--city", "Rome", "--xyz=3"), "There is no option --xyz here."),
        (("--city", "Rome", "--gard"), "There is no option --gard here; did you mean --garden?"),
        (("--city", "Rome", "--rooms", "0"), "--rooms must be 1 or more, got 0."),
        (("--city", "Rome", "--rooms", "many"), "argument --rooms: invalid int value: 'many'"),
        ((), "the following arguments are required: --city"),
        (("Rome",), "'Rome' does not belong to any option. A file of options must end in .yaml, .yml, .json."),
        (("house.yaml",), "house.yaml cannot be read: "),
    ],
)
def test_an_error_stands_first_and_the_usage_is_short(parser, capsys, words, message):
    error, *usage = refused(parser, capsys, *words)
    assert error.startswith(f"error: {message}")
    assert usage[0].startswith("usage: ")
    assert len(usage) <= 3


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_a_file_says_what_options_say(parser, tmp_path, suffix):
    values = {"city": "Rome", "colours": ["red", "dark blue"], "garden": True, "learning_rate": 1e-4, "rooms": 2,
              "lr_scheduler_kwargs": {"num_cycles": 2}, "run_name": None}  # fmt: skip
    text = json.dumps(values) if suffix == "json" else yaml.safe_dump(values)
    (tmp_path / f"house.{suffix}").write_text(text)
    house, training = parser.read(words_of([str(tmp_path / f"house.{suffix}")]))
    assert house == House(city="Rome", colours=["red", "dark blue"], garden=True, rooms=2)
    assert training.learning_rate == 1e-4
    assert training.lr_scheduler_kwargs == {"num_cycles": 2}


def test_numbers_that_yaml_takes_for_texts_and_options_after_the_file(parser, tmp_path):
    (tmp_path / "house.yaml").write_text("city: Rome\nlearning_rate: 1e-4\nrooms: 2\n")
    house, training = parser.read(words_of([str(tmp_path / "house.yaml"), "--rooms", "7"]))
    assert (house.rooms, training.learning_rate) == (7, 1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("city: Rome\nwindows: 3\n", "There is no option --windows here"),
        ("- city\n- Rome\n", "house.yaml must hold options by name, such as 'seeds: [0, 1]'; got list."),
        ("city: [Rome\n", "house.yaml cannot be read: "),
    ],
)
def test_files_that_are_refused(parser, capsys, tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "house.yaml").write_text(text)
    error, *_ = refused(parser, capsys, "house.yaml")
    assert error.startswith(f"error: {message}")


def test_some_options_are_looked_at_first():
    assert peek(["--task", "ranking", "--model-type=hate", "--help", "--task", "retrieval"], "task", "model_type") == [
        "retrieval",
        "hate",
    ]
    assert peek(["--tasks", "ranking"], "task") == [None]


def test_ctrl_c_ends_with_one_line_that_says_how_to_go_on(capsys):
    @stoppable
    def main():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err.strip() == (
        "Stopped. Start the same command again: it goes on from what is stored."
    )


@pytest.mark.parametrize("module", ["nextlevelbert.tasks", "nextlevelbert.pretraining.run"])
def test_both_scripts_are_stopped_like_that(module, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{module}.words_of", interrupted)
    with pytest.raises(SystemExit) as stopped:
        importlib.import_module(module).main()
    assert stopped.value.code == 130
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


RAISED = """
import sys
from nextlevelbert.training import command_line
from nextlevelbert.data.files import check_source

def main():
    {error}

command_line.stoppable(main)()
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("check_source('no.jsonl')", "error: No file or folder 'no.jsonl'."),
        ("open('gone.txt')", "error: [Errno 2] No such file or directory: 'gone.txt'"),
        ("raise ValueError('of another library')", "Traceback (most recent call last):"),
        ("command_line.words_of([0])", "Traceback (most recent call last):"),  # an AttributeError in this package
    ],
)
def test_what_the_package_raises_is_told_without_a_traceback(error, told, monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    code = compile(RAISED.format(error=error), "script.py", "exec")
    with pytest.raises((ValueError, OSError, AttributeError)) as raised:
        exec(code, {"__name__": "__main__"})
    sys.excepthook(raised.type, raised.value, raised.value.__traceback__)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(told)
    assert (len(said) == 1) == (said[0].startswith("error"))
