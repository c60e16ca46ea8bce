"""The options of ``nextlevelbert pretrain`` and ``finetune``, read before torch is imported.

The options are declared as dataclasses in `nextlevelbert`, on top of transformers'
`TrainingArguments`; importing both takes ten seconds. `training_options.json` describes the
dataclasses, so that the help and a mistyped option take a fraction of a second. ``make options``
writes the file, and a test compares it with the dataclasses. The names of all arguments of
transformers are read from the source of the installed version.
"""

from __future__ import annotations

import argparse
import ast
import glob
import importlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .option_files import expand_options_file, with_recipe
from .options import BUNDLED, whole_number
from .parser import Parser, nearest, pop_option

_BASELINES = ("untrained", "tfidf")  # for --model of finetune
_DOCUMENTS = ("train_file", "dataset_name", "corpus_dir")  # of pretrain
DESCRIPTION = Path(__file__).with_name("training_options.json")
_WORDS = {
    **dict.fromkeys(("yes", "true", "t", "y", "1"), True),
    **dict.fromkeys(("no", "false", "f", "n", "0"), False),
}


def check_options(command: str, argv: Sequence[str]) -> list[str]:
    """Prints the help of a training if it is asked for, and refuses wrong options.

    Args:
        command: ``"pretrain"`` or ``"finetune"``.
        argv: the arguments after the command.

    Returns:
        The arguments, with the options of files and recipes in place of the names of these.
    """
    description = json.loads(DESCRIPTION.read_text(encoding="utf-8"))
    tasks = description["commands"][command]
    parser = TrainingParser(prog=f"nextlevelbert {command}")
    try:
        argv = expand_options_file(argv)
        task = ""
        if command == "finetune":
            task, argv = _choose_task(tasks, argv)
        argv = with_recipe(argv, task, default_type=next(iter(tasks[task]["model_types"])))
    except (ValueError, OSError) as error:
        parser.error(str(error))

    parser = training_parser(parser.prog, task, tasks[task], argv, description)
    options = vars(parser.parse_args(argv))
    for name, value in options.items():
        if name.endswith("_file") and value is not None and not _is_source(value):
            parser.error(f"argument --{name}: there is no file or folder {value!r}")
    if not task and not any(options[name] for name in _DOCUMENTS):
        parser.error("Give the documents with --train_file or --dataset_name.")
    only_encodes = not task and options["corpus_dir"] and not options["do_train"]
    if not options["output_dir"] and not only_encodes:
        parser.error("Give a folder to write the model to with --output_dir.")
    if task:
        argv = ["--task", task, *argv]
    return argv


def check_models(command: str, argv: Sequence[str]) -> None:
    """Refuses a model that is not on this machine if asking the Hub fails.

    Raises:
        FileNotFoundError: with the name of the model, and what the option may be.
    """
    names = importlib.import_module("nextlevelbert.models.model_names")
    for option in ("chunk_encoder", "model"):
        name, _ = pop_option(argv, option)
        is_baseline = command == "finetune" and option == "model" and name in _BASELINES
        if not name or is_baseline:
            continue
        try:
            names.model_path(name)
        except FileNotFoundError as error:
            message = f"--{option}: {error}"
            if command == "finetune" and option == "model":
                message += f" It may also be {', '.join(_BASELINES)}."
            raise FileNotFoundError(message) from error


def _is_source(text: str) -> bool:
    return text in BUNDLED or os.path.exists(text) or glob.has_magic(text)


