"""What ``nextlevelbert pretrain`` and ``finetune`` share: the check of their command lines.

The options are fields of dataclasses in `nextlevelbert`, in files that import neither torch nor
transformers. transformers is imported only if a command line names another option.
"""

from __future__ import annotations

import argparse
import glob
import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from ..training.options import pop_option
from .option_files import expand_options_file, with_recipe
from .options import BUNDLED, whole_number
from .parser import Parser, nearest

_BASELINES = ("untrained", "tfidf")  # for --model of finetune
_DOCUMENTS = ("train_file", "dataset_name", "corpus_dir")
_WORDS = {
    **dict.fromkeys(("yes", "true", "t", "y", "1"), True),
    **dict.fromkeys(("no", "false", "f", "n", "0"), False),
}


class TrainingParser(Parser):
    """A parser of the options that dataclasses declare, and of other arguments of transformers.

    Args:
        prog: the command.
        about: what the command does, for the help.
        groups: the dataclasses.
    """

    def __init__(self, prog: str, about: str = "", groups: Sequence[type[Any]] = ()) -> None:
        super().__init__(
            prog=prog,
            usage=f"{prog} [options]",
            description=about,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        self._reasons: dict[str, str] = {}
        for group in groups:
            container = self.add_argument_group(group._argument_group_name)
            for option in fields(group):
                if "reason" in option.metadata:
                    self._reasons[option.name] = option.metadata["reason"]
                elif option.init:
                    _add_option(container, option)
        self.add_argument(
            "--recipe",
            choices=["paper"],
            default=argparse.SUPPRESS,
            help=(
                "Use the settings of the paper on this --model_type; the options that you give"
                " override them."
            ),
        )
        self.epilog = (
            "The other arguments of transformers.TrainingArguments work, except"
            f" --{', --'.join(self._reasons)}. Options may come from a YAML or JSON file at the"
            " beginning: options.yaml --seed 1"
        )

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parses a command line; transformers' own options are looked up only if it has any."""
        _, unknown = self.parse_known_args(args)
        if unknown:
            self._add_inherited()
        return super().parse_args(args, namespace)

    def _add_inherited(self) -> None:
        """Adds the arguments of transformers with any values, which transformers checks itself."""
        inherited = importlib.import_module("transformers").TrainingArguments
        for argument in fields(inherited):
            if argument.name in self._reasons:
                continue
            for option in (f"--{argument.name}", f"--no_{argument.name}"):
                if option not in self._option_string_actions:
                    self.add_argument(option, nargs="*", help=argparse.SUPPRESS)

    def describe_option(self, name: str) -> str:
        """Says why a name is no option, or that there is none of that name."""
        reason = self._reasons.get(name.lstrip("-").replace("-", "_"))
        if reason is None:
            return super().describe_option(name)
        return f"{name} is no option here: {reason}."


def _add_option(container: Any, option: Field[Any]) -> None:
    """Adds an option as a field of a dataclass declares it, in the way of `HfArgumentParser`."""
    settings: dict[str, Any] = {"default": option.default, **option.metadata}
    if option.default_factory is not MISSING:
        settings["default"] = option.default_factory()
    if option.default is MISSING:
        settings["required"] = settings["default"] is MISSING
    if settings["default"] in (None, MISSING):
        settings["default"] = argparse.SUPPRESS  # the help names no default
    if option.type in (bool, bool | None):
        settings |= {"nargs": "?", "const": True}
    elif option.type in (list[int], list[str] | None):
        settings["nargs"] = "+"
    container.add_argument(f"--{option.name}", type=_TYPES.get(option.type, str), **settings)
    if option.default is True:
        settings = {"default": argparse.SUPPRESS, "help": settings["help"]}
        if settings["help"] != argparse.SUPPRESS:
            settings["help"] = f"Turns off --{option.name}."
        container.add_argument(
            f"--no_{option.name}", action="store_false", dest=option.name, **settings
        )


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


_TYPES: dict[Any, Any] = {
    bool: _truth,
    bool | None: _truth,
    float: _number,
    float | None: _number,
    int: whole_number,
    int | None: whole_number,
    list[int]: whole_number,
}


def read_line(prog: str, argv: Sequence[str]) -> list[str]:
    """Replaces a file of options at the beginning of a command line by the options in it."""
    try:
        return expand_options_file(argv)
    except (ValueError, OSError) as error:
        TrainingParser(prog).error(str(error))


def checked_line(
    prog: str,
    argv: Sequence[str],
    about: str,
    groups: Mapping[str, Sequence[type[Any]]],
    task: str = "",
) -> list[str]:
    """Prints the help of a training if it is asked for, and refuses wrong options.

    Args:
        prog: the command.
        argv: the arguments after it.
        about: what the command does, for the help.
        groups: the dataclasses of options by ``--model_type``, the usual one first.
        task: the task of ``finetune``; empty for ``pretrain``.

    Returns:
        The arguments, with the options of a recipe in place of its name.

    Raises:
        FileNotFoundError: for a model that is not on this machine if asking the Hub fails.
    """
    needed = "--train_file FILE --output_dir FOLDER"
    if task:
        needed = f"--model MODEL {needed}"
    model_type, _ = pop_option(argv, "model_type", next(iter(groups)))
    parser = TrainingParser(prog)
    if model_type not in groups:
        parser.error(
            f"argument --model_type: there is no {model_type!r}.{nearest(model_type, groups)} Give"
            f" one of {', '.join(groups)}."
        )
    try:
        argv = with_recipe(argv, f"{task}-{model_type}".removeprefix("-"))
    except ValueError as error:
        parser.error(str(error))

    parser = TrainingParser(prog, about, groups[model_type])
    parser.usage = f"{prog} {needed} [options]"
    options = vars(parser.parse_args(argv))
    _check_paths(parser, options)
    _check_model("chunk_encoder", options)
    baselines: tuple[str, ...] = ()
    if task:
        baselines = _BASELINES
    _check_model("model", options, baselines)
    return list(argv)


def _check_paths(parser: Parser, options: Mapping[str, Any]) -> None:
    """Refuses files that are not there, and a training without documents or an output folder."""
    for name, value in options.items():
        if not name.endswith("_file") or value in BUNDLED:
            continue
        if not os.path.exists(value) and not glob.has_magic(value):
            parser.error(f"argument --{name}: there is no file or folder {value!r}")
    if not any(options.get(name) for name in _DOCUMENTS):
        parser.error("Give the documents with --train_file or --dataset_name.")
    only_encodes = options.get("corpus_dir") and not options["do_train"]
    if not options.get("output_dir") and not only_encodes:
        parser.error("Give a folder to write the model to with --output_dir.")


def _check_model(option: str, options: Mapping[str, Any], others: Sequence[str] = ()) -> None:
    """Refuses a model that is not on this machine if asking the Hub fails.

    Args:
        option: the name of the option.
        options: the values of all options.
        others: values that are no model.
    """
    name = options.get(option)
    if not name or name in others:
        return
    try:
        importlib.import_module("nextlevelbert.models.model_names").model_path(name)
    except FileNotFoundError as error:
        message = f"--{option}: {error}"
        if others:
            message += f" It may also be {', '.join(others)}."
        raise FileNotFoundError(message) from error