def _choose_task(tasks: dict[str, Any], argv: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the value of ``--task``, and the other arguments."""
    listed = "\n".join(f"  {name:20}{about['aim']}" for name, about in tasks.items())
    parser = Parser(
        prog="nextlevelbert finetune",
        usage="%(prog)s --task TASK [options]",
        description=(
            f"Trains a model on a labelled task.\n\ntasks:\n{listed}\n\n"
            "To see the options of a task: nextlevelbert finetune --task classification --help"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    task, others = pop_option(argv, "task")
    if task == "" and {"-h", "--help"} & set(others):
        parser.print_help()
        raise SystemExit(0)
    if task not in tasks:
        message = f"Give --task, one of {', '.join(tasks)}."
        if task:
            message = f"There is no task {task!r}.{nearest(task, tasks)} {message}"
        parser.error(message)
    return task, others


class TrainingParser(Parser):
    """The parser of a training, which says why an argument of transformers is no option here.

    Args:
        reasons: the arguments that are no options, each with its reason.
        **settings: arguments of `Parser`.
    """

    def __init__(self, reasons: dict[str, str] | None = None, **settings: Any) -> None:
        super().__init__(
            usage="%(prog)s [options]",
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
            **settings,
        )
        self.reasons = reasons or {}

    def describe_option(self, name: str) -> str:
        """Says why a name is no option, or that there is none of that name."""
        reason = self.reasons.get(name.lstrip("-").replace("-", "_"))
        if reason is None:
            return super().describe_option(name)
        return f"{name} is no option here: {reason}."


def training_parser(
    prog: str,
    task: str,
    about: dict[str, Any],
    argv: Sequence[str],
    description: dict[str, Any],
) -> TrainingParser:
    """Builds the parser of a training from the description of its options.

    Args:
        prog: the command.
        task: the task of ``finetune``; empty for ``pretrain``.
        about: what `training_options.json` says about the task.
        argv: the command line, whose ``--model_type`` chooses the options.
        description: the whole of `training_options.json`.
    """
    model_types = about["model_types"]
    given_type, _ = pop_option(argv, "model_type")
    model_type = given_type or next(iter(model_types))
    if task:
        prog = f"{prog} --task {task}"
    if model_type not in model_types:
        parser = TrainingParser(prog=prog)
        parser.error(
            f"argument --model_type: there is no {model_type!r}.{nearest(model_type, model_types)}"
            f" Give one of {', '.join(model_types)}."
        )
    if given_type and task:
        prog = f"{prog} --model_type {model_type}"

    groups = [description["groups"][name] for name in model_types[model_type]]
    reasons = {name: reason for group in groups for name, reason in group["reasons"].items()}
    parser = TrainingParser(reasons, prog=prog, description=about["about"], epilog=about["epilog"])
    for group in groups:
        container = parser.add_argument_group(group["title"])
        for option in group["options"]:
            _add_option(container, **option)
    for option in about["options"]:
        _add_option(parser, **option)
    _add_inherited(parser)
    needed = "--train_file FILE --output_dir FOLDER"
    if task:
        needed = f"--model MODEL {needed}"
    parser.usage = f"{prog} {needed} [options]"
    return parser


def _add_option(container: Any, *, names: list[str], type: str, **settings: Any) -> None:
    """Adds an option as `training_options.json` describes it."""
    if type in _TYPES:
        settings["type"] = _TYPES[type]
    for name in ("default", "help"):
        if settings.get(name) == argparse.SUPPRESS:
            settings[name] = argparse.SUPPRESS  # argparse asks for this object
    container.add_argument(*names, **settings)


def _truth(text: str) -> bool:
    """Reads a truth value in the words that transformers knows."""
    if text.lower() not in _WORDS:
        raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")
    return _WORDS[text.lower()]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from error


_TYPES = {"int": whole_number, "float": _number, "bool": _truth}


def _add_inherited(parser: TrainingParser) -> None:
    """Adds the arguments of transformers that the help does not show, with any values."""
    for name in inherited_arguments():
        if name in parser.reasons:
            continue
        for option in (f"--{name}", f"--no_{name}"):
            if option not in parser._option_string_actions:
                parser.add_argument(option, nargs="*", help=argparse.SUPPRESS)


def inherited_arguments() -> list[str]:
    """Returns the names of all `TrainingArguments`, from transformers' source."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0]) / "training_args.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments":
            fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
            return [ast.unparse(field.target) for field in fields]
    raise ValueError(f"{path} has no class TrainingArguments.")
